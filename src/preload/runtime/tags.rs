//! Stream-ordered frees (DESIGN 3.6): which events the blocks of a context wait for.
//!
//! The core keeps the tags and names events by number; here are the driver's events behind those
//! numbers, and the questions that drop tags again: "is it complete?" on a miss, and every barrier.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cachealloc_core::{Ready, TagMark};

use crate::driver::api;
use crate::driver::sys::SUCCESS;
use crate::record::recorder::Freed;
use crate::runtime::barrier;
use crate::runtime::contexts::Context;
use crate::runtime::events::EventRef;
use crate::runtime::stats::{self, Wait};
use crate::runtime::{early_start, lock, thread};

const TIDY_ABOVE_MIN: usize = 64;

/// The events behind the tags of one context.
#[derive(Default)]
pub struct Tagged {
    /// Whether any free block may have a tag; a barrier asks the core only then.
    any: AtomicBool,
    /// Some tag has no event: it waits for a barrier.
    parked: AtomicBool,
    events: Mutex<Vec<EventRef>>,
    /// With more events than this, a free lets go of those that no tag names any more.
    tidy_above: AtomicUsize,
    /// Those of blocks whose free would natively have waited (mode `relaxed`).
    plain_frees: Mutex<Vec<EventRef>>,
    /// Held from the record of a tag's event until the core has the tag: where two blocks of one
    /// stream coalesce, the core keeps the event of the later free, which must be the later record.
    order: Mutex<()>,
    /// An event behind all work before a mark, recorded for the tags that have none.
    parked_behind: Mutex<Option<(TagMark, EventRef)>>,
}

/// Frees a block with a tag. The slot must be claimed; it is vacated here.
pub fn free(context: &Context, freed: Freed, ready: Ready, event: Option<EventRef>) {
    if matches!(ready, Ready::OnStream { .. }) {
        early_start::block_freed();
    }
    // The event is listed under the core's lock: `tidy` drops what the core does not name.
    let mut allocator = lock(&context.allocator);
    let ready = allocator.ready_if_freed(freed.block, ready);
    match event {
        Some(event) => lock(&context.tagged.events).push(event),
        None => context.tagged.parked.store(true, Ordering::Relaxed),
    }
    context.tagged.any.store(true, Ordering::Release);
    super::extents::vacate(freed.address);
    match ready.is_pending() {
        true => context.recorder.free_requested(&mut allocator, freed),
        false => context.recorder.freed(&mut allocator, freed),
    }
    context.unseen.passed_by(&allocator, freed.block, freed.requested_bytes);
    allocator.free(freed.block, ready);
    tidy_seldom(context, &mut allocator);
}

/// A program that takes every block back on its own stream never asks about events: without this,
/// each free would need a fresh one. Seldom enough to cost nothing a free.
fn tidy_seldom(context: &Context, allocator: &mut cachealloc_core::Allocator) {
    let listed = || lock(&context.tagged.events).len();
    let above = context.tagged.tidy_above.load(Ordering::Relaxed).max(TIDY_ABOVE_MIN);
    if listed() > above {
        tidy(context, allocator);
        context.tagged.tidy_above.store(2 * listed(), Ordering::Relaxed);
    }
}

/// This event stands for the wait of a native `cuMemFree`.
pub fn note_plain_free(context: &Context, event: EventRef) {
    lock(&context.tagged.plain_frees).push(event);
}

/// Waits for the blocks whose frees would natively have waited: natively their memory would be
/// there. Never for a block that was freed on a stream (hazard 31).
pub fn wait_for_plain_frees(context: &'static Context) {
    let events = core::mem::take(&mut *lock(&context.tagged.plain_frees));
    for event in &events {
        stats::timed(Wait::ParkedFree, || api::relaxed(|| event.synchronize()));
    }
    if !events.is_empty() {
        query(context);
    }
}

/// Held around the record of a stream's event and the free with its tag.
pub fn in_order(context: &Context) -> std::sync::MutexGuard<'_, ()> {
    lock(&context.tagged.order)
}

/// Taken before a barrier is recorded: the tags that it will drop.
pub fn mark(context: &Context) -> Option<TagMark> {
    let any = context.tagged.any.load(Ordering::Acquire);
    any.then(|| lock(&context.allocator).mark())
}

/// The barrier that `mark` was taken for is in.
pub fn barrier_passed(context: &Context, mark: TagMark) {
    let mut allocator = lock(&context.allocator);
    allocator.barrier_passed(mark);
    context.recorder.completed(&mut allocator);
    tidy(context, &mut allocator);
}

/// Asks the driver which tags are over, oldest first, and drops those. Never waits.
pub fn query(context: &'static Context) {
    if !context.tagged.any.load(Ordering::Acquire) {
        return;
    }
    let events: Vec<EventRef> = lock(&context.tagged.events).clone();
    let complete = events.iter().filter(|event| api::relaxed(|| event.query()) == SUCCESS);
    let complete: Vec<_> = complete.map(EventRef::id).collect();
    let passed = parked_mark(context);
    let mut allocator = lock(&context.allocator);
    complete.iter().for_each(|event| allocator.event_completed(*event));
    if let Some(mark) = passed {
        allocator.barrier_passed(mark);
    }
    context.recorder.completed(&mut allocator);
    tidy(context, &mut allocator);
}

/// Gives parked blocks an event that is complete when all work so far is, and answers their mark
/// once it is. No wait, and no order between streams: a malloc must not order what it natively
/// does not (hazards 9 and 31).
fn parked_mark(context: &'static Context) -> Option<TagMark> {
    if !context.tagged.parked.load(Ordering::Relaxed) || !api::has_context_barrier() {
        return None;
    }
    let mut behind = lock(&context.tagged.parked_behind);
    if behind.is_none() {
        let (event, _, mark) = thread::with(|thread| barrier::record(thread, context)).ok()?;
        *behind = mark.map(|mark| (mark, event));
    }
    let (mark, event) = behind.as_ref()?;
    if api::relaxed(|| event.query()) != SUCCESS {
        return None;
    }
    let mark = *mark;
    *behind = None;
    Some(mark)
}

/// Lets go of events that no tag names any more.
fn tidy(context: &Context, allocator: &mut cachealloc_core::Allocator) {
    if !allocator.has_tags() {
        context.tagged.any.store(false, Ordering::Release);
        context.tagged.parked.store(false, Ordering::Relaxed);
    }
    let mut named = Vec::new();
    allocator.events_pending(&mut |event| named.push(event));
    named.sort_unstable();
    for events in [&context.tagged.events, &context.tagged.plain_frees] {
        lock(events).retain(|event| named.binary_search(&event.id()).is_ok());
    }
}

/// The driver's events behind these numbers, as far as they are still known.
pub fn events(context: &Context, ids: &[cachealloc_core::EventId]) -> Vec<EventRef> {
    let events = lock(&context.tagged.events);
    events.iter().filter(|event| ids.contains(&event.id())).cloned().collect()
}
