//! What a capture writes of each frame: its address, or also where it lies.

pub(crate) trait Shown: Copy {
    fn of(address: u64, stack_pointer: u64) -> Self;
}

impl Shown for u64 {
    #[inline(always)]
    fn of(address: u64, _: u64) -> u64 {
        address
    }
}

/// A frame on the stack: its own memory begins at its stack pointer and ends at that of its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The return address, as [`capture`](crate::capture) has it.
    pub address: u64,
    pub stack_pointer: u64,
}

impl Shown for Place {
    #[inline(always)]
    fn of(address: u64, stack_pointer: u64) -> Place {
        Place { address, stack_pointer }
    }
}
