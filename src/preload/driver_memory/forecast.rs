//! Whether the driver can serve so many bytes, as far as it says. What it cannot serve it is not asked for: it would refuse,
//! and write that into its log as an error of the program (`cuLogsRegisterCallback`, `CUDA_LOG_FILE`), which natively
//! has made none. The caches give back what is free first.
//!
//! It is a forecast and no answer. A request fails only where the driver itself has refused what the program
//! asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::pools;
use crate::driver::api;
use crate::driver::sys::{DEVICE_INTEGRATED, POOL_RESERVED, POOL_USED};
use crate::driver_memory::pool_devices;
use crate::state::contexts::Context;

const DEVICES_MAX: usize = 64;
/// Up to this size the driver cuts pieces from pages that it has already.
const PIECE_BYTES_MAX: u64 = 1 << 20;
const PAGE_BYTES: u64 = 2 << 20;

/// What was free on each device when the driver was last asked, less what was requested since.
static EXPECTED: [AtomicU64; DEVICES_MAX] = [const { AtomicU64::new(0) }; DEVICES_MAX];

/// Whether a context's own request of so many bytes may be served. Asks the driver if little is left of what was free.
pub(crate) fn may_serve(context: &'static Context, bytes: u64) -> bool {
    is_expected(context.device, bytes) || {
        let asked = || context.enter(|| Ok(may_serve_now(context.device, bytes)));
        api::relaxed(asked).unwrap_or(true)
    }
}

/// As `may_serve`, of a request of the program in the current context, which is one of this device.
pub(crate) fn may_serve_here(device: i32, bytes: u64) -> bool {
    is_expected(device, bytes) || api::relaxed(|| may_serve_now(device, bytes))
}

/// Without a question: others may have taken half of it.
fn is_expected(device: i32, bytes: u64) -> bool {
    if bytes <= PIECE_BYTES_MAX || !rule_holds(Rule::NothingIsAskedInVain) {
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

/// What pools keep for later the driver takes from them where it lacks memory.
fn idle_in_pools(device: i32) -> u64 {
    let idle = |pool| {
        let [reserved, used] = [POOL_RESERVED, POOL_USED]
            .map(|attribute| api::mem_pool_get_attribute(pool, attribute).unwrap_or(0));
        reserved.saturating_sub(used)
    };
    let of_program = pool_devices::while_they_stay(device, |pools| {
        pools.iter().map(|pool| idle(*pool)).fold(0, u64::saturating_add)
    });
    pools::default_of(device).map_or(0, idle).saturating_add(of_program)
}

/// It takes memory of the host, of which more may come free than the driver says.
fn is_integrated(device: i32) -> bool {
    api::device_get_attribute(DEVICE_INTEGRATED, device).is_ok_and(|value| value != 0)
}

fn row(device: i32) -> Option<&'static AtomicU64> {
    EXPECTED.get(usize::try_from(device).ok()?)
}
