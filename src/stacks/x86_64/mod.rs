//! x86-64: the range of code addresses, the names of the registers, and the step from a frame to
//! its caller.

pub(crate) mod describe;
pub(crate) mod expressions;
pub(crate) mod frame;
pub(crate) mod rule;

use gimli::{Register, Vendor};

/// DWARF numbers of the registers.
pub(crate) const FRAME_POINTER: Register = Register(6);
pub(crate) const STACK_POINTER: Register = Register(7);
pub(crate) const RETURN_ADDRESS: Register = Register(16);
pub(crate) const VENDOR: Vendor = Vendor::Default;

/// All code lies below this: the part of the address space that Linux gives to programs by default.
pub(crate) const ADDRESS_BITS: u32 = 47;
pub(crate) const KEY_BITS: u32 = 47;

/// Returns the key of an address in the rule cache, which is unique.
#[inline(always)]
pub(crate) fn key(address: u64) -> u64 {
    address
}

/// `mov $15, %rax; syscall`: the code to which a signal handler returns. libc and debuggers also
/// recognize it by its bytes, because glibc's tables describe it with an expression per register.
pub(crate) const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
