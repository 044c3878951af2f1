//! `cuMemAlloc`, `cuMemFree`, `cuMemGetInfo`.

use cachealloc_core::Requester;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::alloc::CacheLookup;
use crate::cache::free::Next;
use crate::cache::{alloc, blocks, fill, free, stream_frees};
use crate::contexts::lookup;
use crate::driver::sys::{CuError, CuResult};
use crate::driver_memory::limits;
use crate::functions::Function;
use crate::graphs::{participants, pool_life, private_pools};
use crate::hooks::common;
use crate::hooks::common::ObservedKind;
use crate::hooks::{Real, Token, beside, guarded, guarded_by, guarded_with, out_of_memory};
use crate::lock::lock;
use crate::ordering::{captures, pending, real_frees};
use crate::pagemap::{Claimed, Extent, Slot};
use crate::process::bypass;
use crate::serving;
use crate::serving::{MemoryKind, Wanted};
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::inflight_releases;
use crate::state::thread;
use crate::state::thread::Thread;
use crate::state::thread_cache::Owned;
use crate::state::under_way::Waiter;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::statistics::waits::Wait;
use crate::{config, memory_hooks, pagemap};

/// `cuMemAlloc(CUdeviceptr *pointer, size_t bytes)`. Here: what most calls come to, in as few instructions as it takes.
#[inline(always)]
pub(crate) fn alloc(
    function: &'static Function,
    pointer: *mut u64,
    bytes: usize,
    real: impl Real,
) -> CuResult {
    if pointer.is_null() || !bypass::is_fast_path() || !config::allocates_simply() {
        return alloc_any(function, pointer, bytes, real);
    }
    let served = thread::if_seen(|thread| {
        let token = Token::take(thread)?;
        let context = lookup::seen_current()?;
        match alloc::try_thread_cache(thread, context, bytes as u64, Requester::Context) {
            CacheLookup::Block(address) => {
                // SAFETY: the program gave it for this.
                unsafe { pointer.write(address) };
                drop(token);
                blocks::note_peak(thread, context);
                Some(Ok(()))
            }
            CacheLookup::Nothing(list) => {
                alloc_past_list(function, token, context, pointer, bytes, list)
            }
            CacheLookup::Gone => {
                blocks::not_cached(context);
                None
            }
        }
    });
    match served.flatten() {
        Some(code) => code,
        None => alloc_any(function, pointer, bytes, real),
    }
}

/// The same where the thread's list has no block. None: `alloc_any` decides.
#[inline(never)]
fn alloc_past_list(
    function: &'static Function,
    token: Token,
    context: &'static Context,
    pointer: *mut u64,
    bytes: usize,
    list: Option<Owned>,
) -> Option<CuResult> {
    if bytes == 0 {
        return None;
    }
    let thread = token.0;
    let then = |allocated: CuResult<u64>| {
        // Caching ended during the call: the error is ours, not the driver's.
        if allocated.is_err() && !bypass::is_caching() {
            return None;
        }
        // SAFETY: as there. The driver, too, writes a null pointer where it fails (measured).
        unsafe { pointer.write(allocated.unwrap_or(0)) };
        Some(allocated.map(|_| ()))
    };
    let (bytes, requester) = (bytes as u64, Requester::Context);
    let serve = || alloc::allocate_slow(thread, context, bytes, requester, 0, list, then);
    guarded_by(token, function, serve, || None)
}

/// The same in any case.
#[inline(never)]
fn alloc_any(
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
    // The driver judges invalid arguments.
    if pointer.is_null() || bytes == 0 {
        return real();
    }
    if config::caches_nothing() {
        return by_driver(function, pointer, bytes, real);
    }
    guarded_with(
        function,
        |thread| {
            // Where there is no context, or one that is gone, the driver refuses it in its own words.
            let Ok(context) = lookup::current() else { return real() };
            let allocated = alloc::allocate(thread, context, bytes as u64, Requester::Context, 0);
            if let Ok(address) = allocated {
                fill::prepare(context, address, bytes as u64, None);
            }
            // Caching ended during the call: the error is ours, not the driver's.
            if allocated.is_err() && !bypass::is_caching() {
                return real();
            }
            // SAFETY: the program gave it for this. The driver, too, writes a null pointer where it
            // fails (measured).
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
            // SAFETY: as the driver does where it fails.
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
            // SAFETY: the program gave it for this; the driver writes a null pointer where it fails.
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

/// None: not served here, because caching has ended or the call is none that the cache serves.
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

/// Ordinary memory, as if no stream captured; the thread may still submit into a capture. None: caching
/// ended during the call.
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

/// `cuMemFree(CUdeviceptr pointer)`. Here: what most calls come to, in as few instructions as it takes.
#[inline(always)]
pub(crate) fn free(function: &'static Function, address: u64, real: impl Real) -> CuResult {
    if !bypass::is_fast_path() || !config::frees_simply() {
        return free_any(function, address, real);
    }
    let freed = thread::if_seen(|thread| {
        if thread.inside.get() {
            return None;
        }
        let claimed = Claimed::at(address)?;
        let Claimed { extent, slot, word } = claimed;
        Some(match free::into_list(thread, claimed, address) {
            Next::Done => Ok(()),
            Next::Core => free_into_core(function, thread, extent, slot, word, address),
            Next::Route => free_claimed(function, thread, extent, slot, word, address),
        })
    });
    match freed.flatten() {
        Some(code) => code,
        None => free_any(function, address, real),
    }
}

/// A claimed block goes to the core. What was claimed comes in parts, so that they stay in registers.
#[inline(never)]
fn free_into_core(
    function: &'static Function,
    thread: &Thread,
    extent: &'static Extent,
    slot: &'static Slot,
    word: u64,
    address: u64,
) -> CuResult {
    let put = || {
        let block = Claimed { extent, slot, word }.block(address);
        blocks::free_past_list(thread, extent.context(), &block);
        Ok(())
    };
    // As of a block that is in no state to be freed.
    let otherwise = || Err(CuError::INVALID_VALUE);
    guarded_by(Token::of(thread), function, put, otherwise)
}

/// The same in any case.
#[inline(never)]
fn free_claimed(
    function: &'static Function,
    thread: &Thread,
    extent: &'static Extent,
    slot: &'static Slot,
    word: u64,
    address: u64,
) -> CuResult {
    let free = || free::claimed_plainly(thread, Claimed { extent, slot, word }.block(address));
    let otherwise = || Err(CuError::INVALID_VALUE);
    guarded_by(Token::of(thread), function, free, otherwise)
}

/// The same of any address. One that is not ours goes to the driver, and may end something that work behind one of our
/// barriers still uses.
#[inline(never)]
fn free_any(function: &'static Function, address: u64, real: impl Real) -> CuResult {
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
        serving::free_by(address, || real_frees::announced(real))
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

/// `cuMemGetInfo(size_t *free, size_t *total)`: counts what the cache could give back as free, and a
/// limit as the total.
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
    if !bypass::is_caching() || code.is_err() || free_bytes.is_null() {
        return code;
    }
    guarded(
        function,
        || {
            let Ok(context) = lookup::current() else { return code };
            pool_life::reap();
            let mut reclaimable = reclaimable_bytes(context);
            // Memory on its way to the driver counts nowhere: ask again.
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

/// `cuDeviceTotalMem(size_t *bytes, CUdevice device)`: natively equal to the total of `cuMemGetInfo`,
/// and programs size their pools by either. So a limit shows in both.
pub(crate) fn total(
    function: &'static Function,
    bytes: *mut usize,
    device: i32,
    real: impl Real,
) -> CuResult {
    let code = real();
    if code.is_ok() && !bytes.is_null() && bypass::is_caching() {
        beside(function, || {
            if let Some(limit_bytes) = limits::of(device) {
                // SAFETY: the driver has just written it.
                unsafe { *bytes = (*bytes).min(limit_bytes as usize) };
            }
        });
    }
    code
}

/// Of all contexts on the device of this one. Natively, stream-ordered memory freed by `cuMemFree` is
/// free on the device at once, and any other `cuMemFree` has waited.
fn reclaimable_bytes(current: &'static contexts::Context) -> u64 {
    contexts::all()
        .filter(|context| context.device == current.device)
        .filter_map(|context| {
            let _open = context.keep_open_soon()?;
            blocks::empty_lists(context);
            if rule_holds(Rule::ToldBehindFrees) {
                stream_frees::wait_for_plain_frees(context, Waiter::GoesOn);
            }
            stream_frees::query(context);
            stream_frees::assume_over(context);
            Some(lock(&context.allocator).reclaimable_bytes())
        })
        .sum()
}

/// Caching has ended, or this thread is inside a hook: our addresses do not reach the driver, unless every call
/// does (a forked child).
#[cold]
fn free_in_bypass(address: u64, real: impl Real) -> CuResult {
    if bypass::is_switched_off() || pagemap::extent_of(address).is_none() {
        return real();
    }
    free::without_reuse(address).unwrap_or_else(real)
}
