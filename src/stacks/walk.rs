//! The walk from frame to frame.
//!
//! A frame's rule depends on its code address alone, so after the first time it is one look into
//! the rule cache. What keeps the walk inside the stack, whatever the rules say: each word is checked
//! against the stack before it is read ([`Memory`]), each frame lies above the one before, and the
//! room for addresses is finite.

use core::arch::naked_asm;
use core::ops::Range;

use crate::fork::Visit;
use crate::memory::{CheckedStack, Memory, OwnStack};
use crate::rule::{Packed, Rule};
use crate::rule_cache::{self, ADDRESS_BITS, Stamp};
use crate::{Captured, bounds, cfi, fallback, modules};

/// Signal frames that lead from one stack to another.
const CROSSINGS_MAX: u32 = 8;
/// A library may be unloaded while we walk; then we look again.
const ATTEMPTS_MAX: u32 = 3;

/// `ucontext_t` on the stack of a signal handler that returns: saved registers, as offsets.
const SAVED_REGISTERS: u64 = core::mem::offset_of!(libc::ucontext_t, uc_mcontext) as u64;
const SAVED_FRAME_POINTER: u64 = SAVED_REGISTERS + 8 * libc::REG_RBP as u64;
const SAVED_STACK_POINTER: u64 = SAVED_REGISTERS + 8 * libc::REG_RSP as u64;
const SAVED_INSTRUCTION: u64 = SAVED_REGISTERS + 8 * libc::REG_RIP as u64;

#[inline(always)]
pub(crate) fn capture(out: &mut [u64], hide: Range<u64>) -> Captured {
    let mut captured = Captured { count: 0, truncated: false, epoch: 0 };
    let request = Request { out, hide, captured: &mut captured };
    // SAFETY: the request is valid during the call.
    unsafe { enter(&raw const request as *mut Request) };
    captured
}

struct Request<'a> {
    out: &'a mut [u64],
    hide: Range<u64>,
    captured: &'a mut Captured,
}

/// Calls `capture_from` with our caller's stack pointer (where its return address is) and frame
/// pointer, before any compiled code of ours can have changed them.
///
/// # Safety
///
/// - `request` is valid during the call.
#[unsafe(naked)]
unsafe extern "C" fn enter(request: *mut Request) {
    naked_asm!(
        "mov rsi, rsp",
        "mov rdx, rbp",
        "jmp {inner}",
        inner = sym capture_from,
    )
}

/// # Safety
///
/// - `request` is valid during the call.
/// - `stack_pointer` points to a return address on the stack on which we run.
unsafe extern "C" fn capture_from(request: *mut Request, stack_pointer: u64, frame_pointer: u64) {
    // SAFETY: valid by this function's contract; no other reference exists.
    let request = unsafe { &mut *request };
    // SAFETY: by the caller's word.
    let caller = unsafe { (stack_pointer as *const u64).read() };
    let start = Cursor {
        instruction: caller,
        stack_pointer: stack_pointer + 8,
        frame_pointer,
        interrupted: false,
    };
    *request.captured = walk_all(request.out, &request.hide, start);
}

/// One frame: where it runs, and the registers that its rule may need.
#[derive(Clone, Copy)]
struct Cursor {
    instruction: u64,
    stack_pointer: u64,
    frame_pointer: u64,
    /// `instruction` was interrupted by a signal, so it is not the one after a call.
    interrupted: bool,
}

/// Why a walk stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    End,
    Full,
    Unsupported,
    /// A signal interrupted code on another stack.
    OtherStack,
}

#[inline(always)]
fn walk_all(out: &mut [u64], hide: &Range<u64>, start: Cursor) -> Captured {
    let mut captured = walk_once(out, hide, start);
    for _ in 1..ATTEMPTS_MAX {
        if captured.epoch == modules::epoch() {
            break;
        }
        captured = walk_once(out, hide, start);
    }
    captured
}

#[inline(always)]
fn walk_once(out: &mut [u64], hide: &Range<u64>, start: Cursor) -> Captured {
    let epoch = modules::epoch();
    let mut walk = Walk { out, hide, count: 0, stamp: Stamp::of(epoch), cursor: start };
    let stop = match bounds::top_above(start.stack_pointer) {
        Some(top) => {
            // SAFETY: all of a stack from its running function to its top is mapped.
            let mut memory = unsafe { OwnStack::new(start.stack_pointer, top) };
            walk.run(&mut memory)
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

/// Goes on where the walk left the stack on which we run. That ground is not known to be mapped.
#[cold]
#[inline(never)]
fn elsewhere(mut walk: Walk, mut stop: Stop) -> (usize, Stop) {
    let mut interrupted = false;
    for _ in 0..CROSSINGS_MAX {
        if stop != Stop::OtherStack {
            break;
        }
        interrupted |= walk.cursor.interrupted;
        let mut memory = CheckedStack::new();
        stop = walk.run(&mut memory);
        if memory.refused {
            stop = Stop::Unsupported;
        }
    }
    // libgcc reads without asking: not where a signal interrupted we know not what.
    let stop = if interrupted && stop == Stop::Unsupported { Stop::End } else { stop };
    (walk.count, stop)
}

struct Walk<'a> {
    out: &'a mut [u64],
    hide: &'a Range<u64>,
    count: usize,
    stamp: Stamp,
    cursor: Cursor,
}

impl Walk<'_> {
    #[inline(always)]
    fn run(&mut self, memory: &mut impl Memory) -> Stop {
        let mut at = self.cursor;
        let mut count = self.count;
        let stop = loop {
            if count != 0 || !self.hide.contains(&at.instruction) {
                let Some(slot) = self.out.get_mut(count) else { break Stop::Full };
                *slot = at.instruction;
                count += 1;
            }
            // A call may be its function's last instruction, so its return address the next one's.
            let address = at.instruction.wrapping_sub(u64::from(!at.interrupted));
            if address >> ADDRESS_BITS != 0 {
                break Stop::End;
            }
            let rule = match rule_cache::find(address, self.stamp) {
                Some(rule) => rule,
                None => learn(address),
            };
            let caller = match at.caller(rule, memory) {
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

impl Cursor {
    #[inline(always)]
    fn caller(self, rule: Packed, memory: &mut impl Memory) -> Result<Cursor, Stop> {
        if !rule.is_exclusive() {
            return self.rare(rule.unpack(), memory);
        }
        let base = if rule.uses_frame_pointer() { self.frame_pointer } else { self.stack_pointer };
        let top = base.wrapping_add(rule.offset());
        let frame_pointer = match rule.saved_below() {
            0 => self.frame_pointer,
            below => memory.word(top.wrapping_sub(below)).ok_or(Stop::End)?,
        };
        self.returned(top, frame_pointer, memory)
    }

    #[inline(always)]
    fn returned(
        self,
        top: u64,
        frame_pointer: u64,
        memory: &mut impl Memory,
    ) -> Result<Cursor, Stop> {
        if top <= self.stack_pointer {
            return Err(Stop::End);
        }
        let instruction = memory.word(top.wrapping_sub(8)).ok_or(Stop::End)?;
        Ok(Cursor { instruction, stack_pointer: top, frame_pointer, interrupted: false })
    }

    #[cold]
    #[inline(never)]
    fn rare(self, rule: Rule, memory: &mut impl Memory) -> Result<Cursor, Stop> {
        match rule {
            Rule::Outermost => Err(Stop::End),
            Rule::Realigned { offset } => {
                let stored = self.frame_pointer.wrapping_sub(offset);
                let top = memory.word(stored).ok_or(Stop::End)?;
                let frame_pointer = memory.word(self.frame_pointer).ok_or(Stop::End)?;
                self.returned(top, frame_pointer, memory)
            }
            Rule::Signal => {
                let mut saved = |offset| memory.word(self.stack_pointer.wrapping_add(offset));
                Ok(Cursor {
                    instruction: saved(SAVED_INSTRUCTION).ok_or(Stop::End)?,
                    stack_pointer: saved(SAVED_STACK_POINTER).ok_or(Stop::End)?,
                    frame_pointer: saved(SAVED_FRAME_POINTER).ok_or(Stop::End)?,
                    interrupted: true,
                })
            }
            _ => Err(Stop::Unsupported),
        }
    }
}

/// The rule of an address that the cache does not have.
#[cold]
#[inline(never)]
fn learn(address: u64) -> Packed {
    let learned = Visit::begin().and_then(|visit| {
        modules::while_current(&visit, |epoch| {
            let module = modules::loaded_at(address)?;
            // SAFETY: it is loaded, and the loader's list lock is held.
            let headers = unsafe { module.headers() };
            // SAFETY: as above.
            let rule = unsafe { cfi::rule_at(module.base(), headers, address) }.pack();
            rule_cache::insert(address, Stamp::of(epoch), rule);
            Some(rule)
        })
    });
    learned.flatten().unwrap_or(Rule::Unsupported.pack())
}
