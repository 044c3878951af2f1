//! Memory pools: when the default pool stops being ours (DESIGN 3.6, hazard 19).

use crate::driver::sys::{
    AccessDescription, CuResult, LOCATION_DEVICE, POOL_RELEASE_THRESHOLD, PoolHandle, SUCCESS,
};
use crate::functions::Function;
use crate::hooks::{beside, common, guarded};
use crate::runtime::{agents, bypass, peers, pools};

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
    common::pass(function, words, real)
}

/// `cuMemPoolSetAccess(pool, const CUmemAccessDesc *accesses, size_t count)`: what the program has from
/// the default pool already is opened with it.
pub fn set_access(
    function: &'static Function,
    words: &[usize; 3],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_on() {
        beside(function, || agents::show(Agent::PeerAccess));
    }
    let code = use_default(function, words, real);
    if code == SUCCESS && bypass::is_on() && words[1] != 0 {
        beside(function, || {
            let Some(owner) = pools::device_of_default(words[0]) else { return };
            // SAFETY: the program's array of this length; the driver has read it.
            let accesses = unsafe {
                core::slice::from_raw_parts(words[1] as *const AccessDescription, words[2])
            };
            let devices = accesses.iter().filter(|access| access.location_kind == LOCATION_DEVICE);
            for access in devices.filter(|access| access.flags != 0) {
                peers::pool_opened(owner, access.location_id);
            }
        });
    }
    code
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
