//! What later calls owe to a free that made a barrier and did not wait (docs/ordering.md 4).
//! They wait for the free's own event, never for "now" (hazard 29).
//!
//! Note [Whose debt]. Natively the free has waited when it returns, and whoever has heard of that, in
//! whatever thread, leans on it. Whether a thread has heard we cannot see; so
//! * the thread of the free itself pays when it asks: it has heard;
//! * the debts of a thread that has ended are everybody's: such a thread is joined, and where it is
//!   not, its free has returned all the same;
//! * for the frees of other threads that live, a query that answers "not ready" waits as long as
//!   `PATIENCE` lasts, and then answers so. It may be the poll of a loop that feeds the very kernel, by
//!   means that we do not see (natively the free has not returned then), so it must not wait for ever.
//!   While a free is inside its own wait, none of that context has to be waited for: that one has not
//!   returned.

use core::ptr::null;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use cachealloc_core::order::{BarrierNumber, Observer, TrackedBarrier};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::clock::Instant;
use crate::contexts::events::{Event, EventRef};
use crate::contexts::{self, Context};
use crate::driver::api;
use crate::driver::sys::{NOT_READY, SUCCESS};
use crate::lock::lock;
use crate::ordering::LEDGER;
use crate::process::own_thread;
use crate::process::thread::{self, Thread};
use crate::statistics::waits::{self, Wait};

/// A debt whose thread has ended.
#[derive(Clone)]
struct Left {
    context_id: u64,
    number: BarrierNumber,
    event: EventRef,
}

/// The newest of each context: it stands for those before it.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());
static LEFT_COUNT: AtomicUsize = AtomicUsize::new(0);

/// How long queries wait for the frees of other threads, all together: so long, and this share of the
/// time besides. A program that polls loses no more by it.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_PART: u32 = 50;
const LOOK_EVERY: Duration = Duration::from_micros(20);
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// This thread's free made barrier `number`.
pub fn track(thread: &Thread, context: &Context, number: BarrierNumber, event: EventRef) {
    let mut debt = TrackedBarrier::new();
    debt.track(context.id, number);
    thread.tracked.set(debt);
    match replace_event(thread, event.into_raw()) {
        Some(old) => old.keep(thread),
        None => thread::watch(),
    }
}

/// This thread's free skipped its barrier and leans on the last one, if that is still pending.
#[inline]
pub fn share_barrier(thread: &Thread, context: &Context) {
    let Some(number) = context.covers.pending() else { return };
    if !rule_holds(Rule::SkippedFreeLeans) {
        return;
    }
    if thread.tracked.get().tracked() == Some((context.id, number)) {
        return;
    }
    if let Some(event) = context.last_barrier.event(number) {
        track(thread, context, number, event);
    }
}

/// Waits for the barrier of this thread's last free. False: there was none.
pub fn wait_own(thread: &Thread) -> bool {
    if !rule_holds(Rule::QueryAsksAgain) {
        return false;
    }
    if !rule_holds(Rule::QueryPaysOwnDebts) {
        wait_all(Wait::Query);
        return true;
    }
    let Some((context_id, number)) = thread.tracked.get().tracked() else { return false };
    let context = contexts::find(context_id);
    let event = replace_event(thread, null());
    thread.tracked.set(TrackedBarrier::new());
    let (Some(context), Some(event)) = (context, event) else { return false };
    pay_debt(context, number, &event);
    true
}

fn pay_debt(context: &Context, number: BarrierNumber, event: &EventRef) {
    // Another thread may have waited for it since the query was answered: that answer is stale.
    if !context.covers.pending_barriers.is_pending(number) {
        return;
    }
    let Some(_open) = context.stay_open() else { return };
    if waits::timed(Wait::Query, || api::relaxed(|| event.synchronize())) == SUCCESS {
        context.covers.pending_barriers.complete(number);
    }
}

/// Waits for the barriers of threads that have ended. False: there was none.
pub fn wait_for_left() -> bool {
    if LEFT_COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    // They stay while we wait: another thread asks too.
    let left = lock(&LEFT).clone();
    for Left { context_id, number, event } in &left {
        if let Some(context) = contexts::find(*context_id) {
            pay_debt(context, *number, event);
        }
    }
    let is_paid = |debt: &Left| left.iter().any(|paid| paid.is_as_late_as(debt));
    change_left(|all| all.retain(|debt| !is_paid(debt)));
    !left.is_empty()
}

/// Waits for frees of other threads, but not for ever. False: there was none.
pub fn wait_for_others() -> bool {
    if !rule_holds(Rule::OthersDebtsForAWhile) || !rule_holds(Rule::QueryAsksAgain) {
        return false;
    }
    let mut any = false;
    for context in contexts::all() {
        if context.frees_in_progress.load(Ordering::Acquire) != 0 {
            continue;
        }
        let Some(number) = context.covers.pending() else { continue };
        let Some(event) = context.last_barrier.event(number) else { continue };
        let Some(_open) = context.stay_open() else { continue };
        any = true;
        let begun = Instant::now();
        let patience = patience_left();
        let over = waits::timed(Wait::Query, || {
            let mut code = api::relaxed(|| event.query());
            while code == NOT_READY && begun.elapsed() < patience {
                own_thread::sleep(LOOK_EVERY);
                code = api::relaxed(|| event.query());
            }
            code
        });
        WAITED_NS.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        if over == SUCCESS {
            context.covers.pending_barriers.complete(number);
        }
    }
    any
}

fn patience_left() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let allowed = PATIENCE + BEGAN.get_or_init(Instant::now).elapsed() / PATIENCE_PART;
    allowed.saturating_sub(Duration::from_nanos(WAITED_NS.load(Ordering::Relaxed)))
}

/// The context is gone.
pub fn context_ended(context_id: u64) {
    if LEFT_COUNT.load(Ordering::Acquire) != 0 {
        change_left(|all| all.retain(|debt| debt.context_id != context_id));
    }
}

/// Waits for the last barrier of every context: something that earlier work may use is about to
/// end, or somebody beyond the barriers is about to look.
pub fn wait_all(reason: Wait) {
    let broken = match reason {
        Wait::Teardown => !rule_holds(Rule::TeardownPays),
        Wait::Observer => !rule_holds(Rule::AgentWaits),
        _ => false,
    };
    if broken {
        return;
    }
    contexts::all().for_each(|context| wait(context, reason));
}

/// As `wait_all`, for one context.
#[inline]
pub fn wait(context: &Context, reason: Wait) {
    let Some(number) = context.covers.pending() else { return };
    if context.last_barrier.event(number).is_none() {
        return;
    }
    // Who ends the context has taken the barrier out of the books before.
    let Some(_open) = context.stay_open() else { return };
    let Some(event) = context.last_barrier.event(number) else { return };
    if !rule_holds(Rule::DebtWaitsForItsFree) {
        context.enter(&mut api::ctx_synchronize);
        return;
    }
    if waits::timed(reason, || api::relaxed(|| event.synchronize())) == SUCCESS {
        context.covers.pending_barriers.complete(number);
    }
}

/// The process ends. Natively each free had waited, and with it came out what kernels print; now the
/// last barriers, and in mode `relaxed` the last free, are waited for in its place. Asked again and again: the wait ends when a fault has
/// ended the work, and after a time that no kernel needs which ends at all. One that never ends had
/// natively held up the free; but a program that leaves from a signal handler leaves, too.
pub fn wait_at_end() {
    // From here on frees wait themselves: those of static objects, which are destroyed after this.
    let _ = LEDGER.note_observer(Observer::ProcessEnd);
    LEDGER.exclusive.waited();
    let until = Instant::now() + END_WAIT_MAX;
    for context in contexts::all() {
        let Some(_open) = context.keep_open() else { continue };
        let barrier =
            context.covers.pending().and_then(|pending| context.last_barrier.event(pending));
        for event in [barrier, context.stream_frees.last_plain_free()].into_iter().flatten() {
            end_behind(&event, until);
        }
    }
}

fn end_behind(event: &EventRef, until: Instant) {
    while api::relaxed(|| event.query()) == NOT_READY && Instant::now() < until {
        own_thread::sleep(END_WAIT_STEP);
    }
    // Returns at once, and lets the text of kernels out (measured); a question does not.
    if api::relaxed(|| event.query()) == SUCCESS {
        let _ = api::relaxed(|| event.synchronize());
    }
}

const END_WAIT_MAX: Duration = Duration::from_secs(60);
const END_WAIT_STEP: Duration = Duration::from_micros(100);

/// The thread ends, and its debt is everybody's.
pub fn thread_ended(thread: &Thread) {
    let owed = thread.tracked.replace(TrackedBarrier::new()).tracked();
    let event = replace_event(thread, null());
    if let (Some((context_id, number)), Some(event)) = (owed, event)
        && rule_holds(Rule::DebtOutlivesThread)
    {
        let debt = Left { context_id, number, event };
        change_left(|all| {
            if !all.iter().any(|other| other.is_as_late_as(&debt)) {
                all.retain(|other| !debt.is_as_late_as(other));
                all.push(debt);
            }
        });
    }
    let spare = thread.spare_event.replace(null());
    // SAFETY: kept by `EventRef::keep`, as if by `into_raw`, and taken out once.
    drop((!spare.is_null()).then(|| unsafe { EventRef::from_raw(spare) }));
}

impl Left {
    /// Who has waited for this has waited for the other.
    fn is_as_late_as(&self, other: &Left) -> bool {
        self.context_id == other.context_id && self.number >= other.number
    }
}

fn change_left(change: impl FnOnce(&mut Vec<Left>)) {
    let mut left = lock(&LEFT);
    change(&mut left);
    LEFT_COUNT.store(left.len(), Ordering::Release);
}

fn replace_event(thread: &Thread, event: *const Event) -> Option<EventRef> {
    let old = thread.tracked_event.replace(event);
    // SAFETY: every non-null pointer stored here came from `into_raw` and is taken out once.
    (!old.is_null()).then(|| unsafe { EventRef::from_raw(old) })
}
