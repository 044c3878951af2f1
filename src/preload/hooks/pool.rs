//! Memory pools: when the default pool stops being ours (DESIGN 3.6, hazard 19).

use crate::driver::sys::{CuResult, POOL_RELEASE_THRESHOLD, PoolHandle};
use crate::functions::Function;
use crate::hooks::{beside, common, guarded};
use crate::runtime::{agents, bypass, pools};

use cachealloc_core::order::Agent;

/// Calls with a pool as first or second argument that measure it, open it or empty it.
pub fn use_default(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let second =
        ["cuMemPoolExportToShareableHandle", "cuMemPoolGetAccess"].contains(&function.base);
    leave_if_default(function, words[usize::from(second)]);
    if function.base == "cuMemPoolSetAccess" && bypass::is_on() {
        beside(function, || agents::show(Agent::PeerAccess));
    }
    common::pass(function, words, real)
}

/// `cuMemPoolSetAttribute(pool, attribute, value)`: the release threshold is a hint that changes
/// nothing for us.
pub fn set_attribute(
    function: &'static Function,
    words: &[usize; 3],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if words[1] as u32 != POOL_RELEASE_THRESHOLD {
        leave_if_default(function, words[0]);
    }
    real()
}

/// `cuDeviceSetMemPool(device, pool)`: the program brings its own; so does `cuMemSetMemPool`, for
/// a location that is not looked at.
pub fn replace(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_on() {
        let devices =
            if function.base == "cuDeviceSetMemPool" { words[0]..=words[0] } else { 0..=63 };
        devices.for_each(|device| pools::leave(device as i32, "another pool was made current"));
    }
    real()
}

fn leave_if_default(function: &'static Function, pool: PoolHandle) {
    if !bypass::is_on() {
        return;
    }
    let leave = || {
        if let Some(device) = pools::device_of_default(pool) {
            pools::leave(device, "the program works with the default pool");
        }
        0
    };
    guarded(function, leave, || 0);
}
