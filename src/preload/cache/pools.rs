//! Decides whether the cache serves the default pool of a device (docs/ordering.md 7). It does in
//! a primary context, until the program does more with the pool than query it, trim it and set its
//! release threshold, or a second context exists. From then on the driver serves new requests;
//! blocks already served remain the library's.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::PoolHandle;
use crate::ordering::observers;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::pool_attributes::{Number, PoolAttributes};
use crate::{config, log};

pub(crate) const DEVICES_MAX: usize = 64;

/// Bit n is set once the program owns the default pool of device n.
static NATIVE: AtomicU64 = AtomicU64::new(0);
/// Handles of the default pools used so far.
static DEFAULT: [AtomicUsize; DEVICES_MAX] = [const { AtomicUsize::new(0) }; DEVICES_MAX];

/// Returns whether requests to the default pool of this device are served from the cache.
pub(crate) fn is_ours(device: i32) -> bool {
    config::get().serve_async
        && !config::caches_nothing()
        && (device as usize) < DEVICES_MAX
        && (NATIVE.load(Ordering::Relaxed) >> device & 1 == 0
            || !rule_holds(Rule::AsyncNeedsDefaultPool))
        && observers::context_count() < 2
}

/// Returns whether memory of the pool can outlive this context: the pool belongs to the device, and
/// the program may destroy a context that it has created.
pub(crate) fn outlives(context: &Context) -> bool {
    context.explicit && rule_holds(Rule::PoolOutlivesContext)
}

/// Leaves the default pool of this device to the program from now on.
pub(crate) fn leave(device: i32, why: &str) {
    if (device as usize) < DEVICES_MAX
        && NATIVE.fetch_or(1 << device, Ordering::Relaxed) >> device & 1 == 0
    {
        log::info(format_args!(
            "device {device}: {why}: cuMemAllocAsync goes to the driver from now on"
        ));
    }
}

/// Returns the device that has this default pool.
pub(crate) fn device_of_default(pool: PoolHandle) -> Option<i32> {
    let count = api::device_get_count().ok()?;
    (0..count.min(DEVICES_MAX as i32)).find(|device| default_pool(*device) == Some(pool))
}

/// Returns the default pool of a device.
pub(crate) fn default_of(device: i32) -> Option<PoolHandle> {
    usize::try_from(device)
        .is_ok_and(|device| device < DEVICES_MAX)
        .then(|| default_pool(device))?
}

fn default_pool(device: i32) -> Option<PoolHandle> {
    let known = DEFAULT[device as usize].load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let pool = api::device_get_default_mem_pool(device).ok()?;
    DEFAULT[device as usize].store(pool, Ordering::Relaxed);
    Some(pool)
}

/// Returns an attribute, summed over all contexts of the device. `threshold_bytes` is how much free
/// memory the pool keeps.
pub(crate) fn number_of_device(device: i32, number: Number, threshold_bytes: u64) -> u64 {
    let contexts = contexts::all().filter(|context| context.device == device);
    contexts.map(|context| context.pool_attributes.value(number, threshold_bytes)).sum()
}

/// Changes the attributes when the program resets the peaks, or trims the pool.
pub(crate) fn change_numbers(device: i32, change: impl Fn(&PoolAttributes)) {
    let contexts = contexts::all().filter(|context| context.device == device);
    contexts.for_each(|context| change(&context.pool_attributes));
}
