//! One frame on x86-64: its registers, and the step to its caller.

use super::rule::{Packed, Rule};
use crate::memory::Memory;
use crate::stop::Stop;

/// `ucontext_t` on the stack of a signal handler that returns: saved registers, as offsets.
const SAVED_REGISTERS: u64 = core::mem::offset_of!(libc::ucontext_t, uc_mcontext) as u64;
const SAVED_FRAME_POINTER: u64 = SAVED_REGISTERS + 8 * libc::REG_RBP as u64;
const SAVED_STACK_POINTER: u64 = SAVED_REGISTERS + 8 * libc::REG_RSP as u64;
const SAVED_INSTRUCTION: u64 = SAVED_REGISTERS + 8 * libc::REG_RIP as u64;

/// One frame: its code address, and the registers that its rule may need.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    pub instruction: u64,
    pub stack_pointer: u64,
    pub frame_pointer: u64,
    /// Whether a signal interrupted `instruction`, so that it does not follow a call.
    pub interrupted: bool,
}

impl Cursor {
    /// A frame that has made a call.
    #[inline(always)]
    pub(crate) fn at(instruction: u64, stack_pointer: u64, frame_pointer: u64) -> Cursor {
        Cursor { instruction, stack_pointer, frame_pointer, interrupted: false }
    }

    #[inline(always)]
    pub(crate) fn caller(self, rule: Packed, memory: &mut impl Memory) -> Result<Cursor, Stop> {
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
        Ok(Cursor::at(instruction, top, frame_pointer))
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
