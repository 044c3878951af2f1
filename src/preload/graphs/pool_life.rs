//! How long a private pool lives: until its graph, and all that was made from it, is gone.
//!
//! The graph keeps a user object for us, and so does whatever is made from the graph: clones, executables,
//! graphs that have it as a child or as the body of a conditional node (measured), launches in flight. An
//! executable that is updated from another graph exchanges its objects for those of that graph. When the
//! last reference goes, the driver calls us, from a thread of its own, where nothing of the driver may be
//! called: so a note is left.
//!
//! Whoever wants memory next finds the note. From then on frees into the pool are ordinary ones. The launches
//! are over (unless an executable was updated), so where each free of a block came behind all work with
//! it, the pool's memory is everybody's. Else an event behind all work so far is recorded, and it is once
//! that is complete: not while something captures. Never a barrier, and never a wait: natively nobody
//! waits here.
//!
//! A capture that dies takes its graph with it, so it ends like any other. Where there is no user object
//! the pool is kept for ever: a graph that is launched must find its memory.

use core::ffi::c_void;
use core::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Address, Allocator, IdleMark, PrivatePool};
use cachealloc_history::StackId;

use crate::cache::blocks;
use crate::clock::Instant;
use crate::contexts::Context;
use crate::contexts::events::EventRef;
use crate::driver::api;
use crate::driver::sys::SUCCESS;
use crate::graphs::names::Names;
use crate::lock::lock;
use crate::log;
use crate::ordering::{barrier, captures, settle};
use crate::pagemap::{self, LiveBlock, Place};
use crate::process::thread;
use crate::record::recorder::Freed;
use crate::statistics::waits::Wait;

/// What the driver hands back when the graph is gone.
struct Note {
    pool: PrivatePool,
    context: &'static Context,
    next: *mut Note,
}

/// A pool without a graph.
struct Ended {
    pool: PrivatePool,
    context: &'static Context,
    /// Behind all work until the end was noticed.
    event: Option<EventRef>,
}

/// The notes that nobody has read.
static LEFT: AtomicPtr<Note> = AtomicPtr::new(null_mut());
static ENDED: Mutex<Vec<Ended>> = Mutex::new(Vec::new());
/// Blocks that go when their pool ends.
static FREED_AT_END: Mutex<Vec<(PrivatePool, u64)>> = Mutex::new(Vec::new());
static ENDED_COUNT: AtomicUsize = AtomicUsize::new(0);
/// A graph was destroyed, and perhaps not all notes that come of it were left.
static GRAPH_ENDED: AtomicBool = AtomicBool::new(false);
/// Pools whose graph lives, as far as notes were read.
static OPEN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether an executable was ever updated.
static UPDATED: AtomicBool = AtomicBool::new(false);

/// A new pool for a capture, which began at this moment of the context. `keep`: has the capture's graph call
/// that function with that note when it is gone; false: it cannot.
pub fn open(
    context: &'static Context,
    begun: IdleMark,
    keep: impl Fn(usize, extern "C" fn(*mut c_void)) -> bool,
) -> PrivatePool {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let pool = PrivatePool(NEXT.fetch_add(1, Ordering::Relaxed));
    lock(&context.allocator).open_pool(pool, begun);
    OPEN_COUNT.fetch_add(1, Ordering::Relaxed);
    let note = Box::into_raw(Box::new(Note { pool, context, next: null_mut() }));
    if !api::relaxed(|| keep(note as usize, graph_is_gone)) {
        // Perhaps the driver has called us already: the note is not ours any more.
        log::info(format_args!("a graph keeps nothing: memory of its capture stays reserved"));
    }
    pool
}

/// Called by the driver, perhaps in a thread of its own.
extern "C" fn graph_is_gone(note: *mut c_void) {
    let note = note.cast::<Note>();
    let mut first = LEFT.load(Ordering::Relaxed);
    loop {
        // SAFETY: made by `open`, and handed to the driver, which hands it back once.
        unsafe { (*note).next = first };
        match LEFT.compare_exchange_weak(first, note, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// Gives everybody the memory of graphs that are gone. Waits for nothing.
#[inline]
pub fn reap() {
    if !LEFT.load(Ordering::Relaxed).is_null() || ENDED_COUNT.load(Ordering::Relaxed) != 0 {
        look();
    }
}

/// A graph or an executable was destroyed.
pub fn graph_ended() {
    if OPEN_COUNT.load(Ordering::Relaxed) != 0 {
        GRAPH_ENDED.store(true, Ordering::Relaxed);
    }
    reap();
}

/// As `reap`, for a request that finds no memory: right after a graph was destroyed its note is still on
/// its way. No work is waited for.
#[cold]
pub fn reap_late() {
    /// The driver's thread takes 41 us (measured) on a processor of its own; on a machine with more
    /// threads than processors it may get none for 100 ms. Paid only by a request that would fail, and
    /// once for each graph that something keeps.
    const NOTE_WAIT_MAX: Duration = Duration::from_millis(500);
    if GRAPH_ENDED.load(Ordering::Relaxed) {
        let begun = Instant::now();
        while LEFT.load(Ordering::Relaxed).is_null() && begun.elapsed() < NOTE_WAIT_MAX {
            crate::process::own_thread::sleep(Duration::from_micros(20));
        }
        if LEFT.load(Ordering::Relaxed).is_null() {
            GRAPH_ENDED.store(false, Ordering::Relaxed);
        }
    }
    reap();
}

#[cold]
fn look() {
    let mut ended = lock(&ENDED);
    read_notes(&mut ended);
    ended.retain_mut(|ended| !ended.is_closed());
    ENDED_COUNT.store(ended.len(), Ordering::Relaxed);
}

fn read_notes(ended: &mut Vec<Ended>) {
    let mut note = LEFT.swap(null_mut(), Ordering::Acquire);
    while !note.is_null() {
        // SAFETY: made by `open`, left once, and taken out of the list by this thread alone.
        let Note { pool, context, next } = *unsafe { Box::from_raw(note) };
        lock(&context.allocator).end_pool(pool);
        OPEN_COUNT.fetch_sub(1, Ordering::Relaxed);
        ended.push(Ended { pool, context, event: None });
        note = next;
    }
}

impl Ended {
    /// Whether nothing is left to do for it.
    fn is_closed(&mut self) -> bool {
        if self.context.is_dead() {
            return true;
        }
        let over = match &self.event {
            Some(event) => api::relaxed(|| event.query()) == SUCCESS,
            None if is_settled(self.context, self.pool) => true,
            None if api::has_context_barrier() => {
                let recorded = thread::with(|thread| barrier::record(thread, self.context));
                self.event = recorded.ok().map(|(event, _, _)| event);
                // Somebody may have begun a capture since.
                let over = |event: &EventRef| api::relaxed(|| event.query()) == SUCCESS;
                self.event.as_ref().is_some_and(over)
            }
            // An old driver has nothing but waits.
            None => {
                !captures::any() && settle::settle(self.context, Wait::BarrierFailed) == SUCCESS
            }
        };
        if over || !rule_holds(Rule::PoolEndsBehindEvent) {
            close(self.context, self.pool);
            return true;
        }
        false
    }
}

/// Whether nothing of the program's can still use the pool's memory, now that the launches are over.
fn is_settled(context: &Context, pool: PrivatePool) -> bool {
    let put_off = || lock(&FREED_AT_END).iter().any(|(of, _)| *of == pool);
    let over = !UPDATED.load(Ordering::Relaxed) && rule_holds(Rule::SettledPoolEndsAtOnce);
    over && !put_off() && lock(&context.allocator).is_settled(pool)
}

/// An executable has changed its graph: what it had may be gone before a launch with that is over.
pub fn executable_updated() {
    UPDATED.store(true, Ordering::Relaxed);
}

/// The block at this address is freed when the pool ends; see Note [Memory that comes back].
pub fn free_at_end(pool: PrivatePool, address: u64) {
    let mut freed = lock(&FREED_AT_END);
    if !freed.contains(&(pool, address)) {
        freed.push((pool, address));
    }
}

/// The memory of the pool is everybody's.
pub fn close(context: &'static Context, pool: PrivatePool) {
    let mut freed = lock(&FREED_AT_END);
    let here: Vec<u64> = freed.iter().filter(|(of, _)| *of == pool).map(|(_, at)| *at).collect();
    freed.retain(|(of, _)| *of != pool);
    drop(freed);
    let mut allocator = lock(&context.allocator);
    allocator.end_pool(pool);
    for address in here {
        if let Place::Block(block) = pagemap::place(address)
            && block.claim()
        {
            let LiveBlock { block, .. } = block;
            let (_, requested_bytes) = allocator.requested(block);
            let freed = Freed { block, address, requested_bytes, stack: StackId::NONE };
            context.recorder.freed(&mut allocator, freed);
            blocks::free_past_lists(context, &mut allocator, freed);
        }
    }
    allocator.close_pool(pool);
    opened(context, &mut allocator);
}

/// The capture of this pool has ended. What no node of its graph names is everybody's.
pub fn open_rest(context: &'static Context, pool: PrivatePool, names: &Names) {
    let mut allocator = lock(&context.allocator);
    allocator.open_rest(pool, |begin, end| names.overlap(begin.0, end.0));
    opened(context, &mut allocator);
}

/// Memory of a pool has become everybody's.
pub fn opened(context: &'static Context, allocator: &mut Allocator) {
    for segment in allocator.segments() {
        let extent = pagemap::extent_of(segment.base.0);
        if let Some(extent) = extent.filter(|extent| extent.is_private()) {
            let (begin, end) = (Address(extent.base()), Address(extent.base() + extent.bytes()));
            extent.note_private(allocator.is_anywhere_private(begin, end));
        }
    }
    blocks::note_allocated(context, allocator);
    context.recorder.completed(allocator);
}
