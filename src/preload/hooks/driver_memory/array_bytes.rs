//! The size of an array, computed from its descriptor. The driver pads arrays; this is the size
//! that the program asked for.

use crate::functions::id;

/// `CUDA_ARRAY_DESCRIPTOR_v2`.
#[repr(C)]
struct Flat {
    width: u64,
    height: u64,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v2`.
#[repr(C)]
struct Deep {
    width: u64,
    height: u64,
    depth: u64,
    format: u32,
    channels: u32,
    flags: u32,
}

/// Returns the size of the array that this call creates. The second argument is its descriptor, and
/// for a mipmapped array the third is the number of levels.
///
/// # Safety
///
/// The descriptor must be readable.
pub(crate) unsafe fn of(function: usize, words: &[usize]) -> u64 {
    if function == id::cuArrayCreate_v2 {
        // SAFETY: the caller's promise.
        let flat = unsafe { &*(words[1] as *const Flat) };
        return level(flat.width, flat.height, 1)
            .saturating_mul(element(flat.format, flat.channels));
    }
    // SAFETY: the caller's promise.
    let deep = unsafe { &*(words[1] as *const Deep) };
    // Sparse arrays and arrays to be mapped later have no memory of their own.
    if deep.flags & (SPARSE | DEFERRED_MAPPING) != 0 {
        return 0;
    }
    let levels = if function == id::cuMipmappedArrayCreate { words[2] as u32 as u64 } else { 1 };
    let elements = (0..levels.min(64)).map(|step| {
        let shrunk = |size: u64| if size == 0 { 0 } else { (size >> step).max(1) };
        level(shrunk(deep.width), shrunk(deep.height), shrunk(deep.depth))
    });
    let elements = elements.fold(0, u64::saturating_add);
    elements.saturating_mul(element(deep.format, deep.channels))
}

const SPARSE: u32 = 0x40;
const DEFERRED_MAPPING: u32 = 0x80;

/// A size of 0 means that the dimension does not exist.
fn level(width: u64, height: u64, depth: u64) -> u64 {
    width.saturating_mul(height.max(1)).saturating_mul(depth.max(1))
}

/// The low bits of `CUarray_format` encode the integer's width; 0x10 and 0x20 are floats; from 0xc3
/// and 0xc9 on follow normalized 16-bit formats.
fn element(format: u32, channels: u32) -> u64 {
    let bytes = match format {
        0x02 | 0x09 | 0x10 | 0xc3..=0xc5 | 0xc9..=0xcb => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 1,
    };
    bytes * u64::from(channels.max(1))
}
