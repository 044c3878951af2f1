//! The contexts of the process, each with its cache. Keyed by the driver's id for life
//! (`cuCtxGetId`), because handles are given out again. A record is never removed: other threads
//! may be looking at it, and its id never comes back. What is big in it goes with the context.

pub mod events;
pub mod registry;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cachealloc_core::order::{Agent, Covers};
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Allocator, Policy, Ready, Stats};

use crate::cache::arenas::{self, Arenas};
use crate::cache::contents::ContentsStream;
use crate::cache::pool_numbers::PoolNumbers;
use crate::cache::stream_frees::Tagged;
use crate::cache::thread_cache::Lookaside;
use crate::contexts::events::Events;
use crate::contexts::registry::Links;
use crate::driver::api;
use crate::driver::sys::{ContextHandle, CuResult, SUCCESS};
use crate::driver_memory::limits;
use crate::ipc::{exports, imports};
use crate::lock::lock;
use crate::ordering::barrier::LastBarrier;
use crate::ordering::settle::Sentinels;
use crate::ordering::{LEDGER, observers, pending};
use crate::process::lifetime;
use crate::process::patience::Patience;
use crate::record::recorder::Recorder;
use crate::snapshots::triggers;
use crate::statistics::reading::{self, Unseen};
use crate::trim::idle::Idle;
use crate::trim::release::ReleaseStreams;
use crate::{config, memory_hooks, record};

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
    pub lookaside: Lookaside,
    pub covers: Covers,
    /// For one barrier, one begin of a capture, or one wait that may join a capture at a time.
    pub gate: Mutex<()>,
    pub events: Events,
    pub last_barrier: LastBarrier,
    pub tagged: Tagged,
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
    pub unseen: Unseen,
    /// Requests that failed for lack of memory.
    pub ooms_count: AtomicU64,
    /// Work in it seems to have failed for good (`lost.rs`).
    pub lost: AtomicBool,
    /// How many contexts there were before this one, and, once it is gone, at its end.
    pub met: usize,
    gone: AtomicUsize,
    /// The statistics at its end.
    buried: OnceLock<Box<Stats>>,
    dead: AtomicBool,
    /// Shared by whoever is in it without the program's word, exclusive for whoever ends it.
    door: RwLock<()>,
    /// When the driver was asked to end it; 0: it was not.
    pub ending_ns: AtomicU64,
    pub links: Links,
}

static GROWING: Mutex<()> = Mutex::new(());

/// The calling thread's current context. Errors are the driver's own (`INVALID_CONTEXT`).
#[inline]
pub fn current() -> Result<&'static Context, CuResult> {
    let mut id = 0;
    match api::ctx_get_id(0, &mut id) {
        SUCCESS => find(id).map_or_else(|| adopt(0, id), Ok),
        code => Err(code),
    }
}

/// The context with this handle.
pub fn of_handle(handle: ContextHandle) -> Result<&'static Context, CuResult> {
    let mut id = 0;
    match api::ctx_get_id(handle, &mut id) {
        SUCCESS => find(id).map_or_else(|| adopt(handle, id), Ok),
        code => Err(code),
    }
}

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

impl Home {
    /// Of a context that is there, on this device.
    fn of(handle: ContextHandle, id: u64, device: i32, explicit: bool) -> Home {
        let own = Home { handle, id };
        let green = LEDGER.plain.has_shown(Agent::GreenContext) && !explicit;
        let mut primary = 0;
        if !green
            || !rule_holds(Rule::GreenIsEnteredByPrimary)
            || api::device_primary_ctx_retain(&mut primary, device) != SUCCESS
        {
            return own;
        }
        let id = id_of(primary);
        api::device_primary_ctx_release(device);
        id.map_or(own, |id| Home { handle: primary, id })
    }
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
    pub fn buried(&self) -> Option<&Stats> {
        self.buried.get().map(|stats| &**stats)
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
        let open = self.door.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        Some(open).filter(|_| !self.is_dead())
    }

    /// Call before the driver is asked to end it, and hold until that is in the books.
    pub fn shut(&self) -> RwLockWriteGuard<'_, ()> {
        self.door.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// How many contexts the process had met when this one was gone.
    pub fn gone(&self) -> usize {
        self.gone.load(Ordering::Relaxed)
    }

    /// The driver destroyed the context: its memory and events are gone. Who comes second waits.
    pub fn bury(&'static self) {
        if rule_holds(Rule::ContextDeathForgets) {
            self.buried.get_or_init(|| Box::new(self.bury_once()));
        }
    }

    fn bury_once(&'static self) -> Stats {
        self.dead.store(true, Ordering::Release);
        registry::remove_from_alive(self);
        self.events.bury();
        self.last_barrier.forget();
        crate::pagemap::remove_context(self);
        imports::context_ended(self.id);
        memory_hooks::context_ended(self.id);
        pending::context_ended(self.id);
        let fresh = empty_allocator(self.device, self.device_bytes);
        let mut allocator = lock(&self.allocator);
        // Not `take_back`: the addresses may be another context's by now.
        self.lookaside.empty(|held| {
            self.unseen.left_list(&allocator, held.id());
            allocator.free(held.id(), Ready::Anyone);
        });
        let ending_ns = self.ending_ns.load(Ordering::Relaxed);
        let ended_ns = if ending_ns == 0 { crate::clock::now_ns() } else { ending_ns };
        self.recorder.buried(&mut allocator, ended_ns);
        record::foreign::context_ended(self.id);
        let mut stats = reading::stats_locked(self, &allocator, Patience::Waits);
        stats.end();
        self.gone.store(registry::count(), Ordering::Relaxed);
        let buried = core::mem::replace(&mut *allocator, fresh);
        let plain = buried.segments().filter(|segment| !segment.expandable);
        limits::context_ended(self, plain.map(|segment| segment.bytes).sum());
        drop(allocator);
        self.lookaside.bury();
        arenas::bury(self);
        stats
    }
}

/// First sight of a context. `handle` is 0 for the current one.
#[cold]
fn adopt(handle: ContextHandle, id: u64) -> Result<&'static Context, CuResult> {
    let context = enlist(handle, id)?;
    // Behind the lock: this looks functions up, and the loader's lock may be held by a thread that
    // wants ours, in the constructor of a library that allocates.
    triggers::start();
    lifetime::context_met();
    Ok(context)
}

fn enlist(handle: ContextHandle, id: u64) -> Result<&'static Context, CuResult> {
    let _growing = lock(&GROWING);
    if let Some(context) = find(id) {
        return Ok(context);
    }
    let mut handle = handle;
    if handle == 0 {
        let code = api::ctx_get_current(&mut handle);
        if code != SUCCESS {
            return Err(code);
        }
    }
    // A handle names one context at a time: whoever had it has ended, perhaps while another thread
    // made the primary context anew before we could ask.
    all().filter(|context| context.handle == handle).for_each(Context::bury);
    let context = Box::leak(Box::new(new(handle, id)));
    registry::push(context);
    Ok(context)
}

fn new(handle: ContextHandle, id: u64) -> Context {
    let mut context = Context {
        id,
        handle,
        home: Home { handle, id },
        device: 0,
        device_bytes: u64::MAX,
        explicit: observers::is_explicit(id),
        allocator: Mutex::new(Allocator::new(Policy::default())),
        growth: Mutex::new(()),
        lookaside: Lookaside::default(),
        covers: Covers::new(),
        gate: Mutex::new(()),
        events: Events::default(),
        last_barrier: LastBarrier::default(),
        tagged: Tagged::default(),
        recorder: Recorder::default(),
        sentinels: Sentinels::default(),
        pool_numbers: PoolNumbers::default(),
        contents_stream: ContentsStream::default(),
        release_streams: ReleaseStreams::default(),
        arenas: Arenas::default(),
        idle: Idle::default(),
        chunk_request_max: OnceLock::new(),
        frees_in_progress: AtomicU32::new(0),
        real_frees: AtomicU32::new(0),
        allocated_bytes_peak: AtomicU64::new(0),
        core_allocated_bytes: AtomicU64::new(0),
        unseen: Unseen::default(),
        ooms_count: AtomicU64::new(0),
        lost: AtomicBool::new(false),
        met: registry::count(),
        gone: AtomicUsize::new(usize::MAX),
        buried: OnceLock::new(),
        dead: AtomicBool::new(false),
        door: RwLock::new(()),
        ending_ns: AtomicU64::new(0),
        links: Links::default(),
    };
    let mut device = 0;
    if context.enter(&mut || api::ctx_get_device(&mut device)) == SUCCESS {
        context.device = device;
        context.home = Home::of(handle, id, device, context.explicit);
    }
    let mut bytes = 0;
    if api::device_total_mem(&mut bytes, context.device) == SUCCESS {
        context.device_bytes = bytes as u64;
    }
    let mut allocator = empty_allocator(context.device, context.device_bytes);
    if record::is_on_for(context.device) {
        context.recorder.begin(&mut allocator, context.device, |_| 0);
    }
    context.allocator = Mutex::new(allocator);
    context
}

/// Garbage is collected above a share of the limit, or of the whole device; PyTorch wants a fraction
/// to be set first.
fn empty_allocator(device: i32, device_bytes: u64) -> Allocator {
    let mut allocator = Allocator::new(config::get().policy.clone());
    allocator.set_limit(limits::collected_above(device, device_bytes));
    if exports::any() {
        allocator.keep_large_whole();
    }
    allocator
}
