//! The allocator's answers to requests, the driver's reactions, and the memory that each request
//! gets.

use cachealloc_core::BlockState;

use super::*;

impl World {
    pub fn alloc(&mut self, bytes: u64, requester: Requester) -> (Option<Allocation>, Vec<Asked>) {
        self.alloc_in(bytes, requester, None)
    }

    pub fn alloc_in(
        &mut self,
        bytes: u64,
        requester: Requester,
        private: Option<PrivatePool>,
    ) -> (Option<Allocation>, Vec<Asked>) {
        let expected = naive::best_fit(&self.allocator, bytes, requester, private);
        let joined = self.joined_of_own(bytes, requester, private);
        let retries = self.allocator.stats().num_alloc_retries;
        // A request that starts again is unchanged.
        let mut request = request(bytes, requester, private).again();
        let mut asked = Vec::new();
        let own = private.and_then(|_| self.hit(&request));
        let mut found = own.or_else(|| {
            loop {
                match self.poll(&mut request) {
                    Ok(found) => break found,
                    Err(step) => asked.push(step),
                }
            }
        });
        // A retry may find a part of a segment that was kept whole before.
        let at_once = asked.is_empty() && retries == self.allocator.stats().num_alloc_retries;
        let hit = found.filter(|_| at_once).map(|found| found.address);
        // Memory that was free before the capture began may serve the request, and is no hit.
        let adopted = private.is_some() && expected.is_none();
        let joins = expected.is_none() && hit.is_some_and(|hit| joined.contains(&hit));
        let right = hit == expected || adopted || joins;
        assert!(right || !self.judges_all, "{hit:?}, not {expected:?}, for {bytes}");
        if found.is_none() && private.is_some() {
            found = self.take_any(&request);
        }
        found.iter().for_each(|found| self.check_whole(found));
        asked.extend(self.behind.take().map(Asked::Order));
        if found.is_none() {
            asked.push(Asked::OutOfMemory);
        }
        (found, asked)
    }

    fn joined_of_own(
        &self,
        bytes: u64,
        requester: Requester,
        private: Option<PrivatePool>,
    ) -> Vec<Address> {
        match requester {
            Requester::Stream(stream) if private.is_none() => {
                naive::own_windows(&self.allocator, bytes, stream)
            }
            _ => Vec::new(),
        }
    }

    /// Looks for free memory without asking for any.
    pub fn hit(&mut self, request: &Request) -> Option<Allocation> {
        let (bytes, requester) = (request.bytes(), request.requester());
        let expected = naive::best_fit(&self.allocator, bytes, requester, request.private());
        let joined = self.joined_of_own(bytes, requester, request.private());
        let reserved_bytes = self.allocator.stats().reserved_bytes.all.current;
        let block_bytes = self.allocator.policy().block_bytes(bytes);
        let ordinary = block_bytes.filter(|_| request.private().is_none());
        let mut other = ordinary.map(|_| self.allocator.clone());
        let found = self.allocator.hit(request);
        self.look();
        // The other entry point must find the same.
        if let (Some(block_bytes), Some(other)) = (ordinary, &mut other) {
            assert_eq!(other.hit_new(bytes, block_bytes, requester), found);
        }
        let address = found.map(|found| found.address);
        let joins = expected.is_none() && address.is_some_and(|address| joined.contains(&address));
        assert!(address == expected || joins || !self.judges_all, "{address:?}, not {expected:?}");
        assert_eq!(reserved_bytes, self.allocator.stats().reserved_bytes.all.current);
        let allocation = found?;
        self.check_sizes(request, &allocation);
        self.check_whole(&allocation);
        self.model.taken(&allocation, request.requester(), request.private());
        Some(allocation)
    }

    /// Takes any block of a capture's memory that is large enough.
    pub fn take_any(&mut self, request: &Request) -> Option<Allocation> {
        let found = self.allocator.take_any(request);
        self.look();
        let found = found?;
        self.check_sizes(request, &found);
        self.model.taken(&found, request.requester(), request.private());
        Some(found)
    }

    /// Polls once, and does what the caller has to do for it.
    pub fn poll(&mut self, request: &mut Request) -> Result<Option<Allocation>, Asked> {
        let arrived = request.arrived();
        let step = self.allocator.poll(request);
        self.look();
        let asked = match step {
            Step::Done(allocation) => {
                assert!(arrived.is_none_or(|arrived| arrived == allocation), "{arrived:?}");
                self.check_sizes(request, &allocation);
                self.model.polled(&allocation, request.requester(), request.private());
                return Ok(Some(allocation));
            }
            Step::OutOfMemory => return Ok(None),
            Step::QueryEvents => {
                self.report_finished();
                Asked::QueryEvents
            }
            Step::Reserve { bytes } => {
                let limit_bytes = self.allocator.policy().limit_bytes.unwrap_or(u64::MAX);
                let reserved_bytes = self.allocator.stats().reserved_bytes.all.current;
                assert!(reserved_bytes + bytes <= limit_bytes, "{bytes} more are over the limit");
                let mut granted_bytes = bytes;
                let mut base = self.driver.reserve(bytes);
                while base.is_none() {
                    let policy = self.allocator.policy();
                    let Some(half) = policy.smaller_chunk(granted_bytes, request.bytes()) else {
                        break;
                    };
                    granted_bytes = half;
                    base = self.driver.reserve(granted_bytes);
                }
                match base {
                    Some(base) => {
                        self.allocator.reserved(request, base, granted_bytes);
                        self.look();
                        let arrived = request.arrived().map(|arrived| arrived.address);
                        assert_eq!(arrived, Some(base), "a segment is used from its begin");
                        self.check_newest(base);
                    }
                    None => self.allocator.reserve_failed(request),
                }
                Asked::Reserve { bytes: granted_bytes, granted: base.is_some() }
            }
            Step::Release(segments) => {
                self.released(&segments);
                Asked::Release(segments)
            }
            Step::Map(mappings) => {
                if self.judges_all {
                    windows::judge(&self.allocator, request.bytes(), &self.arriving, &mappings);
                }
                let bytes = mappings.iter().map(|mapping| mapping.bytes).sum();
                self.arriving.extend(&mappings);
                let granted = !self.maps_late && self.answer(request, &mappings);
                self.late = self.maps_late.then_some(mappings);
                Asked::Map { bytes, granted }
            }
            Step::Unmap(mappings) => {
                self.unmapped(&mappings);
                Asked::Unmap(mappings)
            }
            Step::Order(events) if self.orders_fail => {
                let arrived = request.arrived().expect("it comes behind these");
                self.allocator.order_failed(request);
                self.look();
                let view = self.allocator.find(arrived.address).expect("it is there");
                assert_ne!(view.state, BlockState::Allocated, "{view:x?}");
                assert_eq!(request.arrived(), None);
                Asked::Order(events)
            }
            Step::Order(events) => {
                return Ok(Some(self.ordered(request, events)));
            }
        };
        Err(asked)
    }

    /// Delivers the memory that the request has asked for, or not.
    pub fn answer(&mut self, request: &mut Request, mappings: &[Mapping]) -> bool {
        let came_count = self.allocator.stats().num_device_alloc;
        let granted = self.driver.map(mappings);
        self.arriving.retain(|arriving| !mappings.contains(arriving));
        match granted {
            true => self.allocator.mapped(request),
            false => self.allocator.reserve_failed(request),
        }
        self.look();
        let ranges = mappings.chunk_by(|left, right| left.end() == right.base);
        let came_count = came_count + if granted { ranges.count() as u64 } else { 0 };
        assert_eq!(self.allocator.stats().num_device_alloc, came_count);
        granted
    }

    /// Checks that segments are numbered as they arrive; `naive` chooses by these numbers.
    fn check_newest(&self, base: Address) {
        let plain = self.allocator.segments().filter(|segment| !segment.expandable);
        let newest = plain.max_by_key(|segment| (segment.registration, segment.base != base));
        assert_eq!(newest.map(|segment| segment.base), Some(base), "{newest:?}");
    }

    /// Checks requests that came after the export: one in flight may have its block already.
    fn check_whole(&self, allocation: &Allocation) {
        let view = self.allocator.find(allocation.address).expect("it is ours");
        // A part of a segment is better than nothing only after a request failed.
        let may_share = self.allocator.stats().num_alloc_retries > 0 || view.bytes <= MIB;
        if self.allocator.keeps_large_whole() && !may_share {
            let whole = (view.segment.base, view.segment.bytes) == (view.address, view.bytes);
            assert!(whole, "{view:x?} is handed out inside a segment");
        }
    }

    pub fn check_sizes(&self, request: &Request, allocation: &Allocation) {
        assert!(allocation.bytes >= request.bytes());
        assert_eq!(allocation.requested_bytes, request.bytes());
        let view = self.allocator.find(Address(allocation.address.0 + 1)).expect("it is ours");
        assert_eq!(view.block, allocation.block);
        assert_eq!(self.allocator.bytes(view.block), allocation.bytes);
        let requested = self.allocator.requested(view.block);
        assert_eq!(requested, (view.segment.pool, allocation.requested_bytes));
        assert_eq!((view.address, view.bytes), (allocation.address, allocation.bytes));
        assert_eq!(Some(view), self.allocator.find(allocation.address));
    }
}
