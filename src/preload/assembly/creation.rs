//! Creates everything kept for a context when it is first seen.

use core::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Mutex, OnceLock, RwLock};

use cachealloc_core::order::{ContextCoverage, Observer, SyncedStreams};
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Allocator, Policy};

use crate::driver::api;
use crate::driver::hardware::Hardware;
use crate::driver::sys::ContextHandle;
use crate::driver_memory::limits;
use crate::lock::lock;
use crate::ordering::observers;
use crate::record::recorder::Recorder;
use crate::state::arenas::Arenas;
use crate::state::barriers::{LEDGER, LastBarrier, Sentinels};
use crate::state::contexts;
use crate::state::contexts::{Context, MemoryOwner};
use crate::state::correction::ThreadCacheCorrection;
use crate::state::events::Events;
use crate::state::red_zones::{OwnStreams, Zones};
use crate::state::registry;
use crate::state::registry::Links;
use crate::state::release::{Idle, ReleaseStreams};
use crate::state::stream_frees::StreamFrees;
use crate::state::under_way::UnderWay;
use crate::{config, heap, ipc, record};

/// Writes the fields of a struct one by one, in its final place. A forgotten field does not
/// compile.
macro_rules! in_place {
    ($place:ident: $type:ident { $($field:ident: $value:expr,)+ } and zeros in { $($zeros:ident,)+ }) => {{
        let _ = |whole: $type| { let $type { $($field: _,)+ $($zeros: _,)+ } = whole; };
        // SAFETY: `$place` is valid for writes, and each field lies in it.
        unsafe { $((&raw mut (*$place).$field).write($value);)+ }
    }};
}

/// Number of contexts for which memory is allocated at once, after the first. Allocated alone, each
/// takes up to two more pages: its alignment leaves them nearly empty.
const BATCH: usize = 8;

static SPARE: Mutex<&mut [MaybeUninit<Context>]> = Mutex::new(&mut []);

/// Returns zeros for a context. They lie in the heap, where a leak checker finds what the context
/// refers to.
fn place() -> *mut Context {
    let mut spare = lock(&SPARE);
    if spare.is_empty() {
        let count = if registry::count() == 0 { 1 } else { BATCH };
        let batch = Box::leak(Box::<[Context]>::new_zeroed_slice(count));
        // SAFETY: whole pages, of which all but the first context's are not used yet.
        batch[1..].iter().for_each(|unused| unsafe { heap::return_pages(unused) });
        *spare = batch;
    }
    let (first, rest) =
        core::mem::take(&mut *spare).split_first_mut().expect("a batch is not empty");
    *spare = rest;
    first.as_mut_ptr()
}

/// Creates the context in its final place, because it is larger than the stack of some threads. The
/// pages that it does not need after its end are returned then.
pub(crate) fn new(handle: ContextHandle, id: u64) -> &'static Context {
    let place = place();
    in_place!(place: Context {
        id: id,
        handle: handle,
        memory_owner: MemoryOwner { handle, id },
        device: 0,
        device_bytes: u64::MAX,
        hardware: Hardware::default(),
        explicit: observers::is_explicit(id),
        allocator: Mutex::new(Allocator::new(Policy::default())),
        growth_lock: Mutex::new(()),
        covers: ContextCoverage::new(),
        barrier_lock: Mutex::new(SyncedStreams::new()),
        events: Events::default(),
        last_barrier: LastBarrier::default(),
        stream_frees: StreamFrees::default(),
        recorder: Recorder::default(),
        sentinels: Sentinels::default(),
        own_streams: OwnStreams::default(),
        zones: Zones::default(),
        release_streams: ReleaseStreams::default(),
        arenas: Arenas::default(),
        idle: Idle::default(),
        chunk_request_max: OnceLock::new(),
        frees_in_progress: AtomicU32::new(0),
        frees_under_way: UnderWay::new(),
        real_frees: AtomicU32::new(0),
        allocated_bytes_peak: AtomicU64::new(0),
        core_allocated_bytes: AtomicU64::new(0),
        correction: ThreadCacheCorrection::default(),
        ooms_count: AtomicU64::new(0),
        has_sticky_error: AtomicBool::new(false),
        seen_before: registry::count(),
        seen_at_end: AtomicUsize::new(usize::MAX),
        final_stats: OnceLock::new(),
        living_id: AtomicU64::new(id),
        lifetime_lock: RwLock::new(()),
        is_in_doubt: AtomicBool::new(false),
        waiting: AtomicU32::new(0),
        ending_ns: AtomicU64::new(0),
        links: Links::default(),
    } and zeros in { thread_cache, pool_attributes, });
    // SAFETY: every field is written, or valid as zeros; no other thread knows it.
    let context = unsafe { &mut *place };
    context.thread_cache.begin();
    begin(context);
    context
}

#[inline(never)]
fn begin(context: &mut Context) {
    if let Ok(device) = context.enter(api::ctx_get_device) {
        context.device = device;
        context.memory_owner =
            MemoryOwner::of(context.handle, context.id, device, context.explicit);
    }
    if let Ok(bytes) = api::device_total_mem(context.device) {
        context.device_bytes = bytes as u64;
    }
    context.hardware = Hardware::of(context.device);
    let mut allocator = empty_allocator(context.device, context.device_bytes);
    if record::is_on_for(context.device) {
        context.recorder.begin(&mut allocator, context.device, |_| 0);
    }
    context.allocator = Mutex::new(allocator);
}

/// Creates the allocator of a context. Garbage collection starts at a share of the limit or,
/// without one, of the device. PyTorch requires a memory fraction to be set first.
pub(crate) fn empty_allocator(device: i32, device_bytes: u64) -> Allocator {
    let mut allocator = Allocator::new(config::get().policy.clone());
    limits::tell(&mut allocator, device, device_bytes);
    if ipc::any_exported() {
        allocator.keep_large_whole();
    }
    allocator
}

impl MemoryOwner {
    /// Returns the owner of the memory of a living context on this device.
    fn of(handle: ContextHandle, id: u64, device: i32, explicit: bool) -> MemoryOwner {
        let own = MemoryOwner { handle, id };
        let green = LEDGER.exclusive.has_observed(Observer::GreenContext) && !explicit;
        if !green || !rule_holds(Rule::GreenIsEnteredByPrimary) {
            return own;
        }
        let Ok(primary) = api::device_primary_ctx_retain(device) else { return own };
        let id = contexts::id_of(primary);
        let _ = api::device_primary_ctx_release(device);
        id.map_or(own, |id| MemoryOwner { handle: primary, id })
    }
}
