//! The creation of contexts, references to them, and peer access between them. `end` handles
//! their end.

pub(crate) mod end;
pub(crate) mod green;

use cachealloc_core::order::Observer;
use cachealloc_statistics::breakdown::Component;

use crate::assembly::lifetime;
use crate::cache::arenas;
use crate::config;
use crate::contexts::lookup;
use crate::contexts::references;
use crate::contexts::references::Referent;
use crate::driver::changes;
use crate::driver::sys::{ContextHandle, CuResult};
use crate::driver_memory::first_uses::USES;
use crate::driver_memory::measured;
use crate::functions::Function;
use crate::hooks::observers::accepted;
use crate::hooks::{Real, beside, common, taking};
use crate::interpose::signals;
use crate::ipc::peers;
use crate::ordering::legacy_stream;
use crate::ordering::observers;
use crate::ordering::observers::SeenContext;
use crate::process::bypass;
use crate::state::contexts;

/// `cuInit(flags)`: CUDA has started.
pub(crate) fn init(function: &'static Function, real: impl Real) -> CuResult {
    let code = real();
    if code.is_ok() {
        beside(function, || {
            lifetime::started(signals::expect);
            observers::inspect_devices();
        });
    }
    code
}

/// `cuCtxCreate*(CUcontext *handle, .., CUdevice device)`.
pub(crate) fn create(
    function: &'static Function,
    handle: *mut ContextHandle,
    device: i32,
    real: impl Real,
) -> CuResult {
    made(function, handle, device, false, real)
}

/// `cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice device)`.
pub(crate) fn retain(
    function: &'static Function,
    handle: *mut ContextHandle,
    device: i32,
    real: impl Real,
) -> CuResult {
    made(function, handle, device, true, real)
}

fn made(
    function: &'static Function,
    handle: *mut ContextHandle,
    device: i32,
    is_primary: bool,
    real: impl Real,
) -> CuResult {
    let code = changes::during(|| common::retried_on(function, device, real));
    let primary_of = is_primary.then_some(device);
    if code.is_ok() && bypass::is_caching() && !handle.is_null() {
        // SAFETY: the driver has just written it.
        let handle = unsafe { *handle };
        beside(function, || {
            let id = contexts::id_of(handle);
            let made = id.map(Referent::Made);
            primary_of.map(Referent::Primary).or(made).into_iter().for_each(references::taken);
            if let Some(id) = id
                && observers::note_context(SeenContext { id, handle, primary_of })
            {
                measured::context_made(id, handle);
            }
            if peers::any()
                && let Ok(context) = lookup::of_handle(handle)
            {
                peers::context_seen(context);
            }
        });
    }
    code
}

/// `cuCtxAttach(CUcontext *handle, unsigned flags)`.
pub(crate) fn attach(
    function: &'static Function,
    handle: *mut ContextHandle,
    real: impl Real,
) -> CuResult {
    let code = common::pass(function, real);
    if code.is_ok() && !handle.is_null() {
        // SAFETY: the driver has just written it.
        let handle = unsafe { *handle };
        beside(function, || contexts::id_of(handle).into_iter().for_each(references::attached));
    }
    code
}

/// `cuStreamCreate(CUstream *stream, unsigned flags)`, `cuStreamCreateWithPriority`.
pub(crate) fn stream_create(function: &'static Function, real: impl Real) -> CuResult {
    if bypass::is_caching() {
        beside(function, observers::watch_stream);
    }
    taking::around(function, Component::Objects, || common::retried(function, real))
}

/// `cuCtxSetLimit(limit, bytes)`.
pub(crate) fn set_limit(function: &'static Function, real: impl Real) -> CuResult {
    let code = taking::around(function, Component::Limits, || common::retried(function, real));
    // Local memory may grow again at the next launch of any kernel.
    USES.forget_all();
    code
}

/// `cuCtxEnablePeerAccess(peer, flags)`.
pub(crate) fn enable_peer(
    function: &'static Function,
    peer: ContextHandle,
    real: impl Real,
) -> CuResult {
    let mut code = common::pass(function, real);
    if config::get().policy.expandable_segments || peers::any() {
        beside(function, || {
            if let (Ok(current), Ok(peer)) = (lookup::current(), lookup::of_handle(peer)) {
                code = peers::enabled(current.id, peer.id, code);
                if code.is_ok() {
                    arenas::admit_peer(peer, current.device);
                }
            }
        });
    }
    // This includes access that the driver refused because the library had already enabled it.
    accepted(function, Observer::PeerAccess, code)
}

/// `cuCtxDisablePeerAccess(peer)`.
pub(crate) fn disable_peer(
    function: &'static Function,
    peer: ContextHandle,
    real: impl Real,
) -> CuResult {
    let mut answer = None;
    if peers::any() {
        beside(function, || {
            if let (Ok(current), Ok(peer)) = (lookup::current(), lookup::of_handle(peer)) {
                answer = peers::disabled(current.id, peer.id);
            }
        });
    }
    answer.unwrap_or_else(|| common::pass(function, real))
}

/// `cuCtxWaitEvent(context, event)`, `cuGreenCtxWaitEvent(green context, event)`.
pub(crate) fn waits(function: &'static Function, real: impl Real) -> CuResult {
    let code = common::pass(function, real);
    legacy_stream::context_waits();
    code
}
