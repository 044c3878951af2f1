//! How long a private pool lives: until its graph, and all that was made from it, is gone.
//!
//! The graph keeps a user object for us, and so does whatever is made from the graph: clones,
//! executables, graphs that have it as a child or as the body of a conditional node (measured), launches
//! in flight. An executable updated from another graph exchanges its objects for those of that graph.
//! When the last reference goes, the driver calls us, from a thread of its own, which may call nothing
//! of the driver: so it leaves a note.
//!
//! The next request for memory reads the note. From then on frees into the pool are ordinary frees. The
//! launches are over (unless an executable was updated), so if each free of a block came behind all work
//! with it, the pool's memory is ordinary memory. Otherwise an event is recorded behind all work so far,
//! and the memory is ordinary once that is complete; not during a capture. Never a barrier and never a
//! wait: natively nothing waits here.
//!
//! A capture that dies destroys its graph, so it ends like any other. Without user objects the pool is
//! kept for ever: a graph that is launched must find its memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cachealloc_core::PrivatePool;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::graphs::{destruction_fence, pools};
use crate::lock::lock;
use crate::ordering::{barrier, captures, native_wait};
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::thread;
use crate::statistics::waits::Wait;

/// A pool whose graph is gone.
struct Ended {
    pool: PrivatePool,
    context: &'static Context,
    /// Behind all work until the end was noticed.
    event: Option<EventRef>,
}

static ENDED: Mutex<Vec<Ended>> = Mutex::new(Vec::new());
static ENDED_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether an executable was ever updated.
static UPDATED: AtomicBool = AtomicBool::new(false);

/// Makes the memory of graphs that are gone ordinary memory. Waits for nothing.
#[inline]
pub(crate) fn reap() {
    if pools::has_notes() || ENDED_COUNT.load(Ordering::Relaxed) != 0 {
        reap_ended();
    }
}

/// A graph or an executable was destroyed.
pub(crate) fn graph_ended() {
    pools::note_graph_ended();
    reap();
}

/// As `reap`, for a request that finds no memory: right after a graph was destroyed its note may still be
/// on its way. Waits for no work. `waited`: as for `destruction_fence::pass`.
#[cold]
pub(crate) fn reap_late(context: &Context, waited: bool) {
    destruction_fence::pass(context, waited, || pools::keep_memory(context.device));
    reap();
}

#[cold]
fn reap_ended() {
    let mut ended = lock(&ENDED);
    read_notes(&mut ended);
    ended.retain_mut(|ended| !ended.is_closed());
    ENDED_COUNT.store(ended.len(), Ordering::Relaxed);
}

fn read_notes(ended: &mut Vec<Ended>) {
    pools::take_notes(|pool, context| {
        lock(&context.allocator).end_pool(pool);
        ended.push(Ended { pool, context, event: None });
    });
}

impl Ended {
    /// Whether nothing is left to do for it.
    fn is_closed(&mut self) -> bool {
        if self.context.is_dead() {
            return true;
        }
        let over = match &self.event {
            Some(event) => api::relaxed(|| event.query()).is_ok(),
            None if is_over(self.context, self.pool) => true,
            None if api::has_context_barrier() => {
                let recorded = thread::with(|thread| barrier::record(thread, self.context));
                self.event = recorded.ok().map(|recorded| recorded.event);
                // A capture may have begun since.
                let over = |event: &EventRef| api::relaxed(|| event.query()).is_ok();
                self.event.as_ref().is_some_and(over)
            }
            // An old driver has only waits.
            None => {
                !captures::any()
                    && native_wait::wait_natively(self.context, Wait::BarrierFailed).is_ok()
            }
        };
        let over = over && !pools::is_used_elsewhere(self.pool);
        if over || !rule_holds(Rule::PoolEndsBehindEvent) {
            pools::close(self.context, self.pool);
            return true;
        }
        false
    }
}

/// Whether no work of the program can still use the pool's memory, now that the launches are over.
fn is_over(context: &Context, pool: PrivatePool) -> bool {
    let over = !UPDATED.load(Ordering::Relaxed) && rule_holds(Rule::WaitedPoolEndsAtOnce);
    over && !pools::has_put_off(pool) && lock(&context.allocator).is_over(pool)
}

/// An executable has changed its graph: its old objects may be gone before a launch with them is over.
pub(crate) fn executable_updated() {
    UPDATED.store(true, Ordering::Relaxed);
}
