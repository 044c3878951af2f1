//! Predicts from the driver's own numbers whether it can serve a request. The driver is not called
//! for what it cannot serve: it would refuse, and log an error of the program (`cuLogs*`,
//! `CUDA_LOG_FILE`) that would not occur without the library. The caches release their free memory
//! first.
//!
//! This is only a forecast. A request fails only if the driver itself has refused what the program
//! asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::pools;
use crate::driver::api;
use crate::driver::sys::{DEVICE_INTEGRATED, POOL_RESERVED, POOL_USED, PoolHandle};
use crate::driver_memory::pool_devices;
use crate::state::contexts::Context;

const DEVICES_MAX: usize = 64;
/// Largest size for which the driver cuts pieces from pages that it already has.
const PIECE_BYTES_MAX: u64 = 1 << 20;
const PAGE_BYTES: u64 = 2 << 20;

/// Bytes that were free on each device when the driver was last asked, less the requests since
/// then.
static EXPECTED: [AtomicU64; DEVICES_MAX] = [const { AtomicU64::new(0) }; DEVICES_MAX];

/// Whether the driver may serve a request of a context. Asks the driver if little is left of what
/// was free.
pub(crate) fn may_serve(context: &'static Context, bytes: u64) -> bool {
    is_expected(context.device, bytes) || {
        let asked = || context.enter(|| Ok(may_serve_now(context.device, bytes)));
        api::relaxed(asked).unwrap_or(true)
    }
}

/// Whether the driver may serve a request of the program in the current context, which is on this
/// device.
pub(crate) fn may_serve_here(device: i32, bytes: u64) -> bool {
    is_expected(device, bytes) || api::relaxed(|| may_serve_now(device, bytes))
}

/// Whether the driver may serve a request of a context if pools return all that they have reserved.
/// Memory that `cuMemFree` has returned to a pool is free at once (measured), but the pool may
/// still count it as used (simulated), so only the driver knows how much is free.
pub(crate) fn pools_may_serve(context: &'static Context, bytes: u64) -> bool {
    let asked = || {
        context.enter(|| {
            let (free, _) = api::mem_get_info()?;
            let reserved = in_pools(context.device, |pool| reserved_and_used(pool)[0]);
            Ok(reserved > 0 && bytes <= reserved.saturating_add(free as u64))
        })
    };
    api::relaxed(asked).unwrap_or(true)
}

/// Decides without asking the driver: others may have taken half of the free memory.
fn is_expected(device: i32, bytes: u64) -> bool {
    if bytes <= PIECE_BYTES_MAX || !rule_holds(Rule::OnlySupportedQueries) {
        return true;
    }
    let Some(expected) = row(device) else { return true };
    let less = |expected: u64| (bytes <= expected / 2).then(|| expected - bytes);
    expected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

#[cold]
fn may_serve_now(device: i32, bytes: u64) -> bool {
    let Ok((free, _)) = api::mem_get_info() else { return true };
    let (free, needed) = (free as u64, bytes.next_multiple_of(PAGE_BYTES));
    if let Some(expected) = row(device) {
        expected.store(free.saturating_sub(needed), Ordering::Relaxed);
    }
    needed <= free || needed <= free.saturating_add(idle_in_pools(device)) || is_integrated(device)
}

/// Bytes that pools keep for later. The driver takes them from the pools when it lacks memory.
fn idle_in_pools(device: i32) -> u64 {
    in_pools(device, |pool| {
        let [reserved, used] = reserved_and_used(pool);
        reserved.saturating_sub(used)
    })
}

fn reserved_and_used(pool: PoolHandle) -> [u64; 2] {
    [POOL_RESERVED, POOL_USED]
        .map(|attribute| api::mem_pool_get_attribute(pool, attribute).unwrap_or(0))
}

/// Adds up a number of each pool of a device.
fn in_pools(device: i32, number: impl Fn(PoolHandle) -> u64) -> u64 {
    let of_program = pool_devices::while_they_stay(device, |pools| {
        pools.iter().map(|pool| number(*pool)).fold(0, u64::saturating_add)
    });
    pools::default_of(device).map_or(0, number).saturating_add(of_program)
}

/// Whether the device uses memory of the host, which may be freed beyond what the driver reports.
fn is_integrated(device: i32) -> bool {
    api::device_get_attribute(DEVICE_INTEGRATED, device).is_ok_and(|value| value != 0)
}

fn row(device: i32) -> Option<&'static AtomicU64> {
    EXPECTED.get(usize::try_from(device).ok()?)
}
