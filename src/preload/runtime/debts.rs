//! What later calls owe to a free that made a barrier and did not wait (DESIGN 3.3, last part).
//! They wait for the free's own event, never for "now" (hazard 29).

use core::ptr::null;
use std::time::{Duration, Instant};

use cachealloc_core::order::{Agent, BarrierNumber, ThreadDebt};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::{NOT_READY, SUCCESS};
use crate::runtime::contexts::{self, Context};
use crate::runtime::events::{Event, EventRef};
use crate::runtime::stats::{self, Wait};
use crate::runtime::thread::Thread;
use crate::runtime::{LEDGER, own_thread, process};

/// This thread's free made barrier `number`.
pub fn owe(thread: &Thread, context: &Context, number: BarrierNumber, event: EventRef) {
    let mut debt = ThreadDebt::new();
    debt.owes(context.id, number);
    thread.owed.set(debt);
    match replace_event(thread, event.into_raw()) {
        Some(old) => old.keep(thread),
        None => process::watch_thread(),
    }
}

/// This thread's free skipped its barrier and leans on the last one, if that is still pending.
#[inline]
pub fn lean(thread: &Thread, context: &Context) {
    let Some(number) = context.covers.pending() else { return };
    if !rule_holds(Rule::SkippedFreeLeans) {
        return;
    }
    if thread.owed.get().owed() == Some((context.id, number)) {
        return;
    }
    if let Some(event) = context.last_barrier.event(number) {
        owe(thread, context, number, event);
    }
}

/// Waits for the barrier of this thread's last free. False: there was none.
pub fn pay_own(thread: &Thread) -> bool {
    if !rule_holds(Rule::QueryAsksAgain) {
        return false;
    }
    if !rule_holds(Rule::QueryPaysOwnDebts) {
        pay_all(Wait::Query);
        return true;
    }
    let Some((context_id, number)) = thread.owed.get().owed() else { return false };
    let context = contexts::find(context_id);
    let event = replace_event(thread, null());
    thread.owed.set(ThreadDebt::new());
    let (Some(context), Some(event)) = (context, event) else { return false };
    // Another thread may have waited for it since the query was answered: that answer is stale.
    let pending = context.covers.debts.is_pending(number);
    if pending && stats::timed(Wait::Query, || api::relaxed(|| event.synchronize())) == SUCCESS {
        context.covers.debts.complete(number);
    }
    true
}

/// Waits for the last barrier of every context: something that earlier work may use is about to
/// end, or somebody beyond the barriers is about to look.
pub fn pay_all(reason: Wait) {
    let broken = match reason {
        Wait::Teardown => !rule_holds(Rule::TeardownPays),
        Wait::Agent => !rule_holds(Rule::AgentWaits),
        _ => false,
    };
    if broken {
        return;
    }
    contexts::all().for_each(|context| pay(context, reason));
}

/// As `pay_all`, for one context.
#[inline]
pub fn pay(context: &Context, reason: Wait) {
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
    if stats::timed(reason, || api::relaxed(|| event.synchronize())) == SUCCESS {
        context.covers.debts.complete(number);
    }
}

/// The process ends. Natively each free had waited, and with it came out what kernels print; now the
/// last barriers are waited for in its place. Asked again and again: the wait ends when a fault has
/// ended the work, and after a time that no kernel needs which ends at all. One that never ends had
/// natively held up the free; but a program that leaves from a signal handler leaves, too.
pub fn pay_at_end() {
    // From here on frees wait themselves: those of static objects, which are destroyed after this.
    let _ = LEDGER.agent_shows(Agent::ProcessEnd);
    LEDGER.plain.settled();
    let until = Instant::now() + END_WAIT_MAX;
    for context in contexts::all() {
        let Some(number) = context.covers.pending() else { continue };
        let Some(event) = context.last_barrier.event(number) else { continue };
        while api::relaxed(|| event.query()) == NOT_READY && Instant::now() < until {
            own_thread::sleep(END_WAIT_STEP);
        }
        // Returns at once, and lets the text of kernels out (measured); a question does not.
        if api::relaxed(|| event.query()) == SUCCESS {
            let _ = api::relaxed(|| event.synchronize());
        }
    }
}

const END_WAIT_MAX: Duration = Duration::from_secs(60);
const END_WAIT_STEP: Duration = Duration::from_micros(100);

/// The thread ends.
pub fn forget_own(thread: &Thread) {
    thread.owed.set(ThreadDebt::new());
    replace_event(thread, null());
    let spare = thread.spare_event.replace(null());
    // SAFETY: kept by `EventRef::keep`, as if by `into_raw`, and taken out once.
    drop((!spare.is_null()).then(|| unsafe { EventRef::from_raw(spare) }));
}

fn replace_event(thread: &Thread, event: *const Event) -> Option<EventRef> {
    let old = thread.owed_event.replace(event);
    // SAFETY: every non-null pointer stored here came from `into_raw` and is taken out once.
    (!old.is_null()).then(|| unsafe { EventRef::from_raw(old) })
}
