//! The device that each pool of the program allocates from.

use crate::books::Book;
use crate::driver::sys::{CuResult, PoolHandle};

/// None: not from a device.
static POOLS: Book<Option<i32>> = Book::new();

/// A pool of the program allocates from this device, or from none.
pub(crate) fn note(pool: PoolHandle, device: Option<i32>) {
    POOLS.enter(pool, device);
}

/// Runs the driver's call that ends this pool.
pub(crate) fn end_by(pool: PoolHandle, call: impl FnOnce() -> CuResult) -> CuResult {
    POOLS.end_by(pool, call)
}

/// The device a pool allocates from, if known; `Some(None)`: from none.
pub(crate) fn of(pool: PoolHandle) -> Option<Option<i32>> {
    POOLS.read(|pools| pools.given.get(&pool).copied())
}
