//! A free in stream order: the block is free for the stream at once, and for any request when the work
//! before the free is over. Never waits where natively there is no wait.

use cachealloc_core::order::{StreamRoute, free_on_stream};
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Ready, StreamId};

use crate::cache::free::{Free, facts};
use crate::cache::{stream_frees, streams, zones};
use crate::contexts::Context;
use crate::contexts::events::EventRef;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult, STREAM_PER_THREAD, StreamHandle};
use crate::graphs::{pools, private_pools};
use crate::lock::lock;
use crate::ordering::{across, barrier, captures, joins, native_wait};
use crate::statistics::waits::{self, Wait};

impl Free<'_> {
    pub(super) fn on_stream(&self, stream: StreamHandle) -> CuResult {
        // A default stream belongs to the current context: without one the driver refuses. Nor does it
        // free on a stream that does not exist.
        let mut id = 0;
        if stream <= STREAM_PER_THREAD || rule_holds(Rule::StreamIsThere) {
            id = api::stream_get_id(stream).inspect_err(|_| self.block.give_back())?;
        }
        if private_pools::comes_back(&self.block) {
            self.join(stream, id);
            return self.put_off();
        }
        let facts = facts(self.context);
        // Where only one context has submitted, no other has anything to wait for.
        let several =
            !facts.exclusive || across::is_promised() && rule_holds(Rule::PromisedStreamsAreAsked);
        let elsewhere = several && !core::ptr::eq(self.owner_of(stream), self.context);
        if elsewhere && self.is_private() {
            self.note_use_elsewhere(stream);
        }
        match free_on_stream(&facts, elsewhere) {
            StreamRoute::Publish => self.publish(),
            StreamRoute::ParkForBarrier => return self.park_for_barrier(),
            // A capture must know about its block.
            StreamRoute::Tag if captures::maybe() && private_pools::keep(&self.block) => {
                self.join(stream, id);
                return self.park_for_barrier();
            }
            StreamRoute::Tag => return self.tag(stream, id),
        }
        Ok(())
    }

    /// Free for the stream at once, for other streams when an event recorded there now is complete.
    fn tag(&self, stream: StreamHandle, mut id: u64) -> CuResult {
        if self.has_zone() && !rule_holds(Rule::ZonesAreCopied) {
            let _ = waits::timed(Wait::Strict, || api::relaxed(|| api::stream_synchronize(stream)));
            self.look_behind();
        }
        if !rule_holds(Rule::StreamIsThere) {
            id = api::stream_get_id(stream).unwrap_or(id);
        }
        // An event belongs to the context of the stream on which it is recorded.
        let owner = self.owner_of(stream);
        let here = core::ptr::eq(owner, self.context);
        if self.is_on_other_streams() && here {
            self.join(stream, id);
            return self.park_behind_all();
        }
        let Ok(event) = owner.events.take(self.thread, |body| owner.enter(body)) else {
            return self.without_event(stream, id, here);
        };
        let copies = self.has_zone() && rule_holds(Rule::ZonesAreCopied);
        let copied = if copies { zones::copy(self.context, self.zone(), stream) } else { None };
        let in_order = stream_frees::in_order(self.context);
        let code = api::relaxed(|| api::event_record(event.handle(), stream));
        if code == Err(CuError::OUT_OF_MEMORY) {
            drop(in_order);
            return self.without_event(stream, id, here);
        }
        if code.is_err() {
            self.block.give_back();
            return code;
        }
        if let Some(due) = joins::due(self.thread, stream, id) {
            joins::join(self.thread, due, |stream| {
                api::stream_wait_event(stream, event.handle(), 0)
            });
        }
        if let Some(copied) = copied {
            zones::check_after(self.context, copied, event.clone());
        }
        let ready = match here {
            true if api::has_stream_ids() => {
                Ready::OnStream { stream: StreamId(id), event: event.id() }
            }
            true => Ready::After { event: event.id() },
            false => Ready::AfterElsewhere { event: event.id() },
        };
        stream_frees::free(self.context, self.freed(), ready, Some(event));
        Ok(())
    }

    /// As a free with a tag does by its event. Where there is none, the driver is short of memory, and a free of its
    /// own does it.
    #[cold]
    fn join(&self, stream: StreamHandle, id: u64) {
        let Some(due) = joins::due(self.thread, stream, id) else { return };
        let owner = self.owner_of(stream);
        let event = owner.events.take(self.thread, |body| owner.enter(body)).ok();
        let record = |event: &EventRef| api::relaxed(|| api::event_record(event.handle(), stream));
        match event.filter(|event| record(event).is_ok()) {
            Some(event) if rule_holds(Rule::ParkedFreeJoins) => {
                let wait = |stream| api::stream_wait_event(stream, event.handle(), 0);
                joins::join(self.thread, due, wait);
            }
            None if rule_holds(Rule::FreeJoinsWithoutEvent) => {
                let free = |stream| {
                    native_wait::spend_sentinel(owner, |pointer| {
                        api::mem_free_async(pointer, stream)
                    })
                };
                joins::join(self.thread, due, free);
            }
            _ => {}
        }
    }

    /// The pool of a graph ends behind the work of its own context only.
    #[cold]
    fn note_use_elsewhere(&self, stream: StreamHandle) {
        let (owner, context) = (self.owner_of(stream), self.context);
        let Some(pool) = lock(&context.allocator).private_pool_of(self.block.block) else { return };
        let event = owner.events.take(self.thread, |body| owner.enter(body)).ok();
        let record = |event: &EventRef| api::relaxed(|| api::event_record(event.handle(), stream));
        match event.filter(|event| record(event).is_ok()) {
            Some(event) => pools::note_use_elsewhere(pool, event),
            // As `without_event`. What is wrong with the stream is the free's to report.
            None => {
                let wait = || api::relaxed(|| api::stream_synchronize(stream));
                let _ = waits::timed(Wait::Shared, wait);
            }
        }
    }

    fn owner_of(&self, stream: StreamHandle) -> &'static Context {
        streams::context_of(stream).unwrap_or(self.context)
    }

    /// A shortage that a native free does not have. Behind the next barrier of its context a block is
    /// safe as well; for a stream of another context that proves nothing, and only a wait helps.
    fn without_event(&self, stream: StreamHandle, id: u64, here: bool) -> CuResult {
        if here {
            self.join(stream, id);
            return self.park_for_barrier();
        }
        let wait = || api::relaxed(|| api::stream_synchronize(stream));
        self.conclude(waits::timed(Wait::Shared, wait))
    }

    fn is_on_other_streams(&self) -> bool {
        self.block.is_on_other_streams() && rule_holds(Rule::RecordedStreamsPark)
    }

    /// An event behind all work of the context covers the stream of the free and all others. Never
    /// waits: natively this free does not.
    fn park_behind_all(&self) -> CuResult {
        let Ok((event, _, _)) = barrier::record(self.thread, self.context) else {
            return self.park_for_barrier();
        };
        let event = self.with_zone_copied(event);
        let ready = Ready::After { event: event.id() };
        stream_frees::free(self.context, self.freed(), ready, Some(event));
        Ok(())
    }
}
