//! `cuMemAlloc`, `cuMemFree`, `cuMemGetInfo`.

pub(crate) mod short;

use cachealloc_core::Requester;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::{alloc, blocks, fill, free, stream_frees};
use crate::contexts::lookup;
use crate::driver::api;
use crate::driver::sys::CuResult;
use crate::driver_memory::limits;
use crate::driver_memory::table::Key;
use crate::functions::Function;
use crate::graphs::{participants, pool_life, private_pools};
use crate::hooks::common;
use crate::hooks::common::ObservedKind;
use crate::hooks::{Real, beside, guarded, guarded_with, out_of_memory};
use crate::lock::lock;
use crate::ordering::{captures, pending, real_frees};
use crate::process::bypass;
use crate::serving;
use crate::serving::{EndsBy, MemoryKind, Wanted};
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::inflight_releases;
use crate::state::thread::Thread;
use crate::state::under_way::Waiter;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::statistics::waits::Wait;
use crate::{config, memory_hooks, pagemap};

/// `cuMemAlloc` in every case that the shortest path does not cover.
#[inline(always)]
pub(crate) fn alloc(
    function: &'static Function,
    pointer: *mut u64,
    bytes: usize,
    real: impl Real,
) -> CuResult {
    out_of_memory::got(function, bytes as u64, alloc_in_any_case(function, pointer, bytes, real))
}

#[inline(always)]
fn alloc_in_any_case(
    function: &'static Function,
    pointer: *mut u64,
    bytes: usize,
    real: impl Real,
) -> CuResult {
    if !bypass::is_fast_path()
        && let Some(code) = alloc_slow(function, pointer, bytes, real)
    {
        return code;
    }
    // The driver checks invalid arguments.
    if pointer.is_null() || bytes == 0 {
        return real();
    }
    if config::caches_nothing() {
        return by_driver(function, pointer, bytes, real);
    }
    guarded_with(
        function,
        |thread| {
            // Without a context, or with one that has ended, the driver returns its own error.
            let Ok(context) = lookup::current() else { return real() };
            let allocated = alloc::allocate(thread, context, bytes as u64, Requester::Context, 0);
            if let Ok(address) = allocated {
                fill::prepare(context, address, bytes as u64, None);
            }
            // Caching ended during the call: the error is the library's, not the driver's.
            if allocated.is_err() && !bypass::is_caching() {
                return real();
            }
            // SAFETY: the program passed it for this result. The driver, too, writes a null pointer
            // when it fails (measured).
            unsafe { pointer.write(allocated.unwrap_or(0)) };
            allocated.map(|_| ())
        },
        real,
    )
}

/// `fraction_of_gpu_memory_to_use:0`: served and ordered by the driver, recorded as usual.
#[cold]
fn by_driver(
    function: &'static Function,
    pointer: *mut u64,
    bytes: usize,
    real: impl Real,
) -> CuResult {
    let serve = || {
        // SAFETY: the driver writes there.
        let ask = || unsafe { memory_hooks::around_driver(bytes as u64, pointer, real) };
        let (kind, bytes) = (MemoryKind::Linear, bytes as u64);
        let wanted = Wanted { kind, bytes, counts: true };
        // SAFETY: the driver has just written it.
        let code = serving::serve(wanted, ask, || unsafe { pointer.read() });
        if code.is_ok() {
            counters::count(Count::PassedToDriver);
            // SAFETY: the driver has just written it.
            common::fill(unsafe { pointer.read() }, bytes, None);
        } else {
            // SAFETY: the program's place. The driver, too, writes a null pointer when it fails.
            unsafe { pointer.write(0) };
        }
        code
    };
    guarded(function, serve, real)
}

#[cold]
fn alloc_slow(
    function: &'static Function,
    pointer: *mut u64,
    bytes: usize,
    real: impl Real,
) -> Option<CuResult> {
    if !bypass::is_caching() {
        return Some(real());
    }
    if let Some(error) = common::lost(function) {
        if !pointer.is_null() {
            // SAFETY: the program passed it for this result; the driver, too, writes a null pointer
            // when it fails.
            unsafe { pointer.write(0) };
        }
        return Some(Err(error));
    }
    let observed = common::observed_malloc(
        function,
        &[pointer as usize, bytes],
        bytes as u64,
        ObservedKind::Memory,
    );
    if observed.is_none() && captures::maybe() {
        alloc_in_capture(function, pointer, bytes as u64, real)
    } else {
        observed
    }
}

/// Serves an allocation while a stream captures. Returns `None` if it is not served here, because
/// caching has ended or the cache does not serve such a call.
fn alloc_in_capture(
    function: &'static Function,
    pointer: *mut u64,
    bytes: u64,
    real: impl Real,
) -> Option<CuResult> {
    if pointer.is_null() || bytes == 0 || config::caches_nothing() {
        return None;
    }
    let mut served = None;
    let code = guarded_with(
        function,
        |thread| {
            let context = lookup::current().ok();
            served = context.and_then(|context| {
                let allocated = match private_pools::allocate(thread, context, bytes) {
                    Some(allocated) => allocated,
                    None => outside_of_captures(thread, context, bytes)?,
                };
                if let Ok(address) = allocated {
                    fill::prepare(context, address, bytes, None);
                }
                Some(allocated)
            });
            // SAFETY: as for any allocation.
            served.iter().for_each(|served| unsafe { pointer.write(served.unwrap_or(0)) });
            served.map_or(Ok(()), |served| served.map(|_| ()))
        },
        || Ok(()),
    );
    match served {
        Some(_) => Some(code),
        None if bypass::is_caching() => None,
        // Caching ended during the call.
        None => Some(real()),
    }
}

/// Allocates ordinary memory, as if no stream captured; the thread may still submit work into a
/// capture. Returns `None` if caching ended during the call.
fn outside_of_captures(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
) -> Option<CuResult<u64>> {
    let allocated = alloc::allocate(thread, context, bytes, Requester::Context, 0);
    if let Ok(address) = allocated {
        participants::allocated_outside(thread, address);
    }
    Some(allocated).filter(|_| allocated.is_ok() || bypass::is_caching())
}

/// `cuMemFree` of any address. The driver frees an address outside the library's memory, which work
/// before a pending barrier may still use.
#[inline(always)]
pub(crate) fn free(function: &'static Function, address: u64, real: impl Real) -> CuResult {
    if !bypass::is_fast_path()
        && let Some(code) = free_slow(function, address, real)
    {
        return code;
    }
    let foreign = || {
        // A null pointer ends nothing.
        if address == 0 {
            return real();
        }
        pending::wait_all(Wait::Teardown);
        serving::wait_before_end(Key::Memory(address), EndsBy::Free);
        let filled = config::writes_blocks();
        let free = || if filled { fill::free_driver_memory(address, real) } else { real() };
        serving::free_by(address, |owner| real_frees::announced_in(owner, free))
    };
    guarded_with(
        function,
        |thread| free::plainly(thread, address).unwrap_or_else(foreign),
        || free_in_bypass(address, real),
    )
}

#[cold]
fn free_slow(function: &'static Function, address: u64, real: impl Real) -> Option<CuResult> {
    if !bypass::is_caching() {
        return Some(free_in_bypass(address, real));
    }
    common::observed_free(function, &[address as usize])
}

/// `cuMemGetInfo(size_t *free, size_t *total)`: reports memory that the cache could release as
/// free, and a limit as the total.
pub(crate) fn info(
    function: &'static Function,
    free_bytes: *mut usize,
    total_bytes: *mut usize,
    real: impl Real,
) -> CuResult {
    let mut arrivals = 0;
    if bypass::is_caching() {
        beside(function, || {
            if let Ok(context) = lookup::current() {
                arrivals = inflight_releases::awaited(context.device);
            }
        });
    }
    let code = common::retried(function, real);
    if !bypass::is_caching() || code.is_err() {
        return code;
    }
    if free_bytes.is_null() {
        beside(function, || show_limit(total_bytes, api::ctx_get_device().ok()));
        return code;
    }
    guarded(
        function,
        || {
            let Ok(context) = lookup::current() else { return code };
            pool_life::reap();
            let mut reclaimable = reclaimable_bytes(context);
            // In-flight releases are counted nowhere: read again.
            if inflight_releases::awaited(context.device) != arrivals {
                reclaimable = reclaimable_bytes(context);
                let _ = real();
            }
            // SAFETY: the driver has just written both, where not null.
            unsafe {
                let total = if total_bytes.is_null() { usize::MAX } else { *total_bytes };
                let (free, total) =
                    limits::shown(context.device, *free_bytes as u64, total as u64, reclaimable);
                *free_bytes = free as usize;
                if !total_bytes.is_null() {
                    *total_bytes = total as usize;
                }
            }
            code
        },
        || code,
    )
}

/// `cuDeviceTotalMem(size_t *bytes, CUdevice device)`. The plain driver reports the total of
/// `cuMemGetInfo`, and programs size their pools by either. So a limit shows in both.
pub(crate) fn total(
    function: &'static Function,
    bytes: *mut usize,
    device: i32,
    real: impl Real,
) -> CuResult {
    let code = real();
    if code.is_ok() {
        beside(function, || show_limit(bytes, Some(device)));
    }
    code
}

/// Reduces the total that the driver has just written, if not null, to the limit of the device.
fn show_limit(total_bytes: *mut usize, device: Option<i32>) {
    if !total_bytes.is_null()
        && let Some(limit_bytes) = device.and_then(limits::of)
    {
        // SAFETY: the driver has just written it.
        unsafe { *total_bytes = (*total_bytes).min(limit_bytes as usize) };
    }
}

/// Memory that all contexts on the device of `current` could release. On the plain driver,
/// stream-ordered memory freed by `cuMemFree` is free on the device at once, and any other
/// `cuMemFree` has waited.
fn reclaimable_bytes(current: &'static contexts::Context) -> u64 {
    contexts::all()
        .filter(|context| context.device == current.device)
        .filter_map(|context| {
            let _open = context.keep_open_soon()?;
            blocks::empty_lists(context);
            if rule_holds(Rule::FreeMemoryQueryWaits) {
                stream_frees::wait_for_plain_frees(context, Waiter::GoesOn);
            }
            stream_frees::query(context);
            stream_frees::assume_over(context);
            Some(lock(&context.allocator).reclaimable_bytes())
        })
        .sum()
}

/// Frees an address after caching has ended, or inside a hook of this thread. The library's
/// addresses do not reach the driver, unless every call does (in a forked child).
#[cold]
fn free_in_bypass(address: u64, real: impl Real) -> CuResult {
    if bypass::is_switched_off() || pagemap::extent_of(address).is_none() {
        return real();
    }
    free::without_reuse(address).unwrap_or_else(real)
}
