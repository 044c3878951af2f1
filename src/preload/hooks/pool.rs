//! Memory pools: when the default pool is not ours any more (docs/ordering.md 7, hazard 19).

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::pool_numbers::Number;
use crate::cache::pools;
use crate::driver::api;
use crate::driver::sys::{AccessDescription, CuResult, POOL_RELEASE_THRESHOLD, PoolHandle};
use crate::driver_memory::pool_devices;
use crate::functions::Function;
use crate::hooks::{beside, common};
use crate::ipc::peers;
use crate::ordering::observers;
use crate::process::bypass;

/// `cuMemPoolDestroy(pool)`, `cuMemPoolExportToShareableHandle(handle, pool, ...)`: the program uses the
/// pool itself.
pub(crate) fn use_default(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let second = function.base == "cuMemPoolExportToShareableHandle";
    leave_if_default(function, words[usize::from(second)]);
    if function.base == "cuMemPoolDestroy" {
        return pool_devices::end_by(words[0], || common::pass(function, words, real));
    }
    common::pass(function, words, real)
}

/// `cuMemPoolGetAttribute(pool, attribute, value)`: memory that we serve counts as used and reserved,
/// like that of the pool.
pub(crate) fn get_attribute(
    function: &'static Function,
    words: &[usize; 3],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let code = real();
    let number = Number::of(words[1] as u32).filter(|_| rule_holds(Rule::PoolNumbersAreOurs));
    if let Some(number) = number
        && code.is_ok()
        && words[2] != 0
        && bypass::is_caching()
    {
        beside(function, || {
            let Some(device) = pools::device_of_default(words[0]) else { return };
            let threshold_bytes =
                api::mem_pool_get_attribute(words[0], POOL_RELEASE_THRESHOLD).unwrap_or(0);
            // SAFETY: the program's place; the driver has just written such a number there.
            unsafe {
                *(words[2] as *mut u64) += pools::number_of_device(device, number, threshold_bytes);
            }
        });
    }
    code
}

/// `cuMemPoolTrimTo(pool, bytes)`. Memory of the cache is free for any request, and shown as free.
pub(crate) fn trim(
    function: &'static Function,
    words: &[usize; 2],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let code = common::pass(function, words, real);
    if code.is_ok() && bypass::is_caching() {
        beside(function, || {
            if let Some(device) = pools::device_of_default(words[0]) {
                let keep = words[1] as u64;
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
    words: &[usize; 3],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_caching() {
        beside(function, || observers::observe(Observer::PeerAccess));
    }
    let code = use_default(function, words, real);
    if code.is_ok() && bypass::is_caching() && words[1] != 0 {
        beside(function, || {
            let Some(owner) = pools::device_of_default(words[0]) else { return };
            // SAFETY: the program's array of this length; the driver has read it.
            let accesses = unsafe {
                core::slice::from_raw_parts(words[1] as *const AccessDescription, words[2])
            };
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
    words: &[usize; 3],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let number = Number::of(words[1] as u32);
    if words[1] as u32 != POOL_RELEASE_THRESHOLD && number.is_none() {
        leave_if_default(function, words[0]);
    }
    let code = real();
    if let Some(number) = number
        && code.is_ok()
        && bypass::is_caching()
    {
        beside(function, || {
            if let Some(device) = pools::device_of_default(words[0]) {
                pools::change_numbers(device, |numbers| numbers.forget_peak(number));
            }
        });
    }
    code
}

/// `cuDeviceSetMemPool(device, pool)`: the program provides a pool of its own; so does
/// `cuMemSetMemPool`, for a location that is ignored here.
pub(crate) fn replace(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_caching() {
        let devices =
            if function.base == "cuDeviceSetMemPool" { words[0]..=words[0] } else { 0..=63 };
        devices.for_each(|device| pools::leave(device as i32, "another pool was made current"));
    }
    real()
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
