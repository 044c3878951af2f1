//! The states in which the library does less, in one word that every hook reads first.
//!
//! * *off*: `CACHEALLOC=0`, or a child forked after CUDA was started: every call is passed to the
//!   driver.
//! * *bypass*: the library failed internally, or the driver lacks a function that it needs.
//!   Allocations go to the driver. Frees of the library's blocks are accepted, and the blocks are
//!   never reused. Every other call is passed on.
//!
//! The word is the gate (`crate::gate`), which also counts the memory hooks of the process: without
//! one, the hooks of driver functions cost only the test that they make anyway.

use core::fmt;

use crate::config::environment;
use crate::driver::libraries;
use crate::gate;
use crate::gate::{Condition, State};
use crate::log::stderr;
use crate::{config, identity, log};

/// Returns whether hooks should do their work.
#[inline(always)]
pub(crate) fn is_caching() -> bool {
    gate::is_on() || is_caching_slow()
}

/// Returns whether hooks should do their work and no special case applies: no memory hook, no lost
/// context, no capture, no open failure.
#[inline(always)]
pub(crate) fn is_fast_path() -> bool {
    gate::is_usual()
}

/// Returns whether host memory and pitched memory may be kept for later requests.
pub(crate) fn keeps_other_kinds() -> bool {
    gate::keeps_other_kinds()
}

/// Makes every later call take the path of observed calls, which may have to query the driver more
/// often.
pub(crate) fn leave_fast_path() {
    gate::set(Condition::ContextLost);
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
    const fn condition(self) -> Condition {
        match self {
            Failing::Allocation => Condition::FailedAllocation,
            Failing::Call => Condition::FailedCall,
        }
    }
}

/// Notes whether a call of this kind has failed for lack of memory and that failure is still open.
pub(crate) fn note_failures(kind: Failing, any: bool) {
    gate::change(kind.condition(), any);
}

#[inline]
pub(crate) fn has_failures(kind: Failing) -> bool {
    gate::has(kind.condition())
}

/// Returns whether every call is passed to the driver unchanged.
#[inline]
pub(crate) fn is_switched_off() -> bool {
    state() == State::Off
}

/// Ends caching for the rest of the process and reports the reason, once.
#[cold]
pub(crate) fn begin(reason: fmt::Arguments) {
    let worse = |state| (state < State::Bypass).then_some(State::Bypass);
    if gate::change_state(worse).is_ok() {
        log::warn(format_args!("{reason}; caching is off for the rest of this process"));
    }
}

/// Notes that CUDA was started in this process. A child created by a direct system call, without
/// the C library's `fork`, finds the state unknown and is switched off.
pub(crate) fn begin_here() {
    gate::wipe_in_children();
}

/// Passes every later call to the driver. For a forked child.
pub(crate) fn turn_off() {
    gate::turn_off();
}

#[cold]
fn is_caching_slow() -> bool {
    state() == State::On
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

fn state() -> State {
    match gate::state() {
        State::Unknown => read_switch(),
        known => known,
    }
}

/// Reads the switch `CACHEALLOC=0`, the only one that turns everything off. It is read at the first
/// lookup of a driver function, perhaps before any constructor has run, and again when CUDA starts
/// if there was no environment yet. Programs may also be excluded by name.
#[cold]
fn read_switch() -> State {
    if identity::is_foreign() {
        turn_off();
        return State::Off;
    }
    if !environment::is_there() && !identity::is_ours() {
        return State::On;
    }
    stderr::note();
    let off = config::is_off() || under_memory_checker() || !config::includes_this_program();
    // If two copies are loaded, the first one serves; the other only passes calls on.
    let off = off || libraries::is_behind_a_copy();
    let state = if off { State::Off } else { State::On };
    match gate::change_state(|known| (known == State::Unknown).then_some(state)) {
        Ok(_) => state,
        Err(known) => known,
    }
}
