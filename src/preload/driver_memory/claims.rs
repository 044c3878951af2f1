//! Claims for which the caches make room.

use crate::cache::departures;
use crate::driver_memory::limits::{self, Claim, claim};
use crate::statistics::counters::{self, Count};
use crate::trim::release;

/// Others may take what has come back for one claim, again and again.
const TRIES_MAX: usize = 64;

/// As `limits::claim`; where the limit is in the way, the caches give back what is free first, as they do
/// where memory is in the way.
pub fn claim_making_room(device: i32, bytes: u64) -> Option<Claim> {
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

/// Tries again as long as the caches have given back more.
fn claim_last<T>(device: i32, mut tried: impl FnMut() -> Option<T>) -> Option<T> {
    let mut seen = None;
    for _ in 0..TRIES_MAX {
        release::everything_free(Some(device));
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

/// As `Claim::grow_to`; the caches give back what is in the way.
pub fn grow_making_room(own: &mut Claim, bytes: u64) -> bool {
    let device = own.device();
    own.grow_to(bytes) || claim_last(device, || own.grow_to(bytes).then_some(())).is_some()
}
