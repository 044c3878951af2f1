//! x86-64: where its code lies, what its registers are called, and how one gets from a frame to its caller.

pub(crate) mod describe;
pub(crate) mod expressions;
pub(crate) mod frame;
pub(crate) mod rule;

use gimli::{Register, Vendor};

/// As DWARF numbers them.
pub(crate) const FRAME_POINTER: Register = Register(6);
pub(crate) const STACK_POINTER: Register = Register(7);
pub(crate) const RETURN_ADDRESS: Register = Register(16);
pub(crate) const VENDOR: Vendor = Vendor::Default;

/// Code lies below this: the part of the address space that Linux gives to programs by default.
pub(crate) const ADDRESS_BITS: u32 = 47;
pub(crate) const KEY_BITS: u32 = 47;

/// What the rule cache knows an address by: no other has the same.
#[inline(always)]
pub(crate) fn key(address: u64) -> u64 {
    address
}

/// `mov $15, %rax; syscall`: what a signal handler returns to. libc and debuggers know it by its
/// bytes too, as what glibc's tables say about it takes an expression per register.
pub(crate) const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
