//! The word of a slot, and its use by a thread cache: it is independent of segments and contexts.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cachealloc_core::BlockId;
use cachealloc_core::policy::ROUNDED_UP_BYTES_MAX;
use cachealloc_core::rules::{Rule, rule_holds};

/// State and size of the block that starts here, in one word (see `pack`), and its number. The slot
/// stays valid when its segment is removed.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) word: AtomicU64,
    pub(crate) block: AtomicU32,
    /// Distinguishes this allocation from all others at the same address; 0 until requested.
    pub(crate) buffer: AtomicU32,
}

/// Function that made a live block: the two kinds are freed differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `cuMemAlloc`.
    Context,
    /// `cuMemAllocAsync`: from the default pool, or in a capture.
    Stream,
}

pub(crate) const GRANULE_BYTES: u64 = 512;

pub(crate) const FREE: u64 = 0;
pub(crate) const OF_CONTEXT: u64 = 1;
pub(crate) const OF_STREAM: u64 = 2;
/// In a thread cache: the core counts it as allocated, the program does not hold it.
pub(crate) const CACHED: u64 = 3;
/// Claimed by a free that has not published it yet.
pub(crate) const FREEING: u64 = 4;
const STATE_BITS: u32 = 3;
const UNITS_BITS: u32 = 30;
const SLACK_BITS: u32 = 31;
const _: () = assert!(STATE_BITS + UNITS_BITS + SLACK_BITS == 64);
const _: () = assert!(ROUNDED_UP_BYTES_MAX < 1 << SLACK_BITS);

impl Slot {
    #[inline(always)]
    pub(crate) fn block(&self) -> BlockId {
        BlockId(self.block.load(Ordering::Relaxed))
    }

    /// Notes that the block claimed at this word enters a thread cache.
    #[inline(always)]
    pub(crate) fn mark_cached(&self, word: u64) {
        self.expect_state(FREEING, FREEING);
        self.word.store(with_state(word, CACHED), Ordering::Release);
    }

    /// Gives a block of a thread cache to the program. `slack_bytes` is the size of the block
    /// beyond what was requested. Returns `false`, with nothing changed, if no block of this size
    /// is cached here, because its segment was removed.
    #[inline(always)]
    pub(crate) fn occupy_cached(&self, kind: Kind, bytes: u64, slack_bytes: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let expected = pack(CACHED, bytes, 0);
        if (word ^ expected) << SLACK_BITS != 0 && rule_holds(Rule::ClaimBeforeFree) {
            return false;
        }
        self.buffer.store(0, Ordering::Relaxed);
        self.word.store(pack(state_of(kind), bytes, slack_bytes), Ordering::Release);
        true
    }

    /// Checks the state: a transition from any other state gives a block to two owners.
    #[inline]
    pub(crate) fn expect_state(&self, one: u64, other: u64) {
        let now = || state(self.word.load(Ordering::Relaxed));
        let expected = || now() == one || now() == other || !rule_holds(Rule::ClaimBeforeFree);
        debug_assert!(expected(), "a slot in state {}, not {one} or {other}", now());
    }
}

#[inline]
pub(crate) fn state_of(kind: Kind) -> u64 {
    if kind == Kind::Context { OF_CONTEXT } else { OF_STREAM }
}

#[inline]
pub(crate) fn state(word: u64) -> u64 {
    word & ((1 << STATE_BITS) - 1)
}

/// Returns the word of the same block in another state.
#[inline]
fn with_state(word: u64, new: u64) -> u64 {
    word & !((1 << STATE_BITS) - 1) | new
}

/// Packs a word. `slack` is the block's size beyond the request; it saturates.
#[inline]
pub(crate) fn pack(state: u64, bytes: u64, slack: u64) -> u64 {
    let units = bytes / GRANULE_BYTES;
    debug_assert!(units < 1 << UNITS_BITS, "a block of {bytes} bytes");
    let slack = slack.min((1 << SLACK_BITS) - 1);
    state | units << STATE_BITS | slack << (STATE_BITS + UNITS_BITS)
}

#[inline]
pub(crate) fn unpack(word: u64) -> (u64, u64) {
    let units = word >> STATE_BITS & ((1 << UNITS_BITS) - 1);
    (units * GRANULE_BYTES, word >> (STATE_BITS + UNITS_BITS))
}
