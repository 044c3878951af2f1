//! Release of unused memory.

use super::*;

impl World {
    pub fn moment(&mut self) -> Moment {
        Moment { mark: self.allocator.idle_mark(), touches_count: self.model.touches_count() }
    }

    /// Releases the memory that was not used since then.
    pub fn release_idle(&mut self, since: Moment) -> (Vec<Segment>, Vec<Mapping>) {
        let (segments, mappings) = self.allocator.release_idle(since.mark);
        self.idle_went(since, segments, mappings)
    }

    /// Releases `wanted_bytes` of the unused memory, for another process.
    pub fn give(&mut self, since: Moment, wanted_bytes: u64) -> (Vec<Segment>, Vec<Mapping>) {
        let (segments, mappings) = self.allocator.release_unused(since.mark, wanted_bytes);
        let given_bytes = segments.iter().map(|segment| segment.bytes).sum::<u64>();
        // The allocator releases no more than is wanted: without the last one it was too little.
        let last_bytes = segments.last().map_or(0, |segment| segment.bytes);
        assert!(given_bytes - last_bytes < wanted_bytes.max(1), "{segments:x?} for {wanted_bytes}");
        let left_bytes = wanted_bytes.saturating_sub(given_bytes);
        let mapped_bytes = mappings.iter().map(|mapping| mapping.bytes).sum::<u64>();
        let most_bytes = mappings.iter().map(|mapping| mapping.bytes).max().unwrap_or(0);
        assert!(mapped_bytes < left_bytes + most_bytes.max(1), "{mappings:x?} for {left_bytes}");
        self.idle_went(since, segments, mappings)
    }

    /// Releases only the excess of the unused memory.
    pub fn release_excess(&mut self, since: Moment) -> (Vec<Segment>, Vec<Mapping>) {
        let (segments, mappings) = self.allocator.release_excess(since.mark);
        self.idle_went(since, segments, mappings)
    }

    fn idle_went(
        &mut self,
        since: Moment,
        segments: Vec<Segment>,
        mappings: Vec<Mapping>,
    ) -> (Vec<Segment>, Vec<Mapping>) {
        self.look();
        let plain = segments.iter().map(|segment| (segment.base.0, segment.bytes));
        let mapped = mappings.iter().map(|mapping| (mapping.base.0, mapping.bytes));
        for (base, bytes) in plain.chain(mapped) {
            self.model.idle(base..base + bytes, since.touches_count);
        }
        assert!(segments.iter().all(|segment| segment.events.is_empty() && !segment.exported));
        self.unmapped(&mappings);
        self.released(&segments);
        (segments, mappings)
    }

    /// Makes a pass of the caller. It could release the memory unused since the last pass.
    pub fn pass(&mut self) {
        let unused_bytes = self.allocator.unused_bytes();
        let mark = self.passed.unwrap_or(IdleEpoch::NEVER);
        let (segments, mappings) = self.allocator.clone().release_unused(mark, u64::MAX);
        let segments = segments.iter().map(|segment| segment.bytes);
        let idle_bytes: u64 = segments.chain(mappings.iter().map(|mapping| mapping.bytes)).sum();
        assert_eq!(unused_bytes, idle_bytes);
        self.passed = Some(self.allocator.pass(None).mark);
    }
}
