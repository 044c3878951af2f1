//! Waits exactly as the driver's own call does (docs/ordering.md 3), by freeing one of the
//! library's sentinels with the real `cuMemFree`. Correct in every case: captures, old drivers,
//! several contexts. It returns the errors that the program's own free would have returned.

use crate::cache::release;
use crate::cache::stream_frees;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult, DevicePointer};
use crate::lock::lock;
use crate::ordering::{captures, real_frees};
use crate::process::bypass;
use crate::state::barriers::LEDGER;
use crate::state::contexts::Context;
use crate::statistics::waits;
use crate::statistics::waits::Wait;

/// Size of the smallest allocation that the driver makes; its free waits like any other (measured).
pub(crate) const SENTINEL_BYTES: usize = 512;
/// Number of sentinels in reserve, for when nothing can be allocated.
const SENTINELS_KEPT: usize = 4;

/// Waits for all work of the context, as the program's own free would. The caller must hold no lock
/// of the library.
pub(crate) fn wait_natively(context: &'static Context, reason: Wait) -> CuResult {
    let seen = LEDGER.before_barrier(&context.covers);
    // In bypass the core may be inconsistent, and serves nothing any more.
    let mark = if bypass::is_caching() { stream_frees::mark(context) } else { None };
    let code = api::relaxed(|| context.enter(|| free_sentinel(context, reason)));
    if code.is_ok() {
        context.covers.waited(seen);
        if let Some(mark) = mark {
            stream_frees::barrier_passed(context, mark);
        }
    }
    code
}

/// Frees a sentinel. The next one is allocated first, so that the reserve is never used up.
fn free_sentinel(context: &'static Context, reason: Wait) -> CuResult {
    match next_sentinel(context) {
        Some(pointer) => waits::timed(reason, || real_frees::announced(|| api::mem_free(pointer))),
        None => without_sentinel(context, reason),
    }
}

/// Returns a sentinel. Allocates without the lock, and not while another thread's real free holds
/// the context if one is left: the driver makes that wait for the free.
fn next_sentinel(context: &Context) -> Option<DevicePointer> {
    loop {
        let mut kept = lock(&context.sentinels.0);
        let suffice = kept.len() >= SENTINELS_KEPT;
        if suffice || (!kept.is_empty() && real_frees::any(context)) {
            return kept.pop();
        }
        drop(kept);
        match api::mem_alloc(SENTINEL_BYTES) {
            Ok(fresh) => keep(context, fresh),
            Err(_) => return lock(&context.sentinels.0).pop(),
        }
    }
}

/// Keeps a small, unused allocation of the driver as a sentinel.
pub(crate) fn keep(context: &Context, pointer: DevicePointer) {
    lock(&context.sentinels.0).push(pointer);
}

/// Waits when the device is full: frees an empty segment, since any real free waits; otherwise
/// synchronizes, if that can invalidate no capture; otherwise uses another free that waits.
fn without_sentinel(context: &'static Context, reason: Wait) -> CuResult {
    if bypass::is_caching()
        && let Some(code) = release::one_by_waiting(context)
    {
        return code;
    }
    if captures::any() {
        return waits::timed(reason, free_pinned_page);
    }
    waits::timed(reason, api::ctx_synchronize)
}

/// Frees pinned memory, which waits for the device as well (measured) and needs only host memory.
fn free_pinned_page() -> CuResult {
    const PAGE_BYTES: usize = 4096;
    api::mem_free_host(api::mem_host_alloc(PAGE_BYTES, 0)?)
}

/// Lets the driver free a sentinel in place of a block of the library, and returns its code. If the
/// driver refuses, the sentinel is kept.
pub(crate) fn spend_sentinel(
    context: &'static Context,
    spend: impl FnOnce(DevicePointer) -> CuResult,
) -> CuResult {
    let sentinel = api::relaxed(|| context.enter(|| Ok(next_sentinel(context))));
    let pointer = sentinel.ok().flatten().ok_or(CuError::OUT_OF_MEMORY)?;
    let code = spend(pointer);
    if code.is_err() {
        keep(context, pointer);
    }
    code
}
