//! Translates the unwind tables' description of a code address into a rule.

use super::expressions::Expression;
use super::rule::{Rule, Saved};
use super::{FRAME_POINTER, STACK_POINTER};
use crate::row::{Row, SavedAt, Top};

pub(crate) fn rule(row: &Row) -> Rule {
    match row.return_address {
        SavedAt::Undefined => return Rule::Outermost,
        SavedAt::Stack(-8) => {}
        _ => return Rule::Unsupported,
    }
    let (register, offset) = match row.top {
        Top::At(register, offset) => (register, offset),
        Top::Expression(Expression::AboveStackPointer(offset)) => (STACK_POINTER, offset),
        Top::Expression(Expression::Stored(offset)) => {
            return match row.frame_pointer {
                SavedAt::Expression(Expression::AtFramePointer) => Rule::Realigned { offset },
                _ => Rule::Unsupported,
            };
        }
        _ => return Rule::Unsupported,
    };
    let saved = match row.frame_pointer {
        SavedAt::Register | SavedAt::Undefined => Saved::Unchanged,
        SavedAt::Stack(offset @ ..-8) if offset % 8 == 0 => Saved::Below(offset.unsigned_abs() / 8),
        _ => return Rule::Unsupported,
    };
    match (register, offset) {
        (STACK_POINTER, offset @ 8..) => Rule::StackPointer { offset: offset as u64, saved },
        (FRAME_POINTER, offset @ 8..) => Rule::FramePointer { offset: offset as u64, saved },
        _ => Rule::Unsupported,
    }
}
