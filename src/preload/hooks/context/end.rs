//! Contexts that end, and references to contexts that are given up.
//!
//! Note [Ends]. A context that is about to end must not be used by other threads but by calls of the program: so its door is
//! shut while the driver ends it, and what other threads want of it has to be there before, or to wait. Natively nothing waits:
//! neither memory that was freed in it nor the end of anything that its work had used before a free. So
//! * a reference that is not the last changes nothing: the door stays open (`contexts/references.rs`);
//! * what ends a context natively waits for all its work. That is waited for here, before, with the door open: other threads
//!   wait for the barriers of earlier frees, take memory from the cache, and may bring what the work waits for. What
//!   is left to the driver takes a moment, and with the door shut no barrier is pending;
//! * where it is not known whether a reference is the last, only the barriers of earlier frees are waited for, which natively
//!   are over. If it is the last, the driver waits for the rest with the door shut; if not, frees of other threads go on
//!   meanwhile, and what waits for their barriers waits for the door (`pending::open_behind`).
//!
//! A call that the driver refuses changes nothing. So what is known of the context is forgotten only afterwards; what comes
//! to lie where its memory was makes room for itself (`pagemap::forget_ended`).

use std::sync::RwLockWriteGuard;
use std::sync::atomic::Ordering;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::assembly::end;
use crate::cache::{all_work, pinned_memory, red_zones};
use crate::contexts::references;
use crate::contexts::references::{Fate, GivenUp, Referent};
use crate::contexts::stream_identity;
use crate::driver::sys::{ContextHandle, CuResult};
use crate::driver::{api, changes, table};
use crate::driver_memory::first_uses;
use crate::functions::{Function, id};
use crate::hooks::{Real, beside};
use crate::ordering::observers;
use crate::ordering::observers::SeenContext;
use crate::ordering::{before_submission, captures, deferred_wait, kernels, pending};
use crate::process::bypass;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::state::contexts::{Context, MemoryOwner};
use crate::state::release::PauseGuard;
use crate::state::thread;
use crate::state::thread::Thread;
use crate::statistics::waits::Wait;
use crate::test_delay::test_delay;

/// `cuCtxDestroy(context)`, `cuCtxDetach(context)`. The memory is gone afterwards, without a free of ours, unless the call
/// fails or an attach keeps the context.
pub(crate) fn destroy(
    function: &'static Function,
    handle: ContextHandle,
    real: impl Real,
) -> CuResult {
    if !bypass::is_caching() {
        before_submission::flush_all();
        return real();
    }
    let mut id = None;
    beside(function, || id = contexts::id_of(handle));
    // None: there is no such context, or the thread is in a host function, where the driver refuses the call.
    let Some(id) = id else { return real() };
    let detaches = function.id == id::cuCtxDetach;
    if !detaches && is_primary(id) && rule_holds(Rule::PrimaryIsNotDestroyed) {
        let code = real();
        beside(function, || noted(vec![(id, None)], |_| code.is_ok()));
        return code;
    }
    let given_up = match detaches {
        true => references::give_up(Referent::Made(id)),
        false => references::destroy(Referent::Made(id)),
    };
    let is_over = |_| !detaches || !is_still(handle, id);
    ask(function, vec![id], given_up, is_over, real)
}

/// `cuDevicePrimaryCtxRelease(device)`, `cuDevicePrimaryCtxReset(device)`, `cuGreenCtxDestroy`: the last release, and
/// every reset, ends the primary context.
pub(crate) fn primary(function: &'static Function, device: i32, real: impl Real) -> CuResult {
    if !bypass::is_caching() {
        before_submission::flush_all();
        return real();
    }
    // In a host function: the driver refuses the call.
    if thread::with(Thread::refused_inside_callback).is_some() {
        return real();
    }
    if !rule_holds(Rule::EndsWhatWasThere) {
        return primary_looked_up_late(function, device, real);
    }
    let to = Referent::Primary(device);
    let given_up = match function.id {
        id::cuDevicePrimaryCtxRelease | id::cuDevicePrimaryCtxRelease_v2 => references::give_up(to),
        id::cuDevicePrimaryCtxReset | id::cuDevicePrimaryCtxReset_v2 => references::destroy(to),
        _ => references::give_up_another(to),
    };
    // Before the call: afterwards there may be another, living one.
    let there = primaries(device);
    let ids = there.iter().map(|(id, _)| *id).collect();
    let is_over = |id| {
        let memory_owner =
            there.iter().find(|(known, _)| *known == id).map(|(_, memory_owner)| *memory_owner);
        memory_owner.is_none_or(|memory_owner| {
            !(is_active(device) && is_still(memory_owner.handle, memory_owner.id))
        })
    };
    ask(function, ids, given_up, is_over, real)
}

/// `primary` without `Rule::EndsWhatWasThere`: by now another context may be the primary one.
#[cold]
fn primary_looked_up_late(function: &'static Function, device: i32, real: impl Real) -> CuResult {
    let code = real();
    let over = code.is_ok() && !is_active(device);
    test_delay(Rule::EndsWhatWasThere);
    let there = || primaries(device).iter().map(|(id, _)| (*id, None)).collect();
    beside(function, || noted(there(), |_| over));
    code
}

/// Asks the driver, and notes which of these contexts are over then, if it has not refused.
fn ask(
    function: &'static Function,
    ids: Vec<u64>,
    given_up: GivenUp,
    is_over: impl Fn(u64) -> bool,
    real: impl Real,
) -> CuResult {
    if given_up.fate == Fate::Stays {
        let code = changes::during(real);
        given_up.answered(code.is_err());
        // Unless a reference was given up past our hooks.
        let can_be_asked = code.is_ok() && table::has(id::cuCtxGetId);
        let ids = ids.into_iter().map(|id| (id, None)).collect();
        beside(function, || noted(ids, |id| can_be_asked && is_over(id)));
        return code;
    }
    let known: Vec<_> = ids.into_iter().map(|id| (id, contexts::find(id))).collect();
    let mut waited = false;
    beside(function, || {
        waited = wait_for_work(known.iter().filter_map(|(_, context)| *context), given_up.fate);
    });
    let begin = |(id, context): (u64, Option<&'static Context>)| {
        (id, context.map(|context| EndingContext::begin(context, given_up.fate, !waited)))
    };
    let ending = known.into_iter().map(begin).collect();
    let kernels = ForgottenKernels::take();
    let code = changes::during(real);
    test_delay(Rule::ServedIsNobodys);
    given_up.answered(code.is_err());
    if code.is_err() {
        kernels.put_back();
    }
    beside(function, || noted(ending, |id| code.is_ok() && is_over(id)));
    code
}

/// Waits for what the driver would wait for with the door shut. False: it may wait all the same.
fn wait_for_work(mut ending: impl Iterator<Item = &'static Context>, fate: Fate) -> bool {
    if !rule_holds(Rule::EndWaitsWhileOpen) {
        return true;
    }
    // Of every context: its work may use the memory of these.
    pending::wait_all(Wait::Teardown);
    let is_over = |context| thread::with(|thread| all_work::wait(thread, context)).is_ok();
    // Of a context that is lost no work goes on.
    let is_lost = |context: &Context| context.has_sticky_error.load(Ordering::Relaxed);
    fate == Fate::Ends && ending.all(|context| is_lost(context) || is_over(context))
}

/// A context that the driver is about to end: nothing of ours is in it or waits for its events.
struct EndingContext {
    context: &'static Context,
    _held_off: PauseGuard<'static>,
    _shut: RwLockWriteGuard<'static, ()>,
}

impl EndingContext {
    fn begin(context: &'static Context, fate: Fate, is_in_doubt: bool) -> EndingContext {
        let held_off = context.idle.pause();
        red_zones::check_copies(context);
        pinned_memory::context_ends(context, fate == Fate::Ends);
        stream_identity::may_end();
        deferred_wait::context_may_end(context);
        test_delay(Rule::BarrierOutlastsReference);
        let shut = context.shut(is_in_doubt);
        test_delay(Rule::BarrierOutlastsReference);
        context.ending_ns.store(crate::clock::now_ns(), Ordering::Relaxed);
        EndingContext { context, _held_off: held_off, _shut: shut }
    }
}

/// The kernels of a context that may end: their handles are reused.
struct ForgottenKernels {
    known: kernels::Known,
    used: first_uses::Known,
}

impl ForgottenKernels {
    fn take() -> ForgottenKernels {
        match rule_holds(Rule::KernelsEndWithContext) {
            true => ForgottenKernels { known: kernels::take_all(), used: first_uses::take_all() },
            false => ForgottenKernels { known: None, used: None },
        }
    }

    fn put_back(self) {
        kernels::put_back(self.known);
        first_uses::put_back(self.used);
    }
}

/// The driver has answered.
fn noted(ending: Vec<(u64, Option<EndingContext>)>, is_over: impl Fn(u64) -> bool) {
    for (id, ending) in ending {
        // Another thread may have recorded it meanwhile.
        let known = ending.as_ref().map(|ending| ending.context).or_else(|| contexts::find(id));
        match is_over(id) {
            true => end(id, known),
            false => ending.iter().for_each(|ending| ending.context.is_still_there()),
        }
    }
}

fn end(id: u64, known: Option<&'static Context>) {
    references::ended(id);
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

/// Whether the program has retained it, and so has not made it.
fn is_primary(id: u64) -> bool {
    observers::contexts_seen().iter().any(|seen| seen.id == id && seen.primary_of.is_some())
}

/// The contexts of the device that the program did not create, by id: the primary one, and the green
/// ones that had memory.
fn primaries(device: i32) -> Vec<(u64, MemoryOwner)> {
    let here = |context: &&Context| context.device == device && !context.explicit;
    let met = contexts::all().filter(here).map(|context| (context.id, context.memory_owner));
    let seen =
        observers::contexts_seen().into_iter().filter(|seen| seen.primary_of == Some(device));
    let seen = seen.map(|SeenContext { id, handle, .. }| (id, MemoryOwner { handle, id }));
    let mut all: Vec<_> = met.chain(seen).collect();
    all.sort_unstable();
    all.dedup();
    all
}
