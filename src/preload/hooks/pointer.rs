//! Queries about an address: a block must look like a separate allocation.

use core::ffi::c_void;

use cachealloc_core::Address;
use cachealloc_core::order::Observer;

use crate::cache::pinned_blocks;
use crate::driver::api;
use crate::driver::sys::*;
use crate::driver_memory::table;
use crate::functions::Function;
use crate::hooks::observers::observed;
use crate::hooks::{Real, beside, common, guarded, host_memory, is_accepted};
use crate::ipc::exported_blocks;
use crate::ipc::imports;
use crate::ipc::imports::Import;
use crate::lock::lock;
use crate::ordering::{communication, observers};
use crate::pagemap;
use crate::pagemap::{Extent, Kind, LiveBlock, Place};
use crate::process::bypass;

/// The largest page size of a host.
const HOST_PAGE_BYTES_MAX: u64 = 64 << 10;
/// The driver maps memory of at least this size separately.
const MAPPING_BYTES: u64 = 2 << 20;
/// A page-aligned address in no allocation. The library passes it to the driver to get the result
/// for such an address.
const UNKNOWN_ADDRESS: u64 = 4096;

/// `cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)`.
pub(crate) fn range(
    function: &'static Function,
    base: *mut u64,
    bytes: *mut usize,
    address: u64,
    real: impl Real,
) -> CuResult {
    let Some(extent) = our_segment(address) else {
        if is_kept(address) {
            // SAFETY: each is null or the program's to be written.
            return unsafe { api::mem_get_address_range_into(base, bytes, UNKNOWN_ADDRESS) };
        }
        return match imports::find(address) {
            Some(import) => {
                // SAFETY: each is null or the program's to be written.
                unsafe { write_range(base, bytes, import.address, import.requested_bytes) };
                Ok(())
            }
            None => real(),
        };
    };
    // The driver refuses every query without a current context (measured).
    if api::ctx_get_id(0).is_err() {
        return real();
    }
    guarded(
        function,
        || match block_around(extent, address) {
            // SAFETY: each is null or the program's to be written. A block that is freed but still
            // mapped is not an allocation to the program.
            None => unsafe { api::mem_get_address_range_into(base, bytes, UNKNOWN_ADDRESS) },
            Some(block) => {
                // SAFETY: each is null or the program's to be written.
                unsafe { write_range(base, bytes, block.address, block.requested_bytes) };
                Ok(())
            }
        },
        real,
    )
}

/// `cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)`.
pub(crate) fn attribute(
    function: &'static Function,
    data: *mut u64,
    attribute: u32,
    address: u64,
    real: impl Real,
) -> CuResult {
    let code = attribute_of(function, data, attribute, address, real);
    if is_accepted(code) && attribute == POINTER_P2P_TOKENS {
        show_p2p_tokens(function);
    }
    code
}

fn attribute_of(
    function: &'static Function,
    data: *mut u64,
    attribute: u32,
    address: u64,
    real: impl Real,
) -> CuResult {
    let Some(extent) = our_segment(address) else {
        if is_kept(address) {
            return Err(CuError::INVALID_VALUE);
        }
        let known = known_in_part(address).filter(|_| !data.is_null());
        let answered = known.and_then(|known| answer(&known, attribute, data));
        return answered.unwrap_or_else(|| {
            let code = common::retried(function, real);
            if code.is_ok() {
                // SAFETY: the driver has just used these arguments.
                unsafe { show_other_address(function, attribute, data, address) };
            }
            code
        });
    };
    if data.is_null() {
        return real();
    }
    guarded(
        function,
        || match block_around(extent, address) {
            None => Err(CuError::INVALID_VALUE),
            Some(block) => answer(&Queried::Block(block), attribute, data).unwrap_or_else(|| {
                let code = real();
                if code.is_ok() {
                    correct(&block, attribute, data);
                }
                code
            }),
        },
        real,
    )
}

/// `cuPointerGetAttributes(count, CUpointer_attribute *, void **data, CUdeviceptr pointer)`: calls
/// the driver, then corrects the values that depend on the block. The driver never fails for an
/// unknown address, and an address in a freed block counts as unknown.
pub(crate) fn attributes(
    function: &'static Function,
    count: u32,
    kinds: *const u32,
    data: *const *mut u64,
    address: u64,
    real: impl Real,
) -> CuResult {
    let code = attributes_of(function, count, kinds, data, address, real);
    // SAFETY: null, or the program's array of this length; the driver has read it as well.
    let kind = |index: u32| unsafe { *kinds.add(index as usize) };
    let has_answered = is_accepted(code) && !kinds.is_null();
    if has_answered && (0..count).any(|index| kind(index) == POINTER_P2P_TOKENS) {
        show_p2p_tokens(function);
    }
    code
}

fn attributes_of(
    function: &'static Function,
    count: u32,
    kinds: *const u32,
    data: *const *mut u64,
    address: u64,
    real: impl Real,
) -> CuResult {
    // SAFETY: the program's array of this length; the driver has read it as well.
    let kind = |index: u32| unsafe { *kinds.add(index as usize) };
    let of_nothing = || {
        // SAFETY: the program's arrays of this length.
        let code = unsafe { api::pointer_get_attributes(count, kinds, data, UNKNOWN_ADDRESS) };
        if code.is_ok() {
            // SAFETY: as above.
            unsafe { answer_all(&Queried::Nothing(address), count, kinds, data) };
        }
        code
    };
    let Some(extent) = our_segment(address) else {
        if is_kept(address) {
            return of_nothing();
        }
        let code = common::retried(function, real);
        if code.is_ok() && !kinds.is_null() && !data.is_null() {
            for index in 0..count {
                // SAFETY: the program's arrays of this length, which the driver has just worked
                // with.
                unsafe {
                    let data = data.add(index as usize).read();
                    show_other_address(function, kind(index), data, address);
                }
            }
        }
        if let Some(known) = known_in_part(address).filter(|_| code.is_ok()) {
            // SAFETY: the program's arrays, which the driver has just worked with.
            unsafe { answer_all(&known, count, kinds, data) };
        }
        return code;
    };
    guarded(
        function,
        || {
            let Some(block) = block_around(extent, address) else { return of_nothing() };
            let code = common::retried(function, real);
            if code.is_ok() {
                // SAFETY: as above.
                unsafe { answer_all(&Queried::Block(block), count, kinds, data) };
            }
            code
        },
        real,
    )
}

/// `cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)`.
/// The driver sets `SYNC_MEMOPS` for the whole segment, where it stays set: additional waits are
/// harmless, missing ones are not. The program sees it as an attribute of the block.
pub(crate) fn set_attribute(
    function: &'static Function,
    value: *const u8,
    attribute: u32,
    address: u64,
    real: impl Real,
) -> CuResult {
    let code = set_attribute_of(function, value, attribute, address, real);
    if is_accepted(code) && attribute == POINTER_SYNC_MEMOPS {
        beside(function, || observers::observe(Observer::SyncMemops));
    }
    code
}

fn set_attribute_of(
    function: &'static Function,
    value: *const u8,
    attribute: u32,
    address: u64,
    real: impl Real,
) -> CuResult {
    let sync_memops = attribute == POINTER_SYNC_MEMOPS;
    let Some(extent) = our_segment(address) else {
        return if is_kept(address) { Err(CuError::INVALID_VALUE) } else { real() };
    };
    guarded(
        function,
        || {
            let Some(block) = block_around(extent, address) else {
                return Err(CuError::INVALID_VALUE);
            };
            if !sync_memops || value.is_null() {
                return real();
            }
            // SAFETY: not null, and the program's truth value, which has at least one byte.
            let on = unsafe { value.read() } != 0;
            let code = if on { real() } else { Ok(()) };
            if code.is_ok() {
                block.set_sync_memops(on);
            }
            code
        },
        real,
    )
}

/// `cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes, ..)`: returns a
/// dma-buf for other hardware. Freed memory has none, though it is still mapped. But programs widen
/// a block to host pages, so the range may begin in memory before the block. An open dma-buf keeps
/// its memory after the free (measured on an H200). So such blocks are exported like those of
/// `cuIpcGetMemHandle`.
pub(crate) fn range_handle(
    function: &'static Function,
    handle: *mut c_void,
    address: u64,
    bytes: usize,
    kind: u32,
    flags: u64,
    real: impl Real,
) -> CuResult {
    if let Some(extent) = our_segment(address) {
        let judge = || {
            let first = exported_blocks::touched(extent, address, bytes).next();
            if first.is_some_and(|block| block.address < address + HOST_PAGE_BYTES_MAX) {
                return Ok(());
            }
            let at = UNKNOWN_ADDRESS + address % UNKNOWN_ADDRESS;
            // SAFETY: the program's place.
            unsafe { api::mem_get_handle_for_address_range(handle, at, bytes, kind, flags) }
        };
        guarded(function, judge, || Ok(()))?;
        observed(function, Observer::AddressRangeHandle, real)?;
        // Only after the driver has accepted the call, so that a refused call changes nothing.
        // Until this hook returns, only this thread has the handle.
        beside(function, || exported_blocks::mark_range(extent, address, bytes));
        return Ok(());
    }
    observed(function, Observer::AddressRangeHandle, real)
}

/// `cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)`: ordinary
/// memory has no such handle (measured), and the handles of an arena do not belong to the program.
pub(crate) fn retain_handle(
    function: &'static Function,
    handle: *mut u64,
    address: u64,
    real: impl Real,
) -> CuResult {
    let ours = our_segment(address).is_some_and(Extent::is_expandable);
    if ours {
        return Err(CuError::INVALID_VALUE);
    }
    let code = common::pass(function, real);
    if code.is_ok() {
        // SAFETY: the driver has just written it.
        let handle = unsafe { *handle };
        beside(function, || {
            table::retained(handle);
            communication::retained(handle);
        });
    }
    code
}

/// Returns the library's segment that contains the address, if hooks are on.
fn our_segment(address: u64) -> Option<&'static Extent> {
    if bypass::is_caching() { pagemap::extent_of(address) } else { None }
}

/// Returns whether the address is in pinned memory that the program has freed, if hooks are on.
fn is_kept(address: u64) -> bool {
    bypass::is_caching() && pinned_blocks::are_kept_at(address)
}

/// Returns the program's block that contains the address.
pub(crate) fn block_around(extent: &'static Extent, address: u64) -> Option<LiveBlock> {
    if let Place::Block(block) = pagemap::place(address) {
        return Some(block);
    }
    let view = lock(&extent.context().allocator).find(Address(address))?;
    match pagemap::place(view.address.0) {
        Place::Block(block) if address < block.address + block.requested_bytes => Some(block),
        _ => None,
    }
}

/// Memory that the driver knows only as part of something larger, or as an earlier allocation.
enum Queried {
    Block(LiveBlock),
    /// Freed memory: an address in no allocation.
    Nothing(u64),
    Import(Import),
    /// Pinned memory that was reused for a later allocation, with this buffer id.
    Pinned(u64),
}

/// Returns what lies at an address outside the library's segments, if the driver knows it only in
/// part.
fn known_in_part(address: u64) -> Option<Queried> {
    let import = imports::find(address).map(Queried::Import);
    import.or_else(|| pinned_blocks::buffer_id(address).map(Queried::Pinned))
}

/// Writes the value of the attribute, if it depends on the block.
fn answer(asked: &Queried, attribute: u32, data: *mut u64) -> Option<CuResult> {
    let value = match (attribute, asked) {
        (POINTER_RANGE_START, Queried::Block(block)) => block.address,
        (POINTER_RANGE_START, Queried::Import(import)) => import.address,
        (POINTER_RANGE_SIZE, Queried::Block(block)) => block.requested_bytes,
        (POINTER_RANGE_SIZE, Queried::Import(import)) => import.requested_bytes,
        (POINTER_BUFFER_ID, Queried::Block(block)) => block.buffer_id(),
        (POINTER_BUFFER_ID, Queried::Import(import)) => import.buffer_id,
        (POINTER_BUFFER_ID, Queried::Pinned(id)) => *id,
        // Measured for 4 MiB: unlike small allocations, they share no mapping.
        (POINTER_MAPPING_BASE, Queried::Block(block)) if is_alone(block) => block.address,
        (POINTER_MAPPING_SIZE, Queried::Block(block)) if is_alone(block) => {
            let end = block.extent.base() + block.extent.bytes();
            block.requested_bytes.next_multiple_of(MAPPING_BYTES).min(end - block.address)
        }
        (POINTER_MEMORY_BLOCK_ID, Queried::Block(block)) if is_alone(block) => block.buffer_id(),
        // Stream-ordered memory belongs to its pool (measured).
        (POINTER_CONTEXT, Queried::Block(block)) if block.kind == Kind::Stream => 0,
        // The driver reports no context for virtual memory.
        (POINTER_CONTEXT, Queried::Block(block)) if block.extent.is_expandable() => {
            block.context().handle as u64
        }
        (POINTER_MEMPOOL_HANDLE, Queried::Block(block)) if block.kind == Kind::Stream => {
            pool_of(block)?
        }
        // The driver reports host memory for an unknown address (measured).
        (POINTER_HOST_POINTER, Queried::Nothing(address)) => *address,
        _ => return None,
    };
    // SAFETY: the program's to be written, eight bytes for these attributes.
    unsafe { data.write(value) };
    Some(Ok(()))
}

/// Returns whether the block would have a mapping of its own on the plain driver.
fn is_alone(block: &LiveBlock) -> bool {
    block.kind != Kind::Stream && block.requested_bytes >= MAPPING_BYTES
}

/// Returns the device's default pool, to which stream-ordered memory belongs on the plain driver.
fn pool_of(block: &LiveBlock) -> Option<u64> {
    api::device_get_default_mem_pool(block.context().device).ok().map(|pool| pool as u64)
}

/// Corrects the driver's result, which describes the segment. Memory of a stream-ordered pool
/// cannot be exported or registered (measured), and `SYNC_MEMOPS` may be set for another block.
fn correct(block: &LiveBlock, attribute: u32, data: *mut u64) {
    let value = match attribute {
        POINTER_IS_LEGACY_IPC_CAPABLE
        | POINTER_IS_GPU_DIRECT_RDMA_CAPABLE
        | POINTER_IS_HW_DECOMPRESS_CAPABLE
            if block.kind == Kind::Stream =>
        {
            false
        }
        POINTER_SYNC_MEMOPS => block.sync_memops(),
        _ => return,
    };
    // SAFETY: the driver has just written a truth value there, which has at least one byte.
    unsafe { data.cast::<u8>().write(value.into()) };
}

/// Corrects the values that the driver has just written and that depend on the block.
///
/// # Safety
///
/// The arguments must be those of a `cuPointerGetAttributes` that has succeeded.
unsafe fn answer_all(asked: &Queried, count: u32, kinds: *const u32, data: *const *mut u64) {
    if kinds.is_null() || data.is_null() {
        return;
    }
    for index in 0..count as usize {
        // SAFETY: the program's arrays of this length.
        let (kind, data) = unsafe { (kinds.add(index).read(), data.add(index).read()) };
        if data.is_null() {
            continue;
        }
        answer(asked, kind, data);
        if let Queried::Block(block) = asked {
            correct(block, kind, data);
        }
    }
}

/// Notes the device address that the driver returned, if it differs from the queried one.
///
/// # Safety
///
/// `data` must be null, or point to what the driver has written for this attribute.
unsafe fn show_other_address(
    function: &'static Function,
    attribute: u32,
    data: *const u64,
    address: u64,
) {
    if attribute == POINTER_DEVICE_POINTER && !data.is_null() && bypass::is_caching() {
        // SAFETY: the caller's promise; for this attribute it is an address.
        host_memory::device_reaches(function, address, unsafe { data.read() });
    }
}

fn show_p2p_tokens(function: &'static Function) {
    if bypass::is_caching() {
        beside(function, || observers::observe(Observer::P2pTokens));
    }
}

/// Writes an address range into the program's places.
///
/// # Safety
///
/// Each place must be null or valid for a write.
unsafe fn write_range(base: *mut u64, bytes: *mut usize, start: u64, length: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if !base.is_null() {
            base.write(start);
        }
        if !bytes.is_null() {
            bytes.write(length as usize);
        }
    }
}
