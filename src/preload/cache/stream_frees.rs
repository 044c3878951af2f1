//! Stream-ordered frees (docs/ordering.md 7): the events that the blocks of a context wait for.
//!
//! The core keeps the tags and refers to events by number. This file keeps the driver's events with
//! those numbers, and drops tags by a query on a miss and by every barrier.

use core::ops::Range;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use cachealloc_core::order::completed_count;
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Allocator, EventId, Request, ReuseCondition, TagEpoch};

use crate::cache::blocks;
use crate::config;
use crate::driver::api;
use crate::driver::sys::CuError;
use crate::driver_memory::limits;
use crate::lock::lock;
use crate::ordering::{barrier, captures, pending, programmatic_launch};
use crate::process::bounds;
use crate::process::bypass;
use crate::record::recorder::Freed;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::events;
use crate::state::events::EventRef;
pub(crate) use crate::state::stream_frees::Place;
use crate::state::stream_frees::lines::Listed;
use crate::state::stream_frees::{Assumed, PlainFree};
use crate::state::thread;
use crate::state::thread::Thread;
use crate::state::under_way::Waiter;
use crate::state::under_way::to_the_end;
use crate::statistics::waits;
use crate::statistics::waits::Wait;

const TIDY_ABOVE_MIN: usize = 64;
/// Bound for the number of further events that are listed before those without a tag are dropped:
/// it limits the events of a context.
const TIDY_BEHIND_MAX: usize = 16_384;

/// Returns an event that a free on a stream need not record, because another free did, and nothing
/// was submitted between the two. Only a process that observes all submissions can know that. While
/// something captures, each free records an event. The caller must hold `in_order`.
pub(crate) fn shared_event(context: &Context, place: Place) -> Option<EventRef> {
    let elides = LEDGER.elision.is_allowed() && config::get().skip_barriers && !captures::maybe();
    let events = || lock(&context.stream_frees.events).covers_all(place);
    if elides { events() } else { None }
}

/// Returns whether `shared_event` may find an event. Takes no lock: most frees have work before
/// them.
pub(crate) fn may_share_event(context: &Context) -> bool {
    let shared = context.stream_frees.last_record.load(Ordering::Relaxed);
    LEDGER.submitted.begun() == shared || !rule_holds(Rule::SharedEventNeedsQuiet)
}

/// Prepares an event that is about to be recorded on a stream to be shared by other frees. The
/// caller must hold `in_order`.
pub(crate) fn shared_from_now(context: &Context, place: Place) -> Place {
    if captures::maybe() {
        return place;
    }
    let place = place.shared();
    if let Some(covered) = place.covered() {
        context.stream_frees.last_record.fetch_max(covered, Ordering::Relaxed);
    }
    place
}

/// Frees a claimed block with a tag. The caller must hold `in_order` around the record of a
/// stream's event and this free.
pub(crate) fn free(
    context: &Context,
    freed: Freed,
    ready: ReuseCondition,
    event: Option<(EventRef, Place)>,
) {
    free_waiting(context, freed, ready, event, false);
}

/// Frees stream-ordered memory by `cuMemFree`. The driver itself assumes that all work with the
/// memory has completed, and reuses it at once. A program that frees too early suffers on the plain
/// driver only when memory is short. So the block waits here too while there is other memory, and
/// no longer (`assume_over`).
pub(crate) fn free_assumed(
    context: &Context,
    freed: Freed,
    ready: ReuseCondition,
    event: Option<(EventRef, Place)>,
) {
    free_waiting(context, freed, ready, event, true);
}

/// Frees a block with an event that replaces the wait of the driver's own `cuMemFree`.
pub(crate) fn free_plainly(
    context: &Context,
    freed: Freed,
    ready: ReuseCondition,
    event: (EventRef, Place),
) {
    let made = free_waiting(context, freed, ready, Some(event.clone()), false);
    let (thread, is_watched) = thread::with(|thread| {
        (thread.number(), thread.watch_end() || !rule_holds(Rule::LateFreesWait))
    });
    if !is_watched {
        let _ = waits::timed(Wait::Teardown, || api::relaxed(|| event.0.synchronize()));
    }
    let free = PlainFree { event: event.0, made, thread };
    *lock(&context.stream_frees.last_plain_free) = Some(free.clone());
    lock(&context.stream_frees.plain_frees).push(free);
    context.stream_frees.plain_frees_count.fetch_add(1, Ordering::Release);
}

/// Returns the epochs between which the tag was made.
fn free_waiting(
    context: &Context,
    freed: Freed,
    ready: ReuseCondition,
    event: Option<(EventRef, Place)>,
    assumed: bool,
) -> Range<TagEpoch> {
    if matches!(ready, ReuseCondition::OnStream { .. }) {
        programmatic_launch::block_freed();
    }
    let mut allocator = lock(&context.allocator);
    context.stream_frees.any.store(true, Ordering::Release);
    let before = allocator.mark();
    let behind = blocks::free(context, &mut allocator, freed, ready);
    let made = before..allocator.mark();
    // Listed under the allocator's lock: `tidy` drops what the core does not refer to.
    match event {
        Some((event, place)) => {
            lock(&context.stream_frees.events).push(place, event, ready, made.clone());
        }
        None => context.stream_frees.parked.store(true, Ordering::Relaxed),
    }
    if assumed && let Some(waiting) = allocator.wait_of(freed.block) {
        lock(&context.stream_frees.assumed).push(Assumed { waiting, behind });
    }
    tidy_slow(context, &allocator, assumed);
    made
}

/// Drops unused events once there are many. A program that reuses every block on the same stream
/// never queries events: without this, each free would need a new one. Rare enough to cost nothing
/// per free.
fn tidy_slow(context: &Context, allocator: &Allocator, assumed: bool) {
    let frees = &context.stream_frees;
    let assumed = || if assumed { lock(&frees.assumed).len() } else { 0 };
    let listed = || lock(&frees.events).count() + assumed();
    let above = frees.tidy_above.load(Ordering::Relaxed).max(TIDY_ABOVE_MIN);
    if listed() > above {
        tidy(context, allocator);
        let count = listed();
        frees.tidy_above.store(count + count.min(TIDY_BEHIND_MAX), Ordering::Relaxed);
    }
}

/// Waits for the blocks whose frees would have waited without the library: their memory would be
/// free by now. Never waits for a block that was freed on a stream (hazard 31).
pub(crate) fn wait_for_plain_frees(context: &'static Context, waiter: Waiter) {
    let own = thread::with(Thread::number);
    if lock(&context.stream_frees.plain_frees).is_empty() {
        return;
    }
    tidy(context, &lock(&context.allocator));
    // They stay in the list during the wait: another thread may need memory too.
    let mut frees = lock(&context.stream_frees.plain_frees).clone();
    frees.retain(|PlainFree { event, thread, .. }| {
        let for_a_while = pending::waits_for_a_while(waiter) && *thread != own && *thread != 0;
        let wait = || match for_a_while {
            true => pending::wait_with_timeout(event),
            false => api::relaxed(|| event.synchronize()),
        };
        waits::timed(Wait::ParkedFree, wait) != Err(CuError::NOT_READY)
    });
    if !frees.is_empty() {
        let over: BTreeSet<EventId> = frees.iter().map(|free| free.event.id()).collect();
        lock(&context.stream_frees.plain_frees).retain(|free| !over.contains(&free.event.id()));
        query(context);
    }
}

/// Waits, in a thread that ends, for its frees that would have waited without the library
/// (Note [Which frees to wait for]).
pub(crate) fn thread_ends(thread: &Thread) {
    if !bypass::is_caching() || !rule_holds(Rule::ThreadOutlivesPlainFrees) {
        return;
    }
    let own = thread.number();
    let inside = thread.inside.replace(true);
    for context in contexts::all() {
        let frees = lock(&context.stream_frees.plain_frees);
        // Its last event of the context includes those before it.
        let last = frees.iter().rfind(|free| free.thread == own).map(|free| free.event.clone());
        drop(frees);
        if let Some(event) = last
            && let Some(_open) = context.stay_open()
        {
            let _ = waits::timed(Wait::Teardown, || api::relaxed(|| event.synchronize()));
        }
    }
    thread.inside.set(inside);
}

/// Makes blocks of stream-ordered memory freed by `cuMemFree` wait only for what they would wait
/// for without the library. Called when memory is short.
pub(crate) fn assume_over(context: &'static Context) {
    // The zone of a freed block may still be copied.
    if !rule_holds(Rule::AssumedOverWhereShort) || config::zone_bytes() != 0 {
        return;
    }
    if lock(&context.stream_frees.assumed).is_empty() {
        return;
    }
    // Before the list: another request finds it empty only when the blocks are free.
    let mut allocator = lock(&context.allocator);
    let assumed = core::mem::take(&mut *lock(&context.stream_frees.assumed));
    for Assumed { waiting, behind } in assumed {
        match behind.filter(|_| rule_holds(Rule::AssumedWaitsForBefore)) {
            Some((behind, event)) => {
                // The event was recorded before others of its stream that are listed.
                let mut events = lock(&context.stream_frees.events);
                events.push(Place::alone(), event, behind.ready(), behind.made());
                drop(events);
                allocator.wait_only_behind(waiting, behind);
            }
            None => allocator.wait_is_over(waiting),
        }
    }
    dropped(context, &mut allocator);
    drop(allocator);
    query(context);
}

/// Waits for streams whose freed memory suffices for the request, together with the free memory of
/// the device. On the plain driver, a stream-ordered request can use everything that other streams
/// have freed, wherever it lies; here it can use only what is contiguous. The rest must return to
/// the driver first. This waits as long as the work of those streams takes, because without the
/// library no request fails for that reason. The caller must hold no lock that another thread of
/// the program may need. Returns `true` if the work has completed.
pub(crate) fn wait_for_streams(context: &'static Context, bytes: u64) -> bool {
    let freed = lock(&context.allocator).freed_on_streams_bytes();
    let enough = freed != 0 && freed.saturating_add(limits::free_bytes(context)) >= bytes;
    if !enough || !rule_holds(Rule::PiecesAreAwaited) {
        return false;
    }
    tidy(context, &lock(&context.allocator));
    let mut behind = lock(&context.stream_frees.events).lasts();
    let not_over = |event: &EventRef| api::relaxed(|| event.query()) == Err(CuError::NOT_READY);
    waits::timed(Wait::ParkedFree, || {
        bounds::within(to_the_end(), || {
            behind.retain(not_over);
            behind.is_empty()
        })
    })
}

/// Undoes a hit: the stream of a request could not be made to wait for the tags of its block.
pub(crate) fn order_failed(context: &Context, request: &mut Request) {
    let mut allocator = lock(&context.allocator);
    allocator.order_failed(request);
    blocks::note_allocated(context, &allocator);
    context.stream_frees.parked.store(true, Ordering::Relaxed);
    context.stream_frees.any.store(true, Ordering::Release);
}

/// Returns the lock that is held around the record of a stream's event and the free with its tag.
pub(crate) fn in_order(context: &Context) -> std::sync::MutexGuard<'_, ()> {
    lock(&context.stream_frees.order)
}

/// Returns the epoch before which a barrier will drop tags. Call it before the barrier is recorded.
pub(crate) fn mark(context: &Context) -> Option<TagEpoch> {
    let any = context.stream_frees.any.load(Ordering::Acquire);
    any.then(|| lock(&context.allocator).mark())
}

/// Drops the tags before `mark`: their barrier was made.
pub(crate) fn barrier_passed(context: &Context, mark: TagEpoch) {
    let mut allocator = lock(&context.allocator);
    allocator.barrier_passed(mark);
    dropped(context, &mut allocator);
}

/// Queries which tags are complete, and drops those. Never waits.
pub(crate) fn query(context: &'static Context) {
    if !context.stream_frees.any.load(Ordering::Acquire) {
        return;
    }
    let over = over(context);
    let passed = parked_mark(context);
    if over.is_empty() && passed.is_none() {
        return;
    }
    let mut allocator = lock(&context.allocator);
    let over = lock(&context.stream_frees.events).take(&over);
    for Listed { ready, made, .. } in over {
        allocator.wait_completed(ready, made);
    }
    if let Some(mark) = passed {
        allocator.barrier_passed(mark);
    }
    dropped(context, &mut allocator);
}

/// Returns the last completed event of each line that has one. Costs one query for each line, and a
/// few more for a line with a completed event.
fn over(context: &Context) -> Vec<Listed> {
    let events = &context.stream_frees.events;
    let mut over = lock(events).firsts();
    if over.is_empty() {
        return over;
    }
    api::relaxed(|| {
        over.retain_mut(|last| {
            if last.event.query().is_err() {
                return false;
            }
            let first = last.clone();
            let count = lock(events).behind_count(&first);
            completed_count(count, |number| {
                let asked = lock(events).behind_by(&first, number);
                let over = asked.filter(|asked| asked.event.query().is_ok());
                over.map(|over| *last = over).is_some()
            });
            true
        });
    });
    over
}

/// Returns the events that freed but not reusable blocks wait for. Queries what is complete; never
/// waits.
pub(crate) fn pending(context: &'static Context) -> Vec<EventRef> {
    query(context);
    tidy(context, &lock(&context.allocator));
    let parked_behind = lock(&context.stream_frees.parked_behind).clone();
    let mut pending = lock(&context.stream_frees.events).lasts();
    pending.extend(parked_behind.map(|(_, event)| event));
    pending
}

/// Gives parked blocks an event that is complete once all work so far is, and returns their epoch
/// once it is complete. This neither waits nor orders streams: an allocation must add no order that
/// it does not have on the plain driver (hazards 9 and 31).
fn parked_mark(context: &'static Context) -> Option<TagEpoch> {
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

/// Cleans up after tags were dropped.
fn dropped(context: &Context, allocator: &mut Allocator) {
    context.recorder.completed(allocator);
    if !allocator.has_tags() {
        tidy(context, allocator);
    }
}

/// Drops events that no tag refers to. Called at once where there are no tags, and rarely
/// otherwise, because it examines each event.
fn tidy(context: &Context, allocator: &Allocator) {
    let frees = &context.stream_frees;
    if !allocator.has_tags() {
        frees.any.store(false, Ordering::Release);
        frees.parked.store(false, Ordering::Relaxed);
    }
    lock(&frees.assumed).retain(|one| allocator.waits(one.waiting));
    let oldest = allocator.oldest_wait();
    let is_named = |ready: ReuseCondition, made: &Range<TagEpoch>| {
        made.end > oldest && allocator.is_waiting(ready, made.clone())
    };
    lock(&frees.events).retain(|listed| is_named(listed.ready, &listed.made));
    let is_named = |PlainFree { event, made, .. }: &PlainFree| {
        is_named(ReuseCondition::After { event: event.id() }, made)
    };
    lock(&frees.plain_frees).retain(is_named);
}

/// Returns the driver's events with these numbers, as far as still known. The caller must hold the
/// allocator's lock, under which tags referred to them just now.
pub(crate) fn events(ids: &[EventId]) -> Vec<EventRef> {
    ids.iter().filter_map(|id| events::known(*id)).collect()
}
