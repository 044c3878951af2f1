//! Memory pools: when the default pool is not ours any more (docs/ordering.md 7, hazard 19).

use core::ops::RangeInclusive;

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::pool_numbers::Number;
use crate::cache::stream_frees::Waiter;
use crate::cache::{pools, stream_frees};
use crate::contexts;
use crate::driver::api;
use crate::driver::sys::{AccessDescription, CuResult, POOL_RELEASE_THRESHOLD, PoolHandle};
use crate::driver_memory::pool_devices;
use crate::functions::Function;
use crate::hooks::{Real, beside, common};
use crate::ipc::peers;
use crate::ordering::{observers, pending};
use crate::process::bypass;

/// `cuMemPoolDestroy(pool)`.
pub(crate) fn destroy(function: &'static Function, pool: PoolHandle, real: impl Real) -> CuResult {
    leave_if_default(function, pool);
    pool_devices::end_by(pool, || common::pass(function, real))
}

/// `cuMemPoolExportToShareableHandle(handle, pool, ..)`: the program uses the pool itself.
pub(crate) fn use_default(
    function: &'static Function,
    pool: PoolHandle,
    real: impl Real,
) -> CuResult {
    leave_if_default(function, pool);
    common::pass(function, real)
}

/// `cuMemPoolGetAttribute(pool, attribute, value)`: memory that we serve counts as used and reserved,
/// like that of the pool.
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
        && bypass::is_caching()
    {
        beside(function, || {
            let Some(device) = pools::device_of_default(pool) else { return };
            let threshold_bytes =
                api::mem_pool_get_attribute(pool, POOL_RELEASE_THRESHOLD).unwrap_or(0);
            // SAFETY: the program's place; the driver has just written such a number there.
            unsafe {
                *value += pools::number_of_device(device, number, threshold_bytes);
            }
        });
    }
    code
}

/// `cuMemPoolTrimTo(pool, bytes)`. Memory of the cache is free for any request, and shown as free. A pool of the driver's keeps
/// what work still uses: of that which comes before a free nothing, natively.
pub(crate) fn trim(
    function: &'static Function,
    pool: PoolHandle,
    bytes: usize,
    real: impl Real,
) -> CuResult {
    if bypass::is_caching() && rule_holds(Rule::TrimBehindFrees) {
        beside(function, || {
            if pools::device_of_default(pool).is_none() {
                pending::wait_as_queries();
                for context in contexts::all() {
                    let Some(_open) = context.keep_open_soon() else { continue };
                    stream_frees::wait_for_plain_frees(context, Waiter::GoesOn);
                }
            }
        });
    }
    let code = common::pass(function, real);
    if code.is_ok() && bypass::is_caching() {
        beside(function, || {
            if let Some(device) = pools::device_of_default(pool) {
                let keep = bytes as u64;
                pools::change_numbers(device, |numbers| numbers.keep_at_most(keep));
            }
        });
    }
    code
}

/// `cuMemPoolSetAccess(pool, const CUmemAccessDesc *accesses, size_t count)`: also opens what the
/// program already has from the default pool.
pub(crate) fn set_access(
    function: &'static Function,
    pool: PoolHandle,
    accesses: *const AccessDescription,
    count: usize,
    real: impl Real,
) -> CuResult {
    if bypass::is_caching() {
        beside(function, || observers::observe(Observer::PeerAccess));
    }
    let code = use_default(function, pool, real);
    if code.is_ok() && bypass::is_caching() && !accesses.is_null() {
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

/// `cuMemPoolSetAttribute(pool, attribute, value)`: the release threshold is a hint that changes nothing
/// for us, and resetting the high-water marks resets ours. The other attributes are policies of the
/// driver.
pub(crate) fn set_attribute(
    function: &'static Function,
    pool: PoolHandle,
    attribute: u32,
    real: impl Real,
) -> CuResult {
    let number = Number::of(attribute);
    if attribute != POOL_RELEASE_THRESHOLD && number.is_none() {
        leave_if_default(function, pool);
    }
    let code = real();
    if let Some(number) = number
        && code.is_ok()
        && bypass::is_caching()
    {
        beside(function, || {
            if let Some(device) = pools::device_of_default(pool) {
                pools::change_numbers(device, |numbers| numbers.forget_peak(number));
            }
        });
    }
    code
}

/// `cuDeviceSetMemPool(CUdevice device, pool)`: the program provides a pool of its own.
pub(crate) fn replace(_function: &'static Function, device: i32, real: impl Real) -> CuResult {
    replaced(device..=device);
    real()
}

/// `cuMemSetMemPool`, for a location that is ignored here.
pub(crate) fn replace_anywhere(_function: &'static Function, real: impl Real) -> CuResult {
    replaced(0..=63);
    real()
}

fn replaced(devices: RangeInclusive<i32>) {
    if bypass::is_caching() {
        devices.for_each(|device| pools::leave(device, "another pool was made current"));
    }
}

fn leave_if_default(function: &'static Function, pool: PoolHandle) {
    if !bypass::is_caching() {
        return;
    }
    let leave = || {
        if let Some(device) = pools::device_of_default(pool) {
            pools::leave(device, "the program uses the default pool itself");
        }
    };
    beside(function, leave);
}
