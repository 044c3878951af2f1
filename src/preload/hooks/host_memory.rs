//! Host memory that the device reaches: what makes work visible to the host (docs/ordering.md 4).
//!
//! Out of memory means host memory here: the cache is not emptied for it (hazard 22).

use cachealloc_core::order::VisibleCause;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::{
    ACCESS_READ_WRITE, AccessDescription, CuResult, HOST_ALLOC_DEVICEMAP, PoolHandle,
    RESOURCE_ARRAY, RESOURCE_LINEAR, RESOURCE_MIPMAPPED_ARRAY, RESOURCE_PITCHED,
    ResourceDescription, SUCCESS,
};
use crate::driver_memory::held_bytes;
use crate::functions::{Function, id};
use crate::hooks::{beside, common};
use crate::ordering::{observers, pending, pinned, real_frees};
use crate::process::bypass;
use crate::statistics::waits::Wait;

/// `cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)`, `cuMemAllocHost(pointer, bytes)`.
pub fn alloc(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    if function.id == id::cuMemHostAlloc && words[2] as u32 & HOST_ALLOC_DEVICEMAP != 0 {
        observers::visible(VisibleCause::DeviceMapped);
    }
    let code = real();
    let pointer = words[0] as *const usize;
    if code == SUCCESS && !pointer.is_null() {
        // SAFETY: the driver has just written it.
        pinned::given(unsafe { *pointer }, words[1]);
    }
    code
}

/// `cuMemHostRegister(void *pointer, size_t bytes, unsigned flags)`.
pub fn register(
    _function: &'static Function,
    words: &[usize; 3],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    if words[2] as u32 & HOST_ALLOC_DEVICEMAP != 0 {
        observers::visible(VisibleCause::DeviceMapped);
    }
    pinned::registered_by(words[0], words[1], real)
}

/// `cuMemFreeHost(pointer)`, `cuMemHostUnregister(pointer)`: teardowns.
pub fn free(
    _function: &'static Function,
    words: &[usize; 1],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    pending::wait_all(Wait::Teardown);
    pinned::end_by(words[0], || real_frees::announced_everywhere(real))
}

/// `cuMemHostGetDevicePointer`: the device is told of the memory under another address.
pub fn device_pointer(
    _function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_on() {
        observers::visible(VisibleCause::DevicePointer);
    }
    real()
}

/// `cuTexObjectCreate(texture, const CUDA_RESOURCE_DESC *, ...)`, `cuSurfObjectCreate(surface, desc)`:
/// kernels that get the object reach the memory behind it. An array lies on the device.
pub fn resource(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    // SAFETY: null, or the program's struct, valid for the call.
    let resource = unsafe { (words[1] as *const ResourceDescription).as_ref() };
    let address = match resource {
        None => Some(0),
        Some(ResourceDescription { kind, device }) => match *kind {
            RESOURCE_ARRAY | RESOURCE_MIPMAPPED_ARRAY => Some(0),
            RESOURCE_LINEAR | RESOURCE_PITCHED => Some(*device as usize),
            _ => None,
        },
    };
    reached_by_object(function, address, real)
}

/// `cuTexRefSetAddress*(.., .., address, ..)`.
pub fn texture_reference(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    reached_by_object(function, Some(words[2]), real)
}

/// `cuTensorMapEncode*(.., .., .., address, ..)`, `cuTensorMapReplaceAddress(map, address)`: the map
/// becomes an argument, in which the address need not stand as it is.
pub fn tensor_map(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let address = if words.len() == 2 { words[1] } else { words[3] };
    reached_by_object(function, Some(address), real)
}

/// `address`: what the object leads to; `None` where that is not known.
fn reached_by_object(
    function: &'static Function,
    address: Option<usize>,
    real: impl Fn() -> CuResult,
) -> CuResult {
    let seen = address.is_none_or(pinned::is_named_by) && rule_holds(Rule::ObjectsLook);
    if seen && bypass::is_on() {
        observers::visible(VisibleCause::BehindObject);
    }
    common::retried(function, real)
}

/// `cuMemSetAccess(address, bytes, const CUmemAccessDesc *, count)`: access that is taken away is a
/// teardown (hazard 44).
pub fn set_access(
    function: &'static Function,
    words: &[usize; 4],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let (accesses, count) = (words[2] as *const AccessDescription, words[3]);
    // SAFETY: null, or the program's array of so many, valid for the call.
    let opens = |index| unsafe { (*accesses.add(index)).flags } == ACCESS_READ_WRITE;
    let less = !accesses.is_null() && !(0..count).all(opens);
    if less && bypass::is_on() && rule_holds(Rule::LessAccessPays) {
        pending::wait_all(Wait::Teardown);
    }
    common::retried(function, real)
}

/// Managed memory: the host reads what kernels write.
pub fn managed(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_on() {
        observers::visible(VisibleCause::Managed);
    }
    common::retried(function, real)
}

/// `cuMemCreate(handle, bytes, const CUmemAllocationProp *, flags)`: virtual memory may lie on the
/// host.
pub fn vmm_create(
    function: &'static Function,
    words: &[usize; 4],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let properties = words[2] as *const u32;
    // SAFETY: null, or the program's struct: type, handle types, then the location's type.
    let location = (!properties.is_null()).then(|| unsafe { *properties.add(LOCATION_TYPE_WORD) });
    if bypass::is_on() && location != Some(LOCATION_DEVICE) {
        observers::visible(VisibleCause::HostVirtualMemory);
    }
    common::retried(function, real)
}

/// `cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *)`: what is allocated from the pool may
/// lie on the host, or be managed.
pub fn pool_create(
    function: &'static Function,
    words: &[usize; 2],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let properties = words[1] as *const u32;
    let mut device = None;
    if !properties.is_null() {
        // SAFETY: the program's struct: type, handle types, then the location's type and number.
        let [kind, location, number] = unsafe {
            [0, LOCATION_TYPE_WORD, LOCATION_TYPE_WORD + 1].map(|at| *properties.add(at))
        };
        pool_seen(kind, location);
        device = on_device(kind, location).then_some(number as i32);
    }
    let code = common::retried(function, real);
    note_pool(function, words[0], code, device);
    code
}

/// `cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *, CUmemAllocationType)`,
/// `cuMemGetMemPool`: pools that need no creation.
pub fn pool_of_location(
    function: &'static Function,
    words: &[usize; 3],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let location = words[1] as *const u32;
    let mut device = None;
    if !location.is_null() {
        // SAFETY: the program's struct: its type, then its number.
        let (kind, number) = unsafe { (*location, *location.add(1)) };
        pool_seen(words[2] as u32, kind);
        device = on_device(words[2] as u32, kind).then_some(number as i32);
    }
    let code = real();
    note_pool(function, words[0], code, device);
    code
}

/// Where the memory of a pool lies decides whether it counts against the limit.
fn note_pool(function: &'static Function, pool: usize, code: CuResult, device: Option<i32>) {
    if code == SUCCESS && pool != 0 && bypass::is_on() {
        // SAFETY: the driver has just written it.
        let pool = unsafe { *(pool as *const PoolHandle) };
        beside(function, || held_bytes::note_pool(pool, device));
    }
}

fn on_device(allocation_type: u32, location_type: u32) -> bool {
    allocation_type != ALLOCATION_MANAGED && location_type == LOCATION_DEVICE
}

fn pool_seen(allocation_type: u32, location_type: u32) {
    if !bypass::is_on() {
        return;
    }
    if allocation_type == ALLOCATION_MANAGED {
        observers::visible(VisibleCause::Managed);
    } else if location_type != LOCATION_DEVICE {
        observers::visible(VisibleCause::HostVirtualMemory);
    }
}

const LOCATION_TYPE_WORD: usize = 2;
const LOCATION_DEVICE: u32 = 1;
const ALLOCATION_MANAGED: u32 = 2;
