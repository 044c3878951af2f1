//! Questions about an address (DESIGN 5): a block must look like an allocation of its own.

use cachealloc_core::Address;
use cachealloc_core::order::Agent;

use crate::driver::sys::*;
use crate::functions::Function;
use crate::hooks::{common, guarded};
use crate::runtime::extents::{self, Extent, Place};
use crate::runtime::{agents, bypass, lock};

/// A block as the program sees it.
struct Range {
    start: u64,
    bytes: u64,
}

/// `cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)`.
pub fn range(
    function: &'static Function,
    words: &[usize; 3],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    let Some(extent) = asked(words[2]) else { return real() };
    let (base, bytes) = (words[0] as *mut u64, words[1] as *mut usize);
    guarded(
        function,
        || match block_around(extent, words[2] as u64) {
            // Freed, but still mapped: to the program it is no allocation.
            None => NOT_FOUND,
            Some(range) => {
                // SAFETY: each is null or the program's to be written.
                unsafe {
                    write(base, range.start);
                    write(bytes, range.bytes as usize);
                }
                SUCCESS
            }
        },
        real,
    )
}

/// `cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)`.
pub fn attribute(
    function: &'static Function,
    words: &[usize; 3],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    let (data, attribute, address) = (words[0] as *mut u64, words[1] as u32, words[2]);
    if bypass::is_on() && attribute == POINTER_P2P_TOKENS {
        guarded(
            function,
            || {
                agents::show(Agent::P2pTokens);
                0
            },
            || 0,
        );
    }
    let Some(extent) = asked(address) else { return common::retried(function, real) };
    if data.is_null() {
        return real();
    }
    guarded(
        function,
        || match block_around(extent, address as u64) {
            None => INVALID_VALUE,
            Some(range) => answer(&range, attribute, data).unwrap_or_else(real),
        },
        real,
    )
}

/// `cuPointerGetAttributes(count, CUpointer_attribute *, void **data, CUdeviceptr pointer)`: the
/// driver answers, then what depends on the block is put right.
pub fn attributes(
    function: &'static Function,
    words: &[usize; 4],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    let code = common::retried(function, real);
    let Some(extent) = asked(words[3]) else { return code };
    let (kinds, data) = (words[1] as *const u32, words[2] as *const *mut u64);
    if code != SUCCESS || kinds.is_null() || data.is_null() {
        return code;
    }
    guarded(
        function,
        || {
            let Some(range) = block_around(extent, words[3] as u64) else { return code };
            for index in 0..words[0] as u32 as usize {
                // SAFETY: the driver has just read both arrays up to this length.
                let (kind, data) = unsafe { (*kinds.add(index), *data.add(index)) };
                if !data.is_null() {
                    answer(&range, kind, data);
                }
            }
            code
        },
        || code,
    )
}

/// `cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)`.
pub fn set_attribute(
    function: &'static Function,
    words: &[usize; 3],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_on() && words[1] as u32 == POINTER_SYNC_MEMOPS {
        guarded(
            function,
            || {
                agents::show(Agent::SyncMemops);
                0
            },
            || 0,
        );
    }
    real()
}

/// The segment of ours that is asked about, while hooks work.
fn asked(address: usize) -> Option<&'static Extent> {
    if bypass::is_on() { extents::extent_of(address as u64) } else { None }
}

fn block_around(extent: &'static Extent, address: u64) -> Option<Range> {
    let view = lock(&extent.context().allocator).find(Address(address))?;
    match extents::place(view.address.0) {
        Place::Block(block) if address < block.address + block.requested_bytes => {
            Some(Range { start: block.address, bytes: block.requested_bytes })
        }
        _ => None,
    }
}

/// Writes the answer if it depends on the block.
fn answer(range: &Range, attribute: u32, data: *mut u64) -> Option<CuResult> {
    let value = match attribute {
        POINTER_RANGE_START => range.start,
        POINTER_RANGE_SIZE => range.bytes,
        _ => return None,
    };
    // SAFETY: the program's to be written, eight bytes for these attributes.
    unsafe { data.write(value) };
    Some(SUCCESS)
}

/// # Safety
///
/// `target` is null or valid for a write.
unsafe fn write<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: the caller's promise.
        unsafe { target.write(value) };
    }
}
