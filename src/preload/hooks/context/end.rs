//! The end of contexts, and the release of references to them.
//!
//! Note [Ends]. While the driver ends a context, only calls of the program may use it. So the
//! library holds the context's lifetime lock exclusively during the driver's call: other threads
//! have either finished with the context before, or wait. On the plain driver nothing waits here:
//! neither memory that was freed in the context, nor the end of anything that its work used before
//! a free. Therefore:
//! * A release that is not the last changes nothing: the lifetime lock stays free
//!   (`contexts/references.rs`).
//! * A call that is sure to end the context waits, in the driver, for all its work. The library
//!   waits for that work first, without the lifetime lock: other threads can then wait for the
//!   barriers of earlier frees, take memory from the cache, and submit what the work waits for. The
//!   driver's own part takes a moment, and no barrier is pending while the lock is held.
//! * If it is unknown whether a reference is the last, the library waits only for the barriers of
//!   earlier frees, whose work has completed on the plain driver. If it is the last, the driver
//!   waits for the rest while the lock is held. If not, frees of other threads continue meanwhile,
//!   and waits for their barriers wait for the lock (`pending::open_behind`).
//!
//! A call that the driver refuses changes nothing. So the library forgets what it knows of the
//! context only afterwards; memory mapped at an address of the ended context replaces the old
//! entries (`pagemap::forget_ended`).

use std::sync::RwLockWriteGuard;
use std::sync::atomic::Ordering;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_history::StackId;

use crate::assembly::end;
use crate::cache::{all_work, pinned_memory, red_zones};
use crate::contexts::references;
use crate::contexts::references::{Fate, GivenUp, Referent};
use crate::contexts::stream_identity;
use crate::driver::sys::{ContextHandle, CuResult};
use crate::driver::{api, changes, table};
use crate::driver_memory::first_uses::USES;
use crate::functions::{Function, id};
use crate::hooks::{Real, beside};
use crate::ordering::kernels::KERNELS;
use crate::ordering::observers;
use crate::ordering::observers::SeenContext;
use crate::ordering::{captures, deferred_wait, pending};
use crate::record::capture;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::state::contexts::{Context, MemoryOwner};
use crate::state::release::PauseGuard;
use crate::state::thread;
use crate::state::thread::Thread;
use crate::statistics::waits::Wait;
use crate::test_delay::test_delay;

/// `cuCtxDestroy(context)`, `cuCtxDetach(context)`. The memory of the context is gone afterwards
/// without a free by the library, unless the call fails or an attach keeps the context.
pub(crate) fn destroy(
    function: &'static Function,
    handle: ContextHandle,
    real: impl Real,
) -> CuResult {
    // The driver refuses it, and would name the current context to this library.
    if handle == 0 && rule_holds(Rule::WrongEndWaitsForNothing) {
        return real();
    }
    let mut id = None;
    beside(function, || id = contexts::id_of(handle));
    // There is no such context, or the thread is in a host function, where the driver refuses the
    // call.
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

/// `cuDevicePrimaryCtxRelease(device)`, `cuDevicePrimaryCtxReset(device)`, `cuGreenCtxDestroy`: the
/// last release and every reset end the primary context.
pub(crate) fn primary(function: &'static Function, device: i32, real: impl Real) -> CuResult {
    // The driver refuses the call in a host function.
    if thread::with(Thread::refused_inside_callback).is_some() {
        return real();
    }
    if !rule_holds(Rule::EndsOnlyWhatExisted) {
        return primary_looked_up_late(function, device, real);
    }
    let to = Referent::Primary(device);
    let given_up = match function.id {
        id::cuDevicePrimaryCtxRelease | id::cuDevicePrimaryCtxRelease_v2 => references::give_up(to),
        id::cuDevicePrimaryCtxReset | id::cuDevicePrimaryCtxReset_v2 => references::destroy(to),
        _ => references::give_up_another(to),
    };
    // Read before the call: afterwards there may be another, living primary context.
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

/// `primary` without `Rule::EndsOnlyWhatExisted`: by now another context may be the primary one.
#[cold]
fn primary_looked_up_late(function: &'static Function, device: i32, real: impl Real) -> CuResult {
    let code = real();
    let over = code.is_ok() && !is_active(device);
    test_delay(Rule::EndsOnlyWhatExisted);
    let there = || primaries(device).iter().map(|(id, _)| (*id, None)).collect();
    beside(function, || noted(there(), |_| over));
    code
}

/// Calls the driver. If it accepts the call, notes which of these contexts have ended.
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
        // The contexts are still there, unless a reference was released past our hooks.
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
    // The driver reuses the handles of kernels.
    let kernels =
        rule_holds(Rule::KernelsEndWithContext).then(|| (KERNELS.take_all(), USES.take_all()));
    let code = changes::during(real);
    test_delay(Rule::ServedIsInNoSegment);
    given_up.answered(code.is_err());
    if let Some((known, used)) = kernels.filter(|_| code.is_err()) {
        KERNELS.put_back(known);
        USES.put_back(used);
    }
    beside(function, || noted(ending, |id| code.is_ok() && is_over(id)));
    code
}

/// Waits for the work that the driver would wait for while the lifetime lock is held. Returns
/// `false` if the driver may still have to wait.
fn wait_for_work(mut ending: impl Iterator<Item = &'static Context>, fate: Fate) -> bool {
    if !rule_holds(Rule::EndWaitsWhileOpen) {
        return true;
    }
    // In every context, because the work of any context may use the memory of the ending ones.
    pending::wait_all(Wait::Teardown);
    let is_over = |context| thread::with(|thread| all_work::wait(thread, context)).is_ok();
    // In a context that is lost, no work runs any more.
    let is_lost = |context: &Context| context.has_sticky_error.load(Ordering::Relaxed);
    fate == Fate::Ends && ending.all(|context| is_lost(context) || is_over(context))
}

/// A context that the driver is about to end. No work of the library is in it, and nothing waits
/// for its events.
struct EndingContext {
    context: &'static Context,
    /// Stack of the call, captured before the lifetime lock is held.
    caller: StackId,
    _held_off: Option<PauseGuard<'static>>,
    _shut: RwLockWriteGuard<'static, ()>,
}

impl EndingContext {
    fn begin(context: &'static Context, fate: Fate, is_in_doubt: bool) -> EndingContext {
        let (held_off, caller) = (context.idle.pause(), capture::of_free());
        red_zones::check_copies(context);
        pinned_memory::context_ends(context, fate == Fate::Ends);
        stream_identity::may_end();
        deferred_wait::context_may_end(context);
        test_delay(Rule::BarrierOutlastsReference);
        let shut = context.shut(is_in_doubt);
        test_delay(Rule::BarrierOutlastsReference);
        context.ending_ns.store(crate::clock::now_ns(), Ordering::Relaxed);
        EndingContext { context, caller, _held_off: held_off, _shut: shut }
    }
}

/// Notes the driver's answer for each context.
fn noted(ending: Vec<(u64, Option<EndingContext>)>, is_over: impl Fn(u64) -> bool) {
    for (id, ending) in ending {
        // Another thread may have registered the context meanwhile.
        let known = ending.as_ref().map(|ending| ending.context).or_else(|| contexts::find(id));
        let caller = ending.as_ref().map_or(StackId::NONE, |ending| ending.caller);
        match is_over(id) {
            true => end(id, known, caller),
            false => ending.iter().for_each(|ending| ending.context.is_still_there()),
        }
    }
}

fn end(id: u64, known: Option<&'static Context>, caller: StackId) {
    references::ended(id);
    observers::forget_context(id);
    if let Some(context) = known {
        captures::context_destroyed(context);
        end::destroyed(context, caller);
    }
    LEDGER.exclusive.ended(id);
}

/// Returns whether the handle still means this context. Without context ids in the driver this is
/// unknown; the context is then assumed to be gone, as it is after its only detach.
fn is_still(handle: ContextHandle, id: u64) -> bool {
    table::has(id::cuCtxGetId) && contexts::id_of(handle) == Some(id)
}

/// Returns whether the device has a primary context, which may be another one by now.
fn is_active(device: i32) -> bool {
    api::device_primary_ctx_get_state(device).map_or(true, |(_, active)| active != 0)
}

/// Returns whether the program retained this context instead of creating it.
fn is_primary(id: u64) -> bool {
    observers::contexts_seen().iter().any(|seen| seen.id == id && seen.primary_of.is_some())
}

/// The contexts of the device that the program did not create, with their ids: the primary context,
/// and the green contexts that had memory.
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
