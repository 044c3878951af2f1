//! The gate: one word that a call reads first. Its bits are the conditions under which a call needs
//! more than its shortest path, so one load and one comparison show that none of them holds.
//!
//! A bit is the condition itself, not a copy of it, so a change of the condition is one of the
//! word. Three bits stand for more detailed state elsewhere: `Untracked`, `EveryKernelVisible` and
//! `PinnedMemory`. They are set before that state changes for the first time, and never cleared, so
//! a call that finds them clear has nothing to look up (`tests/it/tree/hooks.rs`).
//!
//! A call reads the word once, when it begins. A change that another thread makes meanwhile is one
//! that the program did not order before the call.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::identity::OfOneProcess;

/// A child with a copy of the memory finds zeros, and no shortest path. It begins as zeros, because
/// the kernel wipes no memory that is mapped from a file.
pub(crate) static GATE: OfOneProcess<Line> = OfOneProcess(Line {
    word: AtomicU64::new(0),
    lane_owner: AtomicUsize::new(0),
    record_distance: AtomicUsize::new(0),
    ignores_submissions: AtomicBool::new(false),
});

/// The word, and what else each call reads and few calls write, in one cache line.
#[repr(C, align(64))]
pub(crate) struct Line {
    word: AtomicU64,
    lane_owner: AtomicUsize,
    record_distance: AtomicUsize,
    ignores_submissions: AtomicBool,
}

/// What the library does in this process (`process::bypass`), in the lowest bits of the word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u64)]
pub(crate) enum State {
    Unknown = 0,
    /// The only state with this bit, so that a test of it suffices.
    On = 1,
    Bypass = 2,
    Off = 4,
}

const STATE_MASK: u64 = 7;
pub(crate) const ON: u64 = State::On as u64;

/// Where the shortest path of a launch finds what it reads (`exports::short_launch`).
#[cfg(target_arch = "x86_64")]
pub(crate) mod places {
    use core::mem::offset_of;

    use super::Line;

    pub(crate) const WORD: usize = offset_of!(Line, word);
    pub(crate) const OWNER: usize = offset_of!(Line, lane_owner);
    pub(crate) const IGNORES: usize = offset_of!(Line, ignores_submissions);
}

impl State {
    fn of(word: u64) -> State {
        match word & STATE_MASK {
            0 => State::Unknown,
            ON => State::On,
            2 => State::Bypass,
            _ => State::Off,
        }
    }
}

/// A condition, by the number of its bit. The lowest byte has what every launch asks for, the next
/// one what kernels ask for in addition: launches are the hottest calls, and a comparison of the
/// lowest bits needs no mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Condition {
    /// Anything is recorded.
    Records = 3,
    /// A stream may capture.
    Captures,
    /// A call that names no size has failed for lack of memory, and the library watches which calls
    /// of its thread succeed.
    FailedCall,
    /// Every kernel counts as visible to the host (`Ledger::visible`).
    EveryKernelVisible = 8,
    /// There was pinned memory (`ordering::pinned`).
    PinnedMemory,
    /// A communication library has made memory for itself.
    Communicates,
    /// A test has broken a rule, perhaps one that the shortest path of a launch takes for granted.
    #[cfg(feature = "break-rules")]
    RuleBroken,
    /// The library fills or guards memory: `fill` or `red_zone`.
    WritesBlocks = 16,
    /// Memory is limited on some device.
    Limits,
    /// The driver serves every request.
    CachesNothing,
    /// The library only observes.
    OnlyLooks,
    /// Frees make barriers that they could skip (`skip_barriers`).
    MakesBarriers,
    /// Sizes are rounded to more than units.
    RoundsUp,
    /// An allocation has failed for lack of memory, like `FailedCall`.
    FailedAllocation,
    /// A block of the process was exported.
    Exported,
    /// Work may be submitted that no hook sees (`Ledger::elision`).
    Untracked,
    /// Set where each thread's record is at the same distance from its thread pointer
    /// (`record_distance`): the only condition that the shortest paths need.
    FixedRecords,
    /// A context was lost. Sign-extended to the count of memory hooks in a mask of 32 bits.
    ContextLost = 31,
}

/// Lowest bit of the count of memory hooks in the process, above all conditions.
const MEMORY_HOOK: u64 = 1 << 32;
const MEMORY_HOOKS: u64 = !(MEMORY_HOOK - 1);

/// What leaves no call on its shortest path but a launch.
const UNUSUAL: u64 = STATE_MASK
    | MEMORY_HOOKS
    | any_of([
        Condition::ContextLost,
        Condition::Captures,
        Condition::FailedAllocation,
        Condition::FailedCall,
    ]);
const OF_REQUESTS: u64 = any_of([
    Condition::Records,
    Condition::WritesBlocks,
    Condition::RoundsUp,
    Condition::CachesNothing,
]);
const OF_FREES: u64 = any_of([
    Condition::Records,
    Condition::WritesBlocks,
    Condition::MakesBarriers,
    Condition::Exported,
    Condition::Untracked,
]);

/// What must be set for the shortest paths that use the thread's record.
const NEEDED: u64 = if FIXES_RECORDS { ON | Condition::FixedRecords.bit() } else { ON };
/// Whether records may have a fixed distance (`state::thread`).
pub(crate) const FIXES_RECORDS: bool = cfg!(all(target_arch = "x86_64", not(miri)));

impl Condition {
    /// The conditions that the settings decide.
    const SETTINGS: u64 = any_of([
        Condition::Records,
        Condition::WritesBlocks,
        Condition::Limits,
        Condition::CachesNothing,
        Condition::OnlyLooks,
        Condition::MakesBarriers,
        Condition::RoundsUp,
    ]);

    const fn bit(self) -> u64 {
        1 << self as u32
    }
}

const fn any_of<const N: usize>(conditions: [Condition; N]) -> u64 {
    let (mut bits, mut index) = (0, 0);
    while index < N {
        bits |= conditions[index].bit();
        index += 1;
    }
    bits
}

/// Returns whether no condition holds under which a call is not served as usual.
#[inline(always)]
pub(crate) fn is_usual() -> bool {
    GATE.0.word.load(Ordering::Relaxed) & UNUSUAL == ON
}

/// Returns whether no condition holds under which host memory or pitched memory may not be kept. A
/// call that has failed for lack of memory is none.
pub(crate) fn keeps_other_kinds() -> bool {
    let failed = any_of([Condition::FailedAllocation, Condition::FailedCall]);
    let failed = if rule_holds(Rule::FailureKeepsCaching) { failed } else { 0 };
    GATE.0.word.load(Ordering::Relaxed) & UNUSUAL & !failed == ON
}

/// Returns whether any memory hook is installed in the process.
pub(crate) fn has_memory_hooks() -> bool {
    GATE.0.word.load(Ordering::Relaxed) & MEMORY_HOOKS != 0
}

/// Returns whether a request needs only memory that the cache may have.
#[inline(always)]
pub(crate) fn requests_are_plain() -> bool {
    GATE.0.word.load(Ordering::Acquire) & (UNUSUAL | OF_REQUESTS | NEEDED) == NEEDED
}

/// Returns whether a free only has to find that all work is over.
#[inline(always)]
pub(crate) fn frees_are_plain() -> bool {
    // In the order of the counters that are read next (`Ledger::tracked_is_over`).
    GATE.0.word.load(Ordering::SeqCst) & (UNUSUAL | OF_FREES | NEEDED) == NEEDED
}

/// Returns whether a launch needs only the usual work: it is not recorded, watched or captured.
#[inline(always)]
pub(crate) fn launches_are_plain() -> bool {
    GATE.0.word.load(Ordering::SeqCst) as u8 == ON as u8
}

/// Returns whether, in addition, the host can see nothing of what a kernel does.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn kernels_are_plain() -> bool {
    GATE.0.word.load(Ordering::SeqCst) as u16 == ON as u16
}

/// Returns whether a request is only for memory, as far as the settings decide.
#[inline(always)]
pub(crate) fn allocates_simply() -> bool {
    GATE.0.word.load(Ordering::Relaxed) & OF_REQUESTS == 0
}

#[inline(always)]
pub(crate) fn has(condition: Condition) -> bool {
    GATE.0.word.load(Ordering::Acquire) & condition.bit() != 0
}

/// Sets a condition. Returns whether it was clear.
pub(crate) fn set(condition: Condition) -> bool {
    // Kernels with a pinned argument repeat theirs: no write once it is set.
    let bit = condition.bit();
    GATE.0.word.load(Ordering::SeqCst) & bit == 0
        && GATE.0.word.fetch_or(bit, Ordering::SeqCst) & bit == 0
}

pub(crate) fn clear(condition: Condition) {
    GATE.0.word.fetch_and(!condition.bit(), Ordering::SeqCst);
}

pub(crate) fn change(condition: Condition, holds: bool) {
    if holds {
        set(condition);
    } else {
        clear(condition);
    }
}

pub(crate) fn add_memory_hook() {
    GATE.0.word.fetch_add(MEMORY_HOOK, Ordering::SeqCst);
}

pub(crate) fn remove_memory_hook() {
    GATE.0.word.fetch_sub(MEMORY_HOOK, Ordering::SeqCst);
}

/// Returns whether the state is `On`.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    GATE.0.word.load(Ordering::Relaxed) & ON != 0
}

pub(crate) fn state() -> State {
    State::of(GATE.0.word.load(Ordering::Relaxed))
}

/// Changes the state to what `next` returns for it, if anything. Returns the state before, in `Err`
/// if it stays.
pub(crate) fn change_state(next: impl Fn(State) -> Option<State>) -> Result<State, State> {
    let change = |word: u64| Some(word & !STATE_MASK | next(State::of(word))? as u64);
    let before = GATE.0.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    before.map(State::of).map_err(State::of)
}

/// Makes the state `Off`. Only the settings stay.
pub(crate) fn turn_off() {
    let off = |word: u64| Some(word & Condition::SETTINGS | State::Off as u64);
    let _ = GATE.0.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, off);
}

/// Returns the distance of each thread's record from its thread pointer, or 0 if it is not known.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn record_distance() -> usize {
    GATE.0.record_distance.load(Ordering::Relaxed)
}

/// Notes this distance.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn fix_records(distance: usize) {
    GATE.0.record_distance.store(distance, Ordering::Relaxed);
    set(Condition::FixedRecords);
}

/// Returns the place of the thread that owns a lane (`state::thread`).
#[inline(always)]
pub(crate) fn lane_owner() -> &'static AtomicUsize {
    &GATE.0.lane_owner
}

/// Returns whether submissions must be attributed to contexts, because more than one context may
/// submit. Otherwise they all belong to the only one. It is no condition of the word: a submission
/// asks after it was counted (`ordering::submissions`).
#[inline(always)]
pub(crate) fn watches_submissions(order: Ordering) -> bool {
    !GATE.0.ignores_submissions.load(order)
}

pub(crate) fn watch_submissions(watches: bool) {
    GATE.0.ignores_submissions.store(!watches, Ordering::SeqCst);
}

/// Lets children with a copy of the memory find the word zeroed.
pub(crate) fn wipe_in_children() {
    GATE.wipe_in_children();
}
