//! Claims for which the caches release memory.

use crate::cache::release;
use crate::cache::retry;
use crate::contexts::lookup;
use crate::driver_memory::limits;
use crate::driver_memory::limits::{Claim, claim};
use crate::process::bounds;
use crate::state::inflight_releases;
use crate::state::under_way::Waiter;
use crate::statistics::counters;
use crate::statistics::counters::Count;

/// Claims bytes as `limits::claim` does. If the limit forbids it, the caches first release their
/// free memory, as they do when the device is out of memory.
pub(crate) fn charge_with_reclaim(device: i32, bytes: u64, waiter: Waiter) -> Option<Claim> {
    if let Some(claim) = claim(device, bytes) {
        return Some(claim);
    }
    let possible = limits::of(device).is_some_and(|limit| bytes <= limit);
    let tried = || claim(device, bytes);
    let claimed = if possible { claim_last(device, waiter, tried) } else { None };
    if claimed.is_none() {
        counters::count(Count::RefusedByLimit);
    }
    claimed
}

/// Retries as long as the caches release more.
fn claim_last<T>(device: i32, waiter: Waiter, mut tried: impl FnMut() -> Option<T>) -> Option<T> {
    let mut seen = None;
    for _ in bounds::ROOM.tries() {
        if let Ok(context) = lookup::current() {
            retry::wait_for_frees(context, waiter);
        }
        let _ = release::everything_free(Some(device), waiter);
        let arrivals = inflight_releases::awaited_by(device, waiter);
        if let Some(claimed) = tried() {
            return Some(claimed);
        }
        if seen.replace(arrivals) == Some(arrivals) {
            break;
        }
    }
    None
}

/// Grows a claim as `Claim::grow_to` does. The caches release memory if that is needed.
pub(crate) fn grow_with_reclaim(own: &mut Claim, bytes: u64, waiter: Waiter) -> bool {
    let device = own.device();
    own.grow_to(bytes) || claim_last(device, waiter, || own.grow_to(bytes).then_some(())).is_some()
}
