//! Claims for which the caches make room.

use crate::cache::departures;
use crate::cache::stream_frees::Waiter;
use crate::driver_memory::limits::{self, Claim, claim};
use crate::statistics::counters::{self, Count};
use crate::trim::release;

/// Other threads may take what was given back for this claim, repeatedly.
const TRIES_MAX: usize = 64;

/// As `limits::claim`; if the limit is in the way, the caches first give back what is free, as they do
/// when memory is short.
pub(crate) fn claim_making_room(device: i32, bytes: u64) -> Option<Claim> {
    if let Some(claim) = claim(device, bytes) {
        return Some(claim);
    }
    let possible = limits::of(device).is_some_and(|limit| bytes <= limit);
    let claimed = if possible { claim_last(device, || claim(device, bytes)) } else { None };
    if claimed.is_none() {
        counters::count(Count::RefusedByLimit);
    }
    claimed
}

/// Retries as long as the caches have given back more.
fn claim_last<T>(device: i32, mut tried: impl FnMut() -> Option<T>) -> Option<T> {
    let mut seen = None;
    for _ in 0..TRIES_MAX {
        let _ = release::everything_free(Some(device), Waiter::GoesOn);
        let arrivals = departures::awaited(device);
        if let Some(claimed) = tried() {
            return Some(claimed);
        }
        if seen.replace(arrivals) == Some(arrivals) {
            break;
        }
    }
    None
}

/// As `Claim::grow_to`; the caches give back memory to make room.
pub(crate) fn grow_making_room(own: &mut Claim, bytes: u64) -> bool {
    let device = own.device();
    own.grow_to(bytes) || claim_last(device, || own.grow_to(bytes).then_some(())).is_some()
}
