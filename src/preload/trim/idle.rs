//! Releases unused memory to the driver, for other processes on the device and for other sizes: one
//! pass of the scavenger (`scavenger.rs`) in one context.
//!
//! A pass waits for nothing that a program does. It takes an epoch. Memory that has been idle since
//! an epoch some passes ago is released once the newest barrier of that time is complete;
//! Note [Decay] in the core's `decay.rs` defines the number of passes. By then all work with the
//! memory has completed, and `cuMemFreeAsync` on a stream used for nothing else has nothing to wait
//! for. The real free would wait for the context.
//!
//! Free memory beyond `eager_delete_tensor_gb` (Note [Excess] in the core's `free_limit.rs`) is
//! released in the same way, without those passes: memory that was free at the newest epoch whose
//! barrier is complete.
//!
//! The device gets the memory when that stream is synchronized. A query reports that all work has
//! completed but releases nothing, and requests fail for lack of memory (measured). Synchronizing
//! takes 27 us for 2 MiB and 35 ms for 100 GiB, and launches wait meanwhile: so it is done in small
//! pieces, with pauses.
//!
//! Few callers wait for a pass: the end of its context, which the driver must not destroy during a
//! pass, and a request that needs the memory in flight (`inflight_releases`) or asks how much is
//! free.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Allocator, IdleEpoch, Mapping, Segment};
use cachealloc_history::StackId;
use cachealloc_options::IdleRelease;
use cachealloc_text::Bytes;

use crate::cache::release::left_segments;
use crate::cache::{arenas, blocks, release, stream_frees};
use crate::clock::Instant;
use crate::contexts::lookup;
use crate::driver::sys::{CuError, STREAM_NON_BLOCKING};
use crate::driver::{api, changes, table};
use crate::driver_memory::limits;
use crate::functions::id;
use crate::lock::lock;
use crate::ordering::captures;
use crate::process::library_thread;
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::inflight_releases;
use crate::state::inflight_releases::InFlightRelease;
use crate::state::release::{Pass, TrimScope};
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::test_delay::test_delay;
use crate::trim::scavenger;
use crate::{config, log, pagemap};

/// Less free memory than this is never released.
const WORTH_BYTES: u64 = 2 << 20;
/// Number of epochs whose barrier may be incomplete.
const COMPLETING_MAX: usize = 4;
/// Time after which a pass pauses, unless a request waits for the memory. A thread gets the
/// driver's lock only if it asks at the right moment.
const STRETCH: Duration = Duration::from_millis(1);

/// Result of one visit for a trim.
pub(crate) struct Trim {
    pub is_done: bool,
    pub bytes: u64,
}

/// Visits a context once, and releases the memory that is due.
pub(crate) fn pass(context: &'static Context) {
    let mut pass = lock(&context.idle.pass);
    if context.idle.is_held_off() || context.is_dead() || !pass.note(context) {
        return;
    }
    // Avoids all optional work during a capture.
    if captures::any() || !lookup::is_certain(context) {
        return;
    }
    test_delay(Rule::ContextEndStopsScavenger);
    let _ = api::relaxed(|| {
        context.enter(|| {
            pass.give_back(context);
            Ok(())
        })
    });
}

/// Releases what was free when the trim was requested, once the work of that time has completed.
/// Waits for none of it.
pub(crate) fn trim(context: &'static Context) -> Trim {
    let mut pass = lock(&context.idle.pass);
    let is_new = context.idle.trim_wanted.swap(false, Ordering::SeqCst);
    if context.is_dead() || !(is_new || pass.trim.is_some()) {
        return Trim { is_done: true, bytes: 0 };
    }
    if is_new {
        pass.trim = Some(TrimScope::All);
    }
    if context.idle.is_held_off() || captures::any() {
        return Trim { is_done: false, bytes: 0 };
    }
    if !lookup::is_certain(context) {
        pass.trim = None;
        return Trim { is_done: true, bytes: 0 };
    }
    let bytes = api::relaxed(|| context.enter(|| Ok(pass.give_back_wanted(context))));
    let bytes = bytes.ok().flatten();
    let is_done = bytes.is_some() && left_segments::bytes(context) == 0;
    if is_done {
        pass.trim = None;
    }
    Trim { is_done, bytes: bytes.unwrap_or(0) }
}

/// Releases up to `wanted_bytes` for a peer process, as far as all work with them has completed,
/// and returns how many. Runs during a capture as well: that process needs them.
pub(crate) fn give(context: &'static Context, wanted_bytes: u64) -> u64 {
    let mut pass = lock(&context.idle.pass);
    if context.is_dead() || context.idle.is_held_off() || !lookup::is_certain(context) {
        return 0;
    }
    let given = api::relaxed(|| context.enter(|| Ok(pass.give(context, wanted_bytes))));
    given.unwrap_or(0)
}

impl Pass {
    /// Takes an epoch. Returns `false` if nothing can be idle.
    fn note(&mut self, context: &Context) -> bool {
        let mut allocator = lock(&context.allocator);
        // The core counts these blocks as in use.
        let taken = |cached| blocks::take_back(context, &mut allocator, cached);
        context.thread_cache.empty_unused(&mut self.lists_seen, taken);
        let stats = allocator.stats();
        let (reserved, allocated) = (&stats.reserved_bytes.all, &stats.allocated_bytes.all);
        let free_bytes = reserved.current - allocated.current;
        let idle_release = config::get().idle_release;
        let cachealloc_core::Pass { mark, due } = allocator.pass(idle_release.seconds());
        drop(allocator);
        self.due = due.filter(|_| idle_release != IdleRelease::Never);
        self.expect_complete(context, mark);
        free_bytes >= WORTH_BYTES
            || left_segments::bytes(context) > 0
            || context.release_streams.has_uncollected()
    }

    /// Notes the barrier that must complete for `mark`. Call after the epoch was taken: a free is
    /// published only once its barrier is known.
    fn expect_complete(&mut self, context: &Context, mark: IdleEpoch) {
        if self.completing.len() < COMPLETING_MAX {
            self.completing.push_back((mark, context.last_barrier.newest()));
        }
    }

    /// Releases what is due. The context must be current.
    fn give_back(&mut self, context: &'static Context) {
        context.release_streams.collect(context.device);
        self.note_complete();
        let Some(complete) = self.complete.filter(|_| self.has_stream()) else { return };
        if let Some(mark) = self.due.map(|due| due.min(complete)) {
            let idle = |allocator: &mut Allocator| allocator.release_idle(mark);
            say_returned("unused", self.take_and_give_back(context, idle));
        }
        if config::get().policy.free_bytes_max.is_some() {
            // Memory that only its own stream may take is not free for others.
            stream_frees::query(context);
            let excess = |allocator: &mut Allocator| allocator.release_excess(complete);
            say_returned("excess", self.take_and_give_back(context, excess));
        }
    }

    /// Returns the bytes released, or `None` if the earlier work has not completed. The context
    /// must be current.
    fn give_back_wanted(&mut self, context: &'static Context) -> Option<u64> {
        let mark = self.wanted_before(context)?;
        context.release_streams.collect(context.device);
        let newest = self.completing.back().map(|(mark, _)| *mark);
        if self.complete.max(newest) < Some(mark) {
            self.expect_complete(context, mark);
        }
        self.note_complete();
        if self.complete < Some(mark) || !self.has_stream() {
            return None;
        }
        Some(self.give_back_unused(context, mark, u64::MAX))
    }

    /// Releases up to `wanted_bytes` for a peer process, as far as all work with them has completed
    /// by now, and returns how many. The context must be current.
    fn give(&mut self, context: &'static Context, wanted_bytes: u64) -> u64 {
        context.release_streams.collect(context.device);
        let mut given_bytes = self.give_complete(context, wanted_bytes);
        if given_bytes < wanted_bytes {
            // Memory that has become free since the last pass.
            stream_frees::query(context);
            blocks::empty_lists(context);
            let mark = lock(&context.allocator).idle_mark();
            self.expect_complete(context, mark);
            given_bytes += self.give_complete(context, wanted_bytes - given_bytes);
        }
        given_bytes
    }

    fn give_complete(&mut self, context: &Context, wanted_bytes: u64) -> u64 {
        self.note_complete();
        let Some(mark) = self.complete.filter(|_| self.has_stream()) else { return 0 };
        self.give_back_unused(context, mark, wanted_bytes)
    }

    fn give_back_unused(&mut self, context: &Context, mark: IdleEpoch, wanted_bytes: u64) -> u64 {
        self.take_and_give_back(context, |allocator| allocator.release_unused(mark, wanted_bytes))
    }

    /// Returns the epoch of the requested memory, or `None` if some of it is freed but not yet
    /// reusable.
    fn wanted_before(&mut self, context: &'static Context) -> Option<IdleEpoch> {
        if matches!(self.trim, Some(TrimScope::All)) {
            self.trim = Some(TrimScope::Behind(stream_frees::pending(context)));
        }
        match self.trim.as_ref()? {
            TrimScope::Before(mark) => return Some(*mark),
            TrimScope::Behind(events)
                if events.iter().any(|event| event.query() == Err(CuError::NOT_READY)) =>
            {
                return None;
            }
            TrimScope::Behind(_) | TrimScope::All => {}
        }
        stream_frees::query(context);
        blocks::empty_lists(context);
        let mark = lock(&context.allocator).idle_mark();
        self.trim = Some(TrimScope::Before(mark));
        Some(mark)
    }

    /// Releases what `taken` removes from the allocator. All work with it has completed. The
    /// context must be current.
    fn take_and_give_back(
        &mut self,
        context: &Context,
        taken: impl FnOnce(&mut Allocator) -> (Vec<Segment>, Vec<Mapping>),
    ) -> u64 {
        let (mut segments, mut in_flight) = (Vec::new(), None);
        // No stack: no call of the program is responsible for what the library's own thread does.
        let unmapped_bytes = arenas::unmap_taken(context, StackId::NONE, |allocator| {
            let (whole, mappings) = taken(allocator);
            let bytes = whole.iter().map(|segment| segment.bytes).sum();
            in_flight = (bytes > 0).then(|| InFlightRelease::to(context.device, bytes));
            context.recorder.segments_released(allocator, &whole, StackId::NONE);
            segments = whole;
            mappings
        });
        test_delay(Rule::ReleaseInProgressIsAwaited);
        // Before the driver gets them: afterwards the addresses may belong to another owner.
        segments.iter().for_each(|segment| pagemap::remove(segment.base.0));
        let (left, left_in_flight) = left_segments::take(context);
        let bytes = self.free(context, left.into_iter().chain(segments));
        drop((in_flight, left_in_flight));
        bytes + unmapped_bytes
    }

    fn note_complete(&mut self) {
        let over = |event: &EventRef| event.query() != Err(CuError::NOT_READY);
        while let Some((mark, event)) = self.completing.front() {
            if rule_holds(Rule::IdleAfterBarrier) && !event.as_ref().is_none_or(over) {
                break;
            }
            self.complete = Some(*mark);
            self.completing.pop_front();
        }
    }

    /// Returns whether there is a stream. Creates it at first use, and only if the driver can free
    /// in stream order (11.2 and later).
    fn has_stream(&mut self) -> bool {
        if self.stream == 0 && table::has(id::cuMemFreeAsync) {
            self.stream = api::stream_create(STREAM_NON_BLOCKING).unwrap_or(0);
        }
        self.stream != 0
    }

    /// Frees segments and returns the bytes that the driver took. Segments that it refuses, or for
    /// which there is no time, are offered again in the next pass: the only other way is a free
    /// that waits.
    fn free(&mut self, context: &Context, segments: impl Iterator<Item = Segment>) -> u64 {
        let (mut bytes, mut refused) = (0, Vec::new());
        let mut stretch = Instant::now();
        for segment in segments {
            let in_a_hurry = context.idle.is_held_off() || scavenger::is_stopped();
            let free = || api::mem_free_async(segment.base.0, self.stream);
            let goes_back = || {
                let code = counters::timed_release(free);
                if code.is_ok() {
                    let _ = release::synchronize(self.stream);
                }
                code.is_ok()
            };
            if in_a_hurry || !changes::during(goes_back) {
                refused.push(segment);
                continue;
            }
            counters::count(Count::SegmentsReleased);
            limits::give_back(context.device, segment.bytes);
            bytes += segment.bytes;
            if stretch.elapsed() >= STRETCH && !inflight_releases::is_awaited() {
                library_thread::sleep(STRETCH);
                stretch = Instant::now();
            }
        }
        left_segments::leave(context, refused);
        bytes
    }
}

fn say_returned(which: &str, bytes: u64) {
    if bytes > 0 {
        log::info(format_args!("released {} of {which} memory to the driver", Bytes(bytes)));
    }
}
