//! Memory for captures: serves `cuMemAlloc` and `cuMemFree` in a capture, which end it on the plain
//! driver.
//!
//! Note [Captured memory]. Memory given to a capture must be safe twice: now, because the program
//! may use it at once, outside of the capture; and in every launch, which runs after whatever was
//! ordered before it.
//!
//! Now: it is fresh from the driver, or a segment that was free for any request and so is ordered
//! after the barrier of its last free. Or it was freed in this capture by a free that has waited
//! (`native_wait`), as a free in a relaxed capture does on the plain driver.
//!
//! In every launch: the segment is reserved for the capture until the graph has ended
//! (`core::private`), so a launch meets only work of this graph. A launch of a graph waits for the
//! previous one; inside a launch the graph orders a later user after the earlier ones, or the block
//! waits (`core::order::reuse`). Work from before the segment joined the capture is ordered before
//! a barrier that every launch is ordered after, as all work of the context is.
//!
//! Not all memory stays reserved. Where the plain driver allocates at once
//! (`OpenCapture::lets_allocate`), memory that was freed and that no node references
//! (`node_references`) is ordinary memory: no launch uses it, and its free has waited, or waits for
//! a stream as any other. Memory of a call that would have ended the capture on the plain driver
//! counts as referenced from its allocation on. Where the plain driver makes all calls of a capture
//! at once, memory that the program holds at the end of the capture is ordinary memory, referenced
//! or not: a free takes it away from the graph.
//!
//! The library asks the driver as for any miss, in relaxed mode, which harms no capture (measured).
//! If the driver has no memory, the cache gives a part of an ordinary segment. A request that
//! remains fails, even if the driver's own allocation might have succeeded: freeing that would take
//! the real `cuMemFree`, which ends the capture.
//!
//! Note [Memory that comes back]. Each launch of a graph makes a separate allocation for a captured
//! `cuMemAllocAsync`, which the program may free after the launch. With `graph_pool` it is the same
//! block each time, and the next launch uses it whether or not it was freed. So such a free is
//! recorded, and done when the graph has ended.

use std::sync::Arc;

use cachealloc_core::order::reuse::Scope;
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{
    Address, Allocation, Allocator, PrivatePool, Request, Requester, ReuseCondition, StreamId,
};

use crate::cache::blocks;
use crate::cache::blocks::Call;
use crate::cache::miss::miss_or_else;
use crate::config;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult, StreamHandle};
use crate::graphs::captured_work::{Member, Work};
use crate::graphs::open_captures;
use crate::graphs::open_captures::OpenCapture;
use crate::graphs::pools;
use crate::lock::lock;
use crate::pagemap;
use crate::pagemap::{Kind, LiveBlock};
use crate::record::capture as stacks;
use crate::record::recorder::Freed;
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::thread::Thread;

/// Serves `cuMemAlloc` during a capture. Returns `None` if the call does not belong to a capture.
#[cold]
pub(crate) fn allocate(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
) -> Option<CuResult<u64>> {
    let capture = open_captures::of_call(thread, context)?;
    serve(thread, &capture, context, bytes, None)
}

/// Serves `cuMemAllocAsync` on a capturing stream.
#[cold]
pub(crate) fn allocate_on(
    thread: &Thread,
    context: &'static Context,
    stream: StreamHandle,
    bytes: u64,
) -> Option<CuResult<u64>> {
    let (capture, member) = open_captures::of_stream(stream)?;
    serve(thread, &capture, context, bytes, Some(member))
}

/// Work that the program has ordered the free of a block after.
#[derive(Clone, Copy)]
pub(crate) enum Behind {
    /// Everything captured before it; and the host has waited for everything not captured.
    Everything,
    /// The captured work of a stream; no uncaptured work may have used the block.
    Stream(StreamHandle),
    /// Work outside of the capture, which no launch is ordered after.
    Other,
}

/// Frees a block of a private pool. `ready` is what the block waits for if the pool has ended. If
/// work outside of the capture used it, that has completed when the event `until` is.
#[cold]
pub(crate) fn free(
    thread: &Thread,
    context: &'static Context,
    freed: Freed,
    ready: ReuseCondition,
    behind: Behind,
    until: Option<EventRef>,
) {
    let pool = lock(&context.allocator).private_pool_of(freed.block);
    let capture = pool.and_then(open_captures::of_pool);
    let scope = capture.as_ref().and_then(|capture| of_free(thread, context, capture, behind));
    if let Some(capture) = capture.as_ref().filter(|capture| !capture.lets_allocate(thread)) {
        capture.goes_beyond_native();
    }
    let mut work = capture.as_ref().and_then(|capture| capture.enter());
    let point =
        work.as_mut().and_then(|work| work.allocation_points.allocated.remove(&freed.address));
    let names = capture.as_ref().filter(|_| work.is_some()).map(|capture| lock(&capture.names));
    let mut allocator = lock(&context.allocator);
    let bytes = allocator.bytes(freed.block);
    let unused = names.as_ref().is_some_and(|names| {
        let over = ready == ReuseCondition::Everywhere && matches!(behind, Behind::Everything);
        let named = names.overlap(freed.address, freed.address + bytes);
        over && !named && rule_holds(Rule::UnreferencedIsFree)
    });
    if let Some(names) = names.filter(|_| unused) {
        blocks::free_unused(context, &mut allocator, freed);
        allocator.open_unused(Address(freed.address), |begin, end| names.overlap(begin.0, end.0));
        return pools::opened(context, &mut allocator, &[Address(freed.address)]);
    }
    blocks::free(context, &mut allocator, freed, ready);
    if let (Some(pool), Some(until)) = (pool, until)
        && allocator.waits_with_pool_until_events(freed.block)
    {
        pools::note_use_until(pool, until);
    }
    drop(allocator);
    if let (Some(work), Some((point, home)), Some(scope)) = (&mut work, point, scope) {
        let number = work.allocation_points.waits(context, freed.block);
        work.look(|look| look.freed(number, &point, scope, home));
    }
}

/// Returns whether a capture or a graph may use this block. Other blocks of the segment may be
/// ordinary.
#[inline]
pub(crate) fn have(block: &LiveBlock) -> bool {
    let pool = || lock(&block.context().allocator).private_pool_of(block.block);
    block.extent.is_private() && (!rule_holds(Rule::PrivateByBlock) || pool().is_some())
}

/// Returns whether a capture or a graph keeps this block, which is about to be freed on a stream
/// that does not capture. The block leaves its pool if it may.
pub(crate) fn keep(block: &LiveBlock) -> bool {
    have(block) && !leaves(block.context(), block)
}

/// Detaches the block from its pool if no node references it by then: it becomes ordinary memory,
/// and waits for that stream alone.
#[cold]
fn leaves(context: &'static Context, block: &LiveBlock) -> bool {
    let pool = lock(&context.allocator).private_pool_of(block.block);
    let Some(capture) = pool.and_then(open_captures::of_pool) else { return false };
    let Some(mut work) = capture.enter() else { return false };
    let names = lock(&capture.names);
    let named = names.overlap(block.address, block.address + block.bytes);
    if named || !rule_holds(Rule::UnreferencedLeavesPool) {
        return false;
    }
    work.allocation_points.allocated.remove(&block.address);
    let mut allocator = lock(&context.allocator);
    allocator.detach_from_pool(block.block, |begin, end| names.overlap(begin.0, end.0));
    pools::opened(context, &mut allocator, &[Address(block.address)]);
    true
}

/// Returns whether a free of this block has to wait for the end of its graph; see
/// Note [Memory that comes back].
#[inline]
pub(crate) fn comes_back(block: &LiveBlock) -> bool {
    block.kind == Kind::Stream && block.extent.is_private() && is_launched(block)
}

#[cold]
fn is_launched(block: &LiveBlock) -> bool {
    let pool = lock(&block.context().allocator).private_pool_of(block.block);
    let Some(pool) = pool.filter(|pool| open_captures::of_pool(*pool).is_none()) else {
        return false;
    };
    pools::free_at_end(pool, block.address);
    true
}

/// Returns the work that this free of a capture's block is ordered after, or `None` if the free is
/// not made in the capture.
fn of_free(
    thread: &Thread,
    context: &Context,
    capture: &Arc<OpenCapture>,
    behind: Behind,
) -> Option<Scope> {
    let (here, scope) = match behind {
        Behind::Stream(stream) => {
            let (here, member) = open_captures::of_stream(stream)?;
            (here, Scope::Stream(member.id))
        }
        Behind::Everything => (open_captures::of_call(thread, context)?, Scope::Everywhere),
        Behind::Other if rule_holds(Rule::OutsideFreeWaitsForPool) => return None,
        Behind::Other => (open_captures::of_call(thread, context)?, Scope::Everywhere),
    };
    Arc::ptr_eq(capture, &here).then_some(scope)
}

fn serve(
    thread: &Thread,
    capture: &OpenCapture,
    context: &'static Context,
    bytes: u64,
    member: Option<Member>,
) -> Option<CuResult<u64>> {
    let mut work = capture.enter()?;
    let pool = pool_by_now(capture, &mut work, context);
    let requester =
        member.map_or(Requester::Context, |member| Requester::Stream(StreamId(member.id)));
    let call = Call { requester, stream: 0, stack: stacks::of_allocation() };
    let with_zone = bytes.saturating_add(config::zone_bytes());
    let request = Request::in_pool(with_zone, requester, pool);
    let hit = take(context, call, |allocator| allocator.hit(&request));
    let (served, mut work) = match hit {
        Some(address) => (Ok(address), Some(work)),
        None => {
            let held = (!rule_holds(Rule::CaptureIsNotLockedInMiss)).then_some(work);
            let at_once = capture.lets_allocate(thread);
            let rest = || last_resort(capture, context, with_zone, call, at_once);
            let served = api::relaxed(|| miss_or_else(context, request, call, rest));
            (served, held.or_else(|| capture.enter()))
        }
    };
    if served == Err(CuError::OUT_OF_MEMORY) && work.is_none() {
        // The capture has ended meanwhile: ordinary memory serves the request as well.
        return None;
    }
    if let Ok(address) = served
        && let pagemap::Place::Block(block) = pagemap::place(address)
    {
        block.extent.note_private(true);
        // Memory that exists only as part of the graph on the plain driver belongs to the graph,
        // referenced or not.
        if member.is_some() || !capture.lets_allocate(thread) {
            capture.goes_beyond_native();
            lock(&capture.names).add(address, address + block.bytes);
        }
        match &mut work {
            Some(work) => remember(work, address, member.map(|member| member.id)),
            None => {
                capture.let_go();
                // The pool may be closed by now.
                let mut allocator = lock(&context.allocator);
                pools::opened(context, &mut allocator, &[Address(address)]);
            }
        }
    }
    Some(served)
}

/// Serves a request for which neither the driver nor the cache has a segment: by any free block of
/// the capture's memory, or by a part of a segment of the cache.
fn last_resort(
    capture: &OpenCapture,
    context: &'static Context,
    bytes: u64,
    call: Call,
    at_once: bool,
) -> Option<u64> {
    if !rule_holds(Rule::CaptureIsNotLockedInMiss) {
        return None;
    }
    let mut work = capture.enter()?;
    // Other threads may have freed some, or changed the graph.
    let pool = pool_by_now(capture, &mut work, context);
    let request = Request::in_pool(bytes, call.requester, pool);
    let own = |allocator: &mut Allocator| {
        let hit = allocator.hit(&request);
        hit.or_else(|| allocator.take_any(&request))
    };
    take(context, call, own).or_else(|| part_of_cache(capture, context, &request, call, at_once))
}

/// Hands out what `find` takes.
fn take(
    context: &'static Context,
    call: Call,
    find: impl FnOnce(&mut Allocator) -> Option<Allocation>,
) -> Option<u64> {
    let mut allocator = lock(&context.allocator);
    let found = find(&mut allocator)?;
    Some(blocks::hand_out(context, &mut allocator, found, call))
}

/// Takes a part of a segment when the driver has no memory, and the cache no whole segment. Memory
/// that was freed since the capture began is ordinary only if the plain driver makes the allocation
/// `at_once`.
fn part_of_cache(
    capture: &OpenCapture,
    context: &'static Context,
    request: &Request,
    call: Call,
    at_once: bool,
) -> Option<u64> {
    let names = lock(&capture.names);
    let named = |begin: Address, end: Address| match at_once {
        true => names.last_end(begin.0, end.0).map(Address),
        false => Some(Address(u64::MAX)),
    };
    take(context, call, |allocator| allocator.adopt_part(request, named))
}

/// Returns the pool that serves the capture in this context, with the blocks that the graph orders
/// by now.
fn pool_by_now(capture: &OpenCapture, work: &mut Work, context: &'static Context) -> PrivatePool {
    // First: it may turn out that the graph cannot be seen whole, and then another pool serves.
    let early = (!rule_holds(Rule::PoolAfterLook)).then(|| capture.pool(work, context));
    find_free(work);
    early.unwrap_or_else(|| capture.pool(work, context))
}

/// Returns to the pools the blocks that the graph orders by now.
fn find_free(work: &mut Work) {
    if work.reuse.waiting_count() == 0 {
        // Blocks found before have not been handed out yet.
        return work.note_unseen();
    }
    let Some(ready) = work.look(|look| look.ready(crate::driver::graphs::edges_into)) else {
        return;
    };
    for (number, scope) in ready {
        let stream = match scope {
            Scope::Stream(id) => Some(StreamId(id)),
            Scope::Everywhere => None,
        };
        let Some((context, block)) = work.allocation_points.waiting.remove(&number) else {
            continue;
        };
        let mut allocator = lock(&context.allocator);
        if allocator.waits_with_pool(block) {
            allocator.reuse(block, stream);
        }
        context.recorder.completed(&mut allocator);
    }
}

fn remember(work: &mut Work, address: u64, home: Option<u64>) {
    if let Some(point) = work.look(|look| look.allocation_point(home)) {
        work.allocation_points.allocated.insert(address, (point, home));
    }
}
