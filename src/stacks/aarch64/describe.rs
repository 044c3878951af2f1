//! Translates the unwind tables' description of a code address into a rule.

use super::rule::{Rule, Saved};
use super::{FRAME_POINTER, STACK_POINTER};
use crate::row::{Row, SavedAt, Top};

pub(crate) fn rule(row: &Row) -> Rule {
    if matches!(row.return_address, SavedAt::Undefined) {
        return Rule::Outermost;
    }
    let Top::At(register, offset @ 0..) = row.top else { return Rule::Unsupported };
    let offset = offset as u64;
    let saved = match (row.return_address, row.frame_pointer) {
        (SavedAt::Register, SavedAt::Register | SavedAt::Undefined) => {
            return match register {
                STACK_POINTER => Rule::Linked { offset },
                _ => Rule::Unsupported,
            };
        }
        (SavedAt::Stack(place), SavedAt::Register | SavedAt::Undefined) => {
            words_below(place).map(Saved::Return)
        }
        (SavedAt::Stack(place), SavedAt::Stack(other)) if place.checked_sub(8) == Some(other) => {
            match other.unsigned_abs() == offset {
                true => Some(Saved::RecordAtBase),
                false => words_below(place).map(Saved::Record),
            }
        }
        _ => None,
    };
    match (register, saved) {
        (STACK_POINTER, Some(saved)) => Rule::StackPointer { offset, saved },
        (FRAME_POINTER, Some(saved)) => Rule::FramePointer { offset, saved },
        _ => Rule::Unsupported,
    }
}

/// Returns the distance in words below the top, for a value at top + `offset`.
fn words_below(offset: i64) -> Option<u64> {
    (offset < 0 && offset % 8 == 0).then_some(offset.unsigned_abs() / 8)
}
