//! aarch64: where its code lies, what its registers are called, and how one gets from a frame to its caller.

pub(crate) mod describe;
pub(crate) mod expressions;
pub(crate) mod frame;
pub(crate) mod rule;

use gimli::{Register, Vendor};

/// As DWARF numbers them: `x29`, `sp` and `x30`, the link register.
pub(crate) const FRAME_POINTER: Register = Register(29);
pub(crate) const STACK_POINTER: Register = Register(31);
pub(crate) const RETURN_ADDRESS: Register = Register(30);
/// Functions that sign their return address say so by an instruction of this vendor's.
pub(crate) const VENDOR: Vendor = Vendor::AArch64;

/// Code lies below this: the part of the address space that Linux gives to programs by default.
pub(crate) const ADDRESS_BITS: u32 = 48;
pub(crate) const KEY_BITS: u32 = 47;

/// What the rule cache knows an address by. Instructions are words: an address that is looked up is
/// one, or the byte before one, so its lowest two bits are equal.
#[inline(always)]
pub(crate) fn key(address: u64) -> u64 {
    address >> 1
}

/// `mov x8, #139; svc #0`: what a signal handler returns to. Unwinders know it by its bytes.
pub(crate) const SIGNAL_RETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
