//! Selects the segments to release to the driver: on the user's request, above the garbage
//! collection threshold, or because a reservation failed. A segment leaves the allocator at once;
//! its memory may be released when its events are complete.

use alloc::vec::Vec;

use crate::allocator::Allocator;
use crate::block::{SegmentRow, State};
use crate::rules::{Rule, rule_holds};
use crate::types::{BlockId, Pool, ReuseCondition, Segment, SegmentId};

impl Allocator {
    /// Removes every segment in which nothing is allocated and nothing waits. Memory that a stream
    /// still uses would help no request before the stream is done; here it can serve another
    /// stream, ordered after that one.
    pub fn release_free(&mut self) -> Vec<Segment> {
        self.counts.kept.num_sync_all_streams += 1;
        self.release_where(|allocator, segment| allocator.is_reclaimable(segment))
    }

    /// Removes the segments of `release_free`, and those whose blocks wait for events. Segments
    /// with a block that waits for the next barrier stay: there is no event to wait for.
    pub fn release_freed(&mut self) -> Vec<Segment> {
        self.counts.kept.num_sync_all_streams += 1;
        self.release_where(Allocator::is_freed)
    }

    /// Returns the bytes that `release_freed` would remove.
    pub(crate) fn freed_bytes(&self) -> u64 {
        let plain = self.segments.iter().filter(|(_, segment)| !segment.expandable);
        plain.filter(|(_, it)| self.is_freed(it)).map(|(_, segment)| segment.bytes).sum()
    }

    fn is_freed(&self, segment: &SegmentRow) -> bool {
        self.is_free_but(segment, |ready| ready != ReuseCondition::NextBarrier)
    }

    /// Returns the bytes that `release_free` and `unmap_free` would remove.
    pub fn reclaimable_bytes(&self) -> u64 {
        let plain = self.segments.iter().filter(|(_, segment)| !segment.expandable);
        let reclaimable = plain.filter(|(_, segment)| self.is_reclaimable(segment));
        reclaimable.map(|(_, segment)| segment.bytes).sum::<u64>() + self.unmappable_bytes()
    }

    /// PyTorch's rule: above the threshold, whole free segments of the large pool are released,
    /// those of at least average age first, until the reserved memory is below it. Segments that
    /// wait stay, as in `release_free`.
    pub(crate) fn collect_garbage(&mut self) -> Vec<Segment> {
        let mut target_bytes =
            self.policy.garbage_bytes(self.counts.kept.reserved_bytes.all.current);
        let mut released = Vec::new();
        while target_bytes > 0 {
            let ages = self.segments.iter().filter_map(|(_, segment)| self.age(segment));
            let (count, sum) = ages.fold((0, 0), |(count, sum), age| (count + 1, sum + age));
            if count == 0 {
                break;
            }
            let old = self.release_where(|allocator, segment| {
                allocator.age(segment).is_some_and(|age| age * count >= sum)
            });
            let old_bytes = old.iter().map(|segment| segment.bytes).sum();
            target_bytes = target_bytes.saturating_sub(old_bytes);
            released.extend(old);
        }
        released
    }

    /// Releases oversize segments, which `max_split_bytes` keeps whole: one that is large enough
    /// for the request, else several, largest first. Returns none if all are not enough.
    pub(crate) fn release_oversize(&mut self, block_bytes: u64) -> Vec<Segment> {
        let Some(max_split_bytes) = self.policy.max_split_bytes else { return Vec::new() };
        let wanted_bytes = block_bytes.max(max_split_bytes);
        let mut oversize: Vec<(u64, SegmentId)> = self
            .segments
            .iter()
            .filter(|(_, segment)| !segment.expandable && segment.bytes >= max_split_bytes)
            .filter(|(_, segment)| self.is_reclaimable(segment))
            .map(|(number, segment)| (segment.bytes, SegmentId(number)))
            .collect();
        oversize.sort_unstable();
        let one = oversize.iter().find(|(bytes, _)| *bytes >= wanted_bytes);
        if let Some(&(_, id)) = one {
            return alloc::vec![self.remove_segment(id)];
        }
        if oversize.iter().map(|(bytes, _)| bytes).sum::<u64>() < wanted_bytes {
            return Vec::new();
        }
        let mut released_bytes = 0;
        let enough = oversize.into_iter().rev().take_while(|(bytes, _)| {
            let more = released_bytes < wanted_bytes;
            released_bytes += bytes;
            more
        });
        enough.map(|(_, id)| self.remove_segment(id)).collect()
    }

    pub(crate) fn release_where(
        &mut self,
        goes: impl Fn(&Allocator, &SegmentRow) -> bool,
    ) -> Vec<Segment> {
        let going: Vec<SegmentId> = self
            .segments
            .iter()
            .filter(|(_, segment)| !segment.expandable && segment.private.is_none())
            .filter(|(_, segment)| goes(self, segment))
            .map(|(number, _)| SegmentId(number))
            .collect();
        going.into_iter().map(|id| self.remove_segment(id)).collect()
    }

    fn is_reclaimable(&self, segment: &SegmentRow) -> bool {
        self.is_free_but(segment, |_| !rule_holds(Rule::WaitingMemoryStays))
    }

    fn is_free_but(&self, segment: &SegmentRow, may_wait: impl Fn(ReuseCondition) -> bool) -> bool {
        if segment.private.is_some() {
            return false;
        }
        if segment.allocated_count > 0 {
            return !rule_holds(Rule::ReleaseOnlyFreeSegments);
        }
        let mut blocks = self.blocks_from(segment.first).map(|id| self.blocks.at(id.0));
        blocks.all(|block| {
            let tag = block.tag();
            let parked = tag.is_some_and(|tag| {
                tag.ready == ReuseCondition::NextBarrier || !may_wait(tag.ready)
            });
            !parked && block.private.is_none()
        })
    }

    /// Returns how many requests have come since the segment became one free block, or `None` if it
    /// is not one.
    fn age(&self, segment: &SegmentRow) -> Option<u64> {
        let first = self.blocks.at(segment.first.0);
        let candidate = segment.pool == Pool::Large
            && !first.is_split()
            && !segment.expandable
            && self.is_reclaimable(segment);
        candidate.then(|| self.clock - first.freed_at)
    }

    pub(crate) fn remove_segment(&mut self, id: SegmentId) -> Segment {
        let row = self.segments.at(id.0);
        assert!(!row.expandable, "{row:?} goes in parts");
        let first = row.first;
        let going: Vec<BlockId> = self.blocks_from(first).collect();
        let mut events = Vec::new();
        for block in going {
            let free = self.blocks.at(block.0).state != State::Allocated;
            assert!(free || !rule_holds(Rule::ReleaseOnlyFreeSegments), "{block:?} is allocated");
            if free {
                self.remove_free(block);
            }
            self.leave_private(block);
            let block = self.blocks.remove(block.0);
            if block.exported {
                self.counts.kept.retired_bytes.decrease(block.pool, block.bytes);
            }
            events.extend(block.tag().and_then(|tag| tag.ready.event()));
        }
        events.sort_unstable();
        events.dedup();
        self.set_segment_private(id, None);
        let segment = self.segments.remove(id.0);
        self.counts.settle_split(segment.pool);
        self.counts.kept.num_device_free += 1;
        self.segment_at.remove(&segment.base);
        self.leaving.retain(|leaving| *leaving != id);
        self.counts.kept.segment.decrease(segment.pool, 1);
        self.counts.kept.reserved_bytes.decrease(segment.pool, segment.bytes);
        self.note_capacity();
        if self.policy.is_oversize(segment.bytes) {
            self.counts.kept.oversize_segments.decrease(1);
        }
        let exported = segment.exported_count > 0;
        Segment { id, base: segment.base, bytes: segment.bytes, events, exported }
    }
}
