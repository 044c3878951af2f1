//! The life of contexts, and peer access between them.

use std::sync::RwLockWriteGuard;
use std::sync::atomic::Ordering;

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_statistics::account::Part;

use crate::cache::{arenas, pinned_memory, zones};
use crate::config;
use crate::contexts::{self, Context, Home, end, lookup, stream_identity};
use crate::driver::sys::{ContextHandle, CuResult};
use crate::driver::{api, changes, table};
use crate::driver_memory::{first_uses, measured};
use crate::functions::{Function, id};
use crate::hooks::{Real, beside, common, taking};
use crate::interpose::signals;
use crate::ipc::peers;
use crate::ordering::observers::{self, SeenContext};
use crate::ordering::{
    LEDGER, before_submission, captures, joins, kernels, owed_wait, pending, widen,
};
use crate::pagemap::{self, Extent};
use crate::process::{bypass, lifetime};
use crate::statistics::waits::Wait;
use crate::trim::HeldOff;

/// `cuInit(flags)`: CUDA has started.
pub(crate) fn init(function: &'static Function, real: impl Real) -> CuResult {
    let code = real();
    if code.is_ok() && bypass::is_caching() {
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
            if let Some(id) = contexts::id_of(handle)
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

/// `cuCtxDestroy(context)`, `cuCtxDetach(context)`. The driver itself waits for the context's work. The
/// memory is gone afterwards, without a free of ours, unless the call fails or an attach keeps the
/// context.
pub(crate) fn destroy(
    function: &'static Function,
    handle: ContextHandle,
    real: impl Real,
) -> CuResult {
    if !bypass::is_caching() {
        before_submission::pay_all();
        return real();
    }
    let mut id = None;
    beside(function, || id = contexts::id_of(handle));
    let Some(id) = id else { return real() };
    // A detach may end one of several attachments, and the context stays in use.
    let surely = function.id != id::cuCtxDetach;
    let mut ending = contexts::find(id).map(|context| EndingContext::begin(context, surely));
    if surely && rule_holds(Rule::OutBeforeDriver) {
        ending.iter_mut().for_each(EndingContext::hide);
    }
    forget_kernels();
    let code = changes::during(real);
    widen(Rule::ServedIsNobodys);
    let over = code.is_ok() && (surely || !is_still(handle, id));
    beside(function, || end(id, ending, over));
    code
}

/// `cuDevicePrimaryCtxRelease(device)`, `cuDevicePrimaryCtxReset(device)`, `cuGreenCtxDestroy`: the last release, and
/// every reset, ends the primary context.
pub(crate) fn primary_end(function: &'static Function, device: i32, real: impl Real) -> CuResult {
    if !bypass::is_caching() {
        before_submission::pay_all();
        return real();
    }
    pending::wait_all(Wait::Teardown);
    if !rule_holds(Rule::EndsWhatWasThere) {
        let code = real();
        let over = code.is_ok() && !is_active(device);
        widen(Rule::EndsWhatWasThere);
        beside(function, || primaries(device).iter().for_each(|(id, _)| end(*id, None, over)));
        return code;
    }
    // Before the call: afterwards there may be another, living one.
    let ending = primaries(device).into_iter().map(|(id, home)| {
        // There may be more references, and whether the driver waits is its own affair.
        let ending = contexts::find(id).map(|context| EndingContext::begin(context, false));
        (id, home, ending)
    });
    let ending: Vec<_> = ending.collect();
    forget_kernels();
    let code = changes::during(real);
    beside(function, || {
        for (id, home, ending) in ending {
            let over = code.is_ok() && !(is_active(device) && is_still(home.handle, home.id));
            end(id, ending, over);
        }
    });
    code
}

/// `cuStreamCreate(CUstream *stream, unsigned flags)`, `cuStreamCreateWithPriority`.
pub(crate) fn stream_create(function: &'static Function, real: impl Real) -> CuResult {
    if bypass::is_caching() {
        beside(function, observers::watch_stream);
    }
    taking::around(function, Part::Objects, || common::retried(function, real))
}

/// `cuCtxSetLimit(limit, bytes)`.
pub(crate) fn set_limit(function: &'static Function, real: impl Real) -> CuResult {
    if !bypass::is_caching() {
        return real();
    }
    let code = taking::around(function, Part::Limits, || common::retried(function, real));
    // Local memory grows with the next launch of any kernel.
    first_uses::forget_all();
    code
}

/// `cuCtxEnablePeerAccess(peer, flags)`.
pub(crate) fn enable_peer(
    function: &'static Function,
    peer: ContextHandle,
    real: impl Real,
) -> CuResult {
    if bypass::is_caching() {
        beside(function, || observers::observe(Observer::PeerAccess));
    }
    let mut code = real();
    if bypass::is_caching() && (config::get().policy.expandable_segments || peers::any()) {
        beside(function, || {
            if let (Ok(current), Ok(peer)) = (lookup::current(), lookup::of_handle(peer)) {
                code = peers::enabled(current.id, peer.id, code);
                if code.is_ok() {
                    arenas::admit_peer(peer, current.device);
                }
            }
        });
    }
    code
}

/// `cuCtxDisablePeerAccess(peer)`.
pub(crate) fn disable_peer(
    function: &'static Function,
    peer: ContextHandle,
    real: impl Real,
) -> CuResult {
    let mut answer = None;
    if bypass::is_caching() && peers::any() {
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
    joins::context_waits();
    code
}

/// A context that the driver is about to end: nothing of ours is in it or waits for its events.
struct EndingContext {
    context: &'static Context,
    hidden: Vec<&'static Extent>,
    _held_off: HeldOff<'static>,
    _shut: RwLockWriteGuard<'static, ()>,
}

impl EndingContext {
    fn begin(context: &'static Context, surely: bool) -> EndingContext {
        let held_off = context.idle.hold_off();
        zones::check_copies(context);
        pinned_memory::context_ends(context, surely);
        stream_identity::may_end();
        owed_wait::context_may_end(context);
        // Before the door is shut: a thread that finds it shut and no barrier need not wait.
        widen(Rule::BarrierOutlastsReference);
        context.last_barrier.put_aside();
        let shut = context.shut(surely);
        widen(Rule::BarrierOutlastsReference);
        context.ending_ns.store(crate::clock::now_ns(), Ordering::Relaxed);
        EndingContext { context, hidden: Vec::new(), _held_off: held_off, _shut: shut }
    }

    /// Its addresses are released here, and may be reused before the driver returns.
    fn hide(&mut self) {
        self.hidden = pagemap::hide_context(self.context);
    }
}

/// The handles of its kernels are reused.
fn forget_kernels() {
    if rule_holds(Rule::KernelsEndWithContext) {
        kernels::forget_all();
        first_uses::forget_all();
    }
}

/// The driver was asked to end this context.
fn end(id: u64, mut ending: Option<EndingContext>, over: bool) {
    let hidden = ending.as_mut().map(|ending| core::mem::take(&mut ending.hidden));
    let gone = over && rule_holds(Rule::ContextEndForgets);
    pagemap::hidden_are_gone(hidden.unwrap_or_default(), gone);
    let known = match &ending {
        // Another thread may have recorded it meanwhile.
        None => contexts::find(id),
        Some(ending) => Some(ending.context),
    };
    if !over {
        if let Some(EndingContext { context, .. }) = ending {
            context.is_still_there();
            context.last_barrier.take_back();
        }
        return;
    }
    observers::forget_context(id);
    if let Some(context) = known {
        captures::context_destroyed(context);
        end::destroyed(context);
    }
    LEDGER.exclusive.ended(id);
}

/// Whether the handle still means this context. A driver without ids cannot say; then the context is
/// assumed to be gone, as after its only detach.
fn is_still(handle: ContextHandle, id: u64) -> bool {
    table::has(id::cuCtxGetId) && contexts::id_of(handle) == Some(id)
}

/// Whether the device has a primary context, perhaps another one by now.
fn is_active(device: i32) -> bool {
    api::device_primary_ctx_get_state(device).map_or(true, |(_, active)| active != 0)
}

/// The contexts of the device that the program did not create, by id: the primary one, and the green
/// ones that had memory.
fn primaries(device: i32) -> Vec<(u64, Home)> {
    let here = |context: &&Context| context.device == device && !context.explicit;
    let met = contexts::all().filter(here).map(|context| (context.id, context.home));
    let seen =
        observers::contexts_seen().into_iter().filter(|seen| seen.primary_of == Some(device));
    let seen = seen.map(|SeenContext { id, handle, .. }| (id, Home { handle, id }));
    let mut all: Vec<_> = met.chain(seen).collect();
    all.sort_unstable();
    all.dedup();
    all
}
