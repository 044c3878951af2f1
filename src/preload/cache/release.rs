//! Releases segments to the driver (docs/ordering.md 8).
//!
//! A real `cuMemFree` waits for the context and holds it meanwhile, and the driver's own
//! `cudaMalloc` does not wait. So a segment is released by `cuMemFreeAsync` on a stream of the
//! library, after the last barrier and the events of its blocks. A request that needs the memory
//! now waits only for that stream. The real free is the last resort, and counted.

use std::sync::atomic::Ordering;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Allocator, Segment};
use cachealloc_history::StackId;

use crate::cache::{arenas, blocks, stream_frees};
use crate::driver::sys::{CuResult, DevicePointer, StreamHandle};
use crate::driver::{api, changes};
use crate::driver_memory::limits;
use crate::graphs::pool_life;
use crate::lock::lock;
use crate::ordering::{captures, pending, real_frees};
use crate::pagemap;
use crate::record::capture;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::inflight_releases::InFlightRelease;
use crate::state::release::{ReleaseStream, ReleaseStreams};
use crate::state::thread;
use crate::state::thread::Thread;
use crate::state::under_way::Waiter;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::statistics::waits;
use crate::statistics::waits::Wait;
use crate::test_delay::test_delay;

pub(crate) mod left_segments;

impl ReleaseStreams {
    /// Returns whether memory was freed on a stream that was not synchronized since.
    pub(crate) fn has_uncollected(&self) -> bool {
        self.all().iter().any(|stream| stream.uncollected_bytes.load(Ordering::Relaxed) != 0)
    }

    /// Synchronizes the streams that are complete, so that the device gets their memory. Waits for
    /// no work. The context must be current.
    pub(crate) fn collect(&self, device: i32) {
        self.all().into_iter().for_each(|stream| stream.collect(device));
    }

    /// Releases memory that no work has touched, without a wait. Returns `false` if this driver has
    /// only frees that wait. The context must be current.
    pub(crate) fn give_back_untouched(&self, pointer: DevicePointer, bytes: u64) -> bool {
        let Some(handle) = self.now.handle() else { return false };
        let freed = api::mem_free_async(pointer, handle).is_ok();
        if freed {
            self.now.uncollected_bytes.fetch_add(bytes, Ordering::Release);
        }
        freed
    }
}

impl ReleaseStream {
    fn collect(&self, device: i32) {
        if self.uncollected_bytes.load(Ordering::Relaxed) == 0 {
            return;
        }
        let handle = *lock(&self.handle);
        let _collecting = rule_holds(Rule::CollectTakesTurns).then(|| lock(&self.collecting));
        if api::stream_query(handle).is_ok() {
            test_delay(Rule::CollectTakesTurns);
            let _ = self.wait(handle, device);
        }
    }

    /// Synchronizes the stream. The device gets its memory only then: another request finds it in
    /// flight.
    fn wait(&self, handle: StreamHandle, device: i32) -> CuResult {
        let bytes = self.uncollected_bytes.load(Ordering::Relaxed);
        let counts = bytes > 0 && rule_holds(Rule::CollectedIsInFlight);
        let _in_flight = counts.then(|| InFlightRelease::to(device, bytes));
        changes::during(|| {
            self.uncollected_bytes.store(0, Ordering::Release);
            waits::timed(Wait::Release, || synchronize(handle))
        })
    }

    /// Frees the segments after the work that this stream waits for. Returns those that the driver
    /// refused, which the caller may have to free by waiting.
    fn give_back<'a>(&self, handle: StreamHandle, segments: &[&'a Segment]) -> Vec<&'a Segment> {
        let is_refused = |segment: &&&Segment| {
            let free = || api::mem_free_async(segment.base.0, handle);
            let freed = counters::timed_release(free).is_ok();
            if freed {
                self.uncollected_bytes.fetch_add(segment.bytes, Ordering::Release);
            }
            !freed
        };
        segments.iter().filter(is_refused).copied().collect()
    }
}

/// Segments that have left the allocator, and the events that their memory still waits for.
pub(crate) struct PendingRelease {
    segments: Vec<Segment>,
    /// Segments that other processes may have mapped. They are freed by the real free, as without
    /// the library.
    exported: Vec<Segment>,
    events: Vec<EventRef>,
    /// Whether some event is no longer known, so that only a real wait is safe.
    unsure: bool,
    /// The newest barrier when the segments left the allocator. It is ordered after their frees.
    barrier: Option<EventRef>,
    in_flight: Option<InFlightRelease>,
}

impl PendingRelease {
    /// Prepares the release. The caller must hold the allocator's lock since the segments left it:
    /// once the lock is released, nothing refers to their events, and they may be reused. `caller`
    /// is the stack of the call that releases them.
    pub(crate) fn new(
        context: &Context,
        allocator: &mut Allocator,
        segments: Vec<Segment>,
        caller: StackId,
    ) -> PendingRelease {
        context.recorder.segments_released(allocator, &segments, caller);
        let mut ids: Vec<_> = segments.iter().flat_map(|segment| segment.events.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        let events = stream_frees::events(&ids);
        let unsure = events.len() != ids.len();
        let bytes = segments.iter().map(|segment| segment.bytes).sum();
        let in_flight = (bytes > 0).then(|| InFlightRelease::to(context.device, bytes));
        let (exported, segments) = segments.into_iter().partition(|segment| segment.exported);
        let barrier = context.last_barrier.newest();
        PendingRelease { segments, exported, events, unsure, barrier, in_flight }
    }

    /// Releases the segments to the driver and waits until their memory is available, unless the
    /// caller may not wait that long. The result reports work that failed meanwhile; the segments
    /// are gone either way.
    pub(crate) fn release(mut self, context: &'static Context, waiter: Waiter) -> CuResult {
        let in_flight = self.in_flight.take();
        if self.segments.is_empty() && self.exported.is_empty() {
            return Ok(());
        }
        let all = || self.segments.iter().chain(&self.exported);
        // Before the driver gets them: afterwards the addresses may belong to another owner.
        all().for_each(|segment| pagemap::remove(segment.base.0));
        counters::add(Count::SegmentsReleased, all().count() as u64);
        let code = api::relaxed(|| {
            context.enter(|| {
                let code = self.release_unexported(context, waiter);
                code.max(self.by_waiting(&self.exported))
            })
        });
        limits::give_back(context.device, all().map(|segment| segment.bytes).sum());
        drop(in_flight);
        code
    }

    fn release_unexported(&self, context: &'static Context, waiter: Waiter) -> CuResult {
        if self.segments.is_empty() {
            return Ok(());
        }
        let stream = self.stream(context, waiter);
        let in_order = !self.unsure && rule_holds(Rule::ReleaseInStreamOrder);
        match stream.handle().filter(|_| in_order) {
            Some(handle) => self.behind_barrier(context, stream, handle, waiter),
            None => self.by_waiting(&self.segments),
        }
    }

    /// Returns the stream for the segments that can be freed after the barrier alone.
    fn stream(&self, context: &'static Context, waiter: Waiter) -> &'static ReleaseStream {
        let waits = waiter == Waiter::StandsStill && rule_holds(Rule::ReleasesWaitApart);
        let ReleaseStreams { now, behind_barriers, .. } = &context.release_streams;
        if waits { behind_barriers } else { now }
    }

    /// Frees by the real free, which waits for its own context only: so this first waits for
    /// streams of other contexts that still use the memory.
    fn by_waiting<'a>(&self, segments: impl IntoIterator<Item = &'a Segment>) -> CuResult {
        let segments: Vec<&Segment> = segments.into_iter().collect();
        if segments.iter().any(|segment| !segment.events.is_empty()) {
            self.events.iter().for_each(|event| {
                let _ = waits::timed(Wait::RealFree, || event.synchronize());
            });
        }
        free_by_waiting(segments)
    }

    fn behind_barrier(
        &self,
        context: &Context,
        stream: &ReleaseStream,
        handle: StreamHandle,
        waiter: Waiter,
    ) -> CuResult {
        if !pending::may_wait_for(self.barrier.as_ref(), waiter) {
            self.behind_events(context, &self.segments.iter().collect::<Vec<_>>());
            return Ok(());
        }
        let (later, now): (Vec<_>, Vec<_>) =
            self.segments.iter().partition(|segment| !segment.events.is_empty());
        let collecting = rule_holds(Rule::ReleasesWaitApart).then(|| lock(&stream.collecting));
        if !waits_for(handle, self.barrier.iter()) {
            drop(collecting);
            return self.by_waiting(&self.segments);
        }
        let refused = stream.give_back(handle, &now);
        drop(collecting);
        let mut code = Ok(());
        let _ = free_by_waiting(refused);
        if !now.is_empty() {
            code = stream.wait(handle, context.device);
        }
        // Segments that a stream still uses are released when the stream is done. Nothing waits for
        // that: the driver's own allocation does not either (hazard 31).
        if !later.is_empty() {
            self.behind_events(context, &later);
        }
        code
    }

    /// Uses a separate stream: a wait for the other one must not include these events.
    fn behind_events(&self, context: &Context, segments: &[&Segment]) {
        let behind_events = &context.release_streams.behind_events;
        let by_waiting = match behind_events.handle() {
            Some(handle) => {
                let barrier = context.last_barrier.newest();
                let events = barrier.iter().chain(&self.events);
                let _collecting = lock(&behind_events.collecting);
                match !rule_holds(Rule::ReleaseAfterEvents) || waits_for(handle, events) {
                    true => behind_events.give_back(handle, segments),
                    false => segments.to_vec(),
                }
            }
            None => segments.to_vec(),
        };
        let _ = self.by_waiting(by_waiting);
    }
}

/// Waits for a stream of the library that has freed memory: the device has the memory afterwards.
pub(crate) fn synchronize(stream: StreamHandle) -> CuResult {
    if rule_holds(Rule::ReleaseSynchronizes) { api::stream_synchronize(stream) } else { Ok(()) }
}

/// Makes a stream of the library wait for events. Returns `false` if the driver refused one; then
/// only a real wait is safe.
fn waits_for<'a>(stream: StreamHandle, events: impl Iterator<Item = &'a EventRef>) -> bool {
    events
        .filter(|event| !event.is_dead())
        .all(|event| api::stream_wait_event(stream, event.handle(), 0).is_ok())
}

/// Frees memory of the current context that no work has touched. Waits only if the driver has no
/// other free.
pub(crate) fn untouched(pointer: DevicePointer, bytes: u64) -> CuResult {
    let context = contexts::known(0).filter(|_| rule_holds(Rule::UntouchedGoesAtOnce));
    match context.is_some_and(|context| context.release_streams.give_back_untouched(pointer, bytes))
    {
        true => Ok(()),
        false => real_frees::announced(|| api::mem_free(pointer)),
    }
}

/// Frees by the real free, which waits for the context like any other, and holds it meanwhile.
fn free_by_waiting<'a>(segments: impl IntoIterator<Item = &'a Segment>) -> CuResult {
    let real = |segment: &Segment| real_frees::announced(|| api::mem_free(segment.base.0));
    let free = |segment: &Segment| waits::timed(Wait::RealFree, || real(segment));
    segments
        .into_iter()
        .map(|segment| counters::timed_release(|| free(segment)))
        .fold(Ok(()), CuResult::max)
}

/// Releases every wholly free segment of every context on this device (`None`: on every device).
pub(crate) fn everything_free(device: Option<i32>, waiter: Waiter) -> CuResult {
    give_back(device, waiter, |allocator| allocator.release_free()).0
}

/// Releases free segments at the program's request. Returns the bytes released, or an `errno`.
pub(crate) fn trim(device: Option<i32>) -> Result<u64, i32> {
    if captures::any() {
        return Err(libc::EBUSY);
    }
    let taken = |allocator: &mut Allocator| allocator.release_freed();
    match give_back(device, Waiter::GoesOn, taken) {
        (Ok(()), bytes) => Ok(bytes),
        _ => Err(libc::EIO),
    }
}

fn give_back(
    device: Option<i32>,
    waiter: Waiter,
    taken: impl Fn(&mut Allocator) -> Vec<Segment>,
) -> (CuResult, u64) {
    let (mut code, mut bytes) = (Ok(()), 0);
    // In a host function the driver refuses to release anything.
    if thread::with(Thread::refused_inside_callback).is_some()
        && rule_holds(Rule::HostFunctionReleasesNothing)
    {
        return (code, bytes);
    }
    let caller = capture::of_free();
    let concerned = |context: &&Context| device.is_none_or(|device| context.device == device);
    let current = api::ctx_get_id(0);
    for context in contexts::all().filter(concerned) {
        let Some(_open) = context.keep_open_soon() else { continue };
        // On the plain driver a free holds its own context only.
        let elsewhere = current != Ok(context.id) && rule_holds(Rule::OnlyOwnContextStandsStill);
        let waiter = if elsewhere { Waiter::GoesOn } else { waiter };
        stream_frees::query(context);
        stream_frees::wait_for_plain_frees(context, waiter);
        pool_life::reap_late(context, waiter);
        stream_frees::assume_over(context);
        blocks::empty_lists(context);
        let mut allocator = lock(&context.allocator);
        let free = taken(&mut allocator);
        bytes += free.iter().map(|segment| segment.bytes).sum::<u64>();
        let releasing = PendingRelease::new(context, &mut allocator, free, caller);
        drop(allocator);
        code = code.max(releasing.release(context, waiter));
        free_left(context);
        if context.release_streams.has_uncollected() {
            let collect = || {
                context.release_streams.collect(context.device);
                Ok(())
            };
            let _ = api::relaxed(|| context.enter(collect));
        }
        if waiter == Waiter::StandsStill || arenas::any_mapped(context) {
            let (unmapped, unmapped_bytes) = arenas::unmap_free(context, caller, waiter);
            code = code.max(unmapped);
            bytes += unmapped_bytes;
        }
    }
    (code, bytes)
}

/// Releases what passes of the scavenger could not.
fn free_left(context: &Context) {
    if left_segments::bytes(context) == 0 || !rule_holds(Rule::LeftIsReleased) {
        return;
    }
    let (mut left, in_flight) = left_segments::take(context);
    let streams = &context.release_streams;
    let goes = |segment: &Segment| {
        let goes = streams.give_back_untouched(segment.base.0, segment.bytes);
        if goes {
            counters::count(Count::SegmentsReleased);
            limits::give_back(context.device, segment.bytes);
        }
        goes
    };
    let release = || {
        left.retain(|segment| !goes(segment));
        streams.collect(context.device);
        Ok(())
    };
    let _ = api::relaxed(|| context.enter(release));
    left_segments::leave(context, left);
    drop(in_flight);
}

/// Releases one empty segment by the real, waiting free, and the rest after it. Returns the code of
/// that free, or `None` if there is no empty segment.
pub(crate) fn one_by_waiting(context: &'static Context) -> Option<CuResult> {
    let caller = capture::of_free();
    let mut allocator = lock(&context.allocator);
    let mut free = allocator.release_free();
    let first = free.pop()?;
    context.recorder.segments_released(&mut allocator, core::slice::from_ref(&first), caller);
    let in_flight = InFlightRelease::to(context.device, first.bytes);
    let rest = PendingRelease::new(context, &mut allocator, free, caller);
    drop(allocator);
    pagemap::remove(first.base.0);
    let code = free_by_waiting([&first]);
    limits::give_back(context.device, first.bytes);
    drop(in_flight);
    let _ = rest.release(context, Waiter::StandsStill);
    Some(code)
}
