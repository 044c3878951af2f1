//! The output of a capture for each frame: its address, and optionally its place on the stack.

pub(crate) trait Shown: Copy {
    fn of(address: u64, stack_pointer: u64) -> Self;
}

impl Shown for u64 {
    #[inline(always)]
    fn of(address: u64, _: u64) -> u64 {
        address
    }
}

/// A frame on the stack. Its memory begins at its stack pointer and ends at the stack pointer of
/// its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Return address, as in [`capture`](crate::capture).
    pub address: u64,
    pub stack_pointer: u64,
}

impl Shown for Place {
    #[inline(always)]
    fn of(address: u64, stack_pointer: u64) -> Place {
        Place { address, stack_pointer }
    }
}
