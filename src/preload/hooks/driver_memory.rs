//! Calls that create or end device memory of the driver (class `record` in the list): reports them to
//! the recorder, around whatever else their hook does, and counts them against the limit.

use crate::contexts::lookup;
use crate::driver::api;
use crate::driver::sys::{AllocationProperties, CuResult, OUT_OF_MEMORY, PoolHandle, SUCCESS};
use crate::driver_memory::held_bytes::{self, Ending, Key};
use crate::functions::Function;
use crate::hooks::driver_memory_limit::{self, Reported};
use crate::hooks::{beside, driver_memory_sizes};
use crate::process::bypass;
use crate::record::driver_memory::{self, Allocation};
use crate::record::{self, capture};
use crate::{config, memory_hooks};

/// Around the hook of such a call.
#[inline]
pub fn around(
    function: &'static Function,
    words: &[usize],
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return call();
    }
    if config::limits() {
        return driver_memory_limit::around(function, words, || recorded(function, words, call));
    }
    recorded(function, words, call)
}

#[inline]
fn recorded(
    function: &'static Function,
    words: &[usize],
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    if !record::is_on() {
        return call();
    }
    let mut ended = Vec::new();
    beside(function, || ended = before(function, words));
    let code = match function.base {
        "cuMemRelease" => driver_memory::physical_released_by(words[0] as u64, call),
        _ => call(),
    };
    beside(function, || {
        if code == SUCCESS {
            after(function, words);
        } else {
            ended.iter().for_each(|allocation| driver_memory::allocated(*allocation));
        }
    });
    code
}

/// Linear memory that the driver serves directly.
#[derive(Clone, Copy)]
pub struct Linear {
    /// Where the call writes the address.
    pub place: usize,
    pub bytes: usize,
    /// On a stream, from the named pool, if any.
    pub of_pool: bool,
    pub pool: Option<PoolHandle>,
    pub reported: Reported,
}

/// Lets the driver serve linear device memory.
pub fn serve(linear: Linear, call: impl FnOnce() -> CuResult) -> CuResult {
    let Linear { place, bytes, of_pool, pool, reported } = linear;
    let claim = match config::limits() {
        true => driver_memory_limit::claim_linear(pool, bytes as u64, reported),
        false => Ok(None),
    };
    let Ok(claim) = claim else { return OUT_OF_MEMORY };
    let code = call();
    if code == SUCCESS {
        // SAFETY: the driver has just written it.
        let address = unsafe { *(place as *const u64) };
        driver_memory_limit::hold_linear(address, claim, of_pool);
        if record::is_on() {
            made(address, bytes as u64, None, 0);
        }
    }
    code
}

/// The driver frees this address: runs its call, and reports what ended.
pub fn ends(address: u64, call: impl FnOnce() -> CuResult) -> CuResult {
    let ended = if record::is_on() { driver_memory::freed(address) } else { None };
    let held = match config::limits() {
        true => held_bytes::ends(Key::Memory(address)),
        false => Ending::default(),
    };
    let code = memory_hooks::end_by(address, call);
    if code == SUCCESS {
        held.done()
    } else {
        held.undone()
    }
    if let Some(allocation) = ended.filter(|_| code != SUCCESS) {
        driver_memory::allocated(allocation);
    }
    code
}

/// Ends are recorded before the driver's call, while no other allocation can have the address.
fn before(function: &Function, words: &[usize]) -> Vec<Allocation> {
    match function.base {
        "cuMemUnmap" => driver_memory::freed_within(words[0] as u64, words[1] as u64),
        "cuArrayDestroy" | "cuMipmappedArrayDestroy" => {
            driver_memory::freed(words[0] as u64).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn after(function: &Function, words: &[usize]) {
    // SAFETY: the driver has accepted the call, so its arguments are what the header says; what it
    // writes, it has written.
    let first = || unsafe { *(words[0] as *const u64) };
    match function.base {
        "cuMemAllocManaged" => made(first(), words[1] as u64, None, 0),
        "cuMemAllocPitch" => {
            // SAFETY: as above.
            let pitch_bytes = unsafe { *(words[1] as *const u64) };
            made(first(), pitch_bytes * words[3] as u64, None, 0);
        }
        "cuMemCreate" => {
            // SAFETY: as above.
            let properties = unsafe { &*(words[2] as *const AllocationProperties) };
            if let Some(device) = properties.location.device() {
                driver_memory::physical_created(first(), device);
            }
        }
        "cuMemMap" => {
            if let Some(device) = driver_memory::device_of_physical(words[3] as u64) {
                made(words[0] as u64, words[1] as u64, Some(device), 0);
            }
        }
        "cuArrayCreate" | "cuArray3DCreate" | "cuMipmappedArrayCreate" => {
            // SAFETY: as above.
            let bytes = unsafe { driver_memory_sizes::of_array(function.base, words) };
            made(first(), bytes, None, 0);
        }
        _ => {}
    }
}

/// `device`: if it differs from that of the current context, with which the memory ends.
fn made(address: u64, bytes: u64, device: Option<i32>, stream: u64) {
    let stack = capture::of_allocation();
    let mut current = 0;
    let code = api::ctx_get_device(&mut current);
    let context_id = match device {
        None => lookup::current().map_or(0, |context| context.id),
        Some(_) => 0,
    };
    if bytes != 0 && (device.is_some() || code == SUCCESS) {
        let device = device.unwrap_or(current);
        driver_memory::allocated(Allocation { address, bytes, device, context_id, stream, stack });
    }
}
