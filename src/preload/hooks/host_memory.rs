//! Host memory that the device can access, which makes work visible to the host (docs/ordering.md
//! 4).
//!
//! In this module, out of memory means out of host memory: the cache is not emptied for it (hazard
//! 22).

use cachealloc_core::order::VisibleCause;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::pinned_blocks;
use crate::cache::pinned_blocks::Lent;
use crate::cache::pinned_memory;
use crate::cache::pinned_memory::Freed;
use crate::driver::api;
use crate::driver::sys::{
    ACCESS_READ_WRITE, ALLOCATION_MANAGED, AccessDescription, AllocationProperties, CuError,
    CuResult, HOST_ALLOC_DEVICEMAP, Location, PoolHandle, PoolProperties, RESOURCE_ARRAY,
    RESOURCE_LINEAR, RESOURCE_MIPMAPPED_ARRAY, RESOURCE_PITCHED, ResourceDescription,
};
use crate::driver_memory::ending::Ending;
use crate::driver_memory::pool_devices;
use crate::driver_memory::pool_devices::Place;
use crate::driver_memory::table::Key;
use crate::functions::Function;
use crate::hooks::communication::makes_for_itself;
use crate::hooks::{Real, beside, common, guarded_with, is_accepted};
use crate::ordering::{communication, observers, pending, pinned, real_frees};
use crate::process::bypass;
use crate::serving;
use crate::serving::EndsBy;
use crate::state::thread::Thread;
use crate::statistics::waits::Wait;

/// `cuMemAllocHost(void **pointer, size_t bytes)`.
pub(crate) fn alloc(
    function: &'static Function,
    pointer: *mut usize,
    bytes: usize,
    real: impl Real,
) -> CuResult {
    alloc_as(function, pointer, bytes, 0, real)
}

/// `cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)`.
pub(crate) fn alloc_as(
    function: &'static Function,
    pointer: *mut usize,
    bytes: usize,
    flags: u32,
    real: impl Real,
) -> CuResult {
    let code = alloc_or_take(function, pointer, bytes, flags, real);
    if is_accepted(code) && flags & HOST_ALLOC_DEVICEMAP != 0 {
        reached(function, VisibleCause::DeviceMapped);
    }
    code
}

fn alloc_or_take(
    function: &'static Function,
    pointer: *mut usize,
    bytes: usize,
    flags: u32,
    real: impl Real,
) -> CuResult {
    if pointer.is_null() {
        return real();
    }
    let (mut shape, mut kept) = (None, None);
    let take = |thread: &Thread| {
        shape = pinned_memory::shape(function, bytes, flags);
        kept = shape.and_then(|shape| pinned_memory::take(thread, shape));
        Ok(())
    };
    let _ = guarded_with(function, take, || Ok(()));
    if let Some(address) = kept {
        // SAFETY: the program's place for the address.
        unsafe { pointer.write(address) };
        pinned::given(address, bytes);
        return Ok(());
    }
    let code = making_room(function, real);
    if code.is_ok() {
        // SAFETY: the driver has just written it.
        let address = unsafe { *pointer };
        pinned::given(address, bytes);
        let lent = shape.map(Lent::new);
        beside(function, || lent.into_iter().for_each(|it| pinned_blocks::lend(address, it)));
    }
    code
}

/// Runs the call, and repeats it once if it ran out of host memory and the library had kept some.
fn making_room(function: &'static Function, real: impl Real) -> CuResult {
    let code = real();
    if code != Err(CuError::OUT_OF_MEMORY) {
        return code;
    }
    let mut count = 0;
    let empty = |thread: &Thread| {
        count = pinned_memory::empty(thread);
        Ok(())
    };
    let _ = guarded_with(function, empty, || Ok(()));
    if count == 0 { code } else { real() }
}

/// `cuMemHostRegister(void *pointer, size_t bytes, unsigned flags)`.
pub(crate) fn register(
    function: &'static Function,
    pointer: usize,
    bytes: usize,
    flags: u32,
    real: impl Real,
) -> CuResult {
    let code = pinned::registered_by(pointer, bytes, || making_room(function, real));
    if is_accepted(code) && flags & HOST_ALLOC_DEVICEMAP != 0 {
        reached(function, VisibleCause::DeviceMapped);
    }
    // The plain driver has no memory at the address of what the program has freed.
    let is_kept = || pinned_blocks::are_kept_at(pointer as u64);
    match code {
        Err(CuError::HOST_MEMORY_ALREADY_REGISTERED) if is_kept() => Err(CuError::INVALID_VALUE),
        code => code,
    }
}

/// `cuMemFreeHost(pointer)`: keeps the memory for a later request if the library could wait for all
/// work.
pub(crate) fn free(function: &'static Function, pointer: usize, real: impl Real) -> CuResult {
    if !bypass::is_fast_path()
        && let Some(code) = common::observed_free(function, &[pointer])
    {
        return code;
    }
    let mut freed = Freed::Unknown;
    let claim = |thread: &Thread| {
        freed = pinned_memory::claim(thread, pointer);
        Ok(())
    };
    let _ = guarded_with(function, claim, || Ok(()));
    match freed {
        Freed::Unknown => end_by_driver(function, pointer, real),
        Freed::Refused(error) => Err(error),
        Freed::Waited(shape) => pinned::end_by(pointer, || {
            beside(function, || pinned_memory::keep(pointer, shape));
            Ok(())
        }),
        Freed::ByDriver(lent) => {
            let code = end_by_driver(function, pointer, real);
            if code.is_err() {
                beside(function, || pinned_blocks::lend(pointer, lent));
            }
            code
        }
    }
}

/// Lets the driver end memory that is in the library's table of driver memory.
fn end_by_driver(function: &'static Function, pointer: usize, real: impl Real) -> CuResult {
    let mut ending = Ending::default();
    beside(function, || {
        ending = serving::wait_and_end(Key::Memory(pointer as u64), EndsBy::FreeHost)
    });
    let code = end(function, pointer, real);
    beside(function, || ending.finish(code));
    code
}

/// `cuMemHostUnregister(pointer)`, and any end of pinned memory by the driver: teardowns.
pub(crate) fn end(_function: &'static Function, pointer: usize, real: impl Real) -> CuResult {
    pending::wait_all(Wait::Teardown);
    pinned::end_by(pointer, || real_frees::announced_everywhere(real))
}

/// `cuMemHostGetDevicePointer(device pointer *, pointer, flags)`: gives the memory a device
/// address, which may differ.
pub(crate) fn device_pointer(
    function: &'static Function,
    pointer: usize,
    real: impl Real,
) -> CuResult {
    let code = asked(pointer, real);
    if is_accepted(code) {
        reached(function, VisibleCause::DevicePointer);
    }
    code
}

/// Notes the address at which the driver says that the device reaches `asked`. It is the same
/// except for some host memory (hazard 71).
pub(crate) fn device_reaches(function: &'static Function, asked: u64, told: u64) {
    if told != asked && told != 0 && rule_holds(Rule::OtherAddressIsVisible) {
        reached(function, VisibleCause::DevicePointer);
    }
}

/// `cuMemHostGetFlags(unsigned *, pointer)`.
pub(crate) fn flags(_function: &'static Function, pointer: usize, real: impl Real) -> CuResult {
    asked(pointer, real)
}

/// Serves a query about pinned memory. Without a current context the driver refuses every query.
fn asked(pointer: usize, real: impl Real) -> CuResult {
    let kept = pinned_blocks::are_kept_at(pointer as u64);
    if kept && api::ctx_get_id(0).is_ok() { Err(CuError::INVALID_VALUE) } else { real() }
}

/// Notes that any kernel may reach host memory from now on. If a communication library makes the
/// call for its own use, only its kernels do.
fn reached(function: &'static Function, cause: VisibleCause) {
    if !makes_for_itself(function) {
        observers::visible(cause);
    }
}

/// `cuTexObjectCreate(texture, const CUDA_RESOURCE_DESC *, ...)`, `cuSurfObjectCreate(surface,
/// desc)`: kernels that get the object reach its underlying memory. An array is device memory.
pub(crate) fn resource(
    function: &'static Function,
    resource: *const ResourceDescription,
    real: impl Real,
) -> CuResult {
    // SAFETY: null, or the program's struct, valid for the call.
    let resource = unsafe { resource.as_ref() };
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

/// `cuTexRefSetAddress*`, `cuTensorMapEncode*`, `cuTensorMapReplaceAddress`, with this address. A
/// tensor map becomes a kernel argument, which need not contain the address unchanged.
pub(crate) fn behind_object(
    function: &'static Function,
    address: usize,
    real: impl Real,
) -> CuResult {
    reached_by_object(function, Some(address), real)
}

/// Notes that kernels may reach memory through an object. `address` is its underlying address, if
/// known.
fn reached_by_object(
    function: &'static Function,
    address: Option<usize>,
    real: impl Real,
) -> CuResult {
    let seen = address.is_none_or(pinned::is_named_by) && rule_holds(Rule::ObjectsAreVisible);
    let code = common::retried(function, real);
    if is_accepted(code) && seen && bypass::is_caching() {
        observers::visible(VisibleCause::BehindObject);
    }
    code
}

/// `cuMemSetAccess(address, bytes, const CUmemAccessDesc *, count)`: removing access is a teardown
/// (hazard 44).
pub(crate) fn set_access(
    function: &'static Function,
    accesses: *const AccessDescription,
    count: usize,
    real: impl Real,
) -> CuResult {
    wait_if_less(accesses, count);
    common::retried(function, real)
}

/// Waits for the barriers of earlier frees if the program takes access away.
pub(crate) fn wait_if_less(accesses: *const AccessDescription, count: usize) {
    // SAFETY: null, or the program's array of `count` elements, valid for the call.
    let opens = |index| unsafe { (*accesses.add(index)).flags } == ACCESS_READ_WRITE;
    let less = !accesses.is_null() && !(0..count).all(opens);
    if less && bypass::is_caching() && rule_holds(Rule::LessAccessWaits) {
        pending::wait_all(Wait::Teardown);
    }
}

/// Managed memory: the host can read what kernels write.
pub(crate) fn managed(function: &'static Function, real: impl Real) -> CuResult {
    let code = common::retried(function, real);
    if is_accepted(code) && bypass::is_caching() {
        observers::visible(VisibleCause::Managed);
    }
    code
}

/// `cuMemCreate(handle *, bytes, const CUmemAllocationProp *, flags)`: virtual memory may lie on
/// the host.
pub(crate) fn vmm_create(
    function: &'static Function,
    handle: *mut usize,
    properties: *const AllocationProperties,
    real: impl Real,
) -> CuResult {
    // SAFETY: null, or the program's struct.
    let properties = unsafe { properties.as_ref() };
    let on_host = properties.is_none_or(|made| made.location.may_be_on_host());
    // Memory that is not shareable with other processes need not be known.
    let shareable = properties.is_some_and(|made| made.handle_types != 0);
    let own = (on_host || shareable) && makes_for_itself(function);
    let code = match properties.and_then(|made| made.location.device()) {
        Some(device) => common::retried_on(function, device, real),
        None => common::retried(function, real),
    };
    if is_accepted(code) && on_host && !own {
        observers::visible(VisibleCause::HostVirtualMemory);
    }
    if code.is_ok() && own && !handle.is_null() {
        // SAFETY: the driver has just written it.
        let handle = unsafe { *handle };
        beside(function, || communication::made(handle as u64));
    }
    code
}

/// `cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *)`: memory from the pool may lie on
/// the host, or be managed.
pub(crate) fn pool_create(
    function: &'static Function,
    pool: *mut PoolHandle,
    properties: *const PoolProperties,
    real: impl Real,
) -> CuResult {
    let code = common::retried(function, real);
    // SAFETY: null, or the program's struct.
    let properties = unsafe { properties.as_ref() };
    if bypass::is_caching() {
        note_pool(function, pool, code, properties.map(|made| (made.kind, made.location)));
    }
    code
}

/// `cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *, CUmemAllocationType)`,
/// `cuMemGetMemPool`: pools that exist without being created.
pub(crate) fn pool_of_location(
    function: &'static Function,
    pool: *mut PoolHandle,
    location: *const Location,
    allocation_type: u32,
    real: impl Real,
) -> CuResult {
    let code = real();
    // SAFETY: null, or the program's struct.
    let location = unsafe { location.as_ref() };
    note_pool(function, pool, code, location.map(|location| (allocation_type, *location)));
    code
}

/// Notes where the pool's memory lies: this decides whether it counts against a limit, and whether
/// the host sees it. The pool is still empty.
fn note_pool(
    function: &'static Function,
    pool: *const PoolHandle,
    code: CuResult,
    made: Option<(u32, Location)>,
) {
    if code.is_ok() && !pool.is_null() {
        // SAFETY: the driver has just written it.
        let pool = unsafe { *pool };
        let place = made.and_then(|(kind, location)| place_of(kind, location));
        beside(function, || place.into_iter().for_each(|place| pool_devices::note(pool, place)));
    }
}

/// Returns the place of such memory, or `None` on a device that has no number in this process.
fn place_of(allocation_type: u32, location: Location) -> Option<Place> {
    match location.device() {
        _ if allocation_type == ALLOCATION_MANAGED => Some(Place::Managed),
        Some(device) => Some(Place::Device(device)),
        None => location.may_be_on_host().then_some(Place::Host),
    }
}

/// Notes that the driver has allocated memory at this place, in a pool or for a graph node.
pub(crate) fn made_at(place: Place) {
    match place {
        Place::Device(_) => {}
        Place::Host => observers::visible(VisibleCause::HostVirtualMemory),
        Place::Managed => observers::visible(VisibleCause::Managed),
    }
}

/// `CUmemPoolProps` of an allocation node: the first word holds the kind and the handle types, the
/// second the location.
pub(crate) fn made_by_node(pool_properties: [u64; 2]) {
    let [kinds, location] = pool_properties;
    place_of(kinds as u32, Location::from(location)).into_iter().for_each(made_at);
}
