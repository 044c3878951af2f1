//! Memory pools: when the library stops serving the default pool (docs/ordering.md 7, hazard 19).

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::{pools, stream_frees};
use crate::driver::api;
use crate::driver::sys::{AccessDescription, CuResult, POOL_RELEASE_THRESHOLD, PoolHandle};
use crate::driver_memory::pool_devices;
use crate::functions::Function;
use crate::hooks::observers::observed;
use crate::hooks::{Real, beside, common, host_memory, is_accepted};
use crate::ipc::peers;
use crate::ordering::pending;
use crate::state::contexts;
use crate::state::pool_attributes::Number;
use crate::state::under_way::Waiter;

/// `cuMemPoolDestroy(pool)`: the driver refuses to destroy a default pool.
pub(crate) fn destroy(function: &'static Function, pool: PoolHandle, real: impl Real) -> CuResult {
    pool_devices::end_by(pool, || common::pass(function, real))
}

/// `cuMemPoolExportToShareableHandle(handle, pool, ..)`: the program uses the pool itself.
pub(crate) fn use_default(
    function: &'static Function,
    pool: PoolHandle,
    real: impl Real,
) -> CuResult {
    let code = common::pass(function, real);
    if is_accepted(code) {
        leave_if_default(function, pool);
    }
    code
}

/// `cuMemPoolGetAttribute(pool, attribute, value)`: memory that the library serves counts as used
/// and reserved, like that of the pool.
pub(crate) fn get_attribute(
    function: &'static Function,
    pool: PoolHandle,
    attribute: u32,
    value: *mut u64,
    real: impl Real,
) -> CuResult {
    let code = real();
    let number = Number::of(attribute).filter(|_| rule_holds(Rule::PoolNumbersAreOurs));
    if let Some(number) = number
        && code.is_ok()
        && !value.is_null()
    {
        beside(function, || {
            let Some(device) = pools::device_of_default(pool) else { return };
            let threshold_bytes = threshold_bytes(pool);
            // SAFETY: the program's place; the driver has just written such an attribute there.
            unsafe {
                *value += pools::number_of_device(device, number, threshold_bytes);
            }
        });
    }
    code
}

/// `cuMemPoolTrimTo(pool, bytes)`. Memory of the cache is free for any request, and reported as
/// free. A pool of the driver keeps memory that work still uses. On the plain driver, work
/// submitted before a free has completed when the free returns, and keeps nothing.
pub(crate) fn trim(
    function: &'static Function,
    pool: PoolHandle,
    bytes: usize,
    real: impl Real,
) -> CuResult {
    if rule_holds(Rule::TrimAfterFrees) {
        beside(function, || {
            pending::wait_like_query();
            for context in contexts::all() {
                let Some(_open) = context.keep_open_soon() else { continue };
                stream_frees::wait_for_plain_frees(context, Waiter::GoesOn);
            }
        });
    }
    let code = common::pass(function, real);
    if code.is_ok() {
        beside(function, || {
            if let Some(device) = pools::device_of_default(pool) {
                let keep = bytes as u64;
                pools::change_numbers(device, |numbers| numbers.keep_at_most(keep));
            }
        });
    }
    code
}

/// `cuMemPoolSetAccess(pool, const CUmemAccessDesc *accesses, size_t count)`: also opens memory
/// that the program already has from the default pool.
pub(crate) fn set_access(
    function: &'static Function,
    pool: PoolHandle,
    accesses: *const AccessDescription,
    count: usize,
    real: impl Real,
) -> CuResult {
    host_memory::wait_if_less(accesses, count);
    let code = observed(function, Observer::PeerAccess, real);
    if is_accepted(code) {
        leave_if_default(function, pool);
    }
    if code.is_ok() && !accesses.is_null() {
        beside(function, || {
            let Some(owner) = pools::device_of_default(pool) else { return };
            // SAFETY: the program's array of this length; the driver has read it.
            let accesses = unsafe { core::slice::from_raw_parts(accesses, count) };
            let open = accesses.iter().filter(|access| access.flags != 0);
            for device in open.filter_map(|access| access.location.device()) {
                peers::pool_opened(owner, device);
            }
        });
    }
    code
}

/// `cuMemPoolSetAttribute(pool, attribute, value)`. The release threshold is a hint without effect
/// on the library, and resetting the high-water marks resets the library's. The other attributes
/// are policies of the driver.
pub(crate) fn set_attribute(
    function: &'static Function,
    pool: PoolHandle,
    attribute: u32,
    real: impl Real,
) -> CuResult {
    let number = Number::of(attribute);
    let code = real();
    if attribute != POOL_RELEASE_THRESHOLD && number.is_none() && is_accepted(code) {
        leave_if_default(function, pool);
    }
    if let Some(number) = number
        && code.is_ok()
    {
        beside(function, || {
            if let Some(device) = pools::device_of_default(pool) {
                let kept_bytes = threshold_bytes(pool);
                pools::change_numbers(device, |numbers| numbers.forget_peak(number, kept_bytes));
            }
        });
    }
    code
}

/// Returns how much free memory the pool keeps.
fn threshold_bytes(pool: PoolHandle) -> u64 {
    api::mem_pool_get_attribute(pool, POOL_RELEASE_THRESHOLD).unwrap_or(0)
}

/// `cuDeviceSetMemPool(CUdevice device, pool)`: the program makes another pool current.
pub(crate) fn replace(function: &'static Function, device: i32, real: impl Real) -> CuResult {
    let code = real();
    if is_accepted(code) {
        beside(function, || leave_if_replaced(device));
    }
    code
}

/// `cuMemSetMemPool(CUmemLocation *, CUmemAllocationType, pool)`: sets the pool of the host, of
/// managed memory or of a device. The driver knows for which devices `cuMemAllocAsync` now takes
/// memory from another pool.
pub(crate) fn replace_anywhere(function: &'static Function, real: impl Real) -> CuResult {
    let code = real();
    if is_accepted(code) {
        beside(function, || {
            let count = api::device_get_count().unwrap_or(pools::DEVICES_MAX as i32);
            (0..count).for_each(leave_if_replaced);
        });
    }
    code
}

fn leave_if_replaced(device: i32) {
    let current = api::device_get_mem_pool(device).ok();
    let is_default = current.is_some() && current == pools::default_of(device);
    if !is_default || !rule_holds(Rule::RefusedChangesNothing) {
        pools::leave(device, "another pool was made current");
    }
}

fn leave_if_default(function: &'static Function, pool: PoolHandle) {
    let leave = || {
        if let Some(device) = pools::device_of_default(pool) {
            pools::leave(device, "the program uses the default pool itself");
        }
    };
    beside(function, leave);
}
