//! The walk from frame to frame.
//!
//! A frame's rule depends on its code address alone, so after the first time it takes one lookup in
//! the rule cache. Three checks keep the walk inside the stack, whatever the rules say. Each word
//! is checked against the stack before it is read ([`Memory`]), each frame must lie above the
//! previous one, and the buffer for addresses is finite.

use core::arch::naked_asm;
use core::ops::Range;

use crate::last_walk::{Anew, LastWalk, Met, Steps};
use crate::memory::{CheckedStack, Memory, StackBounds};
use crate::place::Shown;
use crate::processor::ADDRESS_BITS;
use crate::processor::frame::Cursor;
use crate::processor::rule::{Packed, Rule};
use crate::rule_cache::{self, Stamp};
use crate::stop::Stop;
use crate::{Captured, cfi, fallback, modules, stack_bounds};

/// Maximum number of signal frames that lead from one stack to another.
const CROSSINGS_MAX: u32 = 8;
/// Maximum number of walks: if a library is unloaded during a walk, the walk is repeated.
const ATTEMPTS_MAX: u32 = 3;

#[inline(always)]
pub(crate) fn capture<S: Shown>(
    out: &mut [S],
    hide: Range<u64>,
    last: Option<&mut LastWalk>,
) -> Captured {
    let mut captured = Captured { count: 0, truncated: false, epoch: 0 };
    let request = Request { out, hide, last, captured: &mut captured };
    // SAFETY: the request is valid during the call.
    unsafe { enter(&raw const request as *mut Request<S>) };
    captured
}

struct Request<'a, S> {
    out: &'a mut [S],
    hide: Range<u64>,
    last: Option<&'a mut LastWalk>,
    captured: &'a mut Captured,
}

/// Calls `capture_from` with the caller's registers, before any compiled code of the library can
/// have changed them.
///
/// # Safety
///
/// - `request` is valid during the call.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn enter<S: Shown>(request: *mut Request<S>) {
    naked_asm!(
        "mov rsi, [rsp]", // the return address
        "lea rdx, [rsp + 8]",
        "mov rcx, rbp",
        "jmp {inner}",
        inner = sym capture_from::<S>,
    )
}

/// Calls `capture_from` with the caller's registers; see the x86-64 version.
///
/// # Safety
///
/// - `request` is valid during the call.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn enter<S: Shown>(request: *mut Request<S>) {
    naked_asm!(
        "mov x1, x30", // the return address
        "mov x2, sp",
        "mov x3, x29",
        "b {inner}",
        inner = sym capture_from::<S>,
    )
}

/// # Safety
///
/// - `request` is valid during the call.
/// - The registers are those of a function on the stack on which we run, at this call.
unsafe extern "C" fn capture_from<S: Shown>(
    request: *mut Request<S>,
    instruction: u64,
    stack_pointer: u64,
    frame_pointer: u64,
) {
    // SAFETY: valid by this function's contract; no other reference exists.
    let request = unsafe { &mut *request };
    let start = Cursor::at(instruction, stack_pointer, frame_pointer);
    let Request { out, hide, last, captured } = request;
    **captured = walk_all(out, hide, start, last.as_deref_mut());
}

#[inline(always)]
fn walk_all<S: Shown>(
    out: &mut [S],
    hide: &Range<u64>,
    start: Cursor,
    mut last: Option<&mut LastWalk>,
) -> Captured {
    let mut captured = walk_once(out, hide, start, last.as_deref_mut());
    for _ in 1..ATTEMPTS_MAX {
        if captured.epoch == modules::epoch() {
            break;
        }
        captured = walk_once(out, hide, start, last.as_deref_mut());
    }
    captured
}

#[inline(always)]
fn walk_once<S: Shown>(
    out: &mut [S],
    hide: &Range<u64>,
    start: Cursor,
    mut last: Option<&mut LastWalk>,
) -> Captured {
    let epoch = modules::epoch();
    let note = last.as_deref_mut().map_or(0, LastWalk::take_note);
    let mut walk = Walk { out, hide, count: 0, stamp: Stamp::of(epoch), cursor: start };
    let stop = match stack_bounds::top_above(start.stack_pointer) {
        Some(top) => {
            // SAFETY: a stack is mapped from its running function to its top.
            let mut memory = unsafe { StackBounds::new(start.stack_pointer, top) };
            match last {
                Some(last) => {
                    last.begin(epoch, top);
                    let stop = walk.run(&mut memory, last);
                    last.end(stop, note);
                    stop
                }
                None => walk.run(&mut memory, &mut Anew),
            }
        }
        None => Stop::OtherStack,
    };
    let count = walk.count;
    match stop {
        Stop::End | Stop::Full => Captured { count, truncated: stop == Stop::Full, epoch },
        Stop::Unsupported | Stop::OtherStack => {
            let (count, stop) = elsewhere(walk, stop);
            let captured = Captured { count, truncated: stop == Stop::Full, epoch };
            if stop != Stop::Unsupported {
                return captured;
            }
            fallback::capture_from(out, hide, start.instruction).unwrap_or(captured)
        }
    }
}

/// Continues where the walk left the current stack. Memory there is not known to be mapped.
#[cold]
#[inline(never)]
fn elsewhere<S: Shown>(mut walk: Walk<S>, mut stop: Stop) -> (usize, Stop) {
    let mut interrupted = false;
    for _ in 0..CROSSINGS_MAX {
        if stop != Stop::OtherStack {
            break;
        }
        interrupted |= walk.cursor.interrupted;
        let mut memory = CheckedStack::new();
        stop = walk.run(&mut memory, &mut Anew);
        if memory.refused {
            stop = Stop::Unsupported;
        }
    }
    // libgcc reads without checking, so it must not run where a signal interrupted unknown code.
    let stop = if interrupted && stop == Stop::Unsupported { Stop::End } else { stop };
    (walk.count, stop)
}

struct Walk<'a, S> {
    out: &'a mut [S],
    hide: &'a Range<u64>,
    count: usize,
    stamp: Stamp,
    cursor: Cursor,
}

impl<S: Shown> Walk<'_, S> {
    #[inline(always)]
    fn run(&mut self, memory: &mut impl Memory, steps: &mut impl Steps) -> Stop {
        // No later walk goes on from a frame that is not returned, so its step is not kept.
        self.leave_hidden(memory);
        while self.count == 0 && self.hide.contains(&self.cursor.instruction) {
            if let Err(stop) = self.step(memory, &mut Anew) {
                return stop;
            }
        }
        loop {
            let at = self.cursor;
            let Some(slot) = self.out.get_mut(self.count) else { return Stop::Full };
            *slot = S::of(at.instruction, at.stack_pointer);
            self.count += 1;
            match steps.met(at, &mut self.out[self.count..]) {
                Met::Known { last, count } => {
                    self.cursor = last;
                    self.count += count;
                }
                Met::AllKnown { count } => {
                    self.count += count;
                    return Stop::End;
                }
            }
            if let Err(stop) = self.step(memory, steps) {
                return stop;
            }
        }
    }

    /// Moves to the callers of leading frames that are hidden, as long as their rules are known and
    /// simple, which those of the library's own functions are.
    #[inline(always)]
    fn leave_hidden(&mut self, memory: &mut impl Memory) {
        let Cursor { instruction, stack_pointer, frame_pointer, interrupted, .. } = self.cursor;
        if interrupted || self.count != 0 {
            return;
        }
        let mut at = Cursor::at(instruction, stack_pointer, frame_pointer);
        while self.hide.contains(&at.instruction) {
            let rule = rule_cache::find(at.instruction.wrapping_sub(1), self.stamp);
            let Some(rule) = rule.filter(|rule| rule.is_exclusive()) else { break };
            let Ok(caller) = at.caller(rule, memory) else { break };
            if caller.instruction == 0 {
                break;
            }
            at = Cursor::at(caller.instruction, caller.stack_pointer, caller.frame_pointer);
        }
        self.cursor = at;
    }

    /// Moves to the caller of the frame.
    #[inline(always)]
    fn step(&mut self, memory: &mut impl Memory, steps: &mut impl Steps) -> Result<(), Stop> {
        let at = self.cursor;
        // A call may be its function's last instruction, so that its return address belongs to the
        // next one.
        let address = at.instruction.wrapping_sub(u64::from(!at.interrupted));
        if address >> ADDRESS_BITS != 0 {
            return Err(Stop::End);
        }
        let rule = match rule_cache::find(address, self.stamp) {
            Some(rule) => rule,
            None => learn(address),
        };
        let caller = steps.step(at, rule, memory)?;
        let higher = caller.stack_pointer > at.stack_pointer;
        self.cursor = caller;
        if caller.interrupted && !(higher && memory.holds(caller.stack_pointer)) {
            return Err(Stop::OtherStack);
        }
        if caller.instruction == 0 { Err(Stop::End) } else { Ok(()) }
    }
}

/// Determines the rule of an address that is not in the cache.
#[cold]
#[inline(never)]
fn learn(address: u64) -> Packed {
    let learned = cfi::in_module(address, |base, headers, epoch| {
        // SAFETY: the module stays loaded while this runs.
        let rule = unsafe { cfi::rule_at(base, headers, address) }.pack();
        rule_cache::insert(address, Stamp::of(epoch), rule);
        Some(rule)
    });
    learned.unwrap_or(Rule::Unsupported.pack())
}
