//! Lifetime of a private pool: until its graph, and everything made from it, has ended.
//!
//! The graph keeps a user object for the library, and so does whatever is made from the graph:
//! clones, executables, graphs that have it as a child or as the body of a conditional node
//! (measured), launches in flight. An executable updated from another graph exchanges its objects
//! for those of that graph. When the last reference is dropped, the driver calls the library, from
//! the driver's own thread, which must not call the driver: so the callback pushes a notice.
//!
//! The next request for memory reads the notice. From then on frees into the pool are ordinary
//! frees. The launches have completed (unless an executable was updated), so if each free of a
//! block was ordered after all work with it, the pool's memory is ordinary memory. A free on a
//! stream was ordered after that stream's work: the memory is ordinary once the event recorded
//! there at the free is complete. Otherwise an event is recorded after all work so far; not during
//! a capture. The end of a graph makes no barrier and waits for nothing, as on the plain driver;
//! with a driver that is too old for events of a context it waits for the context.
//!
//! A capture that is invalidated destroys its graph, so it ends like any other. Without user
//! objects the pool is kept permanently: a graph that is launched must find its memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cachealloc_core::PrivatePool;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::graphs::{destruction_fence, open_captures, pools};
use crate::lock::lock;
use crate::ordering::{barrier, captures, native_wait};
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::thread;
use crate::state::under_way::Waiter;
use crate::statistics::waits::Wait;
use crate::test_delay::test_delay;

/// A pool whose graph has ended.
struct Ended {
    pool: PrivatePool,
    context: &'static Context,
    /// Event recorded after all work until the end was noticed.
    event: Option<EventRef>,
}

static ENDED: Mutex<Vec<Ended>> = Mutex::new(Vec::new());
static ENDED_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether an executable was ever updated.
static UPDATED: AtomicBool = AtomicBool::new(false);

/// Makes the memory of graphs that have ended ordinary memory. Never waits.
#[inline]
pub(crate) fn reap() {
    open_captures::let_go_dropped();
    if pools::has_notes() || ENDED_COUNT.load(Ordering::Relaxed) != 0 {
        reap_ended();
    }
}

/// Notes that a graph or an executable was destroyed.
pub(crate) fn graph_ended() {
    pools::note_graph_ended();
    reap();
}

/// Does what `reap` does, for a request that finds no memory: right after a graph was destroyed its
/// notice may not have arrived yet. Waits for no work except what a free would have waited for on
/// the plain driver. Call it after `stream_frees::wait_for_plain_frees`.
#[cold]
pub(crate) fn reap_late(context: &Context, waiter: Waiter) {
    destruction_fence::pass(context, waiter, || pools::keep_memory(context.device));
    // Another thread may have read the notice, and may not have made the memory ordinary yet. On an
    // old driver it may be waiting for work meanwhile, which this one must not do.
    if api::has_context_barrier() && rule_holds(Rule::ReapInProgressIsAwaited) {
        reap_ended();
    } else {
        reap();
    }
}

#[cold]
fn reap_ended() {
    let mut ended = lock(&ENDED);
    read_notes(&mut ended);
    // Longer than a request looks for memory.
    (0..50).for_each(|_| test_delay(Rule::ReapInProgressIsAwaited));
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
    /// Closes the pool if possible. Returns whether nothing is left to do for it.
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
        let over = over && !pools::is_still_used(self.pool);
        if over || !rule_holds(Rule::PoolEndsAfterEvent) {
            pools::close(self.context, self.pool);
            return true;
        }
        false
    }
}

/// Returns whether no work of the program can still use the pool's memory, now that the launches
/// have completed.
fn is_over(context: &Context, pool: PrivatePool) -> bool {
    let over = !UPDATED.load(Ordering::Relaxed) && rule_holds(Rule::WaitedPoolEndsAtOnce);
    over && !pools::has_put_off(pool) && lock(&context.allocator).is_over(pool)
}

/// Notes that an executable has changed its graph: its old objects may be dropped before a launch
/// with them has completed.
pub(crate) fn executable_updated() {
    UPDATED.store(true, Ordering::Relaxed);
}
