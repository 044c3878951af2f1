//! The contexts of the process, each with its cache. Keyed by the driver's id for life (`cuCtxGetId`),
//! because handles are reused. A record is never removed: other threads may be reading it, and its id
//! never comes back. Its large parts go with the context.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{
    Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

use cachealloc_core::order::{ContextCoverage, SyncedStreams};
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Allocator, Stats};

use crate::driver::api;
use crate::driver::hardware::Hardware;
use crate::driver::sys::{ContextHandle, CuResult};
use crate::process::bounds;
use crate::record::recorder::Recorder;
use crate::state::arenas::Arenas;
use crate::state::barriers::{LastBarrier, Sentinels};
use crate::state::correction::ThreadCacheCorrection;
use crate::state::events::Events;
use crate::state::pool_attributes::PoolAttributes;
use crate::state::red_zones::{FillStream, Zones};
use crate::state::registry;
use crate::state::registry::Links;
use crate::state::release::{Idle, ReleaseStreams};
use crate::state::stream_frees::StreamFrees;
use crate::state::thread_cache::ThreadCache;
use crate::state::under_way::UnderWay;

/// One context of the driver and everything we keep for it.
pub(crate) struct Context {
    pub id: u64,
    pub handle: ContextHandle,
    /// The context through which its memory is reached from other contexts.
    pub memory_owner: MemoryOwner,
    pub device: i32,
    /// Total memory of the device.
    pub device_bytes: u64,
    /// Which one of the machine the device is.
    pub hardware: Hardware,
    /// Made by `cuCtxCreate`; otherwise the device's primary context.
    pub explicit: bool,
    pub allocator: Mutex<Allocator>,
    /// Held during a whole miss; hits of other threads go on meanwhile.
    pub growth_lock: Mutex<()>,
    pub thread_cache: ThreadCache,
    pub covers: ContextCoverage,
    /// Serializes barriers, begins of a capture, and waits that may join a capture.
    pub barrier_lock: Mutex<SyncedStreams>,
    pub events: Events,
    pub last_barrier: LastBarrier,
    pub stream_frees: StreamFrees,
    pub recorder: Recorder,
    pub sentinels: Sentinels,
    pub pool_attributes: PoolAttributes,
    pub fill_stream: FillStream,
    pub zones: Zones,
    pub release_streams: ReleaseStreams,
    pub arenas: Arenas,
    pub idle: Idle,
    /// With chunks: the largest request that is served from one.
    pub chunk_request_max: OnceLock<u64>,
    /// Frees that wait, between claiming a block and publishing it; not those of private pools.
    pub frees_in_progress: AtomicU32,
    /// The same, for requests that wait for them.
    pub frees_under_way: UnderWay,
    /// Real frees that may be waiting in the driver.
    pub real_frees: AtomicU32,
    /// Highest number of bytes the program held at once.
    pub allocated_bytes_peak: AtomicU64,
    /// The core's allocated bytes, readable without its lock.
    pub core_allocated_bytes: AtomicU64,
    /// What the core cannot know about the blocks in the thread caches.
    pub correction: ThreadCacheCorrection,
    /// Requests that failed for lack of memory.
    pub ooms_count: AtomicU64,
    /// Work in it seems to have failed permanently (`sticky_error`).
    pub has_sticky_error: AtomicBool,
    /// How many contexts were seen before this one and, once it is gone, by its end.
    pub seen_before: usize,
    pub seen_at_end: AtomicUsize,
    /// Its statistics at its end.
    pub final_stats: OnceLock<Box<Stats>>,
    /// Its id, and `NO_ID` once it is gone.
    pub living_id: AtomicU64,
    /// Shared by uses that no call of the program protects, exclusive for the end of the context.
    pub lifetime_lock: RwLock<()>,
    /// The door is shut for a call that may end the context or not, and that waits for its work if it does.
    pub is_in_doubt: AtomicBool,
    /// How many threads wait in `keep_open_soon`.
    pub waiting: AtomicU32,
    /// When the driver was asked to destroy it; 0: not yet.
    pub ending_ns: AtomicU64,
    pub links: Links,
}

/// No context has it.
pub(crate) const NO_ID: u64 = u64::MAX;

static GROWING: Mutex<()> = Mutex::new(());

/// The context with this handle, if it was seen before.
pub(crate) fn known(handle: ContextHandle) -> Option<&'static Context> {
    id_of(handle).and_then(find)
}

/// All contexts seen and still alive, newest first.
#[inline]
pub(crate) fn all() -> impl Iterator<Item = &'static Context> {
    registry::alive().filter(|context| !context.is_dead())
}

/// All contexts ever seen, oldest first, for reports.
pub(crate) fn every() -> impl Iterator<Item = &'static Context> {
    let mut every: Vec<_> = registry::ever().collect();
    every.reverse();
    every.into_iter()
}

/// While this is locked, no context is being added: all are in the lists.
pub(crate) fn growing() -> &'static Mutex<()> {
    &GROWING
}

/// The driver's id for life of a living context.
pub(crate) fn id_of(handle: ContextHandle) -> Option<u64> {
    api::ctx_get_id(handle).ok()
}

/// The living context with this id, if it was seen.
#[inline]
pub(crate) fn find(id: u64) -> Option<&'static Context> {
    // If the driver has no ids, a dead context and a new one may have the same handle.
    let is_wanted = |context: &&Context| context.living_id.load(Ordering::Acquire) == id;
    let newest = registry::newest()?;
    if is_wanted(&newest) { Some(newest) } else { registry::alive().find(is_wanted) }
}

/// A green context lends its streams a part of the device. The memory belongs to the primary context and
/// stays when the green one ends, unless the primary one ends with it. So it is entered through that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MemoryOwner {
    pub handle: ContextHandle,
    pub id: u64,
}

impl Context {
    /// Runs `body` with its home current: for an ordinary context, itself. A stream of ours that was made with a green one
    /// current would end with it (hazard 70).
    pub(crate) fn enter<T>(&self, body: impl FnOnce() -> CuResult<T>) -> CuResult<T> {
        if api::ctx_get_id(0) == Ok(self.memory_owner.id) {
            return body();
        }
        api::ctx_push_current(self.memory_owner.handle)?;
        let result = body();
        let _ = api::ctx_pop_current();
        result
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.living_id.load(Ordering::Acquire) == NO_ID
    }

    /// Whether the driver was asked to destroy it.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending_ns.load(Ordering::Relaxed) != 0
    }

    /// The statistics of a context that is gone.
    pub(crate) fn final_stats(&self) -> Option<&Stats> {
        self.final_stats.get().map(|stats| &**stats)
    }

    /// Whether it has ended, or does while the driver serves its addresses to the caller. Of the current one perhaps a
    /// reference is given up: it has just been used.
    pub(crate) fn is_over(&self) -> bool {
        (self.is_dead() || self.is_ending()) && api::ctx_get_id(0) != Ok(self.id)
    }

    /// For a caller that no call of the program protects: while the guard lives, the context does not
    /// end. None: it is gone or about to end.
    pub(crate) fn keep_open(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.lifetime_lock.try_read().ok().filter(|_| !self.is_dead())
    }

    /// As `keep_open`, for a caller that looks for memory. Waits while the driver ends the context: its work is over by then,
    /// so that this takes a moment, and afterwards the device has the memory. Where it is not known whether a call ends
    /// the context, it may wait for work, and that work for what the caller does next. Mostly it only counts a reference less,
    /// and the context is open again in a moment: so this looks for a while.
    pub(crate) fn keep_open_soon(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let open = self.keep_open();
        if open.is_some() || !rule_holds(Rule::ReferenceHidesNothing) {
            return open;
        }
        let mut looks = bounds::LAST_REFERENCE.begin();
        let is_worth_a_look = || !self.is_in_doubt.load(Ordering::Relaxed) || looks.look();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let open = self.open_while(is_worth_a_look);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        open
    }

    /// As `keep_open`, for a caller that must not skip the context: waits until it is open, or has ended.
    pub(crate) fn stay_open(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.open_while(|| true)
    }

    /// As `stay_open`, as long as the caller has a reason to wait.
    pub(crate) fn open_while(
        &self,
        mut is_wanted: impl FnMut() -> bool,
    ) -> Option<RwLockReadGuard<'_, ()>> {
        let mut open = None;
        bounds::until(|| {
            open = self.keep_open();
            open.is_some() || self.is_dead() || !is_wanted()
        });
        open
    }

    /// Call before the driver is asked to destroy it, for certain or if this is the last reference (`is_in_doubt`); hold
    /// until the end is recorded.
    pub(crate) fn shut(&self, is_in_doubt: bool) -> RwLockWriteGuard<'_, ()> {
        if is_in_doubt && rule_holds(Rule::ReferenceHidesNothing) {
            self.make_way();
        }
        let shut = self.wait_for_users();
        self.is_in_doubt.store(is_in_doubt, Ordering::Relaxed);
        shut
    }

    /// A user may wait for work. Until it is over others may come in, which a thread that waits for the lock would keep out:
    /// they have nothing to do with this end. Only where the context is never without a user they have to wait.
    fn wait_for_users(&self) -> RwLockWriteGuard<'_, ()> {
        let mut shut = None;
        bounds::LAST_REFERENCE.until(|| {
            shut = match self.lifetime_lock.try_write() {
                Ok(shut) => Some(shut),
                Err(TryLockError::Poisoned(shut)) => Some(shut.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            shut.is_some()
        });
        shut.unwrap_or_else(|| self.lifetime_lock.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// A thread that takes and gives up references in a loop would leave it open for moments only, each of which a thread
    /// that looks for memory may miss. So it waits for the threads that look: as often as they do, and no longer.
    fn make_way(&self) {
        bounds::LAST_REFERENCE.until(|| self.waiting.load(Ordering::Relaxed) == 0);
    }

    /// The driver has not destroyed it after all.
    pub(crate) fn is_still_there(&self) {
        self.ending_ns.store(0, Ordering::Relaxed);
        self.is_in_doubt.store(false, Ordering::Relaxed);
    }

    /// How many contexts the process had seen when this one was gone.
    pub(crate) fn seen_at_end(&self) -> usize {
        self.seen_at_end.load(Ordering::Relaxed)
    }
}
