//! A free in stream order. Its stream may reuse the block at once, and any other request once the
//! work before the free has completed. It never waits where the driver's own free does not.

use core::ptr::eq;

use cachealloc_core::order::{StreamRoute, free_on_stream};
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{ReuseCondition, StreamId};

use crate::cache::free::{Free, facts};
use crate::cache::red_zones;
use crate::cache::stream_frees;
use crate::contexts::stream_identity;
use crate::contexts::stream_identity::Stream;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult, STREAM_PER_THREAD, StreamHandle};
use crate::graphs::{pools, private_pools};
use crate::lock::lock;
use crate::ordering::{across, barrier, legacy_stream, native_wait};
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::stream_frees::Place;
use crate::statistics::waits;
use crate::statistics::waits::Wait;

impl Free<'_> {
    pub(super) fn on_stream(&self, handle: StreamHandle) -> CuResult {
        // A default stream belongs to the current context: without one, the driver refuses the
        // free. It also refuses a free on a stream that does not exist.
        let stream = match stream_identity::of(self.thread, handle) {
            Err(_) if handle > STREAM_PER_THREAD && !rule_holds(Rule::StreamExists) => {
                Stream { handle, id: 0, context: None }
            }
            stream => stream.inspect_err(|_| self.block.give_back())?,
        };
        let owner = stream.context.unwrap_or(self.context);
        if private_pools::comes_back(&self.block) {
            self.join(stream);
            return self.put_off();
        }
        let facts = facts(self.context);
        // Where only one context has submitted, no other has anything to wait for.
        let several =
            !facts.exclusive || across::is_promised() && rule_holds(Rule::PromisedStreamsAreAsked);
        let elsewhere = several && !eq(owner, self.context);
        if elsewhere && self.is_private() {
            self.note_use_elsewhere(handle, owner);
        }
        match free_on_stream(&facts, elsewhere) {
            StreamRoute::Publish => self.publish(),
            StreamRoute::ParkForBarrier => return self.park_for_barrier(),
            // A capture must know about its block, and a graph keeps it.
            StreamRoute::Tag if private_pools::keep(&self.block) => {
                return self.keep_with_pool(stream, owner);
            }
            StreamRoute::Tag => return self.tag(stream, owner),
        }
        Ok(())
    }

    /// Frees the block for this stream at once, and for other streams when an event recorded there
    /// now is complete.
    fn tag(&self, stream: Stream, owner: &'static Context) -> CuResult {
        let Stream { handle, .. } = stream;
        if self.has_zone() && !self.copies_zone() {
            let _ = waits::timed(Wait::Strict, || api::relaxed(|| api::stream_synchronize(handle)));
            self.look_behind();
        }
        // An event belongs to the context of the stream on which it is recorded.
        let here = eq(owner, self.context);
        if self.is_on_other_streams() && here {
            self.join(stream);
            return self.park_behind_all();
        }
        let copies = self.copies_zone();
        let place = Place::on(stream.id, owner);
        if !copies
            && stream_frees::may_share_event(self.context)
            && self.tag_shared(stream, place, here)
        {
            return Ok(());
        }
        let Ok(event) = owner.events.take(self.thread, |body| owner.enter(body)) else {
            return self.without_event(stream, here);
        };
        let copied = if copies { red_zones::copy(self.context, self.zone(), handle) } else { None };
        let in_order = stream_frees::in_order(self.context);
        let place = if copies { place } else { stream_frees::shared_from_now(self.context, place) };
        let code = api::relaxed(|| api::event_record(event.handle(), handle));
        if code == Err(CuError::OUT_OF_MEMORY) {
            drop(in_order);
            return self.without_event(stream, here);
        }
        if code.is_err() {
            self.block.give_back();
            return code;
        }
        if let Some(copied) = copied {
            red_zones::check_after(self.context, copied, event.clone());
        }
        self.tag_with(stream, event, place, here);
        Ok(())
    }

    /// Frees a block that a capture or a graph keeps. After that has ended, the block is free once
    /// an event recorded on this stream now is complete.
    #[cold]
    fn keep_with_pool(&self, stream: Stream, owner: &'static Context) -> CuResult {
        self.join(stream);
        let copied = if self.copies_zone() {
            red_zones::copy(self.context, self.zone(), stream.handle)
        } else {
            None
        };
        let all_users = !self.is_on_other_streams();
        let event = owner.events.take(self.thread, |body| owner.enter(body));
        let Ok(event) = event else { return self.park_for_barrier() };
        match api::relaxed(|| api::event_record(event.handle(), stream.handle)) {
            Ok(()) => {}
            Err(CuError::OUT_OF_MEMORY) => return self.park_for_barrier(),
            error => {
                self.block.give_back();
                return error;
            }
        }
        if let Some(copied) = copied {
            red_zones::check_after(self.context, copied, event.clone());
        }
        self.park_with_pool(all_users.then_some(event))
    }

    /// Tags the block with the event of the previous free, if that event suffices.
    fn tag_shared(&self, stream: Stream, place: Place, here: bool) -> bool {
        let _in_order = stream_frees::in_order(self.context);
        let event = stream_frees::shared_event(self.context, place);
        event.map(|event| self.tag_with(stream, event, place, here)).is_some()
    }

    /// Tags the block. The caller must hold `in_order` since before it recorded the event, or found
    /// it to be the last.
    fn tag_with(&self, stream: Stream, event: EventRef, place: Place, here: bool) {
        let Stream { handle, id, .. } = stream;
        if let Some(due) = legacy_stream::due(self.thread, handle, id) {
            legacy_stream::join(self.thread, due, |stream| {
                api::stream_wait_event(stream, event.handle(), 0)
            });
        }
        let ready = match here {
            true if api::has_stream_ids() => {
                ReuseCondition::OnStream { stream: StreamId(id), event: event.id() }
            }
            true => ReuseCondition::After { event: event.id() },
            false => ReuseCondition::AfterElsewhere { event: event.id() },
        };
        stream_frees::free(self.context, self.freed(), ready, Some((event, place)));
    }

    /// Orders the stream after earlier legacy-stream work, which a tagged free does by its event.
    /// If no event can be recorded, the driver is short of memory, and a free of a sentinel by the
    /// driver itself does it.
    #[cold]
    fn join(&self, stream: Stream) {
        let Some(due) = legacy_stream::due(self.thread, stream.handle, stream.id) else { return };
        let owner = stream.context.unwrap_or(self.context);
        let event = owner.events.take(self.thread, |body| owner.enter(body)).ok();
        let record =
            |event: &EventRef| api::relaxed(|| api::event_record(event.handle(), stream.handle));
        match event.filter(|event| record(event).is_ok()) {
            Some(event) if rule_holds(Rule::PendingFreeJoinsLegacy) => {
                let wait = |stream| api::stream_wait_event(stream, event.handle(), 0);
                legacy_stream::join(self.thread, due, wait);
            }
            None if rule_holds(Rule::FreeJoinsWithoutEvent) => {
                let free = |stream| {
                    native_wait::spend_sentinel(owner, |pointer| {
                        api::mem_free_async(pointer, stream)
                    })
                };
                legacy_stream::join(self.thread, due, free);
            }
            _ => {}
        }
    }

    /// Makes the private pool wait for this use. The pool of a graph otherwise ends after the work
    /// of its own context only.
    #[cold]
    fn note_use_elsewhere(&self, stream: StreamHandle, owner: &'static Context) {
        let context = self.context;
        let Some(pool) = lock(&context.allocator).private_pool_of(self.block.block) else { return };
        let event = owner.events.take(self.thread, |body| owner.enter(body)).ok();
        let record = |event: &EventRef| api::relaxed(|| api::event_record(event.handle(), stream));
        match event.filter(|event| record(event).is_ok()) {
            Some(event) => pools::note_use_until(pool, event),
            // Wait for the stream, for the reason in `without_event`. The free itself reports
            // errors of the stream.
            None => {
                let wait = || api::relaxed(|| api::stream_synchronize(stream));
                let _ = waits::timed(Wait::Shared, wait);
            }
        }
    }

    /// Frees without an event, when the driver has no memory for one: the driver's own free would
    /// not fail. A block of this context is also safe after its next barrier. For a stream of
    /// another context that proves nothing, and only a wait helps.
    fn without_event(&self, stream: Stream, here: bool) -> CuResult {
        if here {
            self.join(stream);
            return self.park_for_barrier();
        }
        let wait = || api::relaxed(|| api::stream_synchronize(stream.handle));
        self.conclude(waits::timed(Wait::Shared, wait))
    }

    fn is_on_other_streams(&self) -> bool {
        self.block.is_on_other_streams() && rule_holds(Rule::RecordedStreamsArePending)
    }

    /// Parks the block on an event recorded after all work of the context, which covers the stream
    /// of the free and all others. Never waits: the driver's own free does not.
    fn park_behind_all(&self) -> CuResult {
        let Ok(recorded) = barrier::record(self.thread, self.context) else {
            return self.park_for_barrier();
        };
        let event = self.behind_all(recorded);
        let ready = ReuseCondition::After { event: event.0.id() };
        stream_frees::free(self.context, self.freed(), ready, Some(event));
        Ok(())
    }
}
