//! The states in which the library does less, in one word that every hook reads first.
//!
//! * *off*: `CACHEALLOC=0`, or a child forked after CUDA was started: every call is passed to the
//!   driver.
//! * *bypass*: the library failed internally, or the driver lacks a function that it needs.
//!   Allocations go to the driver. Frees of the library's blocks are accepted, and the blocks are
//!   never reused. Every other call is passed on.
//!
//! The bits above the state count the memory hooks of the process: without one, the hooks of driver
//! functions cost only the test that they make anyway.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::config::environment;
use crate::driver::libraries;
use crate::identity::OfOneProcess;
use crate::log::stderr;
use crate::{config, identity, log};

const UNKNOWN: u32 = 0;
const ON: u32 = 1;
const BYPASS: u32 = 2;
const OFF: u32 = 3;
/// The bits of the word that hold the state.
const STATE_MASK: u32 = 0xff;
const MEMORY_HOOK: u32 = STATE_MASK + 1;
/// Flag above the count: a context was lost.
const CONTEXT_LOST: u32 = 1 << 31;
/// Flag: a stream captures.
const CAPTURING: u32 = 1 << 30;
/// Flags: a call of this kind has failed for lack of memory, and the library watches which calls of
/// its thread succeed.
const FAILED_ALLOCATION: u32 = 1 << 29;
const FAILED_CALL: u32 = 1 << 28;

static STATE: OfOneProcess<AtomicU32> = OfOneProcess(AtomicU32::new(UNKNOWN));

/// Returns whether hooks should do their work.
#[inline(always)]
pub(crate) fn is_caching() -> bool {
    STATE.0.load(Ordering::Relaxed) == ON || is_caching_slow()
}

/// Returns whether hooks should do their work and no special case applies: no memory hook, no lost
/// context, no capture, no open failure.
#[inline(always)]
pub(crate) fn is_fast_path() -> bool {
    STATE.0.load(Ordering::Relaxed) == ON
}

/// Counts a new memory hook of the process.
pub(crate) fn add_memory_hook() {
    STATE.0.fetch_add(MEMORY_HOOK, Ordering::Relaxed);
}

/// Uncounts a memory hook of the process.
pub(crate) fn remove_memory_hook() {
    STATE.0.fetch_sub(MEMORY_HOOK, Ordering::Relaxed);
}

/// Makes every later call take the path of observed calls, which may have to query the driver more
/// often.
pub(crate) fn leave_fast_path() {
    STATE.0.fetch_or(CONTEXT_LOST, Ordering::Relaxed);
}

/// Notes whether any stream captures.
pub(crate) fn note_captures(any: bool) {
    match any {
        true => STATE.0.fetch_or(CAPTURING, Ordering::Relaxed),
        false => STATE.0.fetch_and(!CAPTURING, Ordering::Relaxed),
    };
    config::launches_change();
}

/// The kinds of calls that fail for lack of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failing {
    /// An allocation, which names a size.
    Allocation,
    /// A launch, the load of a module, or another call that names no size.
    Call,
}

impl Failing {
    const fn flag(self) -> u32 {
        match self {
            Failing::Allocation => FAILED_ALLOCATION,
            Failing::Call => FAILED_CALL,
        }
    }
}

/// Notes whether a call of this kind has failed for lack of memory and that failure is still open.
pub(crate) fn note_failures(kind: Failing, any: bool) {
    match any {
        true => STATE.0.fetch_or(kind.flag(), Ordering::Relaxed),
        false => STATE.0.fetch_and(!kind.flag(), Ordering::Relaxed),
    };
    config::launches_change();
}

#[inline]
pub(crate) fn has_failures(kind: Failing) -> bool {
    STATE.0.load(Ordering::Relaxed) & kind.flag() != 0
}

/// Returns whether every call is passed to the driver unchanged.
#[inline]
pub(crate) fn is_switched_off() -> bool {
    state() == OFF
}

/// Ends caching for the rest of the process and reports the reason, once.
#[cold]
pub(crate) fn begin(reason: fmt::Arguments) {
    let worse = |word: u32| (word & STATE_MASK < BYPASS).then_some(word & !STATE_MASK | BYPASS);
    if STATE.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, worse).is_ok() {
        config::launches_change();
        log::warn(format_args!("{reason}; caching is off for the rest of this process"));
    }
}

/// Notes that CUDA was started in this process. A child created by a direct system call, without
/// the C library's `fork`, finds the state unknown and is switched off.
pub(crate) fn begin_here() {
    STATE.wipe_in_children();
}

/// Passes every later call to the driver. For a forked child.
pub(crate) fn turn_off() {
    STATE.0.store(OFF, Ordering::Relaxed);
    config::launches_change();
}

#[cold]
fn is_caching_slow() -> bool {
    state() == ON
}

/// Returns whether compute-sanitizer runs this program. It sees allocations by the driver's own
/// calls. With a cache, it would not report an overrun into an adjacent block or a use after free,
/// which are its purpose. It sets the variable for its children (seen with 13.0).
fn under_memory_checker() -> bool {
    let checked = environment::get(c"NV_SANITIZER_INJECTION_PORT_BASE").is_some();
    if checked {
        log::info(format_args!("compute-sanitizer is active: caching is off"));
    }
    checked
}

fn state() -> u32 {
    match STATE.0.load(Ordering::Relaxed) & STATE_MASK {
        UNKNOWN => read_switch(),
        known => known,
    }
}

/// Reads the switch `CACHEALLOC=0`, the only one that turns everything off. It is read at the first
/// lookup of a driver function, perhaps before any constructor has run, and again when CUDA starts
/// if there was no environment yet. Programs may also be excluded by name.
#[cold]
fn read_switch() -> u32 {
    if identity::is_foreign() {
        turn_off();
        return OFF;
    }
    if !environment::is_there() && !identity::is_ours() {
        return ON;
    }
    stderr::note();
    let off = config::is_off() || under_memory_checker() || !config::includes_this_program();
    // If two copies are loaded, the first one serves; the other only passes calls on.
    let off = off || libraries::is_behind_a_copy();
    let state = if off { OFF } else { ON };
    let known = |word: u32| (word & STATE_MASK == UNKNOWN).then_some(word | state);
    match STATE.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, known) {
        Ok(_) => state,
        Err(word) => word & STATE_MASK,
    }
}
