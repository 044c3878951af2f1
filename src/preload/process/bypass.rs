//! The states in which the library does less. One word, read first in every hook.
//!
//! * *off*: `CACHEALLOC=0`, or a child forked after CUDA was started: every call is passed to the driver.
//! * *bypass*: something of ours failed, or the driver lacks what we need. Allocations go to the driver;
//!   frees of our blocks are accepted and the blocks are never reused; all else is passed on.
//!
//! The same word counts the memory hooks of the process above the state: without one, the hooks of
//! driver functions pay only for the test they make anyway.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::driver::libraries;
use crate::identity::OfOneProcess;
use crate::{config, environment, identity, log, stderr};

const UNKNOWN: u32 = 0;
const ON: u32 = 1;
const BYPASS: u32 = 2;
const OFF: u32 = 3;
/// The part of the word that is the state.
const STATE_MASK: u32 = 0xff;
const MEMORY_HOOK: u32 = STATE_MASK + 1;
/// A flag above the count: a context was lost.
const CONTEXT_LOST: u32 = 1 << 31;
/// A flag: a stream captures.
const CAPTURING: u32 = 1 << 30;
/// A flag: a call has failed for lack of memory, and what its thread gets next is looked at.
const FAILED: u32 = 1 << 29;

static STATE: OfOneProcess<AtomicU32> = OfOneProcess(AtomicU32::new(UNKNOWN));

/// Whether hooks should do their work.
#[inline(always)]
pub(crate) fn is_caching() -> bool {
    STATE.0.load(Ordering::Relaxed) == ON || is_caching_slow()
}

/// Whether hooks should do their work, and nothing unusual is the case: no memory hook, no lost context,
/// no capture, no open failure.
#[inline(always)]
pub(crate) fn is_fast_path() -> bool {
    STATE.0.load(Ordering::Relaxed) == ON
}

/// One more memory hook in the process.
pub(crate) fn add_memory_hook() {
    STATE.0.fetch_add(MEMORY_HOOK, Ordering::Relaxed);
}

/// One memory hook less.
pub(crate) fn remove_memory_hook() {
    STATE.0.fetch_sub(MEMORY_HOOK, Ordering::Relaxed);
}

/// From here on every call takes the path of observed calls, which may have to ask the driver for more
/// than usual.
pub(crate) fn leave_fast_path() {
    STATE.0.fetch_or(CONTEXT_LOST, Ordering::Relaxed);
}

/// A stream captures, or none does any more.
pub(crate) fn note_captures(any: bool) {
    match any {
        true => STATE.0.fetch_or(CAPTURING, Ordering::Relaxed),
        false => STATE.0.fetch_and(!CAPTURING, Ordering::Relaxed),
    };
    config::launches_change();
}

/// A call has failed for lack of memory, or no such failure is open any more.
pub(crate) fn note_failures(any: bool) {
    match any {
        true => STATE.0.fetch_or(FAILED, Ordering::Relaxed),
        false => STATE.0.fetch_and(!FAILED, Ordering::Relaxed),
    };
}

#[inline]
pub(crate) fn has_failures() -> bool {
    STATE.0.load(Ordering::Relaxed) & FAILED != 0
}

/// Whether every call is passed to the driver unchanged.
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

/// CUDA was started in this process: a child that comes about without the C library's `fork`, by a system call of
/// its own, finds the state unknown, and is switched off.
pub(crate) fn begin_here() {
    STATE.wipe_in_children();
}

/// Passes every call to the driver from here on: for a forked child.
pub(crate) fn turn_off() {
    STATE.0.store(OFF, Ordering::Relaxed);
    config::launches_change();
}

#[cold]
fn is_caching_slow() -> bool {
    state() == ON
}

/// compute-sanitizer sees allocations by the driver's own calls: with a cache, an overrun into a
/// neighbour or a use after free is no error to it, and those are what it is run for. It sets the
/// variable for its children (seen with 13.0).
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

/// `CACHEALLOC=0` is the one switch that turns everything off. Read at the first look-up of a driver
/// function, perhaps before any constructor has run, and again when CUDA starts if there was no
/// environment yet. Programs may be excluded by name as well.
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
    // Of two copies the first serves; the other only passes on.
    let off = off || libraries::is_behind_a_copy();
    let state = if off { OFF } else { ON };
    let known = |word: u32| (word & STATE_MASK == UNKNOWN).then_some(word | state);
    match STATE.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, known) {
        Ok(_) => state,
        Err(word) => word & STATE_MASK,
    }
}
