//! Questions about an address (DESIGN 5): a block must look like an allocation of its own.

use cachealloc_core::Address;
use cachealloc_core::order::Agent;

use crate::driver::api;
use crate::driver::sys::*;
use crate::functions::Function;
use crate::hooks::{beside, common, guarded};
use crate::runtime::extents::{self, Extent, LiveBlock, Place};
use crate::runtime::{agents, bypass, lock};

/// An address of no allocation, to learn what the driver says of one.
const UNKNOWN_ADDRESS: u64 = 4096;

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
            Some(block) => {
                // SAFETY: each is null or the program's to be written.
                unsafe {
                    write(base, block.address);
                    write(bytes, block.requested_bytes as usize);
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
    if attribute == POINTER_P2P_TOKENS {
        show_p2p_tokens(function);
    }
    let Some(extent) = asked(address) else { return common::retried(function, real) };
    if data.is_null() {
        return real();
    }
    guarded(
        function,
        || match block_around(extent, address as u64) {
            None => INVALID_VALUE,
            Some(block) => answer(&block, attribute, data).unwrap_or_else(real),
        },
        real,
    )
}

/// `cuPointerGetAttributes(count, CUpointer_attribute *, void **data, CUdeviceptr pointer)`: the
/// driver answers, then what depends on the block is put right. It never fails for an address that
/// it does not know, and a freed block is one.
pub fn attributes(
    function: &'static Function,
    words: &[usize; 4],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    let (count, address) = (words[0] as u32, words[3] as u64);
    let (kinds, data) = (words[1] as *const u32, words[2] as *const *mut u64);
    // SAFETY: null, or the program's array of this length; the driver reads it as well.
    let kind = |index: u32| unsafe { *kinds.add(index as usize) };
    if !kinds.is_null() && (0..count).any(|index| kind(index) == POINTER_P2P_TOKENS) {
        show_p2p_tokens(function);
    }
    let Some(extent) = asked(words[3]) else { return common::retried(function, real) };
    guarded(
        function,
        || {
            let Some(block) = block_around(extent, address) else {
                return api::pointer_get_attributes(count, words[1], words[2], UNKNOWN_ADDRESS);
            };
            let code = common::retried(function, real);
            if code != SUCCESS || kinds.is_null() || data.is_null() {
                return code;
            }
            for index in 0..count {
                // SAFETY: as above.
                let data = unsafe { *data.add(index as usize) };
                if !data.is_null() {
                    answer(&block, kind(index), data);
                }
            }
            code
        },
        real,
    )
}

/// `cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)`.
pub fn set_attribute(
    function: &'static Function,
    words: &[usize; 3],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_on() && words[1] as u32 == POINTER_SYNC_MEMOPS {
        beside(function, || agents::show(Agent::SyncMemops));
    }
    real()
}

/// The segment of ours that is asked about, while hooks work.
fn asked(address: usize) -> Option<&'static Extent> {
    if bypass::is_on() { extents::extent_of(address as u64) } else { None }
}

/// The block of the program that the address lies in.
fn block_around(extent: &'static Extent, address: u64) -> Option<LiveBlock> {
    let view = lock(&extent.context().allocator).find(Address(address))?;
    match extents::place(view.address.0) {
        Place::Block(block) if address < block.address + block.requested_bytes => Some(block),
        _ => None,
    }
}

/// Writes the answer if it depends on the block.
fn answer(block: &LiveBlock, attribute: u32, data: *mut u64) -> Option<CuResult> {
    let value = match attribute {
        POINTER_RANGE_START => block.address,
        POINTER_RANGE_SIZE => block.requested_bytes,
        POINTER_BUFFER_ID => block.buffer_id(),
        _ => return None,
    };
    // SAFETY: the program's to be written, eight bytes for these attributes.
    unsafe { data.write(value) };
    Some(SUCCESS)
}

fn show_p2p_tokens(function: &'static Function) {
    if bypass::is_on() {
        beside(function, || agents::show(Agent::P2pTokens));
    }
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
