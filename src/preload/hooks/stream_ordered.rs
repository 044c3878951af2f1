//! `cuMemAllocAsync`, `cuMemAllocFromPoolAsync`, `cuMemFreeAsync` (docs/ordering.md 7). The driver
//! serves explicit pools, captures, and a default pool that the program configures.

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Requester, StreamId};
use cachealloc_history::StackId;

use crate::cache::{alloc as cache, fill, free as frees, pools};
use crate::contexts::lookup;
use crate::contexts::stream_identity;
use crate::driver::api;
use crate::driver::graphs;
use crate::driver::graphs::Capturing;
use crate::driver::sys::{CuResult, PoolHandle, StreamHandle};
use crate::driver_memory::pool_devices;
use crate::functions::Function;
use crate::graphs::{graph_memory, private_pools};
use crate::hooks::common;
use crate::hooks::common::ObservedKind;
use crate::hooks::{Real, beside, guarded_with, host_memory, out_of_memory, stream_of};
use crate::ordering::{captures, native_wait, observers, programmatic_launch};
use crate::process::bypass;
use crate::record::capture;
use crate::serving;
use crate::serving::refused_call::MayBeCaptured;
use crate::serving::{MemoryKind, Wanted};
use crate::state::contexts::Context;
use crate::state::thread::Thread;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::{config, memory_hooks, pagemap};

/// `cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)`.
pub(crate) fn alloc(
    function: &'static Function,
    pointer: *mut u64,
    bytes: usize,
    stream: StreamHandle,
    real: impl Real,
) -> CuResult {
    let observe = |makes| {
        let words = [pointer as usize, bytes, stream];
        common::observed_malloc(function, &words, bytes as u64, makes)
    };
    let request = AsyncRequest { pointer, bytes, stream: stream_of(function, stream), pool: None };
    out_of_memory::got(function, bytes as u64, served(function, request, observe, real))
}

/// `cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream
/// stream)`.
pub(crate) fn alloc_from_pool(
    function: &'static Function,
    pointer: *mut u64,
    bytes: usize,
    pool: PoolHandle,
    stream: StreamHandle,
    real: impl Real,
) -> CuResult {
    let observe = |makes| {
        let words = [pointer as usize, bytes, pool, stream];
        common::observed_malloc(function, &words, bytes as u64, makes)
    };
    let request =
        AsyncRequest { pointer, bytes, stream: stream_of(function, stream), pool: Some(pool) };
    let code = out_of_memory::got(function, bytes as u64, served(function, request, observe, real));
    if code.is_ok()
        && bypass::is_caching()
        && let Some(place) = pool_devices::seen_by_host(pool)
    {
        host_memory::made_at(place);
    }
    code
}

/// `cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)`.
pub(crate) fn free(
    function: &'static Function,
    address: u64,
    stream: StreamHandle,
    real: impl Real,
) -> CuResult {
    let words = [address as usize, stream];
    if let Some(code) = observed(|| common::observed_free(function, &words)) {
        return code;
    }
    let stream = stream_of(function, stream);
    if pagemap::extent_of(address).is_none() || bypass::is_switched_off() {
        fill::driver_memory_is_freed_in_order(address);
        return serving::free_by(address, |_| native(function, stream, real));
    }
    let leak = || frees::without_reuse(address).unwrap_or_else(real);
    if !bypass::is_caching() {
        return leak();
    }
    guarded_with(
        function,
        |thread| {
            if captures::maybe() && captures::is_capturing(stream) {
                if let Some(code) = frees::in_capture(thread, address, stream) {
                    return code;
                }
                return refused_in_capture(thread, address, stream);
            }
            frees::on_stream(thread, address, stream)
                .unwrap_or_else(|| native(function, stream, real))
        },
        leak,
    )
}

/// The arguments of an allocation.
struct AsyncRequest {
    pointer: *mut u64,
    bytes: usize,
    stream: StreamHandle,
    pool: Option<PoolHandle>,
}

/// Serves an allocation. `observe` repeats the whole call with all its arguments, if memory hooks
/// observe it.
fn served(
    function: &'static Function,
    AsyncRequest { pointer, bytes, stream, pool }: AsyncRequest,
    observe: impl Fn(ObservedKind) -> Option<CuResult>,
    real: impl Real,
) -> CuResult {
    let whole = || match captured(function, stream) {
        true => observe(ObservedKind::Node),
        false if common::lost(function).is_some() => Some(native(function, stream, real)),
        false => observe(ObservedKind::Memory),
    };
    if let Some(code) = observed(whole) {
        return code;
    }
    if !bypass::is_caching() || pointer.is_null() || bytes == 0 {
        return native(function, stream, real);
    }
    // A graph node has no memory before its launch.
    let by_driver = || match captures::maybe() && captures::is_capturing(stream) {
        true => captured_node(function, pointer, stream, real),
        false => {
            let ask = || common::submit_to(function, false, MayBeCaptured::No, real);
            // SAFETY: the driver writes there.
            let ask = || unsafe { memory_hooks::around_driver(bytes as u64, pointer, ask) };
            let pool = match pool.is_none() && observers::has_several_contexts() {
                true => pool_of_another_device(stream),
                false => pool,
            };
            let (kind, bytes) = (MemoryKind::Pooled(pool), bytes as u64);
            let wanted = Wanted { kind, bytes, counts: true };
            // SAFETY: the driver has just written it.
            let code = serving::serve(wanted, ask, || unsafe { pointer.read() });
            if code.is_ok() {
                // SAFETY: the driver has just written it.
                common::fill(unsafe { pointer.read() }, bytes, Some(stream));
            } else if pool.is_none() {
                // SAFETY: the program's place. The driver, too, writes a null pointer when it fails
                // (measured). The limit may have prevented the call to it.
                unsafe { pointer.write(0) };
            }
            code
        }
    };
    guarded_with(
        function,
        |thread| {
            if let Some(address) = served_in_capture(thread, stream, pool, bytes as u64) {
                // SAFETY: the program passed it for this result.
                unsafe { pointer.write(address) };
                return Ok(());
            }
            let Some((context, stream_id)) = server(thread, stream, pool) else {
                counters::count(Count::AsyncNative);
                return by_driver();
            };
            let requester = Requester::Stream(StreamId(stream_id));
            match cache::allocate(thread, context, bytes as u64, requester, stream) {
                Ok(address) => {
                    fill::prepare(context, address, bytes as u64, Some(stream));
                    context.pool_attributes.served(thread, bytes as u64);
                    programmatic_launch::block_given(stream_id);
                    // SAFETY: the program passed it for this result; it is written only if the call
                    // succeeds.
                    unsafe { pointer.write(address) };
                    Ok(())
                }
                // The driver may have memory for it.
                Err(_) => by_driver(),
            }
        },
        || native(function, stream, real),
    )
}

/// Runs the call observed by memory hooks, if there are any.
#[inline]
fn observed(send: impl FnOnce() -> Option<CuResult>) -> Option<CuResult> {
    if !bypass::is_fast_path() && bypass::is_caching() { send() } else { None }
}

/// Returns whether the driver will allocate by a graph node. Such memory does not exist before its
/// graph is launched.
#[cold]
fn captured(function: &'static Function, stream: StreamHandle) -> bool {
    let mut captured = false;
    if captures::maybe() && !config::get().graph_pool {
        beside(function, || captured = captures::is_capturing(stream));
    }
    captured
}

/// With `graph_pool`, allocates from the private pool of the capture. Returns `None` if the driver
/// must serve the request, by a memory node.
fn served_in_capture(
    thread: &Thread,
    stream: StreamHandle,
    pool: Option<PoolHandle>,
    bytes: u64,
) -> Option<u64> {
    if !captures::maybe() || !config::get().graph_pool || !captures::is_capturing(stream) {
        return None;
    }
    let context = lookup::current().ok().filter(|context| is_default(context, pool))?;
    let address = private_pools::allocate_on(thread, context, stream, bytes)?.ok()?;
    fill::prepare(context, address, bytes, None);
    Some(address)
}

fn is_default(context: &Context, pool: Option<PoolHandle>) -> bool {
    pools::is_ours(context.device)
        && pool.is_none_or(|pool| pools::device_of_default(pool) == Some(context.device))
}

/// Returns the pool that serves a request which names none, if its stream is on another device than
/// the current one: the device of the stream decides.
#[cold]
fn pool_of_another_device(stream: StreamHandle) -> Option<PoolHandle> {
    if !rule_holds(Rule::StreamNamesDevice) {
        return None;
    }
    let here = lookup::current().ok()?.device;
    let device = stream_identity::context_of(stream)?.device;
    if device == here { None } else { api::device_get_mem_pool(device).ok() }
}

/// Returns the context and the stream id that serve this request, or `None` if the driver must
/// serve it.
fn server(
    thread: &Thread,
    stream: StreamHandle,
    pool: Option<PoolHandle>,
) -> Option<(&'static Context, u64)> {
    let context = lookup::current().ok()?;
    let ours = is_default(context, pool) && !(captures::maybe() && captures::is_capturing(stream));
    if !ours || pools::outlives(context) {
        return None;
    }
    Some((context, stream_identity::id_in(thread, stream, context).ok()?))
}

/// Calls the driver in a capture, where it adds a memory node to the graph.
fn captured_node(
    function: &'static Function,
    pointer: *const u64,
    stream: StreamHandle,
    real: impl Real,
) -> CuResult {
    let code = native(function, stream, real);
    let stack = if code.is_ok() { capture::of_allocation() } else { StackId::NONE };
    if !stack.is_none()
        && let Some(Capturing { graph, .. }) = graphs::capturing(stream)
    {
        // SAFETY: the driver has just written it.
        graph_memory::added(graph, unsafe { pointer.read() }, stack);
    }
    code
}

/// Makes the driver's own call, counted as a submission because it orders work on its stream.
fn native(function: &'static Function, stream: StreamHandle, real: impl Real) -> CuResult {
    if !bypass::is_caching() {
        return real();
    }
    let captured = match captures::maybe() && captures::is_capturing(stream) {
        true => MayBeCaptured::Perhaps,
        false => MayBeCaptured::No,
    };
    common::submit_to(function, false, captured, real)
}

/// Refuses a free in a capture as the driver does. In a capture the driver frees only memory of the
/// graph. The library's pointer must not reach it, so the driver gets an expendable pointer of the
/// same kind. The program gets its code and its effect on the capture (hazard 18).
fn refused_in_capture(thread: &Thread, address: u64, stream: StreamHandle) -> CuResult {
    let Some(extent) = pagemap::extent_of(address) else { return Ok(()) };
    match native_wait::spend_sentinel(extent.context(), |pointer| {
        api::mem_free_async(pointer, stream)
    }) {
        // The driver would have accepted the free: the block waits for the capture to end.
        Ok(()) => frees::parked(thread, address),
        code => code,
    }
}
