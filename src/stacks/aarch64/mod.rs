//! aarch64: the range of code addresses, the names of the registers, and the step from a frame to
//! its caller.

pub(crate) mod describe;
pub(crate) mod expressions;
pub(crate) mod frame;
pub(crate) mod rule;

use gimli::{Register, Vendor};

/// DWARF numbers of `x29`, `sp` and `x30`, the link register.
pub(crate) const FRAME_POINTER: Register = Register(29);
pub(crate) const STACK_POINTER: Register = Register(31);
pub(crate) const RETURN_ADDRESS: Register = Register(30);
/// Vendor of the instruction by which functions declare that they sign their return address.
pub(crate) const VENDOR: Vendor = Vendor::AArch64;

/// All code lies below this: the part of the address space that Linux gives to programs by default.
pub(crate) const ADDRESS_BITS: u32 = 48;
pub(crate) const KEY_BITS: u32 = 47;

/// Returns the key of an address in the rule cache. Instructions are words: an address that is
/// looked up is one, or the byte before one, so its lowest two bits are equal.
#[inline(always)]
pub(crate) fn key(address: u64) -> u64 {
    address >> 1
}

/// `mov x8, #139; svc #0`: the code to which a signal handler returns. Unwinders recognize it by
/// its bytes.
pub(crate) const SIGNAL_RETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
