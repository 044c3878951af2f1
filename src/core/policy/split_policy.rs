//! Decides which large requests avoid the split of a larger segment: Note [Capacity] in
//! capacity.rs.

use crate::allocator::Allocator;
use crate::policy::{is_small, own_segment_bytes};
use crate::request::Request;

/// A segment for several requests may take this part of a limit.
const SHARED_PART: u64 = 256;
/// The driver allocates whole pages. The unused end of the last page may be this part of a segment
/// for one request; otherwise the request should share a segment.
const PAGE_LOSS_PART: u64 = 8;

impl Allocator {
    /// Sets the most memory that all segments together can occupy, as far as the caller knows: by a
    /// limit, or by the device.
    pub fn set_capacity(&mut self, capacity_bytes: Option<u64>, is_limit: bool) {
        self.capacity.set(capacity_bytes);
        let limit_bytes = capacity_bytes.filter(|_| is_limit);
        let shared_bytes_max = limit_bytes.map_or(u64::MAX, |bytes| bytes / SHARED_PART);
        self.policy.shares_segments = self.policy.large_segment_bytes <= shared_bytes_max;
        self.note_capacity();
    }

    /// Returns the current capacity, or `None` if it is unknown.
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.capacity.bytes()
    }

    /// Records that the reserved memory or the capacity has changed.
    pub(crate) fn note_capacity(&mut self) {
        self.capacity.reserved(self.counts.kept.reserved_bytes.all.current);
    }

    /// Returns whether this many bytes more for the request would exceed the limit. The request is
    /// then refused without asking the driver.
    pub(crate) fn limit_refuses(&mut self, request: &Request, more_bytes: u64) -> bool {
        let refuses = self.excess(more_bytes) > 0;
        if refuses {
            self.note_refusal(request);
        }
        refuses
    }

    /// Records that the driver or the limit has refused memory for this request.
    pub(crate) fn note_refusal(&mut self, request: &Request) {
        self.pressure = true;
        let reserved_bytes = self.counts.kept.reserved_bytes.all.current;
        self.capacity.is_below(reserved_bytes.saturating_add(request.requested_bytes));
        if request.has_released_all() {
            self.capacity.is_short();
        }
        self.note_capacity();
    }

    /// Returns whether a driver call may be made although free memory could serve, leaving such a
    /// hole.
    pub fn may_avoid_split(&self, hole_bytes: u64) -> bool {
        let peak_bytes = self.counts.active_bytes_peak();
        self.capacity.may_avoid_split(self.clock, self.holes_bytes(hole_bytes), peak_bytes)
    }

    /// Counts the driver call for a segment that a large request is about to get, if free memory
    /// could have served.
    pub(crate) fn count_avoided_split(&mut self, segment_bytes: u64, block_bytes: u64) {
        let best = self.large.best(None, block_bytes).map(|(rank, _)| rank.bytes);
        let free = best.filter(|bytes| self.policy.fits(*bytes, block_bytes));
        let shared = self.policy.segment_bytes(block_bytes);
        let shared = (segment_bytes < shared).then_some(shared);
        if let Some(cut_bytes) = free.or(shared) {
            let holes_bytes = self.holes_bytes(cut_bytes - block_bytes);
            self.capacity.count_avoided_split(holes_bytes, self.counts.active_bytes_peak());
        }
    }

    /// Returns whether a large request should not cut this whole free segment.
    pub(crate) fn is_cut_too_much(&self, found_bytes: u64, block_bytes: u64) -> bool {
        found_bytes > own_segment_bytes(block_bytes)
            && self.is_hole_too_much(found_bytes - block_bytes)
    }

    /// Returns whether this request gets a separate segment instead of one of `segment_bytes`.
    pub(crate) fn is_better_alone(&self, segment_bytes: u64, block_bytes: u64) -> bool {
        let page_loss_bytes = own_segment_bytes(block_bytes) - block_bytes;
        let is_shared = !is_small(block_bytes) && self.policy.chunk_bytes.is_none();
        is_shared
            && page_loss_bytes <= block_bytes / PAGE_LOSS_PART
            && self.is_hole_too_much(segment_bytes - block_bytes)
            && self.may_avoid_split(segment_bytes - block_bytes)
    }

    fn is_hole_too_much(&self, hole_bytes: u64) -> bool {
        self.capacity.are_holes_too_much(self.holes_bytes(hole_bytes))
    }

    /// Returns the bytes of all holes, with one more hole of this size.
    fn holes_bytes(&self, hole_bytes: u64) -> u64 {
        self.counts.split_bytes() + hole_bytes
    }
}
