//! The slot of a block: the only authority on what the program holds. A free claims it by a
//! compare-exchange, so the second of two frees fails. The core keeps the same block in its own
//! tables; each transition states the order of the two updates.

use core::ptr::eq;
use std::sync::atomic::{AtomicU32, Ordering};

use cachealloc_core::BlockId;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::config;
use crate::pagemap::{Extent, Place, extent_near, find};
use crate::state::contexts::Context;
use crate::state::slot::{
    CACHED, FREE, FREEING, Kind, OF_CONTEXT, OF_STREAM, Slot, pack, state, state_of, unpack,
};
use crate::state::thread::Thread;
use crate::test_delay::test_delay;

/// A block made by `cuMemAlloc` that a free has claimed, and the word of its slot before.
#[derive(Clone, Copy)]
pub(crate) struct Claimed {
    pub extent: &'static Extent,
    pub slot: &'static Slot,
    pub word: u64,
}

/// A block that the program holds, as its slot described it.
#[derive(Clone, Copy)]
pub(crate) struct LiveBlock {
    pub extent: &'static Extent,
    pub address: u64,
    pub kind: Kind,
    pub bytes: u64,
    pub requested_bytes: u64,
    pub block: BlockId,
    word: u64,
    slot: &'static Slot,
}

/// Base of the library's ids, far above the driver's, which count up from small numbers.
const BUFFER_IDS: u64 = 1 << 48;
/// Bits of `Slot::buffer` that are not part of the id.
const SYNC_MEMOPS: u32 = 1 << 31;
const OTHER_STREAMS: u32 = 1 << 30;
const FLAGS: u32 = SYNC_MEMOPS | OTHER_STREAMS;

impl Slot {
    /// Returns what the slot of this address of the segment describes.
    #[inline]
    pub(super) fn place(&'static self, extent: &'static Extent, address: u64) -> Place {
        let word = self.word.load(Ordering::Acquire);
        let kind = match state(word) {
            OF_CONTEXT => Kind::Context,
            OF_STREAM => Kind::Stream,
            _ => return Place::Inside,
        };
        Place::Block(self.describe(extent, address, kind, word))
    }

    #[inline(always)]
    fn describe(
        &'static self,
        extent: &'static Extent,
        address: u64,
        kind: Kind,
        word: u64,
    ) -> LiveBlock {
        let (bytes, slack) = unpack(word);
        let requested_bytes = bytes - slack;
        let block = self.block();
        LiveBlock { extent, address, kind, bytes, requested_bytes, block, word, slot: self }
    }

    /// `claim` without `Rule::ClaimBeforeFree`: two frees of one block may both succeed.
    #[cold]
    fn claim_unguarded(&self, freeing: u64) -> bool {
        test_delay(Rule::ClaimBeforeFree);
        self.word.store(freeing, Ordering::Release);
        true
    }

    /// Takes the block from the program. Only one of several frees of a block succeeds.
    #[inline(always)]
    fn claim(&self, word: u64) -> bool {
        let freeing = word - state(word) + FREEING;
        if !rule_holds(Rule::ClaimBeforeFree) {
            return self.claim_unguarded(freeing);
        }
        self.word.compare_exchange(word, freeing, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl LiveBlock {
    pub(crate) fn context(&self) -> &'static Context {
        self.extent.context()
    }

    /// Returns an id that no other allocation of the process has, as `BUFFER_ID` promises.
    pub(crate) fn buffer_id(&self) -> u64 {
        let buffer = &self.slot.buffer;
        let number = buffer.load(Ordering::Relaxed) & !FLAGS;
        if number != 0 {
            return BUFFER_IDS + u64::from(number);
        }
        let fresh = next_buffer();
        let give = |found| (found & !FLAGS == 0).then_some(found | fresh);
        match buffer.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give) {
            Ok(_) => BUFFER_IDS + u64::from(fresh),
            Err(found) => BUFFER_IDS + u64::from(found & !FLAGS),
        }
    }

    /// Returns the program's `SYNC_MEMOPS` attribute for this allocation. It ends with the
    /// allocation; the driver's own attribute would stay with the segment.
    pub(crate) fn sync_memops(&self) -> bool {
        self.slot.buffer.load(Ordering::Relaxed) & SYNC_MEMOPS != 0
    }

    pub(crate) fn set_sync_memops(&self, on: bool) {
        let buffer = &self.slot.buffer;
        if on {
            buffer.fetch_or(SYNC_MEMOPS, Ordering::Relaxed);
        } else {
            buffer.fetch_and(!SYNC_MEMOPS, Ordering::Relaxed);
        }
    }

    /// Notes that the program uses the block on streams other than that of its free.
    pub(crate) fn note_other_stream(&self) {
        self.slot.buffer.fetch_or(OTHER_STREAMS, Ordering::Relaxed);
    }

    pub(crate) fn is_on_other_streams(&self) -> bool {
        self.slot.buffer.load(Ordering::Relaxed) & OTHER_STREAMS != 0
    }

    /// Takes the block from the program. Returns `false` if another free did so first.
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        let offset = self.address.wrapping_sub(self.extent.base());
        let claim = |slot: &Slot| {
            let is_claimed = core::ptr::eq(slot, self.slot) && slot.claim(self.word);
            is_claimed.then_some(self.word)
        };
        self.extent.claim_at(offset, claim).is_some()
    }

    /// Returns the slot of the block.
    #[inline]
    pub(crate) fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// Returns the block to the program after a failed free.
    pub(crate) fn give_back(&self) {
        self.slot.expect_state(FREEING, FREEING);
        self.slot.word.store(self.word, Ordering::Release);
    }

    /// Notes that the claimed block enters a thread cache.
    #[inline]
    pub(crate) fn mark_cached(&self) {
        self.slot.mark_cached(self.word);
    }

    /// Empties the slot of the claimed block, which goes to the core. Saves the lookup that the
    /// function `vacate` needs.
    #[inline]
    pub(crate) fn vacate(&self) {
        // Not if the segment was removed with its context.
        if let Some(offset) = self.extent.offset_of(self.address) {
            empty(self.extent, offset, self.slot);
        }
    }

    /// Bytes requested from the cache, including the red zone after the block.
    #[inline]
    pub(crate) fn requested(&self) -> u64 {
        self.requested_bytes + config::zone_bytes()
    }
}

/// Returns a new id for `LiveBlock::buffer_id`.
pub(crate) fn fresh_buffer_id() -> u64 {
    BUFFER_IDS + u64::from(next_buffer())
}

fn next_buffer() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    match NEXT.fetch_add(1, Ordering::Relaxed) & !FLAGS {
        0 => next_buffer(), // 0 means "not asked yet"
        number => number,
    }
}

impl Claimed {
    /// Claims the block that begins at this address, if it was made by `cuMemAlloc` and the program
    /// holds it. The thread must remember where its segment is found (`is_near`).
    #[inline(always)]
    pub(crate) fn near(thread: &Thread, address: u64) -> Option<Claimed> {
        // Past the end of a segment, no slot holds the start of a block.
        let extent = extent_near(thread, address)?;
        let claim = |slot: &Slot| {
            let word = slot.word.load(Ordering::Acquire);
            (state(word) == OF_CONTEXT && slot.claim(word)).then_some(word)
        };
        let (slot, word) = extent.claim_at(address.wrapping_sub(extent.base()), claim)?;
        Some(Claimed { extent, slot, word })
    }

    /// Returns its bytes, and how many of them were not requested.
    #[inline(always)]
    pub(crate) fn sizes(self) -> (u64, u64) {
        unpack(self.word)
    }

    /// Returns the block, which begins at this address.
    #[inline(always)]
    pub(crate) fn block(self, address: u64) -> LiveBlock {
        self.slot.describe(self.extent, address, Kind::Context, self.word)
    }
}

/// Gives a block of the core to the program. The caller must hold the allocator's lock.
#[inline(always)]
pub(crate) fn occupy(address: u64, kind: Kind, bytes: u64, requested_bytes: u64, block: BlockId) {
    let slot = find(address).and_then(|(extent, offset)| extent.take_slot(offset));
    let Some(slot) = slot else { no_slot(address) };
    slot.expect_state(FREE, FREE);
    slot.block.store(block.0, Ordering::Relaxed);
    slot.buffer.store(0, Ordering::Relaxed);
    slot.word.store(pack(state_of(kind), bytes, bytes - requested_bytes), Ordering::Release);
}

#[cold]
#[inline(never)]
fn no_slot(address: u64) -> ! {
    panic!("no block can begin at {address:#x}")
}

/// Empties the slot of a block that the program has freed.
pub(crate) fn vacate(address: u64) {
    if let Some((extent, offset)) = find(address)
        && let Some(slot) = extent.slot_at(offset)
    {
        empty(extent, offset, slot);
    }
}

/// Empties the slot of a block that moves from a thread cache of this context to the core. If the
/// context has ended in the driver, the address may be another context's by now.
pub(crate) fn vacate_of(context: &Context, address: u64) {
    let is_own = |(extent, _): (&Extent, u64)| eq(extent.context(), context);
    if find(address).is_some_and(is_own) || !rule_holds(Rule::OwnSlotsAreVacated) {
        vacate(address);
    }
}

/// Empties the slot of a block that has ended.
#[inline]
fn empty(extent: &'static Extent, offset: u64, slot: &Slot) {
    slot.expect_state(FREEING, CACHED);
    slot.word.store(FREE, Ordering::Release);
    extent.leave_slot(offset, slot);
}
