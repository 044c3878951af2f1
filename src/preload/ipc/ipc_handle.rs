//! Handles of blocks that are not a whole segment.
//!
//! The driver's handle denotes an allocation, whatever address inside it was given (measured), and
//! the importer gets its base. To the driver the segment is the allocation: for a block further
//! inside, the importer would read an adjacent block's bytes, without an error. So the handle of
//! such a block contains its offset, for an importer that runs this library; the driver of any
//! other importer refuses it. The handle of a block at the start contains its size, for an importer
//! that runs this library. For any other importer it is the driver's own handle, which denotes the
//! whole segment.
//!
//! ```text
//! bytes    driver                 ours
//! 24..28   checked                unchanged
//! 32..37   checked                unchanged
//! 37..41   ignored                offset in the segment, in units of 512
//! 41..47   ignored                bytes that the program asked for
//! 47       ignored                version of this layout
//! 48..56   checked (400 and 1)    inverted: no driver accepts it; unchanged at the start of a segment
//! 56..60   ignored                magic
//! 60..64   ignored                checksum of all the others
//! ```
//!
//! Measured with driver 580: it refuses a change of any single checked byte, and does not notice a
//! change of an ignored one. A handle with a wrong checksum or another version is passed to the
//! driver unchanged.

use core::ops::Range;

use crate::driver::sys::Handle64;

pub(crate) type Bytes = [u8; 64];

const OFFSET: Range<usize> = 37..41;
const REQUESTED: Range<usize> = 41..47;
const VERSION: usize = 47;
const INVERTED: Range<usize> = 48..56;
const MAGIC: Range<usize> = 56..60;
const CHECKSUM: Range<usize> = 60..64;

const MAGIC_VALUE: [u8; 4] = *b"CaAl";
const VERSION_VALUE: u8 = 1;
const OFFSET_UNIT_BYTES: u64 = 512;

/// Position and size of a block in its segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inside {
    pub offset: u64,
    pub requested_bytes: u64,
}

/// Returns the handle of a block inside the segment that `plain` denotes, or `None` if the block
/// does not fit the layout.
pub(crate) fn mark(plain: &Bytes, inside: Inside) -> Option<Bytes> {
    let units = u32::try_from(inside.offset / OFFSET_UNIT_BYTES).ok()?;
    let requested = inside.requested_bytes.to_le_bytes();
    if !inside.offset.is_multiple_of(OFFSET_UNIT_BYTES) || requested[REQUESTED.len()..] != [0, 0] {
        return None;
    }
    let mut handle = *plain;
    handle[OFFSET].copy_from_slice(&units.to_le_bytes());
    handle[REQUESTED].copy_from_slice(&requested[..REQUESTED.len()]);
    handle[VERSION] = VERSION_VALUE;
    invert(&mut handle, inside);
    handle[MAGIC].copy_from_slice(&MAGIC_VALUE);
    let checksum = checksum(&handle);
    handle[CHECKSUM].copy_from_slice(&checksum);
    Some(handle)
}

/// Returns the driver's handle and the block's place, if `mark` made this handle.
pub(crate) fn read(handle: &Bytes) -> Option<(Bytes, Inside)> {
    let ours = handle[MAGIC] == MAGIC_VALUE && handle[CHECKSUM] == checksum(handle);
    if !ours || handle[VERSION] != VERSION_VALUE {
        return None;
    }
    let inside = Inside {
        offset: number(&handle[OFFSET]) * OFFSET_UNIT_BYTES,
        requested_bytes: number(&handle[REQUESTED]),
    };
    let mut plain = *handle;
    for ignored in [OFFSET, REQUESTED, VERSION..VERSION + 1, MAGIC, CHECKSUM] {
        plain[ignored].fill(0);
    }
    invert(&mut plain, inside);
    Some((plain, inside))
}

fn invert(handle: &mut Bytes, inside: Inside) {
    if inside.offset != 0 {
        handle[INVERTED].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Converts a handle to the form that the driver takes.
pub(crate) fn by_value(handle: &Bytes) -> Handle64 {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(handle.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    Handle64(words)
}

/// Inverts `by_value`.
pub(crate) fn bytes_of(handle: Handle64) -> Bytes {
    let mut bytes = [0; 64];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(handle.0) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn number(little_endian: &[u8]) -> u64 {
    little_endian.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// FNV-1a over all bytes before the checksum, folded.
fn checksum(handle: &Bytes) -> [u8; 4] {
    let hash = handle[..CHECKSUM.start].iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash >> 32) as u32 ^ hash as u32).to_le_bytes()
}
