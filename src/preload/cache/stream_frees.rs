//! Stream-ordered frees (docs/ordering.md 7): which events the blocks of a context wait for.
//!
//! The core keeps the tags and refers to events by number; here are the driver's events with those
//! numbers, and what drops tags again: a query on a miss, and every barrier.

use std::sync::atomic::Ordering;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Ready, Request, TagMark};

pub(crate) use crate::cache::under_way::Waiter;
use crate::cache::under_way::to_the_end;
use crate::cache::{Assumed, PlainFree, blocks};
use crate::config;
use crate::contexts::Context;
use crate::contexts::events::EventRef;
use crate::driver::api;
use crate::driver::sys::CuError;
use crate::driver_memory::limits;
use crate::lock::lock;
use crate::ordering::{barrier, early_start, pending};
use crate::process::bounds;
use crate::process::thread::{self, Thread};
use crate::record::recorder::Freed;
use crate::statistics::waits::{self, Wait};

const TIDY_ABOVE_MIN: usize = 64;

/// Frees a claimed block with a tag.
pub(crate) fn free(context: &Context, freed: Freed, ready: Ready, event: Option<EventRef>) {
    free_waiting(context, freed, ready, event, false);
}

/// As `free`, for stream-ordered memory by `cuMemFree`. Natively the driver assumes that all work with
/// the memory is over, and reuses it at once. A program that frees too early suffers natively only when
/// memory is short; so the block waits here too while there is other memory, and no longer
/// (`assume_over`).
pub(crate) fn free_assumed(context: &Context, freed: Freed, ready: Ready, event: Option<EventRef>) {
    free_waiting(context, freed, ready, event, true);
}

fn free_waiting(
    context: &Context,
    freed: Freed,
    ready: Ready,
    event: Option<EventRef>,
    assumed: bool,
) {
    if matches!(ready, Ready::OnStream { .. }) {
        early_start::block_freed();
    }
    // The event is listed under the allocator's lock: `tidy` drops what the core does not refer to.
    let mut allocator = lock(&context.allocator);
    match event {
        Some(event) => lock(&context.stream_frees.events).push(event),
        None => context.stream_frees.parked.store(true, Ordering::Relaxed),
    }
    context.stream_frees.any.store(true, Ordering::Release);
    let behind = blocks::free(context, &mut allocator, freed, ready);
    if assumed && let Some(waiting) = allocator.wait_of(freed.block) {
        lock(&context.stream_frees.assumed).push(Assumed { waiting, behind });
    }
    tidy_seldom(context, &mut allocator);
}

/// A program that takes every block back on its own stream never queries events: without this, each free
/// would need a fresh one. Rare enough to cost nothing per free.
fn tidy_seldom(context: &Context, allocator: &mut cachealloc_core::Allocator) {
    let listed = || lock(&context.stream_frees.events).len();
    let above = context.stream_frees.tidy_above.load(Ordering::Relaxed).max(TIDY_ABOVE_MIN);
    if listed() > above {
        tidy(context, allocator);
        context.stream_frees.tidy_above.store(2 * listed(), Ordering::Relaxed);
    }
}

/// This event stands for the wait of a native `cuMemFree`.
pub(crate) fn note_plain_free(context: &Context, event: EventRef) {
    let thread = thread::with(Thread::number);
    thread::watch();
    let free = PlainFree { event, thread };
    *lock(&context.stream_frees.last_plain_free) = Some(free.clone());
    lock(&context.stream_frees.plain_frees).push(free);
}

/// Waits for the blocks whose frees would natively have waited: natively their memory would be free.
/// Never for a block that was freed on a stream (hazard 31). False: none was waited for.
pub(crate) fn wait_for_plain_frees(context: &'static Context, waiter: Waiter) -> bool {
    let own = thread::with(Thread::number);
    let mut frees = core::mem::take(&mut *lock(&context.stream_frees.plain_frees));
    let count = frees.len();
    frees.retain(|PlainFree { event, thread }| {
        let goes_on = waiter == Waiter::GoesOn && rule_holds(Rule::OthersPlainFreesForAWhile);
        let for_a_while = goes_on && *thread != own && *thread != 0;
        let wait = || match for_a_while {
            true => pending::wait_for_a_while(event),
            false => api::relaxed(|| event.synchronize()),
        };
        waits::timed(Wait::ParkedFree, wait) == Err(CuError::NOT_READY)
    });
    let waited = frees.len() < count;
    if count != 0 {
        lock(&context.stream_frees.plain_frees).append(&mut frees);
        query(context);
    }
    waited
}

/// Memory is short: blocks freed by `cuMemFree` of stream-ordered memory wait only for what they would
/// natively wait for as well.
pub(crate) fn assume_over(context: &'static Context) {
    // The zone of a freed block may still be copied.
    if !rule_holds(Rule::AssumedOverWhereShort) || config::zone_bytes() != 0 {
        return;
    }
    let assumed = core::mem::take(&mut *lock(&context.stream_frees.assumed));
    if assumed.is_empty() {
        return;
    }
    let mut allocator = lock(&context.allocator);
    for Assumed { waiting, behind } in assumed {
        match behind.filter(|_| rule_holds(Rule::AssumedWaitsForBefore)) {
            Some((behind, event)) => {
                lock(&context.stream_frees.events).push(event);
                allocator.wait_only_behind(waiting, behind);
            }
            None => allocator.wait_is_over(waiting),
        }
    }
    context.recorder.completed(&mut allocator);
    tidy(context, &mut allocator);
    drop(allocator);
    query(context);
}

/// Natively a stream-ordered request can use all that other streams have freed, wherever it lies; here
/// only what is contiguous. The rest must return to the driver first: so this waits for those streams,
/// if they have enough with what the device has free, as long as their work takes: natively no request fails for that. Call
/// without a lock that another thread of the program may want. True: it is over.
pub(crate) fn wait_for_streams(context: &'static Context, bytes: u64) -> bool {
    let freed = lock(&context.allocator).freed_on_streams_bytes();
    let enough = freed != 0 && freed.saturating_add(limits::free_bytes(context)) >= bytes;
    if !enough || !rule_holds(Rule::PiecesAreAwaited) {
        return false;
    }
    let mut behind: Vec<EventRef> = lock(&context.stream_frees.events).clone();
    let not_over = |event: &EventRef| api::relaxed(|| event.query()) == Err(CuError::NOT_READY);
    waits::timed(Wait::ParkedFree, || {
        bounds::within(to_the_end(), || {
            behind.retain(not_over);
            behind.is_empty()
        })
    })
}

/// The stream of a request could not be made to wait for the tags of its block.
pub(crate) fn order_failed(context: &Context, request: &mut Request) {
    let mut allocator = lock(&context.allocator);
    allocator.order_failed(request);
    blocks::note_allocated(context, &allocator);
    context.stream_frees.parked.store(true, Ordering::Relaxed);
    context.stream_frees.any.store(true, Ordering::Release);
}

/// Held around the record of a stream's event and the free with its tag.
pub(crate) fn in_order(context: &Context) -> std::sync::MutexGuard<'_, ()> {
    lock(&context.stream_frees.order)
}

/// Taken before a barrier is recorded: the tags that it will drop.
pub(crate) fn mark(context: &Context) -> Option<TagMark> {
    let any = context.stream_frees.any.load(Ordering::Acquire);
    any.then(|| lock(&context.allocator).mark())
}

/// The barrier of `mark` was made.
pub(crate) fn barrier_passed(context: &Context, mark: TagMark) {
    let mut allocator = lock(&context.allocator);
    allocator.barrier_passed(mark);
    context.recorder.completed(&mut allocator);
    tidy(context, &mut allocator);
}

/// Queries which tags are complete, oldest first, and drops those. Never waits.
pub(crate) fn query(context: &'static Context) {
    if !context.stream_frees.any.load(Ordering::Acquire) {
        return;
    }
    let events: Vec<EventRef> = lock(&context.stream_frees.events).clone();
    let complete = events.iter().filter(|event| api::relaxed(|| event.query()).is_ok());
    let complete: Vec<_> = complete.map(EventRef::id).collect();
    let passed = parked_mark(context);
    let mut allocator = lock(&context.allocator);
    allocator.events_completed(&complete);
    if let Some(mark) = passed {
        allocator.barrier_passed(mark);
    }
    context.recorder.completed(&mut allocator);
    tidy(context, &mut allocator);
}

/// What freed but not reusable blocks wait for. Queries what is complete; never waits.
pub(crate) fn pending(context: &'static Context) -> Vec<EventRef> {
    query(context);
    let parked_behind = lock(&context.stream_frees.parked_behind).clone();
    let mut pending = lock(&context.stream_frees.events).clone();
    pending.extend(parked_behind.map(|(_, event)| event));
    pending
}

/// Gives parked blocks an event that is complete when all work so far is, and returns their mark once it
/// is. No wait, and no order between streams: a malloc must not order what it natively does not
/// (hazards 9 and 31).
fn parked_mark(context: &'static Context) -> Option<TagMark> {
    if !context.stream_frees.parked.load(Ordering::Relaxed) || !api::has_context_barrier() {
        return None;
    }
    let mut behind = lock(&context.stream_frees.parked_behind);
    if behind.is_none() {
        let recorded = thread::with(|thread| barrier::record(thread, context)).ok()?;
        *behind = recorded.mark.map(|mark| (mark, recorded.event));
    }
    let (mark, event) = behind.as_ref()?;
    if api::relaxed(|| event.query()).is_err() {
        return None;
    }
    let mark = *mark;
    *behind = None;
    Some(mark)
}

/// Drops events that no tag refers to.
fn tidy(context: &Context, allocator: &mut cachealloc_core::Allocator) {
    if !allocator.has_tags() {
        context.stream_frees.any.store(false, Ordering::Release);
        context.stream_frees.parked.store(false, Ordering::Relaxed);
    }
    let mut named = Vec::new();
    allocator.events_pending(&mut |event| named.push(event));
    named.sort_unstable();
    lock(&context.stream_frees.assumed).retain(|one| allocator.waits(one.waiting));
    let is_named = |event: &EventRef| named.binary_search(&event.id()).is_ok();
    lock(&context.stream_frees.events).retain(is_named);
    lock(&context.stream_frees.plain_frees).retain(|free| is_named(&free.event));
}

/// The driver's events with these numbers, as far as still known.
pub(crate) fn events(context: &Context, ids: &[cachealloc_core::EventId]) -> Vec<EventRef> {
    let events = lock(&context.stream_frees.events);
    let known = |id: &cachealloc_core::EventId| events.iter().find(|event| event.id() == *id);
    ids.iter().filter_map(known).cloned().collect()
}
