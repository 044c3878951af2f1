//! Runs the call frame instructions of one function, for the three registers that matter: stack
//! pointer, frame pointer and return address.
//!
//! gimli could do it for all registers, but its rows take kilobytes of stack, and the walk may run
//! on an alternate signal stack; a row here is 40 bytes.

use gimli::{CallFrameInstruction, CallFrameInstructionIter, EhFrame, EndianSlice, NativeEndian};
use gimli::{Register, UnwindExpression};

use crate::processor::expressions::Expression;
use crate::processor::{FRAME_POINTER, RETURN_ADDRESS, STACK_POINTER};

pub(crate) type Bytes<'a> = EndianSlice<'a, NativeEndian>;

/// Maximum nesting of `remember_state`: compilers use one level.
const REMEMBERED_MAX: usize = 4;

/// The rules in effect at one address of the function.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub top: Top,
    pub frame_pointer: SavedAt,
    pub return_address: SavedAt,
}

/// How to compute the frame's top.
#[derive(Clone, Copy)]
pub(crate) enum Top {
    At(Register, i64),
    Expression(Expression),
    Unknown,
}

/// Where the caller's value of a register is.
#[derive(Clone, Copy)]
pub(crate) enum SavedAt {
    Register,
    /// At top + offset.
    Stack(i64),
    Expression(Expression),
    /// The value does not exist: the outermost frame has this rule for its return address.
    Undefined,
    Unknown,
}

/// The instructions end prematurely, or are ones that no compiler emits.
pub(crate) struct Malformed;

impl Row {
    pub(crate) const START: Row = Row {
        top: Top::Unknown,
        frame_pointer: SavedAt::Register,
        return_address: SavedAt::Register,
    };

    /// Runs instructions up to the last row that begins at or before `address`.
    pub(crate) fn run(
        &mut self,
        mut instructions: CallFrameInstructionIter<Bytes>,
        frames: &Frames,
        address: u64,
    ) -> Result<(), Malformed> {
        let initial = *self;
        let mut location = frames.start;
        let mut remembered = [Row::START; REMEMBERED_MAX];
        let mut depth = 0;
        while let Some(instruction) = instructions.next().map_err(|_| Malformed)? {
            match instruction {
                CallFrameInstruction::AdvanceLoc { delta } => {
                    let step = u64::from(delta).wrapping_mul(frames.code_factor);
                    location = location.wrapping_add(step);
                }
                CallFrameInstruction::SetLoc { address } => location = address,
                CallFrameInstruction::RememberState => {
                    *remembered.get_mut(depth).ok_or(Malformed)? = *self;
                    depth += 1;
                }
                CallFrameInstruction::RestoreState => {
                    depth = depth.checked_sub(1).ok_or(Malformed)?;
                    *self = remembered[depth];
                }
                CallFrameInstruction::Restore { register } => match register {
                    FRAME_POINTER => self.frame_pointer = initial.frame_pointer,
                    RETURN_ADDRESS => self.return_address = initial.return_address,
                    _ => {}
                },
                other => self.step(other, frames, address),
            }
            if location > address {
                break;
            }
        }
        Ok(())
    }

    fn step(&mut self, instruction: CallFrameInstruction<usize>, frames: &Frames, address: u64) {
        use CallFrameInstruction as I;
        let factored = |offset: i64| offset.wrapping_mul(frames.data_factor);
        let top_register = match self.top {
            Top::At(register, _) => Some(register),
            _ => None,
        };
        let top_offset = match self.top {
            Top::At(_, offset) => offset,
            _ => 0,
        };
        match instruction {
            I::DefCfa { register, offset } => self.top = Top::At(register, offset as i64),
            I::DefCfaSf { register, factored_offset } => {
                self.top = Top::At(register, factored(factored_offset));
            }
            I::DefCfaRegister { register } => self.top = Top::At(register, top_offset),
            I::DefCfaOffset { offset } => {
                self.top = top_register.map_or(Top::Unknown, |it| Top::At(it, offset as i64));
            }
            I::DefCfaOffsetSf { factored_offset } => {
                let offset = factored(factored_offset);
                self.top = top_register.map_or(Top::Unknown, |it| Top::At(it, offset));
            }
            I::DefCfaExpression { expression } => {
                self.top = Top::Expression(Expression::of(frames.bytes(expression), address));
            }
            I::Undefined { register } => self.place(register, SavedAt::Undefined),
            I::SameValue { register } => self.place(register, SavedAt::Register),
            I::Offset { register, factored_offset } => {
                self.place(register, SavedAt::Stack(factored(factored_offset as i64)));
            }
            I::OffsetExtendedSf { register, factored_offset } => {
                self.place(register, SavedAt::Stack(factored(factored_offset)));
            }
            I::Expression { register, expression } => {
                let expression = Expression::of(frames.bytes(expression), address);
                self.place(register, SavedAt::Expression(expression));
            }
            I::ValOffset { register, .. }
            | I::ValOffsetSf { register, .. }
            | I::ValExpression { register, .. }
            | I::Register { dest_register: register, .. } => self.place(register, SavedAt::Unknown),
            _ => {}
        }
    }

    fn place(&mut self, register: Register, place: SavedAt) {
        match register {
            FRAME_POINTER => self.frame_pointer = place,
            RETURN_ADDRESS => self.return_address = place,
            // The caller's stack pointer is the frame's top; any other rule is unsupported.
            STACK_POINTER => self.top = Top::Unknown,
            _ => {}
        }
    }
}

/// Data to which the instructions refer.
pub(crate) struct Frames<'a> {
    pub section: &'a EhFrame<Bytes<'a>>,
    /// First address of the function.
    pub start: u64,
    pub code_factor: u64,
    pub data_factor: i64,
}

impl Frames<'_> {
    fn bytes(&self, expression: UnwindExpression<usize>) -> &[u8] {
        expression.get(self.section).map_or(&[], |expression| expression.0.slice())
    }
}
