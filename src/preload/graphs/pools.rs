//! Private pools: created for a capture, and ordinary memory once its graph has ended
//! (`pool_life`). The driver reports that from its own thread, which must not call the driver: so
//! the callback pushes a notice.

use core::ffi::c_void;
use core::ptr::null_mut;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Address, Allocator, IdleEpoch, PrivatePool, ReuseCondition};
use cachealloc_history::StackId;

use crate::cache::blocks;
use crate::driver::api;
use crate::driver::sys::CuError;
use crate::graphs::destruction_fence;
use crate::graphs::node_references::ReferencedRanges;
use crate::lists::intrusive_stack::{IntrusiveStack, Linked};
use crate::lock::lock;
use crate::log;
use crate::pagemap;
use crate::pagemap::{LiveBlock, Place};
use crate::record::recorder::Freed;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::events::EventRef;

/// Notice that the driver passes back when the graph has ended.
struct DestroyNotice {
    pool: PrivatePool,
    context: &'static Context,
    next: *mut DestroyNotice,
}

impl Linked for DestroyNotice {
    unsafe fn next(this: *mut DestroyNotice) -> *mut *mut DestroyNotice {
        // SAFETY: valid, as the caller guarantees.
        unsafe { &raw mut (*this).next }
    }
}

/// Notices that have not been read yet.
static LEFT: IntrusiveStack<DestroyNotice> = IntrusiveStack::new();
/// Number of pools whose graph lives, as far as notices were read.
static OPEN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Blocks that are freed when their pool ends.
static FREED_AT_END: Mutex<Vec<(PrivatePool, u64)>> = Mutex::new(Vec::new());

/// Pools of which streams outside of the capture used a block until these events. An event of the
/// pool's own context covers no stream of another one, and none is recorded while a stream
/// captures.
static USED_UNTIL: Mutex<Vec<(PrivatePool, EventRef)>> = Mutex::new(Vec::new());

/// Opens a pool for a capture that began at this epoch of the context. `keep` makes the capture's
/// graph call that function with that notice when the graph ends; it returns `false` if that is
/// impossible.
pub(crate) fn open(
    context: &'static Context,
    begun: IdleEpoch,
    keep: impl Fn(usize, extern "C" fn(*mut c_void)) -> bool,
) -> PrivatePool {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let pool = PrivatePool(NEXT.fetch_add(1, Ordering::Relaxed));
    lock(&context.allocator).open_pool(pool, begun);
    OPEN_COUNT.fetch_add(1, Ordering::Relaxed);
    let note = Box::into_raw(Box::new(DestroyNotice { pool, context, next: null_mut() }));
    if !api::relaxed(|| keep(note as usize, graph_is_gone)) {
        // The driver may have called already: the notice does not belong to this function any more.
        log::info(format_args!("cannot attach to a graph: memory of its capture stays reserved"));
    }
    pool
}

/// Called by the driver, perhaps in a separate thread.
extern "C" fn graph_is_gone(note: *mut c_void) {
    // SAFETY: made by `open`, and passed to the driver, which passes it back once.
    unsafe { LEFT.push(note.cast()) };
}

/// Notes that a graph or an executable was destroyed; if it keeps memory, a notice is due.
pub(crate) fn note_graph_ended() {
    if OPEN_COUNT.load(Ordering::Relaxed) != 0 {
        destruction_fence::graph_ended();
    }
}

/// Returns whether a graph may keep memory of this device.
pub(crate) fn keep_memory(device: i32) -> bool {
    let keeps = |context: &Context| lock(&context.allocator).has_private_memory();
    OPEN_COUNT.load(Ordering::Relaxed) != 0
        && contexts::all().any(|context| context.device == device && keeps(context))
}

pub(crate) fn has_notes() -> bool {
    !LEFT.is_empty()
}

/// Reads all notices pushed so far.
pub(crate) fn take_notes(mut each: impl FnMut(PrivatePool, &'static Context)) {
    let mut note = LEFT.take_all();
    while !note.is_null() {
        // SAFETY: made by `open`, pushed once, and taken out of the list by this thread alone.
        let DestroyNotice { pool, context, next } = *unsafe { Box::from_raw(note) };
        OPEN_COUNT.fetch_sub(1, Ordering::Relaxed);
        each(pool, context);
        note = next;
    }
}

/// Returns whether some block of the pool is freed only when it ends.
pub(crate) fn has_put_off(pool: PrivatePool) -> bool {
    lock(&FREED_AT_END).iter().any(|(of, _)| *of == pool)
}

/// Notes that work outside of its capture uses memory of the pool until this event.
pub(crate) fn note_use_until(pool: PrivatePool, until: EventRef) {
    lock(&USED_UNTIL).push((pool, until));
}

/// Returns whether noted work outside of its capture may still use memory of the pool.
pub(crate) fn is_still_used(pool: PrivatePool) -> bool {
    let event_of = |used: &(PrivatePool, EventRef)| (used.0 == pool).then(|| used.1.clone());
    let events: Vec<EventRef> = lock(&USED_UNTIL).iter().filter_map(event_of).collect();
    let used = events.iter().any(|event| api::relaxed(|| event.query()) == Err(CuError::NOT_READY));
    if !used && !events.is_empty() {
        lock(&USED_UNTIL).retain(|(of, _)| *of != pool);
    }
    used && rule_holds(Rule::PoolEndsAfterNotedUses)
}

/// Frees the block at this address when the pool ends; see Note [Memory that comes back].
pub(crate) fn free_at_end(pool: PrivatePool, address: u64) {
    let mut freed = lock(&FREED_AT_END);
    if !freed.contains(&(pool, address)) {
        freed.push((pool, address));
    }
}

/// Makes the memory of the pool ordinary memory.
pub(crate) fn close(context: &'static Context, pool: PrivatePool) {
    let mut freed = lock(&FREED_AT_END);
    let here: Vec<u64> = freed.iter().filter(|(of, _)| *of == pool).map(|(_, at)| *at).collect();
    freed.retain(|(of, _)| *of != pool);
    drop(freed);
    let mut allocator = lock(&context.allocator);
    allocator.end_pool(pool);
    let addresses = allocator.addresses_of(pool);
    for address in here {
        if let Place::Block(block) = pagemap::place(address)
            && block.claim()
        {
            let LiveBlock { block, .. } = block;
            let (_, requested_bytes) = allocator.requested(block);
            let freed = Freed { block, address, requested_bytes, stack: StackId::NONE };
            blocks::free(context, &mut allocator, freed, ReuseCondition::Everywhere);
        }
    }
    allocator.close_pool(pool);
    opened(context, &mut allocator, &addresses);
}

/// Makes memory of a pool whose capture has ended ordinary memory: memory that no node of its graph
/// references, and memory that the program still holds if that leaves with the capture.
pub(crate) fn open_rest(
    context: &'static Context,
    pool: PrivatePool,
    names: &ReferencedRanges,
    held_leaves: bool,
) {
    let mut allocator = lock(&context.allocator);
    let held = if held_leaves { allocator.held_of(pool).collect() } else { BTreeSet::new() };
    let uses = |begin: Address, end: Address| {
        names.overlap(begin.0, end.0) && !held.contains(&(begin, end))
    };
    let addresses = allocator.addresses_of(pool);
    allocator.open_rest(pool, uses);
    opened(context, &mut allocator, &addresses);
}

/// Notes that memory of a pool around these addresses has become ordinary memory.
pub(crate) fn opened(context: &Context, allocator: &mut Allocator, addresses: &[Address]) {
    for address in addresses {
        let extent = pagemap::extent_of(address.0);
        if let Some(extent) = extent.filter(|extent| extent.is_private()) {
            let (begin, end) = (Address(extent.base()), Address(extent.base() + extent.bytes()));
            extent.note_private(allocator.is_anywhere_private(begin, end));
        }
    }
    context.recorder.completed(allocator);
}
