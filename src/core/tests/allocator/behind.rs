//! What the caller does where a stream comes behind others.

use cachealloc_core::{Allocation, EventId, Request, Requester};

use crate::world::World;

impl World {
    /// The stream of the request waits for these events, and gets its block.
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

    /// These, and what came before them on their streams.
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
}
