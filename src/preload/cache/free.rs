//! A free: claim the block, determine what the contract requires, do that, publish.
//!
//! The order is the contract (docs/ordering.md 2): a block is published only after the barrier's
//! wait was submitted. Another thread may take it the moment it is published.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cachealloc_core::ReuseCondition;
use cachealloc_core::order::{
    FreeInput, FreeState, Mode, Route, free_async_block_plainly, free_context_block,
};
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_history::StackId;

use crate::cache::{blocks, stream_frees};
use crate::config;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult, StreamHandle};
use crate::graphs::open_captures;
use crate::graphs::private_pools;
use crate::graphs::private_pools::Behind;
use crate::ipc::exported_blocks;
use crate::lock::lock;
use crate::ordering::barrier;
use crate::ordering::barrier::{FreeOrdering, Recorded, Refused};
use crate::ordering::native_wait::wait_natively;
use crate::ordering::{captures, pending};
use crate::pagemap;
use crate::pagemap::{Claimed, Kind, LiveBlock, Place};
use crate::record::capture;
use crate::state::barriers::LEDGER;
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::thread::Thread;
use crate::state::thread_cache::CacheInsert;
use crate::state::under_way::Begun;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::statistics::waits;
use crate::statistics::waits::Wait;
use crate::test_delay::test_delay;

/// Frees an address by `cuMemFree`. Returns `None` if the address is not the library's; then the
/// driver decides.
#[inline]
pub(crate) fn plainly(thread: &Thread, address: u64) -> Option<CuResult> {
    match claim(thread, address)? {
        Ok(block) => Some(claimed_plainly(thread, block)),
        Err(error) => Some(Err(error)),
    }
}

/// Frees a claimed block by `cuMemFree`.
#[inline]
pub(crate) fn claimed_plainly(thread: &Thread, block: LiveBlock) -> CuResult {
    Free::new(thread, block).plainly()
}

/// Next step for a claimed block.
pub(crate) enum Next {
    /// Nothing: the block is published.
    Done,
    /// Publish the block into the core.
    Core,
    /// Do what the block's route requires.
    Route,
}

/// Publishes a claimed block into the thread's list, if nothing else is to be done. Most frees end
/// here if nothing was submitted since the program last waited. `claimed_plainly` has the same
/// effect. This calls no hook and no driver function, and so needs no guard. Call it only where
/// frees are plain (`gate::frees_are_plain`).
#[inline(always)]
pub(crate) fn into_list(thread: &Thread, claimed: Claimed, address: u64) -> Next {
    let context = claimed.extent.context();
    let is_simple = LEDGER.tracked_is_over(&context.covers)
        && claimed.extent.may_list()
        && context.covers.pending().is_none();
    if !is_simple {
        return Next::Route;
    }
    match blocks::offer_to_list(thread, context, claimed, address) {
        CacheInsert::Cached => Next::Done,
        CacheInsert::SizeDisabled => Next::Core,
        CacheInsert::FullOrBusy => Next::Route,
    }
}

/// Takes the block from the program. Returns `None` if the address is in none of the library's
/// segments. Returns `Err` if the program holds no block that starts there, or another thread freed
/// it first.
#[inline(always)]
fn claim(thread: &Thread, address: u64) -> Option<CuResult<LiveBlock>> {
    match pagemap::place(address) {
        Place::Elsewhere => None,
        Place::Block(block) if block.claim() => Some(Ok(block)),
        Place::Inside | Place::Block(_) => Some(Err(refused(thread))),
    }
}

#[cold]
fn refused(thread: &Thread) -> CuError {
    thread.refused_inside_callback().unwrap_or(CuError::INVALID_VALUE)
}

/// Frees an address by `cuMemFreeAsync` on a stream that does not capture. Returns `None` if the
/// address is not the library's.
pub(crate) fn on_stream(thread: &Thread, address: u64, stream: StreamHandle) -> Option<CuResult> {
    // No driver call of this free would report the error.
    if let Some(error) = thread.refused_inside_callback() {
        return Some(Err(error));
    }
    let claimed = Free::claim(thread, address)?;
    Some(claimed.and_then(|free| {
        let of_default_pool = free.is_of_default_pool();
        let code = free.on_stream(stream);
        if code.is_ok() && of_default_pool {
            free.context.pool_attributes.freed_in_order(thread, free.block.requested_bytes);
        }
        code
    }))
}

/// Frees an address by `cuMemFreeAsync` in a capture, where the driver would have accepted it. The
/// block is not reused before a barrier that follows the end of the capture.
pub(crate) fn parked(thread: &Thread, address: u64) -> CuResult {
    match Free::claim(thread, address) {
        Some(Ok(free)) => free.park_for_barrier(),
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// Frees an address by `cuMemFreeAsync` on a capturing stream, if its block was given to that
/// stream's capture. Returns `None` for any other block.
pub(crate) fn in_capture(thread: &Thread, address: u64, stream: StreamHandle) -> Option<CuResult> {
    let Place::Block(block) = pagemap::place(address) else { return None };
    let pool = lock(&block.context().allocator).private_pool_of(block.block)?;
    let (capture, _) = open_captures::of_stream(stream)?;
    if private_pools::comes_back(&block) {
        return Some(Ok(()));
    }
    let here = open_captures::of_pool(pool).is_some_and(|own| Arc::ptr_eq(&own, &capture));
    if !here {
        return None;
    }
    let free = match Free::claim(thread, address)? {
        Ok(free) => free,
        Err(error) => return Some(Err(error)),
    };
    let behind = Behind::Stream(stream);
    lock(&capture.names).add(address, address + free.block.bytes);
    let ready = ReuseCondition::NextBarrier;
    private_pools::free(thread, free.context, free.freed(), ready, behind, None);
    Some(Ok(()))
}

/// Frees an address under the bypass: takes the block from the program and never reuses it. The
/// wait stays, because the program may rely on it.
pub(crate) fn without_reuse(address: u64) -> Option<CuResult> {
    match pagemap::place(address) {
        Place::Elsewhere => None,
        Place::Block(block) if block.claim() => Some(wait_natively(block.context(), Wait::Bypass)),
        Place::Inside | Place::Block(_) => Some(Err(CuError::INVALID_VALUE)),
    }
}

/// A free in progress. It has claimed the block.
pub(super) struct Free<'a> {
    pub(super) thread: &'a Thread,
    pub(super) context: &'static Context,
    pub(super) block: LiveBlock,
    pub(super) stack: StackId,
}

/// Counts a waiting free for as long as this value exists. An allocation that would otherwise fail
/// waits for it.
struct InProgress<'a> {
    count: &'a AtomicU32,
    _begun: Begun,
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        let in_progress = self.count.fetch_sub(1, Ordering::Release);
        debug_assert_ne!(in_progress, 0, "more waiting frees have ended than begun");
    }
}

impl<'a> Free<'a> {
    /// Starts the free of a claimed block.
    fn new(thread: &'a Thread, block: LiveBlock) -> Free<'a> {
        Free { thread, context: block.context(), block, stack: capture::of_free() }
    }

    fn claim(thread: &'a Thread, address: u64) -> Option<CuResult<Free<'a>>> {
        Some(claim(thread, address)?.map(|block| Free::new(thread, block)))
    }

    /// Returns whether the program regards the block as part of the device's default pool.
    #[inline]
    fn is_of_default_pool(&self) -> bool {
        self.block.kind == Kind::Stream && !self.is_private()
    }

    #[inline]
    pub(super) fn is_private(&self) -> bool {
        private_pools::have(&self.block)
    }

    #[inline(never)]
    fn plainly(self) -> CuResult {
        let of_default_pool = self.is_of_default_pool();
        let code = exported_blocks::after_free(self.context, of_default_pool, self.route());
        if code.is_ok() && of_default_pool {
            self.context.pool_attributes.freed_plainly(self.block.requested_bytes);
        }
        code
    }

    #[inline]
    fn route(&self) -> CuResult {
        let facts = facts(self.context);
        let route = match self.block.kind {
            Kind::Context => free_context_block(&facts),
            Kind::Stream if private_pools::comes_back(&self.block) => return self.put_off(),
            Kind::Stream => free_async_block_plainly(&facts),
        };
        match route {
            Route::ParkOnEvent if self.has_zone() && !self.copies_zone() => self.wait(Wait::Strict),
            Route::Publish => {
                pending::share_barrier(self.thread, self.context);
                self.publish();
                Ok(())
            }
            Route::Barrier => self.behind_barrier(),
            Route::Wait => self.wait(reason(&facts)),
            Route::WaitNatively => self.wait_natively(reason(&facts)),
            Route::ParkOnEvent => self.park_on_event(),
            Route::ParkForBarrier if self.block.kind == Kind::Stream => self.park_assumed(),
            Route::ParkForBarrier => self.park_for_barrier(),
        }
    }

    /// `behind_barrier` without `Rule::PublishAfterBarrier`.
    #[cold]
    fn publish_before_barrier(&self) -> CuResult {
        self.publish();
        test_delay(Rule::PublishAfterBarrier);
        drop(barrier::order(self.thread, self.context));
        Ok(())
    }

    /// Orders all later work after this free by a barrier, and publishes.
    fn behind_barrier(&self) -> CuResult {
        if !rule_holds(Rule::PublishAfterBarrier) {
            return self.publish_before_barrier();
        }
        let (number, event) = match barrier::order(self.thread, self.context) {
            Ok(FreeOrdering::OwnBarrier(recorded)) if recorded.wait_first => {
                return self.wait_for(&recorded, Wait::Shared);
            }
            Ok(FreeOrdering::OwnBarrier(recorded)) => (recorded.seen.number(), recorded.event),
            Ok(FreeOrdering::SharedBarrier { number, event, wait_first: true }) => {
                let known = rule_holds(Rule::SharedFreeIsInProgress);
                let _in_progress = known.then(|| self.in_progress());
                let code = waits::timed(Wait::Shared, || api::relaxed(|| event.synchronize()));
                if code.is_ok() {
                    self.context.covers.pending_barriers.complete(number);
                }
                return self.waited(code, Wait::Shared);
            }
            Ok(FreeOrdering::SharedBarrier { number, event, wait_first: false }) => (number, event),
            Err(refused) => return self.refused(refused),
        };
        pending::track(self.thread, self.context, number, event);
        self.publish();
        Ok(())
    }

    /// Waits on the host for all work of the context, and publishes.
    #[inline(never)]
    fn wait(&self, reason: Wait) -> CuResult {
        match barrier::record(self.thread, self.context) {
            Ok(recorded) => self.wait_for(&recorded, reason),
            Err(refused) => self.refused(refused),
        }
    }

    fn wait_for(&self, recorded: &Recorded, reason: Wait) -> CuResult {
        // Held until the block is published: a request that finds no memory waits for frees in
        // progress.
        let _in_progress = self.in_progress();
        let code = barrier::wait(self.context, recorded, reason);
        self.waited(code, reason)
    }

    /// Concludes a wait. If it failed for a reason that is not the context's, the failure proves
    /// nothing, so this waits with the driver's own free.
    fn waited(&self, code: CuResult, reason: Wait) -> CuResult {
        if code.err().is_none_or(CuError::is_returned_by_free) {
            self.conclude(code)
        } else {
            self.wait_natively(reason)
        }
    }

    /// Continues after the barrier was refused.
    fn refused(&self, refused: Refused) -> CuResult {
        match refused {
            Refused::Capturing => self.wait_natively(Wait::Capture),
            Refused::ContextBusy => self.wait_natively(Wait::BehindFree),
            Refused::Failed(error) if error.is_returned_by_free() => self.conclude(Err(error)),
            Refused::Failed(_) if !rule_holds(Rule::RefusedBarrierWaitsInDriver) => {
                self.conclude(Ok(()))
            }
            Refused::Failed(_) => self.wait_natively(Wait::BarrierFailed),
        }
    }

    fn wait_natively(&self, reason: Wait) -> CuResult {
        let _in_progress = self.in_progress();
        self.conclude(wait_natively(self.context, reason))
    }

    pub(super) fn conclude(&self, code: CuResult) -> CuResult {
        match code {
            Ok(()) => self.publish(),
            // In a host function of a stream, the driver's own free releases nothing either.
            Err(CuError::NOT_PERMITTED) if rule_holds(Rule::RefusedFreeKeepsBlock) => {
                self.block.give_back()
            }
            // The driver refused its own free, so the program may retry.
            Err(error) if !error.is_returned_by_free() => self.block.give_back(),
            // After a sticky error, the driver itself loses the memory with the context. Nothing is
            // published, so no memory that faulted work still touches is reused.
            _ => counters::count(Count::Quarantined),
        }
        code
    }

    fn park_on_event(&self) -> CuResult {
        match barrier::record(self.thread, self.context) {
            Ok(recorded) => {
                let (event, place) = self.behind_all(recorded);
                let ready = ReuseCondition::After { event: event.id() };
                let (context, event) = (self.context, (event, place));
                match self.block.kind {
                    Kind::Stream => {
                        stream_frees::free_assumed(context, self.freed(), ready, Some(event));
                    }
                    Kind::Context => {
                        stream_frees::free_plainly(context, self.freed(), ready, event);
                    }
                }
                Ok(())
            }
            Err(Refused::Capturing | Refused::ContextBusy) if self.block.kind == Kind::Stream => {
                self.park_assumed()
            }
            Err(Refused::Failed(CuError::NOT_PERMITTED)) => {
                self.conclude(Err(CuError::NOT_PERMITTED))
            }
            Err(Refused::ContextBusy) => self.wait_natively(Wait::BehindFree),
            Err(_) => self.wait_natively(Wait::Capture),
        }
    }

    pub(super) fn park_for_barrier(&self) -> CuResult {
        if self.is_private() {
            return self.park_with_pool(None);
        }
        stream_frees::free(self.context, self.freed(), ReuseCondition::NextBarrier, None);
        Ok(())
    }

    /// Frees a block that waits for its pool. If its user was a stream, that has completed when the
    /// event `until` is.
    pub(super) fn park_with_pool(&self, until: Option<EventRef>) -> CuResult {
        let Free { thread, context, .. } = *self;
        // Only captured work uses the memory of a captured `cuMemAllocAsync`. For all other memory,
        // treat this free as one on a separate stream.
        let captured = self.block.kind == Kind::Stream;
        let behind = if captured { Behind::Everything } else { Behind::Other };
        let ready = ReuseCondition::NextBarrier;
        private_pools::free(thread, context, self.freed(), ready, behind, until);
        Ok(())
    }

    /// Frees stream-ordered memory by `cuMemFree` when no event is available.
    fn park_assumed(&self) -> CuResult {
        if let Some(error) = self.thread.refused_inside_callback() {
            return self.conclude(Err(error));
        }
        if self.is_private() {
            return self.park_for_barrier();
        }
        stream_frees::free_assumed(self.context, self.freed(), ReuseCondition::NextBarrier, None);
        Ok(())
    }

    /// Counts the free as in progress. Returns `None` for a block of a private pool, which no other
    /// request can use: its free may wait for the capture, and the capture for the allocation.
    fn in_progress(&self) -> Option<InProgress<'static>> {
        if self.is_private() {
            return None;
        }
        let count = &self.context.frees_in_progress;
        count.fetch_add(1, Ordering::Acquire);
        Some(InProgress { count, _begun: self.context.frees_under_way.begin() })
    }
}

#[inline]
pub(super) fn facts(context: &Context) -> FreeState {
    let config = config::get();
    let situation = FreeInput {
        mode: config.free_mode,
        context_id: context.id,
        capturing: captures::any(),
        barrier_calls: api::has_context_barrier(),
        // Not known in advance: the driver's own calls report it by NOT_PERMITTED.
        in_driver_callback: false,
    };
    let mut facts = LEDGER.facts(&context.covers, situation);
    facts.ordered_quiet &= config.skip_barriers;
    facts.waited_quiet &= config.skip_barriers;
    facts
}

/// Returns the reason for which a free with these facts waits.
fn reason(facts: &FreeState) -> Wait {
    match facts {
        FreeState { capturing: true, .. } => Wait::Capture,
        FreeState { mode: Mode::Strict, .. } => Wait::Strict,
        FreeState { exclusive: false, .. } => Wait::Shared,
        _ => Wait::HostVisible,
    }
}
