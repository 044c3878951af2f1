//! The oracle: allocated ranges and the requests that may take each byte, as a naive list of ranges
//! without segments, blocks or coalescing. It panics when the allocator breaks the contract.

use std::ops::Range;

use cachealloc_core::{
    Allocation, BlockId, EventId, Mapping, PrivatePool, Requester, ReuseCondition, Segment,
    StreamId,
};

#[derive(Clone, Default)]
pub struct Model {
    live: Vec<(BlockId, Range<u64>)>,
    exported: Vec<BlockId>,
    /// Bytes of freed blocks that another process may still read.
    retired: Vec<Range<u64>>,
    /// Waiting ranges in the order of `free_number`.
    waiting: Vec<Waiting>,
    /// Events after which blocks may be handed out: of frees on a stream, and of streams that were
    /// ordered after others.
    events: Vec<(StreamId, EventId, u64)>,
    frees_count: u64,
    /// Every range that was taken, or became free for every request, in that order.
    touches: Vec<Range<u64>>,
    /// Captures whose graph may be launched, and their memory.
    pools: Vec<Captured>,
}

#[derive(Clone)]
struct Captured {
    pool: PrivatePool,
    /// Number of touches before the capture began.
    begun: usize,
    uses: Vec<Range<u64>>,
    /// Ranges that nodes of the graph reference.
    named: Vec<Range<u64>>,
    /// Ranges outside the capture's own memory that its nodes reference.
    named_elsewhere: Vec<Range<u64>>,
    /// Ranges freed for the capture while work outside of it might still use them.
    used_outside: Vec<Range<u64>>,
    ended: bool,
}

/// Bytes that were freed and are not free for every request yet.
#[derive(Clone, Debug)]
struct Waiting {
    bytes: Range<u64>,
    ready: ReuseCondition,
    free_number: u64,
}

impl Model {
    pub fn taken(
        &mut self,
        allocation: &Allocation,
        requester: Requester,
        private: Option<PrivatePool>,
    ) {
        let bytes = allocation.address.0..allocation.address.0 + allocation.bytes;
        self.taken_from_captures(&bytes, private);
        self.take(allocation, requester, private);
    }

    /// Takes what a poll returned. A capture may end while its request is polled.
    pub fn polled(
        &mut self,
        allocation: &Allocation,
        requester: Requester,
        private: Option<PrivatePool>,
    ) {
        let bytes = allocation.address.0..allocation.address.0 + allocation.bytes;
        let own = self.pools.iter().find(|captured| Some(captured.pool) == private);
        let used = own.is_some_and(|own| own.uses.iter().any(|used| overlap(used, &bytes)));
        assert!(!used, "{bytes:x?} is handed out by a poll to {private:?}, which has used it");
        self.taken(allocation, requester, private);
    }

    /// Takes a part of a range that is free for every request, for a capture.
    pub fn taken_part(
        &mut self,
        allocation: &Allocation,
        requester: Requester,
        private: PrivatePool,
    ) {
        let bytes = allocation.address.0..allocation.address.0 + allocation.bytes;
        let used = self.pools.iter().flat_map(|captured| &captured.uses);
        let used = used.filter(|used| overlap(used, &bytes)).count();
        assert_eq!(used, 0, "{bytes:x?} is handed out to {private:?} while a pool may use it");
        let named = self.last_named_end(private, bytes.clone()).is_some();
        let right = !named || self.is_idle_for(private, bytes.clone());
        assert!(right, "{bytes:x?} is handed out to {private:?}, which has used and named it");
        self.take(allocation, requester, Some(private));
    }

    /// Returns whether nothing has touched these bytes since the capture began.
    pub fn is_idle_for(&self, pool: PrivatePool, bytes: Range<u64>) -> bool {
        let captured = self.pools.iter().find(|captured| captured.pool == pool);
        let later = &self.touches[captured.expect("it is open").begun..];
        later.iter().all(|touched| !overlap(touched, &bytes))
    }

    /// Returns the end of the last range in these bytes that nodes of the capture reference.
    pub fn last_named_end(&self, pool: PrivatePool, bytes: Range<u64>) -> Option<u64> {
        let captured = self.pools.iter().find(|captured| captured.pool == pool)?;
        let all = captured.named.iter().chain(&captured.named_elsewhere);
        all.filter(|named| overlap(named, &bytes)).map(|named| named.end).max()
    }

    fn take(
        &mut self,
        allocation: &Allocation,
        requester: Requester,
        private: Option<PrivatePool>,
    ) {
        let bytes = allocation.address.0..allocation.address.0 + allocation.bytes;
        for (_, other) in &self.live {
            assert!(!overlap(&bytes, other), "{bytes:x?} is handed out twice");
        }
        for seen in &self.retired {
            let shared = overlap(&bytes, seen);
            assert!(!shared, "{bytes:x?} is handed out while others may read {seen:x?}");
        }
        let mut rest = Vec::new();
        let mut own_events = Vec::new();
        for waiting in self.waiting.drain(..) {
            if !overlap(&waiting.bytes, &bytes) {
                rest.push(waiting);
                continue;
            }
            let own = match (requester, waiting.ready) {
                (
                    Requester::Stream(stream),
                    ReuseCondition::OnStream { stream: own, .. }
                    | ReuseCondition::InPool { stream: own },
                ) => stream == own,
                _ => false,
            };
            assert!(own, "{bytes:x?} is handed out to {requester:?} in spite of {waiting:?}");
            own_events.extend(waiting.ready.event());
            for part in [waiting.bytes.start..bytes.start, bytes.end..waiting.bytes.end] {
                if part.start < part.end {
                    rest.push(Waiting { bytes: part, ..waiting });
                }
            }
        }
        self.waiting = rest;
        // On one stream the later event includes the earlier one.
        let last = own_events.pop();
        let earlier = own_events.into_iter().filter(|event| Some(*event) != last);
        let behind_earlier = earlier.into_iter().any(|event| allocation.behind == Some(event));
        assert!(
            !behind_earlier,
            "{bytes:x?} is handed out behind {:?}, not {last:?}",
            allocation.behind
        );
        let captured = self.pools.iter_mut().find(|captured| Some(captured.pool) == private);
        match captured {
            Some(captured) => {
                let parts = captured.used_outside.iter().flat_map(|range| without(range, &bytes));
                captured.used_outside = parts.collect();
                captured.uses.push(bytes.clone());
            }
            None => self.touches.push(bytes.clone()),
        }
        self.live.push((allocation.block, bytes));
    }

    /// Orders the stream after these events, and records this one there.
    pub fn ordered(
        &mut self,
        allocation: &Allocation,
        stream: StreamId,
        event: EventId,
        events: &[EventId],
    ) {
        let bytes = allocation.address.0..allocation.address.0 + allocation.bytes;
        let mut parts = Vec::new();
        for waiting in &self.waiting {
            let waited_for = waiting.ready.event().is_some_and(|event| events.contains(&event));
            let (start, end) = (waiting.bytes.start, waiting.bytes.end);
            let inside = start.max(bytes.start)..end.min(bytes.end);
            if !waited_for || inside.is_empty() {
                parts.push(waiting.clone());
                continue;
            }
            let rest = [start..inside.start, inside.end..end];
            let rest = rest.into_iter().filter(|part| !part.is_empty());
            parts.extend(rest.map(|bytes| Waiting { bytes, ..*waiting }));
            let ready = ReuseCondition::OnStream { stream, event };
            parts.push(Waiting { bytes: inside, ready, ..*waiting });
        }
        self.waiting = parts;
        self.events.push((stream, event, self.frees_count));
        self.frees_count += 1;
    }

    fn taken_from_captures(&self, bytes: &Range<u64>, private: Option<PrivatePool>) {
        for captured in &self.pools {
            let own = Some(captured.pool) == private;
            let used = captured.uses.iter().any(|used| overlap(used, bytes));
            let pool = captured.pool;
            assert!(own || !used, "{bytes:x?} is handed out while {pool:?} may use it");
            let later = &self.touches[captured.begun..];
            let touched = own && later.iter().any(|touched| overlap(touched, bytes));
            let first = !used && touched;
            assert!(!first, "{bytes:x?} is handed out to {pool:?}, used since that began");
        }
    }

    pub fn opened(&mut self, pool: PrivatePool) {
        let begun = self.touches.len();
        self.pools.push(Captured {
            pool,
            begun,
            uses: Vec::new(),
            named: Vec::new(),
            named_elsewhere: Vec::new(),
            used_outside: Vec::new(),
            ended: false,
        });
    }

    /// Notes that the capture uses this block, which was the context's memory.
    pub fn joined(&mut self, block: BlockId, pool: PrivatePool) {
        let bytes = self.bytes_of(block);
        self.captured(pool).uses.push(bytes);
    }

    /// Notes that a node references this block.
    pub fn named(&mut self, block: BlockId, pool: PrivatePool) {
        let bytes = self.bytes_of(block);
        self.captured(pool).named.push(bytes);
    }

    /// Notes that a node references this block, which does not belong to the capture.
    pub fn named_elsewhere(&mut self, block: BlockId, pool: PrivatePool) {
        let bytes = self.bytes_of(block);
        self.captured(pool).named_elsewhere.push(bytes);
    }

    pub fn names_any(&self, pool: PrivatePool, bytes: Range<u64>) -> bool {
        let captured = self.pools.iter().find(|captured| captured.pool == pool);
        captured.is_some_and(|captured| captured.named.iter().any(|named| overlap(named, &bytes)))
    }

    /// Returns whether no range was freed for the capture that work outside of it may still use.
    pub fn is_over(&self, pool: PrivatePool) -> bool {
        let captured = self.pools.iter().find(|captured| captured.pool == pool);
        captured.expect("it is open").used_outside.is_empty()
    }

    /// Returns whether work outside of the capture may still use any of these bytes, which were
    /// freed for it.
    pub fn is_any_used_outside(&self, pool: PrivatePool, bytes: Range<u64>) -> bool {
        let captured = self.pools.iter().find(|captured| captured.pool == pool);
        let captured = captured.expect("it is open");
        captured.used_outside.iter().any(|used| overlap(used, &bytes))
    }

    pub fn is_any_held(&self, bytes: Range<u64>) -> bool {
        self.live.iter().any(|(_, held)| overlap(held, &bytes))
    }

    /// Notes that the capture no longer uses any of these bytes, and that others get them.
    pub fn opened_unused(&mut self, pool: PrivatePool, bytes: Range<u64>) {
        let captured = self.captured(pool);
        let mut used = captured.named.iter().chain(&captured.used_outside);
        let used = used.find(|used| overlap(used, &bytes));
        assert!(used.is_none(), "{bytes:x?} is handed out while {used:x?} may be used");
        captured.uses = captured.uses.iter().flat_map(|used| without(used, &bytes)).collect();
        self.waiting.retain(|waiting| !overlap(&waiting.bytes, &bytes));
    }

    /// Notes that these bytes leave the capture by themselves, and were used until now.
    pub fn left(&mut self, pool: PrivatePool, bytes: Range<u64>) {
        self.opened_unused(pool, bytes.clone());
        self.touches.push(bytes);
    }

    /// Notes that the capture has ended: its graph uses the memory that its nodes reference, and
    /// the memory that work outside of it may use.
    pub fn opened_rest(&mut self, pool: PrivatePool) {
        let captured = self.captured(pool);
        let before = captured.uses.clone();
        captured.uses = [&captured.named[..], &captured.used_outside].concat();
        let uses = captured.uses.clone();
        self.touches.extend(before.iter().cloned());
        self.end_waiting(|waiting| {
            let used = uses.iter().any(|used| overlap(used, &waiting.bytes));
            !used
                && matches!(waiting.ready, ReuseCondition::WithPool | ReuseCondition::InPool { .. })
                && before.iter().any(|used| overlap(used, &waiting.bytes))
        });
    }

    fn retire_if_exported(&mut self, block: BlockId, bytes: &Range<u64>) {
        if let Some(place) = self.exported.iter().position(|exported| *exported == block) {
            self.exported.swap_remove(place);
            self.retired.push(bytes.clone());
        }
    }

    fn captured(&mut self, pool: PrivatePool) -> &mut Captured {
        self.pools.iter_mut().find(|captured| captured.pool == pool).expect("it is open")
    }

    fn bytes_of(&self, block: BlockId) -> Range<u64> {
        let live = self.live.iter().find(|(live, _)| *live == block);
        live.expect("it is live").1.clone()
    }

    pub fn ended(&mut self, pool: PrivatePool) {
        for captured in self.pools.iter_mut().filter(|captured| captured.pool == pool) {
            captured.ended = true;
        }
    }

    pub fn closed(&mut self, pool: PrivatePool) {
        let place = self.pools.iter().position(|captured| captured.pool == pool);
        let captured = self.pools.swap_remove(place.expect("it is open"));
        self.touches.extend(captured.uses.iter().cloned());
        let of_pool =
            |ready| matches!(ready, ReuseCondition::WithPool | ReuseCondition::InPool { .. });
        self.end_waiting(|waiting| {
            let inside = captured.uses.iter().any(|used| overlap(used, &waiting.bytes));
            inside && of_pool(waiting.ready)
        });
    }

    /// Notes that later work of the capture, on this stream or on all, comes after the use of these
    /// bytes.
    pub fn reused(&mut self, bytes: Range<u64>, stream: Option<StreamId>) {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.bytes == bytes) {
            assert_eq!(waiting.ready, ReuseCondition::WithPool);
            waiting.ready = stream
                .map_or(ReuseCondition::Everywhere, |stream| ReuseCondition::InPool { stream });
        }
        self.waiting.retain(|waiting| waiting.ready != ReuseCondition::Everywhere);
    }

    /// Notes a free ordered after all work of a block that no node references. In a segment of the
    /// pool it stays the pool's.
    pub fn freed_unused(&mut self, block: BlockId, pool: PrivatePool, stays: bool) {
        let bytes = self.bytes_of(block);
        self.live.retain(|(live, _)| *live != block);
        self.frees_count += 1;
        self.retire_if_exported(block, &bytes);
        if !stays {
            self.opened_unused(pool, bytes.clone());
            self.touches.push(bytes);
        }
    }

    pub fn freed(&mut self, block: BlockId, ready: ReuseCondition) {
        let place = self.live.iter().position(|(live, _)| *live == block).expect("it is live");
        let (_, bytes) = self.live.swap_remove(place);
        self.retire_if_exported(block, &bytes);
        let holds = |captured: &&mut Captured| {
            !captured.ended && captured.uses.iter().any(|used| overlap(used, &bytes))
        };
        let kept = self.pools.iter_mut().find(holds).map(|captured| {
            if ready != ReuseCondition::Everywhere {
                captured.used_outside.push(bytes.clone());
            }
        });
        let ready = if kept.is_some() { ReuseCondition::WithPool } else { ready };
        if let ReuseCondition::OnStream { stream, event } = ready {
            self.events.push((stream, event, self.frees_count));
        }
        if ready == ReuseCondition::Everywhere {
            self.touches.push(bytes);
        } else {
            self.waiting.push(Waiting { bytes, ready, free_number: self.frees_count });
        }
        self.frees_count += 1;
    }

    pub fn exported(&mut self, block: BlockId) {
        if !self.exported.contains(&block) {
            self.exported.push(block);
        }
    }

    pub fn completed(&mut self, event: EventId) {
        self.events.retain(|(_, recorded, _)| *recorded != event);
        self.end_waiting(|waiting| waiting.ready.event() == Some(event));
    }

    /// Returns the number of frees so far: a barrier recorded now covers exactly these.
    pub fn frees_count(&self) -> u64 {
        self.frees_count
    }

    pub fn barrier_passed(&mut self, frees_count: u64) {
        let of_pool =
            |ready| matches!(ready, ReuseCondition::WithPool | ReuseCondition::InPool { .. });
        let elsewhere = |ready| matches!(ready, ReuseCondition::AfterElsewhere { .. });
        self.end_waiting(|waiting| {
            let before = waiting.free_number < frees_count;
            before && !of_pool(waiting.ready) && !elsewhere(waiting.ready)
        });
    }

    /// Notes that the event or barrier that this free waits for is complete. With `behind`, the
    /// free still waits for that event and is as old as it.
    pub fn assumed_over(&mut self, free_number: u64, behind: Option<EventId>) {
        let behind = self.events.iter().find(|(_, event, _)| Some(*event) == behind);
        let Some(&(stream, event, number)) = behind else {
            return self.end_waiting(|waiting| waiting.free_number == free_number);
        };
        for waiting in self.waiting.iter_mut().filter(|one| one.free_number == free_number) {
            waiting.ready = ReuseCondition::OnStream { stream, event };
            waiting.free_number = number;
        }
        self.waiting.sort_by_key(|waiting| waiting.free_number);
    }

    fn end_waiting(&mut self, over: impl Fn(&Waiting) -> bool) {
        let touched = self.waiting.iter().filter(|waiting| over(waiting));
        self.touches.extend(touched.map(|waiting| waiting.bytes.clone()));
        self.waiting.retain(|waiting| !over(waiting));
    }

    /// Returns the number of touches of memory so far, which serves as a moment.
    pub fn touches_count(&self) -> usize {
        self.touches.len()
    }

    /// Checks that these bytes were not used since that moment.
    pub fn idle(&self, bytes: Range<u64>, since: usize) {
        let later = self.touches[since..].iter().find(|touched| overlap(touched, &bytes));
        assert!(later.is_none(), "{bytes:x?} is released as idle in spite of {later:x?}");
    }

    /// Releases the segment, whose events have been waited for.
    pub fn released(&mut self, segment: &Segment) {
        let bytes = segment.base.0..segment.base.0 + segment.bytes;
        for (_, live) in &self.live {
            assert!(!overlap(live, &bytes), "{segment:x?} is released with {live:x?} in it");
        }
        for captured in &self.pools {
            let used = captured.uses.iter().any(|used| overlap(used, &bytes));
            assert!(!used, "{segment:x?} is released while {:?} may use it", captured.pool);
        }
        for touched in self.touches.iter_mut().filter(|touched| overlap(touched, &bytes)) {
            *touched = 0..0;
        }
        for waiting in &self.waiting {
            let inside = overlap(&waiting.bytes, &bytes);
            assert!(!inside, "{segment:x?} is released in spite of {waiting:x?}");
        }
        let before = self.retired.len();
        self.retired.retain(|retired| !overlap(retired, &bytes));
        let others = self.retired.len() < before;
        assert!(segment.exported == others, "{segment:x?} is released, seen by others: {others}");
    }

    /// Removes the mapping; only the barriers so far are waited for.
    pub fn unmapped(&mut self, mapping: &Mapping) {
        let bytes = mapping.base.0..mapping.end().0;
        let live = self.live.iter().map(|(_, bytes)| bytes);
        for used in live.chain(self.waiting.iter().map(|waiting| &waiting.bytes)) {
            assert!(!overlap(used, &bytes), "{mapping:x?} goes with {used:x?} in it");
        }
        assert!(!self.is_retired(mapping), "{mapping:x?} goes while others see it");
    }

    /// Returns whether others may see a part of this memory, which the program has freed.
    pub fn is_retired(&self, mapping: &Mapping) -> bool {
        let bytes = mapping.base.0..mapping.end().0;
        self.retired.iter().any(|retired| overlap(retired, &bytes))
    }

    pub fn retired_bytes(&self) -> u64 {
        self.retired.iter().map(|bytes| bytes.end - bytes.start).sum()
    }

    pub fn live_count(&self) -> usize {
        self.live.len()
    }
}

fn without(bytes: &Range<u64>, hole: &Range<u64>) -> Vec<Range<u64>> {
    let parts = [bytes.start..bytes.end.min(hole.start), bytes.start.max(hole.end)..bytes.end];
    parts.into_iter().filter(|part| part.start < part.end).collect()
}

fn overlap(left: &Range<u64>, right: &Range<u64>) -> bool {
    left.start < right.end && right.start < left.end
}
