//! One frame on aarch64: its registers, and the step to its caller.

use core::arch::asm;
use core::mem::offset_of;

use super::ADDRESS_BITS;
use super::rule::{Packed, Rule};
use crate::memory::Memory;
use crate::stop::Stop;

/// The kernel's `struct rt_sigframe`, on the stack of a signal handler that returns: `siginfo_t`,
/// then `ucontext_t` with the saved registers, as offsets.
const CONTEXT: u64 = size_of::<libc::siginfo_t>() as u64;
const SAVED_REGISTERS: u64 = CONTEXT + offset_of!(libc::ucontext_t, uc_mcontext.regs) as u64;
const SAVED_FRAME_POINTER: u64 = SAVED_REGISTERS + 8 * 29;
const SAVED_LINK: u64 = SAVED_REGISTERS + 8 * 30;
const SAVED_STACK_POINTER: u64 = CONTEXT + offset_of!(libc::ucontext_t, uc_mcontext.sp) as u64;
const SAVED_INSTRUCTION: u64 = CONTEXT + offset_of!(libc::ucontext_t, uc_mcontext.pc) as u64;

/// One frame: its code address, and the registers that its rule may need.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    pub instruction: u64,
    pub stack_pointer: u64,
    pub frame_pointer: u64,
    /// Whether a signal interrupted `instruction`, so that it does not follow a call.
    pub interrupted: bool,
    /// Value of the link register at the interruption.
    link: u64,
}

impl Cursor {
    /// A frame that has made a call.
    #[inline(always)]
    pub(crate) fn at(instruction: u64, stack_pointer: u64, frame_pointer: u64) -> Cursor {
        Cursor { instruction, stack_pointer, frame_pointer, interrupted: false, link: 0 }
    }

    #[inline(always)]
    pub(crate) fn caller(self, rule: Packed, memory: &mut impl Memory) -> Result<Cursor, Stop> {
        if !rule.is_exclusive() {
            return self.rare(rule.unpack(), memory);
        }
        let base = if rule.uses_frame_pointer() { self.frame_pointer } else { self.stack_pointer };
        let top = base.wrapping_add(rule.offset());
        if top <= self.stack_pointer {
            return Err(Stop::End);
        }
        let place = match rule.return_below() {
            0 => base.wrapping_add(8),
            below => top.wrapping_sub(below),
        };
        let frame_pointer = match rule.has_record() {
            true => memory.word(place.wrapping_sub(8)).ok_or(Stop::End)?,
            false => self.frame_pointer,
        };
        let instruction = memory.word(place).ok_or(Stop::End)?;
        Ok(Cursor::at(unsigned(instruction), top, frame_pointer))
    }

    #[cold]
    #[inline(never)]
    fn rare(self, rule: Rule, memory: &mut impl Memory) -> Result<Cursor, Stop> {
        match rule {
            Rule::Outermost => Err(Stop::End),
            // An empty frame is not a cycle here: this frame is the interrupted one, and its caller
            // is not.
            Rule::Linked { offset } if self.interrupted => {
                let top = self.stack_pointer.wrapping_add(offset);
                Ok(Cursor::at(unsigned(self.link), top, self.frame_pointer))
            }
            Rule::Linked { .. } => Err(Stop::End),
            Rule::Signal => {
                let mut saved = |offset| memory.word(self.stack_pointer.wrapping_add(offset));
                Ok(Cursor {
                    instruction: saved(SAVED_INSTRUCTION).ok_or(Stop::End)?,
                    stack_pointer: saved(SAVED_STACK_POINTER).ok_or(Stop::End)?,
                    frame_pointer: saved(SAVED_FRAME_POINTER).ok_or(Stop::End)?,
                    link: saved(SAVED_LINK).ok_or(Stop::End)?,
                    interrupted: true,
                })
            }
            _ => Err(Stop::Unsupported),
        }
    }
}

/// Removes the signature that a function may have put into the upper bits of its return address.
#[inline(always)]
fn unsigned(address: u64) -> u64 {
    if address >> ADDRESS_BITS == 0 { address } else { stripped(address) }
}

#[cold]
fn stripped(address: u64) -> u64 {
    let stripped;
    // SAFETY: `xpaclri` changes this register only; it is a no-op on processors without signatures.
    unsafe {
        asm!("hint #7", inout("x30") address => stripped, options(pure, nomem, nostack, preserves_flags));
    }
    stripped
}

#[cfg(test)]
mod tests {
    use super::super::rule::Saved;
    use super::*;

    /// A stack that consists of these words.
    struct Words {
        start: u64,
        words: Vec<u64>,
    }

    impl Memory for Words {
        fn word(&mut self, address: u64) -> Option<u64> {
            let offset = address.checked_sub(self.start)?;
            self.words.get((offset / 8) as usize).copied()
        }

        fn holds(&self, address: u64) -> bool {
            (self.start..self.start + 8 * self.words.len() as u64).contains(&address)
        }
    }

    #[test]
    fn a_leaf_that_a_signal_interrupted() {
        let mut memory = Words { start: 0x1000, words: vec![0; 256] };
        let mut save = |offset: u64, value| memory.words[(offset / 8) as usize] = value;
        // The kernel's frame, and above it the interrupted one.
        save(128 + 176, 0xdead); // fault_address, which is none of the registers
        save(128 + 184 + 8 * 29, 0x1720); // x29
        save(128 + 184 + 8 * 30, 0x40_2000); // x30
        save(128 + 184 + 8 * 31, 0x1700); // sp
        save(128 + 184 + 8 * 32, 0x40_1000); // pc
        save(0x720, 0x1780);
        save(0x728, 0x40_3000);
        let handler_return = Cursor::at(0x7000, 0x1000, 0x1600);
        let step = |at: Cursor, rule: Rule, memory: &mut Words| {
            at.caller(rule.pack(), memory).map(|it| (it, (it.instruction, it.stack_pointer)))
        };
        let (leaf, place) = step(handler_return, Rule::Signal, &mut memory).ok().unwrap();
        assert!(leaf.interrupted);
        assert_eq!(place, (0x40_1000, 0x1700));
        let (caller, place) = step(leaf, Rule::Linked { offset: 0 }, &mut memory).ok().unwrap();
        assert!(!caller.interrupted);
        assert_eq!(place, (0x40_2000, 0x1700));
        let by_frame = Rule::FramePointer { offset: 32, saved: Saved::RecordAtBase };
        let (last, place) = step(caller, by_frame, &mut memory).ok().unwrap();
        assert_eq!((place, last.frame_pointer), ((0x40_3000, 0x1740), 0x1780));
        // A function that has made a call has saved its return address.
        assert!(step(last, Rule::Linked { offset: 16 }, &mut memory).is_err());
    }

    #[test]
    fn a_signed_return_address_is_read_without_its_signature() {
        let plain = a_signed_return_address_is_read_without_its_signature as *const () as u64;
        let signed: u64;
        // SAFETY: `pacia` with `sp` as context, of this register only; nothing jumps there.
        unsafe { asm!("hint #25", inout("x30") plain => signed, options(nomem, nostack)) };
        assert_eq!(unsigned(signed), plain);
        assert_eq!(unsigned(plain), plain);
    }
}
