//! `cuMemAlloc`, `cuMemFree`, `cuMemGetInfo`.

use cachealloc_core::Requester;

use crate::driver::sys::{CuResult, SUCCESS};
use crate::functions::Function;
use crate::hooks::{common, foreign, guarded, guarded_with};
use crate::runtime::stats::Wait;
use crate::runtime::{alloc, bypass, contents, contexts, debts, extents, free, lock};

/// `cuMemAlloc(CUdeviceptr *pointer, size_t bytes)`.
#[inline]
pub fn alloc(
    function: &'static Function,
    words: &[usize; 2],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    let (pointer, bytes) = (words[0] as *mut u64, words[1]);
    // A bad argument is the driver's to judge.
    if !bypass::is_on() || pointer.is_null() || bytes == 0 {
        return real();
    }
    guarded_with(
        function,
        |thread| {
            let allocated = contexts::current().and_then(|context| {
                let bytes = bytes as u64;
                let allocated = alloc::allocate(thread, context, bytes, Requester::Context)?;
                contents::prepare(context, allocated, bytes, None);
                Ok(allocated)
            });
            // Caching has ended on the way: the error is ours, not the driver's.
            if allocated.is_err() && !bypass::is_on() {
                return real();
            }
            // SAFETY: the program gave it for this. The driver, too, writes a null pointer where it
            // fails (measured).
            unsafe { pointer.write(allocated.unwrap_or(0)) };
            allocated.map_or_else(|code| code, |_| SUCCESS)
        },
        real,
    )
}

/// `cuMemFree(CUdeviceptr pointer)`. What is not ours goes to the driver, and may end the life of
/// something that work behind a barrier of ours still uses.
#[inline]
pub fn free(
    function: &'static Function,
    words: &[usize; 1],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    let address = words[0] as u64;
    if !bypass::is_on() {
        return free_in_bypass(address, real);
    }
    let foreign = || {
        // A null pointer ends nothing.
        if address != 0 {
            debts::pay_all(Wait::Teardown);
        }
        foreign::ends(address, real)
    };
    guarded_with(
        function,
        |thread| free::plainly(thread, address).unwrap_or_else(foreign),
        || free_in_bypass(address, real),
    )
}

/// `cuMemGetInfo(size_t *free, size_t *total)`: what the cache could give back is free.
pub fn info(
    function: &'static Function,
    words: &[usize; 2],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    let code = common::retried(function, real);
    let (free_bytes, total_bytes) = (words[0] as *mut usize, words[1] as *mut usize);
    if !bypass::is_on() || code != SUCCESS || free_bytes.is_null() {
        return code;
    }
    guarded(
        function,
        || {
            let reclaimable = contexts::current().map_or(0, reclaimable_bytes) as usize;
            // SAFETY: the driver has just written both, where not null.
            unsafe {
                let total = if total_bytes.is_null() { usize::MAX } else { *total_bytes };
                *free_bytes = (*free_bytes).saturating_add(reclaimable).min(total);
            }
            code
        },
        || code,
    )
}

/// Of all contexts on the device of this one.
fn reclaimable_bytes(current: &'static contexts::Context) -> u64 {
    contexts::all()
        .filter(|context| context.device == current.device)
        .map(|context| {
            alloc::empty_lookaside(context);
            lock(&context.allocator).reclaimable_bytes()
        })
        .sum()
}

/// Caching is off, or this thread is inside a hook: our own addresses never reach the driver.
#[cold]
fn free_in_bypass(address: u64, real: impl Fn() -> CuResult) -> CuResult {
    if bypass::is_off() || extents::extent_of(address).is_none() {
        return real();
    }
    free::without_reuse(address).unwrap_or_else(real)
}
