//! The contexts of the process, each with its cache. Keyed by the driver's id for life
//! (`cuCtxGetId`), because handles are given out again. A record is never removed: other threads
//! may be looking at it, and its id never comes back. What is big in it goes with the context.

pub mod creation;
pub mod end;
pub mod events;
pub mod lookup;
pub mod registry;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cachealloc_core::order::Covers;
use cachealloc_core::{Allocator, Stats};

use crate::cache::pool_numbers::PoolNumbers;
use crate::cache::thread_cache::ThreadCache;
use crate::cache::{Arenas, ContentsStream, StreamFrees};
use crate::contexts::events::Events;
use crate::contexts::registry::Links;
use crate::driver::api;
use crate::driver::sys::{ContextHandle, CuResult, SUCCESS};
use crate::ordering::{LastBarrier, Sentinels};
use crate::record::recorder::Recorder;
use crate::statistics::ThreadCacheCorrection;
use crate::trim::{Idle, ReleaseStreams};

/// One context of the driver and everything we keep for it.
pub struct Context {
    pub id: u64,
    pub handle: ContextHandle,
    /// Through which context its memory is reached from elsewhere.
    pub home: Home,
    pub device: i32,
    /// All memory of the device.
    pub device_bytes: u64,
    /// Made by `cuCtxCreate`; otherwise it is the device's primary context.
    pub explicit: bool,
    pub allocator: Mutex<Allocator>,
    /// Held through a whole miss: hits of other threads go on meanwhile.
    pub growth: Mutex<()>,
    pub thread_cache: ThreadCache,
    pub covers: Covers,
    /// For one barrier, one begin of a capture, or one wait that may join a capture at a time.
    pub gate: Mutex<()>,
    pub events: Events,
    pub last_barrier: LastBarrier,
    pub stream_frees: StreamFrees,
    pub recorder: Recorder,
    pub sentinels: Sentinels,
    pub pool_numbers: PoolNumbers,
    pub contents_stream: ContentsStream,
    pub release_streams: ReleaseStreams,
    pub arenas: Arenas,
    pub idle: Idle,
    /// With chunks: the largest request that is served from one.
    pub chunk_request_max: OnceLock<u64>,
    /// Frees between claiming a block and publishing it.
    pub frees_in_progress: AtomicU32,
    /// Real frees that the driver may be waiting in.
    pub real_frees: AtomicU32,
    /// Highest number of bytes that the program held at once.
    pub allocated_bytes_peak: AtomicU64,
    /// The core's allocated bytes, for a look without its lock.
    pub core_allocated_bytes: AtomicU64,
    /// What the core cannot know of the blocks in the lists.
    pub correction: ThreadCacheCorrection,
    /// Requests that failed for lack of memory.
    pub ooms_count: AtomicU64,
    /// Work in it seems to have failed for good (`sticky_error`).
    pub has_sticky_error: AtomicBool,
    /// How many contexts there were before this one, and, once it is gone, at its end.
    pub seen_before: usize,
    seen_at_end: AtomicUsize,
    /// The statistics at its end.
    final_stats: OnceLock<Box<Stats>>,
    dead: AtomicBool,
    /// Shared by whoever is in it without the program's word, exclusive for whoever ends it.
    door: RwLock<()>,
    /// When the driver was asked to end it; 0: it was not.
    pub ending_ns: AtomicU64,
    pub links: Links,
}

static GROWING: Mutex<()> = Mutex::new(());

/// The context with this handle if it is known; it is not met for this.
pub fn known(handle: ContextHandle) -> Option<&'static Context> {
    id_of(handle).and_then(find)
}

/// All contexts that were ever seen and are alive, the newest first.
#[inline]
pub fn all() -> impl Iterator<Item = &'static Context> {
    registry::alive().filter(|context| !context.is_dead())
}

/// All contexts that were ever seen, the oldest first, for reports.
pub fn every() -> impl Iterator<Item = &'static Context> {
    let mut every: Vec<_> = registry::ever().collect();
    every.reverse();
    every.into_iter()
}

/// While it is locked, no context is being met: every one is in the lists.
pub fn growing() -> &'static Mutex<()> {
    &GROWING
}

/// The number by which the driver knows a context for life, of one that is there.
pub fn id_of(handle: ContextHandle) -> Option<u64> {
    let mut id = 0;
    (api::ctx_get_id(handle, &mut id) == SUCCESS).then_some(id)
}

/// The living context with this id, if it was met.
#[inline]
pub fn find(id: u64) -> Option<&'static Context> {
    // Where the driver has no ids, the handle of a dead context may be that of a new one.
    all().find(|context| context.id == id)
}

/// A green context lends its streams a part of the device; the memory is that of the primary context, and
/// stays when the green one ends, which tells nobody. So it is entered by way of the primary one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Home {
    pub handle: ContextHandle,
    pub id: u64,
}

impl Context {
    /// Runs `body` with this context current, or its home.
    pub fn enter(&self, body: &mut dyn FnMut() -> CuResult) -> CuResult {
        let mut id = 0;
        if api::ctx_get_id(0, &mut id) == SUCCESS && id == self.id {
            return body();
        }
        let code = api::ctx_push_current(self.home.handle);
        if code != SUCCESS {
            return code;
        }
        let code = body();
        let mut popped = 0;
        api::ctx_pop_current(&mut popped);
        code
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Whether the driver was asked to end it.
    pub fn is_ending(&self) -> bool {
        self.ending_ns.load(Ordering::Relaxed) != 0
    }

    /// The statistics of a context that is gone.
    pub fn final_stats(&self) -> Option<&Stats> {
        self.final_stats.get().map(|stats| &**stats)
    }

    /// For who comes on no call of the program that means this context: while the answer lives, nobody
    /// ends it. None: it is gone, or somebody is about to end it.
    pub fn keep_open(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.door.try_read().ok().filter(|_| !self.is_dead())
    }

    /// As `keep_open`, for who must not pass it by. A primary context outlives most calls that might end
    /// it, and those are short.
    pub fn stay_open(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if self.explicit {
            return self.keep_open();
        }
        let open = self.door.read().unwrap_or_else(PoisonError::into_inner);
        Some(open).filter(|_| !self.is_dead())
    }

    /// Call before the driver is asked to end it, and hold until that is in the books.
    pub fn shut(&self) -> RwLockWriteGuard<'_, ()> {
        self.door.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many contexts the process had met when this one was gone.
    pub fn seen_at_end(&self) -> usize {
        self.seen_at_end.load(Ordering::Relaxed)
    }
}
