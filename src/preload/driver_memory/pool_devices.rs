//! Where the memory of each pool of the program lies.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::driver::sys::{CuResult, PoolHandle};
use crate::handle_table::HandleTable;
use crate::lock::lock;

/// Place where a pool allocates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Device(i32),
    Host,
    /// Memory that moves to where it is used.
    Managed,
}

static POOLS: HandleTable<Place> = HandleTable::new();
/// Whether the host can access the memory of any pool.
static HOST_SEES_ANY: AtomicBool = AtomicBool::new(false);
/// Held while the driver is asked about pools.
static STAY: Mutex<()> = Mutex::new(());

/// Notes where a pool of the program allocates.
pub(crate) fn note(pool: PoolHandle, place: Place) {
    if place.device().is_none() {
        HOST_SEES_ANY.store(true, Ordering::Release);
    }
    POOLS.enter(pool, place);
}

/// Runs the driver's call that ends this pool.
pub(crate) fn end_by(pool: PoolHandle, call: impl FnOnce() -> CuResult) -> CuResult {
    POOLS.end_by(pool, || {
        // The pool is out of the table: queries that start now do not find it.
        drop(lock(&STAY));
        call()
    })
}

/// Returns where a pool allocates, if known.
pub(crate) fn of(pool: PoolHandle) -> Option<Place> {
    POOLS.read(|pools| pools.given.get(&pool).copied())
}

/// Returns where a host-visible pool allocates, or `None` if no host-visible memory of it is known.
#[inline]
pub(crate) fn seen_by_host(pool: PoolHandle) -> Option<Place> {
    let any = HOST_SEES_ANY.load(Ordering::Acquire);
    if any { of(pool).filter(|place| place.device().is_none()) } else { None }
}

/// Runs `body` with the program's pools that allocate from this device, none of which ends
/// meanwhile. Passes at most the first `POOLS_MAX` of them, which is more than any program has.
/// Allocates nothing.
pub(crate) fn while_they_stay<T>(device: i32, body: impl FnOnce(&[PoolHandle]) -> T) -> T {
    const POOLS_MAX: usize = 256;
    if POOLS.is_empty() {
        return body(&[]);
    }
    let _stay = lock(&STAY);
    let mut pools = [0; POOLS_MAX];
    let count = POOLS.read(|book| {
        let of_device = book.given.iter().filter(|(_, of)| of.device() == Some(device));
        let places = pools.iter_mut().zip(of_device);
        places.map(|(place, (pool, _))| *place = *pool).count()
    });
    body(&pools[..count])
}

impl Place {
    /// Returns the device whose memory it is.
    pub(crate) fn device(self) -> Option<i32> {
        match self {
            Place::Device(device) => Some(device),
            Place::Host | Place::Managed => None,
        }
    }
}
