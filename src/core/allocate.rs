//! From a request to a block: best fit, and the stages of a miss. The core never calls out; it
//! returns the driver call it needs as a `Step`.
//!
//! Note [Pressure]. A program that fits on the plain driver should fit under the library. In the
//! driver a freed 60 GiB array leaves 60 GiB; here it leaves a free segment of 60 GiB. If the
//! program then asks for 40 GiB and gets a part of it, the other 20 GiB can be used only by
//! requests that fit in there: a later request for 30 GiB fails, though in the driver it fits. So
//! once memory is short, a large request no longer cuts into a whole free segment that is much
//! larger than itself (by `max_non_split_rounding_bytes`). It reserves its own segment, and if that
//! fails, the free segments are released first. While memory is plentiful, splitting is faster and
//! costs nothing.

pub(crate) mod plain;

use alloc::vec::Vec;

use crate::allocate::plain::PlainHit;
use crate::allocator::Allocator;
use crate::block::{Block, OutsideUse, State};
use crate::free_index::bins::{Bins, Rank};
use crate::policy::{BLOCK_BYTES_MIN, exact_block_bytes, is_small, own_segment_bytes};
use crate::request::{Request, Stage, Wanted};
use crate::rules::{Rule, rule_holds};
use crate::types::{Address, Allocation, BlockId, Mapping, Pool, Requester, Segment, Step};

impl Allocator {
    /// Tries to serve the request and returns the next step. Between two polls anything may happen
    /// to the allocator: other requests, frees, releases, barriers. A request of a capture gets no
    /// memory that the capture has used (Note [Polling for a capture] in private.rs).
    pub fn poll(&mut self, request: &mut Request) -> Step {
        if request.count_poll() {
            self.clock += 1;
        }
        if let Some(allocation) = request.arrived.take() {
            return Step::Done(allocation);
        }
        // A caller that polls without an answer has no segment to report.
        request.awaited_bytes = None;
        self.forget_arriving(request);
        let block_bytes = self.policy.block_bytes(request.requested_bytes);
        let served = !self.is_refused(request.private) && self.has_rows();
        let Some(block_bytes) = block_bytes.filter(|_| served) else {
            return self.out_of_memory();
        };
        let searches = request.private.is_none() || !rule_holds(Rule::PollTakesUnusedMemory);
        let found = if searches {
            let whole = self.keeps_whole(request, block_bytes);
            self.search(request.wanted(), block_bytes, whole)
        } else {
            None
        };
        match found {
            Some(allocation) => Step::Done(allocation),
            None => self.miss(request, block_bytes),
        }
    }

    /// Returns an existing block, or `None` if nothing has changed. For a caller that looks before
    /// it takes the lock under which it polls: a step of `poll` must never be dropped, the segments
    /// of a `Step::Release` have left the allocator.
    pub fn hit(&mut self, request: &Request) -> Option<Allocation> {
        let block_bytes = self.policy.block_bytes(request.requested_bytes)?;
        self.hit_wanted(request.wanted(), block_bytes)
    }

    /// Does the same as `hit`, for a request like `Request::new`. `block_bytes` is the policy's
    /// block size for it.
    #[inline(always)]
    pub fn hit_new(
        &mut self,
        requested_bytes: u64,
        block_bytes: u64,
        requester: Requester,
    ) -> Option<Allocation> {
        assert!(requested_bytes > 0, "a request for nothing has no block");
        debug_assert_eq!(self.policy.block_bytes(requested_bytes), Some(block_bytes));
        self.hit_wanted(Wanted { bytes: requested_bytes, requester, private: None }, block_bytes)
    }

    /// Does the same as `hit_new`, for a request of a context whose first choice is a plain block
    /// (plain.rs). Returns `None`, and changes nothing, if `hit_new` has to decide.
    #[inline(always)]
    pub fn hit_plain(&mut self, requested_bytes: u64, block_bytes: u64) -> Option<PlainHit> {
        debug_assert_eq!(self.policy.block_bytes(requested_bytes), Some(block_bytes));
        // Without sizes that are kept whole, each block that is large enough fits.
        let any_fits = self.policy.max_split_bytes.is_none();
        if !self.has_rows() || !any_fits || !rule_holds(Rule::ContextTakesUntaggedOnly) {
            return None;
        }
        if !is_small(block_bytes)
            && (self.keeps_whole_at(Stage::Search, block_bytes) || self.is_choosy(block_bytes))
        {
            return None;
        }
        let pool = self.policy.pool_of(block_bytes);
        let index = if pool == Pool::Small { &self.small } else { &self.large };
        let (&Rank { bytes, .. }, id) = index.everywhere().best(block_bytes)?;
        let taken = self.take_plain(id, pool, bytes, block_bytes, requested_bytes)?;
        self.clock += 1;
        Some(taken)
    }

    #[inline(always)]
    fn hit_wanted(&mut self, wanted: Wanted, block_bytes: u64) -> Option<Allocation> {
        if let Wanted { requester: Requester::Context, private: None, .. } = wanted
            && let Some(plain) = self.hit_plain(wanted.bytes, block_bytes)
        {
            return Some(self.allocation(plain, wanted.bytes));
        }
        if !self.has_rows() {
            return None;
        }
        let whole = self.keeps_whole_at(Stage::Search, block_bytes);
        let allocation = self.search(wanted, block_bytes, whole)?;
        self.clock += 1;
        Some(allocation)
    }

    /// Adds the segment requested by `Step::Reserve`, or a smaller one that serves the request as
    /// well. The request gets its block at once, so that no other request can take it before the
    /// next poll.
    pub fn reserved(&mut self, request: &mut Request, base: Address, bytes: u64) {
        let block_bytes = request.awaited_bytes.take().expect("the request asked for a segment");
        assert!(base.0.is_multiple_of(BLOCK_BYTES_MIN), "{base:?} is not aligned");
        assert!(bytes.is_multiple_of(BLOCK_BYTES_MIN), "{bytes} is not a number of blocks");
        assert!(bytes >= block_bytes, "{bytes} bytes arrived for {block_bytes}");
        if self.is_refused(request.private) {
            request.private = None;
        }
        let whole = self.keeps_whole(request, block_bytes);
        if !is_small(block_bytes) && !whole {
            self.count_avoided_split(bytes, block_bytes);
        }
        let id = self.insert_segment(base, bytes, self.policy.pool_of(block_bytes), request);
        request.arrived = Some(self.take(id, block_bytes, request.requested_bytes, whole));
    }

    /// Records that the driver has no memory for the segment requested by `Step::Reserve`.
    pub fn reserve_failed(&mut self, request: &mut Request) {
        debug_assert!(request.awaited_bytes.is_some(), "nothing was asked for: {request:?}");
        request.awaited_bytes = None;
        self.forget_arriving(request);
        self.note_refusal(request);
    }

    /// Returns an existing block. `whole` is the result of `keeps_whole`.
    #[inline(always)]
    pub(crate) fn search(
        &mut self,
        wanted: Wanted,
        block_bytes: u64,
        whole: bool,
    ) -> Option<Allocation> {
        if self.is_refused(wanted.private) {
            return None;
        }
        let Some((bytes, id)) = self.best_fit(wanted, block_bytes, whole) else {
            // A block that must have its own segment is not made of parts.
            let own = if whole {
                None
            } else {
                self.join_own(wanted.requester, wanted.private, block_bytes)
            };
            return own.map(|id| self.take(id, block_bytes, wanted.bytes, true));
        };
        let pool = self.policy.pool_of(block_bytes);
        if !whole && let Some(plain) = self.take_plain(id, pool, bytes, block_bytes, wanted.bytes) {
            if self.policy.is_oversize(plain.bytes) {
                self.counts.kept.oversize_allocations.increase(1);
            }
            return Some(self.allocation(plain, wanted.bytes));
        }
        self.remove_free(id);
        Some(self.take(id, block_bytes, wanted.bytes, whole))
    }

    /// The last resort: takes any block that is large enough, of either pool, though the policy
    /// would rather keep it. For a request of a capture the caller does this, as it does `hit`.
    #[cold]
    pub fn take_any(&mut self, request: &Request) -> Option<Allocation> {
        if self.is_refused(request.private) {
            return None;
        }
        let bytes = exact_block_bytes(request.requested_bytes);
        let pool = self.policy.pool_of(bytes);
        let other = if pool == Pool::Small { Pool::Large } else { Pool::Small };
        let stream = match request.requester {
            Requester::Stream(stream) => Some(stream),
            Requester::Context => None,
        };
        let found = |pool| self.index(pool, request.private).best(stream, bytes);
        let (_, id) = found(pool).or_else(|| found(other))?;
        self.remove_free(id);
        Some(self.take(id, bytes, request.requested_bytes, false))
    }

    /// Goes through the stages until one has a step for the caller.
    fn miss(&mut self, request: &mut Request, block_bytes: u64) -> Step {
        loop {
            let step = match request.next_stage() {
                Stage::Search => unreachable!("every poll begins with a search"),
                Stage::QueryEvents | Stage::QueryEventsAgain => {
                    self.has_tags().then_some(Step::QueryEvents)
                }
                Stage::CollectGarbage if request.private.is_some() => {
                    self.adopt(request, block_bytes).map(Step::Done)
                }
                Stage::CollectGarbage => release_step(self.collect_garbage()),
                Stage::Reserve | Stage::ReserveAfterUnmap | Stage::ReserveAfterOversize => {
                    self.reserve(request, block_bytes)
                }
                Stage::UnmapSome | Stage::UnmapAll if request.keeps_mapped => None,
                Stage::UnmapSome if request.private.is_some() => None,
                Stage::UnmapSome => {
                    let step = unmap_step(self.unmap_some(request, block_bytes));
                    if step.is_none() {
                        request.skip_to(Stage::ReserveAfterUnmap);
                    }
                    step
                }
                Stage::ReleaseOversize => {
                    let step = release_step(self.release_oversize(block_bytes));
                    if step.is_none() {
                        request.skip_to(Stage::ReserveAfterOversize);
                    }
                    step
                }
                Stage::ReleaseAll => release_step(self.release_free()),
                Stage::UnmapAll => unmap_step(self.unmap_free()),
                Stage::ReserveAfterRelease => {
                    self.counts.kept.num_alloc_retries += 1;
                    self.reserve(request, block_bytes)
                }
                Stage::ReserveExact => self.reserve_exact(request, block_bytes),
                Stage::TakeAny if request.private.is_some() => None,
                Stage::TakeAny => self.take_any(request).map(Step::Done),
                Stage::Order => self.order(request, block_bytes),
                Stage::OutOfMemory => Some(self.out_of_memory()),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    fn reserve(&mut self, request: &mut Request, block_bytes: u64) -> Option<Step> {
        if request.private.is_none()
            && let Some(step) = self.map(request, block_bytes)
        {
            return Some(step);
        }
        self.reserve_bytes(request, block_bytes, self.segment_bytes(request, block_bytes))
    }

    fn segment_bytes(&self, request: &Request, block_bytes: u64) -> u64 {
        let segment_bytes = match request.private {
            Some(_) => self.policy.private_segment_bytes(block_bytes),
            None => self.policy.segment_bytes(block_bytes),
        };
        match self.keeps_whole(request, block_bytes) {
            true => own_segment_bytes(block_bytes),
            false if self.is_better_alone(segment_bytes, block_bytes) => block_bytes,
            false => segment_bytes,
        }
    }

    /// The last attempt: reserves a segment for this request alone, without capacity for others. In
    /// the driver it would have got no more either.
    fn reserve_exact(&mut self, request: &mut Request, block_bytes: u64) -> Option<Step> {
        let exact_bytes = exact_block_bytes(request.requested_bytes);
        if request.private.is_none()
            && exact_bytes < block_bytes
            && let Some(step) = self.map(request, exact_bytes)
        {
            return Some(step);
        }
        if exact_bytes >= self.segment_bytes(request, block_bytes) {
            return None;
        }
        self.reserve_bytes(request, exact_bytes, exact_bytes)
    }

    fn reserve_bytes(
        &mut self,
        request: &mut Request,
        block_bytes: u64,
        segment_bytes: u64,
    ) -> Option<Step> {
        if self.limit_refuses(request, segment_bytes) {
            return None;
        }
        request.awaited_bytes = Some(block_bytes);
        Some(Step::Reserve { bytes: segment_bytes })
    }

    fn out_of_memory(&mut self) -> Step {
        self.counts.kept.num_ooms += 1;
        Step::OutOfMemory
    }

    /// Returns the block that serves the request best, if any may, and its bytes.
    #[inline(always)]
    fn best_fit(&self, wanted: Wanted, block_bytes: u64, whole: bool) -> Option<(u64, BlockId)> {
        let index = self.index(self.policy.pool_of(block_bytes), wanted.private);
        let any = self.first_fit(index.everywhere(), block_bytes, whole);
        let own = match wanted.requester {
            Requester::Context if rule_holds(Rule::ContextTakesUntaggedOnly) => None,
            Requester::Stream(stream) if rule_holds(Rule::StreamTakesOwnTagOnly) => {
                index.on_stream(stream).and_then(|bins| self.first_fit(bins, block_bytes, whole))
            }
            _ => index.on_any_stream().find_map(|bins| self.first_fit(bins, block_bytes, whole)),
        };
        match (own, any) {
            // On a tie the stream's own block is taken: one that is free for every request serves
            // more of them.
            (Some(own), Some(any)) => Some(if own.0 <= any.0 { own } else { any }),
            (own, any) => own.or(any),
        }
    }

    /// Returns the first of these blocks, the smallest first, that the policy allows.
    #[inline(always)]
    fn first_fit(&self, bins: &Bins, block_bytes: u64, whole: bool) -> Option<(u64, BlockId)> {
        let best = bins.best(block_bytes).map(|(rank, id)| (rank.bytes, id));
        let best = best.filter(|(bytes, _)| self.policy.fits(*bytes, block_bytes));
        let is_choosy = whole || self.is_choosy(block_bytes);
        match best {
            Some((_, id)) if is_choosy && !self.may_serve(id, block_bytes, whole) => {
                self.first_choice(bins, block_bytes, whole)
            }
            best => best,
        }
    }

    /// Does the same as `first_fit` where not every block that fits may serve.
    #[inline(never)]
    fn first_choice(&self, bins: &Bins, block_bytes: u64, whole: bool) -> Option<(u64, BlockId)> {
        let fits = |bytes| self.policy.fits(bytes, block_bytes);
        let is_choosy = self.is_choosy(block_bytes);
        // If the split of a segment is avoided, so is that of larger ones.
        let mut spared_from = u64::MAX;
        let first = bins.first_that(block_bytes, fits, |bytes, id| {
            let may_serve = !whole || self.is_whole_fit(id, block_bytes);
            let avoids_split = is_choosy
                && self.is_whole_segment(id)
                && (bytes >= spared_from || self.is_cut_spared(bytes, block_bytes));
            if avoids_split {
                spared_from = spared_from.min(bytes);
            }
            may_serve && !avoids_split
        });
        first.map(|(rank, id)| (rank.bytes, id))
    }

    /// Returns whether some blocks that fit may not serve: while memory is short, or much of the
    /// capacity is taken.
    pub(crate) fn is_choosy(&self, block_bytes: u64) -> bool {
        // Note [Chunks]: a chunk is there to be cut.
        !is_small(block_bytes)
            && (self.pressure || self.capacity.is_saved())
            && self.policy.chunk_bytes.is_none()
    }

    fn may_serve(&self, id: BlockId, block_bytes: u64, whole: bool) -> bool {
        (!whole || self.is_whole_fit(id, block_bytes))
            && !(self.is_choosy(block_bytes) && self.avoids_split(id, block_bytes))
    }

    /// Returns whether this block is a whole segment that should stay whole, or be released. See
    /// Notes [Pressure] and [Capacity].
    fn avoids_split(&self, id: BlockId, block_bytes: u64) -> bool {
        self.is_whole_segment(id) && self.is_cut_spared(self.blocks.at(id.0).bytes, block_bytes)
    }

    /// Returns whether this free block could be released as it is.
    fn is_whole_segment(&self, id: BlockId) -> bool {
        let block = self.blocks.at(id.0);
        !block.is_split() && !block.expandable && block.private.is_none()
    }

    /// Returns whether a segment of `segment_bytes` should not be cut. If so, no larger one is.
    pub(crate) fn is_cut_spared(&self, segment_bytes: u64, block_bytes: u64) -> bool {
        let pressed = self.pressure && self.policy.is_much_larger(segment_bytes, block_bytes);
        (pressed || self.is_cut_too_much(segment_bytes, block_bytes))
            && self.may_avoid_split(segment_bytes - block_bytes)
    }

    /// Turns a free block, which is in no index any more, into an allocated one of `block_bytes`.
    #[inline(never)]
    pub(crate) fn take(
        &mut self,
        id: BlockId,
        block_bytes: u64,
        requested_bytes: u64,
        whole: bool,
    ) -> Allocation {
        let found = self.blocks.at(id.0);
        assert!(found.state != State::Allocated, "{id:?} would be handed out twice");
        assert!(!found.exported, "{id:?} would be handed out while others may see it");
        if !whole && self.policy.splits(found.pool, found.bytes, block_bytes) {
            let remainder = self.split(id, block_bytes);
            self.insert_free(remainder);
        }
        let block = self.blocks.at_mut(id.0);
        block.behind = None;
        if let State::Tagged(tag) = block.state
            && tag.ready.event().is_some()
        {
            block.behind = Some(tag);
        }
        block.state = State::Allocated;
        block.used_outside = OutsideUse::None;
        block.requested_bytes = requested_bytes;
        self.segments.at_mut(block.segment.0).allocated_count += 1;
        let (pool, bytes) = (block.pool, block.bytes);
        self.counts.settle_split(pool);
        self.counts.allocated(pool, bytes, requested_bytes);
        if self.policy.is_oversize(bytes) {
            self.counts.kept.oversize_allocations.increase(1);
        }
        let Block { segment, address, behind, .. } = *block;
        let behind = behind.and_then(|tag| tag.ready.event());
        Allocation { block: id, segment, address, bytes, requested_bytes, behind }
    }
}

fn unmap_step(mappings: Vec<Mapping>) -> Option<Step> {
    (!mappings.is_empty()).then_some(Step::Unmap(mappings))
}

fn release_step(segments: Vec<Segment>) -> Option<Step> {
    (!segments.is_empty()).then_some(Step::Release(segments))
}
