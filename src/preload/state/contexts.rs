//! The contexts of the process, each with its cache. They are keyed by the driver's unique id
//! (`cuCtxGetId`), because handles are reused. A record is never removed: other threads may be
//! reading it, and its id is never reused. Its large parts are released with the context.

use core::mem::offset_of;
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
use crate::state::red_zones::{OwnStreams, Zones};
use crate::state::registry;
use crate::state::registry::Links;
use crate::state::release::{Idle, ReleaseStreams};
use crate::state::stream_frees::StreamFrees;
use crate::state::thread_cache::ThreadCache;
use crate::state::under_way::UnderWay;

/// A context of the driver and everything the library keeps for it. What a hit and the free of its
/// block read and do not write is in one cache line, which begins after what has pages of its own.
#[repr(C)]
pub(crate) struct Context {
    pub thread_cache: ThreadCache,
    pub pool_attributes: PoolAttributes,
    /// Its id, or `NO_ID` once it has ended.
    pub living_id: AtomicU64,
    /// The core's allocated bytes, readable without its lock.
    pub core_allocated_bytes: AtomicU64,
    /// Highest number of bytes the program held at once.
    pub allocated_bytes_peak: AtomicU64,
    pub covers: ContextCoverage,
    pub id: u64,
    pub handle: ContextHandle,
    /// The context through which its memory is reached from other contexts.
    pub memory_owner: MemoryOwner,
    pub device: i32,
    /// Total memory of the device.
    pub device_bytes: u64,
    /// Identity of the device in the machine.
    pub hardware: Hardware,
    /// Whether `cuCtxCreate` made it; otherwise it is the device's primary context.
    pub explicit: bool,
    pub allocator: Mutex<Allocator>,
    /// Held during a whole miss; hits of other threads continue meanwhile.
    pub growth_lock: Mutex<()>,
    /// Serializes barriers, begins of a capture, and waits that may join a capture.
    pub barrier_lock: Mutex<SyncedStreams>,
    pub events: Events,
    pub last_barrier: LastBarrier,
    pub stream_frees: StreamFrees,
    pub recorder: Recorder,
    pub sentinels: Sentinels,
    pub own_streams: OwnStreams,
    pub zones: Zones,
    pub release_streams: ReleaseStreams,
    pub arenas: Arenas,
    pub idle: Idle,
    /// Largest request that is served from a chunk, with chunks.
    pub chunk_request_max: OnceLock<u64>,
    /// Number of frees that wait, between claiming a block and publishing it; not those of private
    /// pools.
    pub frees_in_progress: AtomicU32,
    /// Frees that wait, for requests that wait for them.
    pub frees_under_way: UnderWay,
    /// Number of real frees that may be waiting in the driver.
    pub real_frees: AtomicU32,
    /// Counts for the blocks in the thread caches that the core does not have.
    pub correction: ThreadCacheCorrection,
    /// Number of requests that failed for lack of memory.
    pub ooms_count: AtomicU64,
    /// Whether work in it seems to have failed permanently (`sticky_error`).
    pub has_sticky_error: AtomicBool,
    /// Number of contexts seen before this one and, once it has ended, by its end.
    pub seen_before: usize,
    pub seen_at_end: AtomicUsize,
    /// Its statistics at its end.
    pub final_stats: OnceLock<Box<Stats>>,
    /// Shared by uses that no call of the program protects, exclusive for the end of the context.
    pub lifetime_lock: RwLock<()>,
    /// Whether the lifetime lock is held for a call that may or may not end the context, and that
    /// waits for its work if it does.
    pub is_in_doubt: AtomicBool,
    /// Number of threads that wait in `keep_open_soon`.
    pub waiting: AtomicU32,
    /// Time at which the driver was asked to destroy it; 0 before.
    pub ending_ns: AtomicU64,
    pub links: Links,
}

const _: () = {
    let first = offset_of!(Context, living_id);
    let last = offset_of!(Context, covers) + offset_of!(ContextCoverage, ordered);
    assert!(first.is_multiple_of(64) && last - first <= 64, "one line");
};

/// An id that no context has.
pub(crate) const NO_ID: u64 = u64::MAX;

static GROWING: Mutex<()> = Mutex::new(());

/// Returns the context with this handle, if it was seen before.
pub(crate) fn known(handle: ContextHandle) -> Option<&'static Context> {
    id_of(handle).and_then(find)
}

/// Returns all contexts seen and still alive, newest first.
#[inline]
pub(crate) fn all() -> impl Iterator<Item = &'static Context> {
    registry::alive().filter(|context| !context.is_dead())
}

/// Returns all contexts ever seen, oldest first, for reports.
pub(crate) fn every() -> impl Iterator<Item = &'static Context> {
    let mut every: Vec<_> = registry::ever().collect();
    every.reverse();
    every.into_iter()
}

/// Returns the lock under which contexts are added: while it is held, all contexts are in the
/// lists.
pub(crate) fn growing() -> &'static Mutex<()> {
    &GROWING
}

/// Returns the driver's unique id of a living context.
pub(crate) fn id_of(handle: ContextHandle) -> Option<u64> {
    api::ctx_get_id(handle).ok()
}

/// Returns the living context with this id, if it was seen.
#[inline]
pub(crate) fn find(id: u64) -> Option<&'static Context> {
    // If the driver has no ids, a dead context and a new one may have the same handle.
    let is_wanted = |context: &&Context| context.living_id.load(Ordering::Acquire) == id;
    let newest = registry::newest()?;
    if is_wanted(&newest) { Some(newest) } else { registry::recent(id, is_wanted) }
}

/// Context that owns the memory. A green context lends its streams a part of the device. The memory
/// belongs to the primary context and stays when the green one ends, unless the primary one ends
/// with it. So it is entered through the primary context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MemoryOwner {
    pub handle: ContextHandle,
    pub id: u64,
}

impl Context {
    /// Runs `body` with the memory's owner current: for an ordinary context, itself. A stream of
    /// the library that was created with a green context current would end with that context
    /// (hazard 70).
    pub(crate) fn enter<T>(&self, body: impl FnOnce() -> CuResult<T>) -> CuResult<T> {
        if api::is_current(self.memory_owner.handle, self.memory_owner.id) {
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

    /// Returns whether the driver was asked to destroy it.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending_ns.load(Ordering::Relaxed) != 0
    }

    /// Returns the statistics of a context that has ended.
    pub(crate) fn final_stats(&self) -> Option<&Stats> {
        self.final_stats.get().map(|stats| &**stats)
    }

    /// Returns whether it has ended, or ends while the driver serves its addresses to the caller. A
    /// call may only drop a reference to the current context, which has just been used.
    pub(crate) fn is_over(&self) -> bool {
        (self.is_dead() || self.is_ending()) && api::ctx_get_id(0) != Ok(self.id)
    }

    /// Prevents the end of the context while the guard lives, for a caller that no call of the
    /// program protects. Returns `None` if the context has ended or is about to end.
    pub(crate) fn keep_open(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.lifetime_lock.try_read().ok().filter(|_| !self.is_dead())
    }

    /// Prevents the end of the context, like `keep_open`, for a caller that looks for memory.
    ///
    /// Waits while the driver ends the context. Its work has completed by then, so this takes a
    /// moment, and afterwards the device has the memory. Where it is unknown whether a call ends
    /// the context, that call may wait for work, and the work for what the caller does next. Most
    /// such calls only drop a reference, and the context is open again in a moment: so this tries
    /// for a limited time.
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

    /// Prevents the end of the context, like `keep_open`, for a caller that must not skip it. Waits
    /// until the context is open, or has ended.
    pub(crate) fn stay_open(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.open_while(|| true)
    }

    /// Waits like `stay_open`, as long as `is_wanted` returns `true`.
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

    /// Locks out all users. Call before the driver is asked to destroy the context, for certain or
    /// if this is the last reference (`is_in_doubt`). Hold the guard until the end is recorded.
    pub(crate) fn shut(&self, is_in_doubt: bool) -> RwLockWriteGuard<'_, ()> {
        if is_in_doubt {
            self.make_way();
        }
        let shut = self.wait_for_users();
        self.is_in_doubt.store(is_in_doubt, Ordering::Relaxed);
        shut
    }

    /// Waits until no user is left. A user may wait for work. Until that completes, others may
    /// enter: they have nothing to do with this end, and a thread that blocks on the lock would
    /// keep them out. They have to wait only if the context has a user whenever this end looks.
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

    /// Waits for the threads in `keep_open_soon`. A thread that takes and drops references in a
    /// loop would leave the context open for moments only, each of which a thread that looks for
    /// memory may miss. So it waits for such threads: as often as they look, and no longer.
    fn make_way(&self) {
        bounds::LAST_REFERENCE.until(|| self.waiting.load(Ordering::Relaxed) == 0);
    }

    /// Notes that the driver has not destroyed the context after all.
    pub(crate) fn is_still_there(&self) {
        self.ending_ns.store(0, Ordering::Relaxed);
        self.is_in_doubt.store(false, Ordering::Relaxed);
    }

    /// Returns how many contexts the process had seen when this one ended.
    pub(crate) fn seen_at_end(&self) -> usize {
        self.seen_at_end.load(Ordering::Relaxed)
    }
}
