//! The life of contexts, and peer access between them.

use cachealloc_core::order::Agent;

use crate::config;
use crate::driver::sys::{ContextHandle, CuResult, SUCCESS};
use crate::driver::{api, table};
use crate::functions::{Function, id};
use crate::hooks::{beside, common};
use crate::runtime::contexts::{self, Context};
use crate::runtime::stats::Wait;
use crate::runtime::{LEDGER, agents, arenas, bypass, captures, debts, peers, process};

/// `cuInit(flags)`: CUDA counts from here.
pub fn init(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let code = real();
    if code == SUCCESS && bypass::is_on() {
        beside(function, || {
            process::started();
            agents::look_around();
        });
    }
    code
}

/// `cuCtxCreate*` and `cuDevicePrimaryCtxRetain`: the handle is written to the first argument.
pub fn create(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let code = common::retried(function, real);
    let handle = words[0] as *const ContextHandle;
    if code == SUCCESS && bypass::is_on() && !handle.is_null() {
        // SAFETY: the driver has just written it.
        let handle = unsafe { *handle };
        if function.id != id::cuDevicePrimaryCtxRetain {
            contexts::note_explicit(handle);
        }
        beside(function, || {
            agents::note_context(handle);
            if peers::any()
                && let Ok(context) = contexts::of_handle(handle)
            {
                peers::context_met(context);
            }
        });
    }
    code
}

/// `cuCtxDestroy(context)`, `cuCtxDetach(context)`. The driver waits for the context's work
/// itself; its memory is gone afterwards, without a free of ours. Not if the call fails, or if an
/// attach keeps the context.
pub fn destroy(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    let handle = words[0] as ContextHandle;
    let mut known: Option<&'static Context> = None;
    beside(function, || {
        known = contexts::known(handle);
    });
    let _held_off = known.map(|context| context.idle.hold_off());
    let barrier = known.and_then(|context| context.last_barrier.forget());
    let code = real();
    if code != SUCCESS || function.id == id::cuCtxDetach && lives(handle) {
        if let (Some(context), Some((number, event))) = (known, barrier) {
            context.last_barrier.remember(number, event);
        }
        return code;
    }
    beside(function, || ended(known, handle));
    code
}

/// `cuDevicePrimaryCtxRelease(device)`, `cuDevicePrimaryCtxReset(device)`: the last release, and
/// every reset, ends the context that is not of the program's own making.
pub fn primary_end(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    let device = words[0] as i32;
    debts::pay_all(Wait::Teardown);
    let _held_off: Vec<_> = primaries(device).map(|context| context.idle.hold_off()).collect();
    let code = real();
    if code == SUCCESS && bypass::is_on() {
        beside(function, || primary_ended(device));
    }
    code
}

/// `cuStreamCreate(CUstream *stream, unsigned flags)`, `cuStreamCreateWithPriority`.
pub fn stream_create(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_on() {
        beside(function, agents::watch_stream);
    }
    common::retried(function, real)
}

/// Green contexts share the memory of the primary one and order only their own streams.
pub fn green(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_on() {
        beside(function, || agents::show(Agent::GreenContext));
    }
    common::retried(function, real)
}

/// `cuCtxEnablePeerAccess(peer, flags)`.
pub fn enable_peer(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if bypass::is_on() {
        beside(function, || agents::show(Agent::PeerAccess));
    }
    let mut code = real();
    if bypass::is_on() && (config::get().policy.expandable_segments || peers::any()) {
        beside(function, || {
            if let (Ok(current), Ok(peer)) = (contexts::current(), contexts::of_handle(words[0])) {
                code = peers::enabled(current.id, peer.id, code);
                if code == SUCCESS {
                    arenas::admit_peer(peer, current.device);
                }
            }
        });
    }
    code
}

/// `cuCtxDisablePeerAccess(peer)`.
pub fn disable_peer(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let mut answer = None;
    if bypass::is_on() && peers::any() {
        beside(function, || {
            if let (Ok(current), Ok(peer)) = (contexts::current(), contexts::of_handle(words[0])) {
                answer = peers::disabled(current.id, peer.id);
            }
        });
    }
    answer.unwrap_or_else(|| common::pass(function, words, real))
}

/// Whether the context is still there. A driver without ids does not tell; then it is taken to be
/// gone, as after its only detach.
fn lives(handle: ContextHandle) -> bool {
    let mut number = 0;
    table::has(id::cuCtxGetId) && api::ctx_get_id(handle, &mut number) == SUCCESS
}

fn primary_ended(device: i32) {
    let (mut flags, mut active) = (0, 0);
    if api::device_primary_ctx_get_state(device, &mut flags, &mut active) != SUCCESS || active != 0
    {
        return;
    }
    primaries(device).for_each(|context| ended(Some(context), context.handle));
}

/// The contexts of the device that are not of the program's own making: one, where the driver has ids.
fn primaries(device: i32) -> impl Iterator<Item = &'static Context> {
    contexts::all().filter(move |context| context.device == device && !context.explicit)
}

fn ended(context: Option<&'static Context>, handle: ContextHandle) {
    contexts::forget_explicit(handle);
    agents::forget_context(handle);
    if let Some(context) = context {
        captures::context_destroyed(context);
        context.bury();
        LEDGER.plain.ended(context.id);
    }
}
