//! Rules for the step from one frame to its caller, small enough for one word of the rule cache.

/// One frame's rule. Its top is the address that the DWARF standard calls CFA: the stack pointer
/// before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// top = stack pointer + offset.
    StackPointer { offset: u64, saved: Saved },
    /// top = frame pointer (`x29`) + offset.
    FramePointer { offset: u64, saved: Saved },
    /// A function that has saved nothing: top = stack pointer + offset, and the return address is
    /// in the link register. Only the interrupted function can be one, because a call changes that
    /// register.
    Linked { offset: u64 },
    /// The outermost frame.
    Outermost,
    /// The return from a signal handler: the interrupted registers lie above the stack pointer.
    Signal,
    /// None of the above, or unknown: the unwinder of libgcc must take this stack.
    Unsupported,
}

/// Where the return address and the caller's frame pointer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// Both are where the base register of the top points.
    RecordAtBase,
    /// The return address is at top - 8 x this many, and the frame pointer just below it.
    Record(u64),
    /// The return address is at top - 8 x this many; the frame pointer is still in the register.
    Return(u64),
}

/// Bits of a packed rule: kind 2, record 1, words below top 6, offset in units of 16 bytes 13.
pub(crate) const RULE_BITS: u32 = 22;
const KIND_BITS: u32 = 2;
const WORDS_BITS: u32 = 6;
const WORDS_SHIFT: u32 = KIND_BITS + 1;
const OFFSET_SHIFT: u32 = WORDS_SHIFT + WORDS_BITS;
const RECORD: u64 = 1 << KIND_BITS;
const WORDS_MAX: u64 = (1 << WORDS_BITS) - 1;
const UNITS_MAX: u64 = (1 << (RULE_BITS - OFFSET_SHIFT)) - 1;
/// The stack pointer is a multiple of this at every call.
const UNIT_BYTES: u64 = 16;

const STACK_POINTER: u64 = 0;
const FRAME_POINTER: u64 = 1;
const LINKED: u64 = 2;
const SPECIAL: u64 = 3;
const UNSUPPORTED: u64 = SPECIAL | 2 << OFFSET_SHIFT;

/// A rule in `RULE_BITS` bits. Most are one of the first two kinds, which the walk reads without
/// unpacking.
#[derive(Clone, Copy)]
pub(crate) struct Packed(pub u64);

impl Packed {
    /// Returns whether it is `Rule::StackPointer` or `Rule::FramePointer`.
    #[inline(always)]
    pub(crate) fn is_exclusive(self) -> bool {
        self.kind() <= FRAME_POINTER
    }

    /// Returns whether it is `Rule::Outermost`.
    #[inline(always)]
    pub(crate) fn is_outermost(self) -> bool {
        self.kind() == SPECIAL && self.offset() == 0
    }

    /// For a plain rule: returns whether top = frame pointer + offset, not stack pointer + offset.
    #[inline(always)]
    pub(crate) fn uses_frame_pointer(self) -> bool {
        self.kind() != STACK_POINTER
    }

    #[inline(always)]
    pub(crate) fn offset(self) -> u64 {
        (self.0 >> OFFSET_SHIFT) * UNIT_BYTES
    }

    /// Returns whether the caller's frame pointer is just below the return address.
    #[inline(always)]
    pub(crate) fn has_record(self) -> bool {
        self.0 & RECORD != 0
    }

    /// Number of bytes from the return address up to the top; 0 if the record is at the base.
    #[inline(always)]
    pub(crate) fn return_below(self) -> u64 {
        (self.0 >> WORDS_SHIFT & WORDS_MAX) * 8
    }

    #[inline(always)]
    fn kind(self) -> u64 {
        self.0 & ((1 << KIND_BITS) - 1)
    }

    pub(crate) fn unpack(self) -> Rule {
        let offset = self.offset();
        let saved = match (self.has_record(), self.return_below() / 8) {
            (_, 0) => Saved::RecordAtBase,
            (true, words) => Saved::Record(words),
            (false, words) => Saved::Return(words),
        };
        match self.kind() {
            STACK_POINTER => Rule::StackPointer { offset, saved },
            FRAME_POINTER => Rule::FramePointer { offset, saved },
            LINKED => Rule::Linked { offset },
            _ if offset == 0 => Rule::Outermost,
            _ if offset == UNIT_BYTES => Rule::Signal,
            _ => Rule::Unsupported,
        }
    }
}

impl Rule {
    /// Packs the rule. Returns `Unsupported` if the numbers do not fit.
    pub(crate) fn pack(self) -> Packed {
        let packed = match self {
            Rule::StackPointer { offset, saved } => pack(STACK_POINTER, offset, saved),
            Rule::FramePointer { offset, saved } => pack(FRAME_POINTER, offset, saved),
            Rule::Linked { offset } => pack(LINKED, offset, Saved::RecordAtBase),
            Rule::Outermost => Some(SPECIAL),
            Rule::Signal => Some(SPECIAL | 1 << OFFSET_SHIFT),
            Rule::Unsupported => None,
        };
        Packed(packed.unwrap_or(UNSUPPORTED))
    }
}

fn pack(kind: u64, offset: u64, saved: Saved) -> Option<u64> {
    let saved = match saved {
        Saved::RecordAtBase => RECORD,
        Saved::Record(words @ 1..=WORDS_MAX) => RECORD | words << WORDS_SHIFT,
        Saved::Return(words @ 1..=WORDS_MAX) => words << WORDS_SHIFT,
        _ => return None,
    };
    let units = offset / UNIT_BYTES;
    let fits = offset.is_multiple_of(UNIT_BYTES) && units <= UNITS_MAX;
    fits.then_some(kind | saved | units << OFFSET_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_loses_nothing_or_says_unsupported() {
        let mut rules = vec![Rule::Outermost, Rule::Signal, Rule::Unsupported];
        for offset in [0, 16, 4096, UNITS_MAX * UNIT_BYTES] {
            for saved in [Saved::RecordAtBase, Saved::Record(2), Saved::Return(WORDS_MAX)] {
                rules.push(Rule::StackPointer { offset, saved });
                rules.push(Rule::FramePointer { offset, saved });
            }
            rules.push(Rule::Linked { offset });
        }
        for rule in rules {
            assert_eq!(rule.pack().unpack(), rule);
            assert!(rule.pack().0 < 1 << RULE_BITS);
        }
        for offset in [8, (UNITS_MAX + 1) * UNIT_BYTES] {
            let rule = Rule::StackPointer { offset, saved: Saved::RecordAtBase };
            assert_eq!(rule.pack().unpack(), Rule::Unsupported);
        }
        for saved in [Saved::Record(0), Saved::Return(0), Saved::Record(WORDS_MAX + 1)] {
            let rule = Rule::FramePointer { offset: 16, saved };
            assert_eq!(rule.pack().unpack(), Rule::Unsupported);
        }
    }
}
