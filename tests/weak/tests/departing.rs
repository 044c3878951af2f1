//! In-flight releases: a request that finds memory neither in the cache nor on the device waits for
//! it.

use std::sync::Mutex;

use crate::ROUNDS;
use crate::lock::lock;
use crate::state::inflight_releases::{self, InFlightRelease};

/// The device has no memory, and a cache releases what is needed meanwhile.
#[test]
fn memory_is_somewhere() {
    (0..ROUNDS).for_each(|_| depart());
}

fn depart() {
    const DEVICE: i32 = 5;
    let (in_cache, on_device) = (Mutex::new(true), Mutex::new(false));
    let found = |place: &Mutex<bool>| core::mem::replace(&mut *lock(place), false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let leaves = {
                let mut in_cache = lock(&in_cache);
                let in_flight = in_cache.then(|| InFlightRelease::to(DEVICE, 1));
                *in_cache = false;
                in_flight
            };
            if let Some(in_flight) = leaves {
                *lock(&on_device) = true;
                drop(in_flight);
            }
        });
        scope.spawn(|| {
            let mut seen = inflight_releases::arrivals();
            while !found(&in_cache) && !found(&on_device) {
                let now = inflight_releases::awaited(DEVICE);
                assert_ne!(now, seen, "refused, though the memory is there");
                seen = now;
            }
        });
    });
}
