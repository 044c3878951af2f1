//! The walk from frame to frame.
//!
//! A frame's rule depends on its code address alone, so after the first time it takes one lookup in
//! the rule cache. Three checks keep the walk inside the stack, whatever the rules say. Each word
//! is checked against the stack before it is read ([`Memory`]), each frame must lie above the
//! previous one, and the buffer for addresses is finite.

use core::arch::naked_asm;
use core::ops::Range;

use crate::last_walk::{Anew, LastWalk, Steps};
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
    last: Option<&mut LastWalk>,
) -> Captured {
    let epoch = modules::epoch();
    let mut walk = Walk { out, hide, count: 0, stamp: Stamp::of(epoch), cursor: start };
    let stop = match stack_bounds::top_above(start.stack_pointer) {
        Some(top) => {
            // SAFETY: a stack is mapped from its running function to its top.
            let mut memory = unsafe { StackBounds::new(start.stack_pointer, top) };
            match last {
                Some(last) => {
                    last.begin(epoch, top);
                    let stop = walk.run(&mut memory, last);
                    last.end();
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
        let mut at = self.cursor;
        let mut count = self.count;
        let stop = loop {
            if count != 0 || !self.hide.contains(&at.instruction) {
                let Some(slot) = self.out.get_mut(count) else { break Stop::Full };
                *slot = S::of(at.instruction, at.stack_pointer);
                count += 1;
                let (last, known) = steps.met(at, &mut self.out[count..]);
                (at, count) = (last, count + known);
            }
            // A call may be its function's last instruction, so that its return address belongs to
            // the next one.
            let address = at.instruction.wrapping_sub(u64::from(!at.interrupted));
            if address >> ADDRESS_BITS != 0 {
                break Stop::End;
            }
            let rule = match rule_cache::find(address, self.stamp) {
                Some(rule) => rule,
                None => learn(address),
            };
            let caller = match steps.step(at, rule, memory) {
                Ok(caller) => caller,
                Err(stop) => break stop,
            };
            let higher = caller.stack_pointer > at.stack_pointer;
            if caller.interrupted && !(higher && memory.holds(caller.stack_pointer)) {
                self.cursor = caller;
                break Stop::OtherStack;
            }
            at = caller;
            if at.instruction == 0 {
                break Stop::End;
            }
        };
        self.count = count;
        stop
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
