//! The caller's part where a stream is ordered after others, and where work is assumed to be
//! complete.

use cachealloc_core::{Allocation, Behind, BlockId, EventId, Request, Requester, Waiting};

use crate::world::World;

/// A freed block that waits, by the number of its free, with the event after which it had been
/// handed out.
#[derive(Clone)]
pub struct Assumed {
    block: BlockId,
    waiting: Waiting,
    behind: Option<Behind>,
    free_number: u64,
}

impl World {
    /// Makes the stream of the request wait for these events, and returns its block.
    pub fn ordered(&mut self, request: &mut Request, events: Vec<EventId>) -> Allocation {
        let Requester::Stream(stream) = request.requester() else {
            panic!("{request:?} has no stream to be put behind {events:?}");
        };
        let event = self.new_event();
        self.recorded.push((stream, event));
        let allocation = self.allocator.ordered(request, event);
        self.check_sizes(request, &allocation);
        self.model.ordered(&allocation, stream, event, &self.and_earlier(&events));
        self.model.taken(&allocation, request.requester(), request.private());
        self.behind = Some(events);
        allocation
    }

    /// Returns these events, and the earlier ones of their streams.
    pub fn and_earlier(&self, events: &[EventId]) -> Vec<EventId> {
        let mut all = events.to_vec();
        for event in events {
            if let Some(place) = self.recorded.iter().position(|(_, recorded)| recorded == event) {
                let stream = self.recorded[place].0;
                let earlier = self.recorded[..place].iter().filter(|(on, _)| *on == stream);
                all.extend(earlier.map(|(_, event)| event));
            }
        }
        all
    }

    /// Notes a block freed just now, whose thread may have known that the work is complete.
    pub fn may_be_assumed(&mut self, block: BlockId, behind: Option<Behind>) {
        let free_number = self.model.frees_count() - 1;
        let waiting = self.allocator.wait_of(block);
        self.assumed.extend(waiting.map(|waiting| Assumed { block, waiting, behind, free_number }));
    }

    /// Assumes waits complete when memory is short: each waiting block then waits only for the
    /// event after which it was handed out.
    pub fn assume_over(&mut self) {
        for Assumed { block, waiting, behind, free_number } in std::mem::take(&mut self.assumed) {
            let event = behind.and_then(|behind| behind.event());
            self.model.assumed_over(free_number, event);
            if let Some((event, behind)) = event.zip(behind) {
                self.made.entry(event).or_default().push((behind.ready(), behind.made()));
            }
            match behind {
                Some(behind) => self.allocator.wait_only_behind(waiting, behind),
                None => self.allocator.wait_is_over(waiting),
            }
            self.look();
            assert_ne!(self.allocator.wait_of(block), Some(waiting));
        }
        self.retire();
    }
}
