//! Rules for the step from one frame to its caller, small enough for one word of the rule cache.

/// One frame's rule. In each, the return address lies just below the frame's top (the address the
/// DWARF standard calls CFA: the stack pointer before the call).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// top = stack pointer + offset.
    StackPointer { offset: u64, saved: Saved },
    /// top = frame pointer (`rbp`) + offset.
    FramePointer { offset: u64, saved: Saved },
    /// A function that aligned its stack: top is stored at frame pointer - offset, the caller's
    /// frame pointer at the frame pointer.
    Realigned { offset: u64 },
    /// The outermost frame.
    Outermost,
    /// The return from a signal handler: the interrupted registers lie at the stack pointer.
    Signal,
    /// None of the above, or unknown: the unwinder of libgcc must take this stack.
    Unsupported,
}

/// Where the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// Still in the register.
    Unchanged,
    /// At top - 8 x this many.
    Below(u64),
}

/// Bits of a packed rule: kind 2, saved 4, offset in words 16.
pub(crate) const RULE_BITS: u32 = 22;
const KIND_BITS: u32 = 2;
const SAVED_BITS: u32 = 4;
const SAVED_MAX: u64 = (1 << SAVED_BITS) - 1;
const WORDS_MAX: u64 = (1 << (RULE_BITS - KIND_BITS - SAVED_BITS)) - 1;

const STACK_POINTER: u64 = 0;
const FRAME_POINTER: u64 = 1;
const REALIGNED: u64 = 2;
const SPECIAL: u64 = 3;

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
        self.0 >> (KIND_BITS + SAVED_BITS) << 3
    }

    /// Number of bytes from the caller's frame pointer up to the top; 0 if it is still in the
    /// register.
    #[inline(always)]
    pub(crate) fn saved_below(self) -> u64 {
        (self.0 >> KIND_BITS & SAVED_MAX) << 3
    }

    #[inline(always)]
    fn kind(self) -> u64 {
        self.0 & ((1 << KIND_BITS) - 1)
    }

    pub(crate) fn unpack(self) -> Rule {
        let offset = self.offset();
        let saved = match self.saved_below() {
            0 => Saved::Unchanged,
            bytes => Saved::Below(bytes / 8),
        };
        match self.kind() {
            STACK_POINTER => Rule::StackPointer { offset, saved },
            FRAME_POINTER => Rule::FramePointer { offset, saved },
            REALIGNED => Rule::Realigned { offset },
            _ if offset == 0 => Rule::Outermost,
            _ if offset == 8 => Rule::Signal,
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
            Rule::Realigned { offset } => pack(REALIGNED, offset, Saved::Unchanged),
            Rule::Outermost => pack(SPECIAL, 0, Saved::Unchanged),
            Rule::Signal => pack(SPECIAL, 8, Saved::Unchanged),
            Rule::Unsupported => None,
        };
        Packed(packed.unwrap_or(SPECIAL | 2 << (KIND_BITS + SAVED_BITS)))
    }
}

fn pack(kind: u64, offset: u64, saved: Saved) -> Option<u64> {
    let saved = match saved {
        Saved::Unchanged => 0,
        Saved::Below(words @ 1..=SAVED_MAX) => words,
        Saved::Below(_) => return None,
    };
    let words = offset / 8;
    let fits = offset.is_multiple_of(8) && words <= WORDS_MAX;
    fits.then_some(kind | saved << KIND_BITS | words << (KIND_BITS + SAVED_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_loses_nothing_or_says_unsupported() {
        let mut rules = vec![Rule::Outermost, Rule::Signal, Rule::Unsupported];
        for offset in [8, 16, 4096, WORDS_MAX * 8] {
            for saved in [Saved::Unchanged, Saved::Below(2), Saved::Below(SAVED_MAX)] {
                rules.push(Rule::StackPointer { offset, saved });
                rules.push(Rule::FramePointer { offset, saved });
            }
            rules.push(Rule::Realigned { offset });
        }
        for rule in rules {
            assert_eq!(rule.pack().unpack(), rule);
            assert!(rule.pack().0 < 1 << RULE_BITS);
        }
        let saved = Saved::Unchanged;
        for offset in [4, WORDS_MAX * 8 + 8] {
            let rule = Rule::StackPointer { offset, saved };
            assert_eq!(rule.pack().unpack(), Rule::Unsupported);
        }
        let rule = Rule::FramePointer { offset: 16, saved: Saved::Below(SAVED_MAX + 1) };
        assert_eq!(rule.pack().unpack(), Rule::Unsupported);
    }
}
