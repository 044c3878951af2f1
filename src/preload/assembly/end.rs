//! Takes down everything kept for a context once the driver has destroyed it.

use std::sync::atomic::Ordering;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{ReuseCondition, Stats};
use cachealloc_history::StackId;

use crate::assembly::creation;
use crate::assembly::reading;
use crate::cache::release::left_segments;
use crate::cache::{arenas, pinned_blocks};
use crate::driver_memory::{implicit_usage, limits, table};
use crate::ipc::imports;
use crate::lock::lock;
use crate::ordering::orphaned_barriers;
use crate::process::lock_timeout::LockWait;
use crate::state::contexts::{Context, NO_ID};
use crate::state::inflight_releases::InFlightRelease;
use crate::state::registry;
use crate::{clock, pagemap};

/// Ends a context that the driver has destroyed with its memory and events. A second call waits for
/// the first. `caller` is the stack of the call that destroyed it, or `NONE` if that is unknown.
pub(crate) fn destroyed(context: &'static Context, caller: StackId) {
    if rule_holds(Rule::ContextEndForgets) {
        context.final_stats.get_or_init(|| Box::new(destroy(context, caller)));
    }
}

fn destroy(context: &'static Context, caller: StackId) -> Stats {
    // Its memory is found nowhere until the limit and the device have it back.
    let holds = rule_holds(Rule::EndedIsInFlight);
    let _in_flight = holds.then(|| InFlightRelease::to(context.device, 1));
    context.living_id.store(NO_ID, Ordering::Release);
    registry::remove_from_alive(context);
    context.events.context_ended();
    context.last_barrier.forget();
    pagemap::remove_context(context);
    imports::context_ended(context.id);
    orphaned_barriers::context_ended(context.id);
    pinned_blocks::context_ended(context.id);
    left_segments::context_ended(context);
    let fresh = creation::empty_allocator(context.device, context.device_bytes);
    let mut allocator = lock(&context.allocator);
    // Not `take_back`: the addresses may belong to another context by now.
    context.thread_cache.empty(|cached| {
        context.correction.left_list(&allocator, cached.id());
        allocator.free(cached.id(), ReuseCondition::Everywhere);
    });
    let ending_ns = context.ending_ns.load(Ordering::Relaxed);
    let ended_ns = if ending_ns == 0 { clock::now_ns() } else { ending_ns };
    context.recorder.context_ended(&mut allocator, ended_ns, caller);
    table::context_ended(context.id, caller);
    implicit_usage::context_ended(context.id);
    let mut stats = reading::stats_locked(context, &mut allocator, LockWait::Blocking);
    stats.end();
    context.seen_at_end.store(registry::count(), Ordering::Relaxed);
    let old = core::mem::replace(&mut *allocator, fresh);
    let ordinary = old.segments().filter(|segment| !segment.expandable);
    limits::give_back(context.device, ordinary.map(|segment| segment.bytes).sum());
    drop(allocator);
    context.thread_cache.context_ended();
    context.pool_attributes.context_ended();
    arenas::context_ended(context);
    stats
}
