//! Pending barriers: what later calls wait for after a free that made a barrier and did not wait
//! (docs/ordering.md 4). They wait for the free's own event, never for "now" (hazard 29).
//!
//! Note [Which frees to wait for]. On the plain driver, the free has waited when it returns, and
//! any thread that knows of its return, by whatever means, relies on that. The library cannot tell
//! which threads know; so
//! * the thread of the free itself waits in its queries: it knows;
//! * the end of a thread waits for its frees: on the plain driver it would still be inside the last
//!   one. If that is impossible, its pending barriers concern every thread: it was joined, and if
//!   not, its free has returned all the same;
//! * for the frees of other, living threads, a query that would return "not ready" waits as long as
//!   `WAIT_BUDGET` lasts, and then returns that. It must not wait indefinitely: it may be the poll
//!   of a loop that feeds the very kernel, by means that the library does not see. On the plain
//!   driver, the free has not returned then.

use core::ptr::null;
use std::sync::RwLockReadGuard;
use std::sync::atomic::Ordering;

use cachealloc_core::order::{BarrierNumber, Observer, TrackedBarrier};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::{CuError, CuResult};
use crate::ordering::across;
use crate::ordering::orphaned_barriers;
use crate::ordering::orphaned_barriers::FreeBarrier;
use crate::process::bounds;
use crate::process::bounds::{Budget, Running};
use crate::process::bypass;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::events::{Event, EventRef};
use crate::state::stream_frees::PlainFree;
use crate::state::thread;
use crate::state::thread::Thread;
use crate::state::under_way::Waiter;
use crate::statistics::waits;
use crate::statistics::waits::Wait;

/// How long all queries together may wait for frees of other threads.
static WAIT_BUDGET: Budget = Budget::new(&bounds::FREES_OF_OTHERS);
/// How long all requests together may wait for frees of other threads.
static ON_ITS_WAY: Budget = Budget::new(&bounds::MEMORY_ON_ITS_WAY);

/// Notes that this thread's free made barrier `number`.
#[inline]
pub(crate) fn track(thread: &Thread, context: &Context, number: BarrierNumber, event: EventRef) {
    if thread.tracked.get().elsewhere_than(context.id).is_some() {
        put_aside(thread);
    }
    let mut tracked = TrackedBarrier::new();
    tracked.track(context.id, number);
    thread.tracked.set(tracked);
    match replace_event(thread, event.into_raw()) {
        Some(old) => old.keep(thread),
        None => wait_if_unwatched(),
    }
}

/// Waits for the barrier at once if the end of the thread will not be noticed, where it would be
/// waited for.
#[inline(never)]
fn wait_if_unwatched() {
    thread::with(|thread| {
        if !thread.watch_end() && rule_holds(Rule::LateFreesWait) {
            wait_own_for(thread, Wait::Teardown);
        }
    });
}

/// Stashes the barrier of the thread's last free, which was in another context.
#[cold]
fn put_aside(thread: &Thread) {
    if let Some(barrier) = take_last(thread).filter(|_| rule_holds(Rule::FreesInEachContext)) {
        orphaned_barriers::stash(thread, barrier);
    }
}

fn take_last(thread: &Thread) -> Option<FreeBarrier> {
    let (context_id, number) = thread.tracked.replace(TrackedBarrier::new()).tracked()?;
    Some(FreeBarrier { context_id, number, event: replace_event(thread, null())? })
}

/// Notes that this thread's free skipped its barrier and relies on the last one, if that is still
/// pending.
#[inline]
pub(crate) fn share_barrier(thread: &Thread, context: &Context) {
    let Some(number) = context.covers.pending() else { return };
    if !rule_holds(Rule::ElidedFreeShares) {
        return;
    }
    if thread.tracked.get().tracked() == Some((context.id, number)) {
        return;
    }
    if let Some(event) = context.last_barrier.event(number) {
        track(thread, context, number, event);
    }
}

/// Waits for the barriers of this thread's last frees. Returns `false` if there were none.
pub(crate) fn wait_own(thread: &Thread) -> bool {
    if !rule_holds(Rule::QueryWaitsForOwnFrees) {
        return wait_as_all();
    }
    wait_own_for(thread, Wait::Query)
}

/// `wait_own` without `Rule::QueryWaitsForOwnFrees`.
#[cold]
fn wait_as_all() -> bool {
    wait_all(Wait::Query);
    true
}

fn wait_own_for(thread: &Thread, reason: Wait) -> bool {
    let any = take_last(thread).is_some_and(|last| wait_for_one(&last, reason));
    wait_for_each(&orphaned_barriers::take(thread), reason) || any
}

/// Returns `false` if there are none, or their contexts have ended.
fn wait_for_each(barriers: &[FreeBarrier], reason: Wait) -> bool {
    let mut any = false;
    barriers.iter().for_each(|barrier| any |= wait_for_one(barrier, reason));
    any
}

fn wait_for_one(barrier: &FreeBarrier, reason: Wait) -> bool {
    let FreeBarrier { context_id, number, event } = barrier;
    let Some(context) = contexts::find(*context_id) else { return false };
    // Another thread may have waited for it since the query: then its result is stale.
    if !context.covers.pending_barriers.is_pending(*number) {
        return true;
    }
    let Some(_open) = open_behind(context, *number) else { return true };
    if waits::timed(reason, || api::relaxed(|| event.synchronize())).is_ok() {
        context.covers.pending_barriers.complete(*number);
    }
    true
}

/// Waits for the barriers of threads that have ended. Returns `false` if there were none.
pub(crate) fn wait_for_left(reason: Wait) -> bool {
    // The barriers stay in the list during the wait: another thread may query too.
    let left = orphaned_barriers::left();
    wait_for_each(&left, reason);
    orphaned_barriers::are_over(&left);
    !left.is_empty()
}

/// Waits for everything that a query may wait for before it returns "not ready".
pub(crate) fn wait_like_query() {
    thread::with(wait_own);
    wait_for_left(Wait::Query);
    wait_for_others();
}

/// Waits for frees of other threads, within the budget. Returns `false` if there were none.
pub(crate) fn wait_for_others() -> bool {
    if !rule_holds(Rule::OthersFreesForAWhile) {
        return false;
    }
    let mut any = false;
    for context in contexts::all() {
        let frees = context.frees_in_progress.load(Ordering::Acquire);
        if frees != 0 && !rule_holds(Rule::WaitingFreeHidesNone) {
            continue;
        }
        let Some(number) = context.covers.pending() else { continue };
        let Some(_open) = open_behind(context, number) else { continue };
        let Some(event) = context.last_barrier.event(number) else { continue };
        any = true;
        if waits::timed(Wait::Query, || wait_with_timeout(&event)).is_ok() {
            context.covers.pending_barriers.complete(number);
        }
    }
    any
}

/// Waits for a free of another thread as long as the budget lasts.
pub(crate) fn wait_with_timeout(event: &EventRef) -> CuResult {
    let mut code = Err(CuError::NOT_READY);
    WAIT_BUDGET.until(|| {
        code = api::relaxed(|| event.query());
        code != Err(CuError::NOT_READY)
    });
    code
}

/// Returns whether such a call waits for frees of other threads only for a limited time.
pub(crate) fn waits_for_a_while(waiter: Waiter) -> bool {
    waiter == Waiter::GoesOn && rule_holds(Rule::OthersPlainFreesForAWhile)
}

/// Returns whether the work before this barrier has completed, for a caller that waits for it next.
/// A call that does not block on the plain driver waits for frees of other threads only for a
/// limited time: there, such a free may not have returned. The time is longer than a moment,
/// because the memory that the call needs may have been freed long before, which is not known for
/// each block.
pub(crate) fn may_wait_for(barrier: Option<&EventRef>, waiter: Waiter) -> bool {
    if !waits_for_a_while(waiter) {
        return true;
    }
    thread::with(|thread| wait_own_for(thread, Wait::Release));
    wait_for_left(Wait::Release);
    barrier.is_none_or(|event| {
        let is_over = || api::relaxed(|| event.query()) != Err(CuError::NOT_READY);
        waits::timed(Wait::Release, || ON_ITS_WAY.until(is_over))
    })
}

/// Waits for earlier frees before a call is made again that the driver has refused for lack of
/// memory, as `may_wait_for` does.
pub(crate) fn wait_like_request() {
    thread::with(|thread| wait_own_for(thread, Wait::Release));
    wait_for_left(Wait::Release);
    for context in contexts::all() {
        let Some(number) = context.covers.pending() else { continue };
        let Some(_open) = open_behind(context, number) else { continue };
        let _ = may_wait_for(context.last_barrier.event(number).as_ref(), Waiter::GoesOn);
    }
}

/// Waits for the last barrier of every context: something that earlier work may use is about to
/// end, or an observer beyond the barriers is about to appear. If the program orders its contexts
/// itself, waits only for those of Note [The program's promise].
pub(crate) fn wait_all(reason: Wait) {
    let broken = match reason {
        Wait::Teardown => !rule_holds(Rule::TeardownWaits),
        Wait::Observer => !rule_holds(Rule::ObserverWaits),
        _ => false,
    };
    if broken {
        return;
    }
    if !are_apart() {
        return contexts::all().for_each(|context| wait(context, reason));
    }
    thread::with(|thread| wait_own_for(thread, reason));
    wait_for_left(reason);
    if let Some(context) = api::ctx_get_id(0).ok().and_then(contexts::find) {
        wait(context, reason);
    }
}

fn are_apart() -> bool {
    across::is_promised() && rule_holds(Rule::PromisedContextsApart)
}

/// Returns whether `wait_all` has left a barrier pending.
pub(crate) fn is_left_to_others() -> bool {
    are_apart()
        && contexts::all().any(|context| {
            let Some(number) = context.covers.pending() else { return false };
            let Some(_open) = open_behind(context, number) else { return false };
            let Some(event) = context.last_barrier.event(number) else { return false };
            let over = api::relaxed(|| event.query()).is_ok();
            if over {
                context.covers.pending_barriers.complete(number);
            }
            !over
        })
}

/// Blocks the end of the context while this barrier is waited for. Returns `None` if nothing has to
/// be waited for any more. A call that ends a context waits for its barriers before it takes the
/// lifetime lock (`hooks/context/end.rs`). A barrier that is pending after that belongs to a free
/// made since. In that case another reference is left, and the call that may end the context
/// completes in a moment.
fn open_behind(context: &Context, number: BarrierNumber) -> Option<RwLockReadGuard<'_, ()>> {
    match rule_holds(Rule::BarrierOutlastsReference) {
        true => context.open_while(|| context.covers.pending_barriers.is_pending(number)),
        false => context.keep_open(),
    }
}

/// Waits for the last barrier of one context.
#[inline]
pub(crate) fn wait(context: &Context, reason: Wait) {
    let Some(number) = context.covers.pending() else { return };
    let Some(_open) = open_behind(context, number) else { return };
    let Some(event) = context.last_barrier.event(number) else { return };
    if !rule_holds(Rule::PendingBarrierIsOfItsFree) {
        return wait_for_all_work(context);
    }
    if waits::timed(reason, || api::relaxed(|| event.synchronize())).is_ok() {
        context.covers.pending_barriers.complete(number);
    }
}

/// `wait` without `Rule::PendingBarrierIsOfItsFree`: later work may never end.
#[cold]
fn wait_for_all_work(context: &Context) {
    let _ = context.enter(api::ctx_synchronize);
}

/// Waits for outstanding work at the end of the process. On the plain driver, each free would have
/// waited and flushed what kernels print. Now this waits for the last barriers, and in mode
/// `relaxed` for the last free. It polls: the wait ends when a fault has ended the work, and after
/// a time that no finite kernel needs. A kernel that never ends would have blocked the driver's own
/// free; but a program that exits from a signal handler exits there, too.
///
/// `at_once` means an exit by `_exit`, which waits for nothing on the plain driver. A thread may
/// call it because the others make no progress: there, a free after a kernel that never ends has
/// not returned. So Note [Which frees to wait for] applies here as to queries. The thread's own
/// frees, and those of threads that have ended, have waited on the plain driver. Those of other
/// threads may not have, and for them it waits for a limited time.
pub(crate) fn wait_at_end(at_once: bool) {
    // From here on frees wait themselves: those of static objects, which are destroyed after this.
    let _ = LEDGER.note_observer(Observer::ProcessEnd);
    LEDGER.exclusive.waited();
    let mut until = bounds::WORK_AT_EXIT.begin();
    let own = thread::with(Thread::number);
    let at_once = at_once && rule_holds(Rule::OthersEndForAWhile);
    if at_once {
        for FreeBarrier { context_id, number, event } in own_and_left() {
            let Some(context) = contexts::find(context_id) else { continue };
            let Some(_open) = open_until(context, Some(number), &until) else { continue };
            end_behind(&event, &mut until);
        }
    }
    let mut of_others = WAIT_BUDGET.left();
    for context in contexts::all() {
        let pending = context.covers.pending();
        let Some(_open) = open_until(context, pending, &until) else { continue };
        if let Some(PlainFree { event, thread, .. }) = context.stream_frees.last_plain_free() {
            let is_others = at_once && thread != own && thread != 0;
            end_behind(&event, if is_others { &mut of_others } else { &mut until });
        }
        if let Some(event) = pending.and_then(|pending| context.last_barrier.event(pending)) {
            end_behind(&event, if at_once { &mut of_others } else { &mut until });
        }
    }
}

/// Blocks the end of the context like `open_behind`, but at the end of the process, where it waits
/// for no thread that ends a context.
fn open_until<'a>(
    context: &'a Context,
    pending: Option<BarrierNumber>,
    until: &Running,
) -> Option<RwLockReadGuard<'a, ()>> {
    let is_pending = |number| context.covers.pending_barriers.is_pending(number);
    context.open_while(|| pending.is_some_and(is_pending) && !until.is_spent())
}

/// Returns the barriers of this thread's last frees, and of those of threads that have ended.
fn own_and_left() -> Vec<FreeBarrier> {
    let mut all = orphaned_barriers::left();
    thread::with(|thread| {
        all.extend(orphaned_barriers::take(thread));
        all.extend(take_last(thread));
    });
    all
}

fn end_behind(event: &EventRef, until: &mut Running) {
    until.until(|| api::relaxed(|| event.query()) != Err(CuError::NOT_READY));
    // Returns at once, and flushes the output of kernels (measured); a query does not.
    if api::relaxed(|| event.query()).is_ok() {
        let _ = api::relaxed(|| event.synchronize());
    }
}

/// Waits, in a thread that ends, for the barriers of its frees: on the plain driver, they would have
/// waited. Those that remain concern every thread.
pub(crate) fn thread_ended(thread: &Thread) {
    if bypass::is_caching() && rule_holds(Rule::ThreadOutlivesItsBarriers) {
        let inside = thread.inside.replace(true);
        wait_own_for(thread, Wait::Teardown);
        thread.inside.set(inside);
    }
    contexts::all().for_each(|context| context.stream_frees.thread_ended(thread.number()));
    let aside = orphaned_barriers::take(thread);
    if rule_holds(Rule::PendingBarrierOutlivesThread) {
        aside.into_iter().chain(take_last(thread)).for_each(orphaned_barriers::leave);
    } else {
        drop(take_last(thread));
    }
    let spare = thread.spare_event.replace(null());
    // SAFETY: kept by `EventRef::keep`, as if by `into_raw`, and taken out once.
    drop((!spare.is_null()).then(|| unsafe { EventRef::from_raw(spare) }));
}

#[inline]
fn replace_event(thread: &Thread, event: *const Event) -> Option<EventRef> {
    let old = thread.tracked_event.replace(event);
    // SAFETY: every non-null pointer stored here came from `into_raw` and is taken out once.
    (!old.is_null()).then(|| unsafe { EventRef::from_raw(old) })
}
