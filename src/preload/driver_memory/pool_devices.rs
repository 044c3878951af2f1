//! The device that each pool of the program allocates from.

use std::sync::Mutex;

use crate::books::Book;
use crate::driver::sys::{CuResult, PoolHandle};
use crate::lock::lock;

/// None: not from a device.
static POOLS: Book<Option<i32>> = Book::new();
/// Held while the driver is asked about pools.
static STAY: Mutex<()> = Mutex::new(());

/// A pool of the program allocates from this device, or from none.
pub(crate) fn note(pool: PoolHandle, device: Option<i32>) {
    POOLS.enter(pool, device);
}

/// Runs the driver's call that ends this pool.
pub(crate) fn end_by(pool: PoolHandle, call: impl FnOnce() -> CuResult) -> CuResult {
    POOLS.end_by(pool, || {
        // The pool is out of the book: a question from now on does not find it.
        drop(lock(&STAY));
        call()
    })
}

/// The device a pool allocates from, if known; `Some(None)`: from none.
pub(crate) fn of(pool: PoolHandle) -> Option<Option<i32>> {
    POOLS.read(|pools| pools.given.get(&pool).copied())
}

/// Runs `body` with the pools of the program that allocate from this device, none of which ends meanwhile. Of so many
/// that no program has them, the first ones. Allocates nothing.
pub(crate) fn while_they_stay<T>(device: i32, body: impl FnOnce(&[PoolHandle]) -> T) -> T {
    const POOLS_MAX: usize = 256;
    if POOLS.is_empty() {
        return body(&[]);
    }
    let _stay = lock(&STAY);
    let mut pools = [0; POOLS_MAX];
    let count = POOLS.read(|book| {
        let of_device = book.given.iter().filter(|(_, of)| **of == Some(device));
        let places = pools.iter_mut().zip(of_device);
        places.map(|(place, (pool, _))| *place = *pool).count()
    });
    body(&pools[..count])
}
