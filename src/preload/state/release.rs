//! What one context keeps for memory that returns to the driver.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{IdleEpoch, Segment};

use crate::driver::sys::{STREAM_NON_BLOCKING, StreamHandle};
use crate::driver::{api, table};
use crate::functions::id;
use crate::lock::lock;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::inflight_releases;
use crate::state::thread_cache::ListsSeen;

/// Streams on which memory is released.
#[derive(Default)]
pub(crate) struct ReleaseStreams {
    /// Waits for nothing that is not complete: any call may synchronize it.
    pub now: ReleaseStream,
    /// Waits for barriers. Before those are complete, only calls that block on the plain driver
    /// synchronize it.
    pub behind_barriers: ReleaseStream,
    /// Waits for events of streams. No call synchronizes it before they are complete.
    pub behind_events: ReleaseStream,
    /// Whether `create` has succeeded.
    pub are_ready: AtomicBool,
}

impl ReleaseStreams {
    pub(crate) fn all(&self) -> [&ReleaseStream; 3] {
        [&self.now, &self.behind_barriers, &self.behind_events]
    }

    /// Creates the streams for calls that go on beside another thread's real free. The context must
    /// be current.
    pub(crate) fn create(&self) {
        let created = self.now.handle().is_some() && self.behind_events.handle().is_some();
        self.are_ready.store(created, Ordering::Relaxed);
    }
}

impl ReleaseStream {
    /// Returns the stream. Creates it at first use, and only if the driver can free in stream order
    /// (11.2 and later).
    pub(crate) fn handle(&self) -> Option<StreamHandle> {
        let mut handle = lock(&self.handle);
        if *handle == 0 && table::has(id::cuMemFreeAsync) {
            *handle = api::stream_create(STREAM_NON_BLOCKING).unwrap_or(0);
        }
        (*handle != 0).then_some(*handle)
    }
}

#[derive(Default)]
pub(crate) struct ReleaseStream {
    /// 0 before its first use.
    pub handle: Mutex<StreamHandle>,
    /// Bytes freed on the stream that the device gets only when the stream is synchronized. All its
    /// frees may have completed, and still no request can use their memory (measured).
    pub uncollected_bytes: AtomicU64,
    /// Held from the check whether the stream is idle until its memory is collected, and while
    /// waits are added to it: collecting must not wait for those. None of these calls waits for
    /// work.
    pub collecting: Mutex<()>,
}

/// Returns the bytes that have left the caches of this device and that the driver cannot serve yet,
/// mostly because work before their free still runs.
pub(crate) fn on_its_way_bytes(device: i32) -> u64 {
    let of_context = |context: &Context| {
        let streams = context.release_streams.all().into_iter();
        let of_streams = streams.map(|stream| stream.uncollected_bytes.load(Ordering::Relaxed));
        of_streams.sum::<u64>() + context.idle.left.bytes.load(Ordering::Relaxed)
    };
    let contexts = contexts::all().filter(|context| context.device == device);
    inflight_releases::bytes_to(device) + contexts.map(of_context).sum::<u64>()
}

/// State of the scavenger in one context.
#[derive(Default)]
pub(crate) struct Idle {
    /// Held during a pass, also while it is in the driver.
    pub pass: Mutex<Pass>,
    /// Number of threads that keep passes out because the context is about to end.
    pub held_off: AtomicU32,
    /// Whether another process requested the free memory.
    pub trim_wanted: AtomicBool,
    pub left: LeftSegments,
}

/// Segments that have left the allocator in a pass and that the driver has not taken: it refused
/// them, or there was no time. All work with them has completed.
#[derive(Default)]
pub(crate) struct LeftSegments {
    pub segments: Mutex<Vec<Segment>>,
    /// Their bytes, readable without the lock.
    pub bytes: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Pass {
    /// Memory idle since this epoch is to be released.
    pub due: Option<IdleEpoch>,
    /// Epochs of some passes, oldest first, each with the event that must complete first.
    pub completing: VecDeque<(IdleEpoch, Option<EventRef>)>,
    /// Newest epoch for which all work with the memory that was free then has completed.
    pub complete: Option<IdleEpoch>,
    pub lists_seen: ListsSeen,
    /// Stream on which memory is released; 0 before its first use.
    pub stream: StreamHandle,
    /// An open request for the free memory.
    pub trim: Option<TrimScope>,
}

/// Memory to release on request: what was freed when the request arrived.
pub(crate) enum TrimScope {
    /// Not examined yet.
    All,
    /// Some of it is free only when these events are complete.
    Behind(Vec<EventRef>),
    /// Memory that was free before this epoch.
    Before(IdleEpoch),
}

/// Keeps the scavenger out of the context while this value exists.
pub(crate) struct PauseGuard<'a>(&'a Idle);

impl Idle {
    /// Keeps passes out, and waits for a running one. Call before the driver is asked to end the
    /// context.
    pub(crate) fn pause(&self) -> Option<PauseGuard<'_>> {
        rule_holds(Rule::ContextEndStopsScavenger).then(|| {
            self.held_off.fetch_add(1, Ordering::SeqCst);
            drop(lock(&self.pass));
            PauseGuard(self)
        })
    }

    /// Requests that free memory is released at the next visit, or as soon as the work with it has
    /// completed (`trim`).
    pub(crate) fn want_trim(&self) {
        self.trim_wanted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_held_off(&self) -> bool {
        self.held_off.load(Ordering::SeqCst) > 0
    }
}

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        self.0.held_off.fetch_sub(1, Ordering::SeqCst);
    }
}
