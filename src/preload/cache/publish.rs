//! End of a free, after which the block may be handed out again.

use cachealloc_core::ReuseCondition;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::free::Free;
use crate::cache::{blocks, red_zones};
use crate::config;
use crate::driver::sys::CuResult;
use crate::graphs::private_pools;
use crate::graphs::private_pools::Behind;
use crate::lock::lock;
use crate::ordering::barrier::Recorded;
use crate::pagemap::LiveBlock;
use crate::record::recorder::Freed;
use crate::state::events::EventRef;
use crate::state::red_zones::FreedZone;
use crate::state::stream_frees::Place;

impl Free<'_> {
    /// Makes the block available: it may be handed out from here on.
    #[inline]
    pub(super) fn publish(&self) {
        if !self.block.extent.may_list() {
            return self.publish_past_lists();
        }
        self.look_behind();
        if config::records() {
            blocks::free_into_list_recorded(self.thread, self.context, &self.block, self.freed());
        } else {
            blocks::free_into_list(self.thread, self.context, &self.block);
        }
    }

    /// Leaves the block as it is: the next launch of its graph hands it out again.
    #[cold]
    pub(super) fn put_off(&self) -> CuResult {
        self.block.give_back();
        Ok(())
    }

    #[cold]
    pub(super) fn publish_past_lists(&self) {
        if self.is_private() {
            let Free { thread, context, .. } = *self;
            return private_pools::free(
                thread,
                context,
                self.freed(),
                ReuseCondition::Everywhere,
                Behind::Everything,
                None,
            );
        }
        self.look_behind();
        let mut allocator = lock(&self.context.allocator);
        blocks::free(self.context, &mut allocator, self.freed(), ReuseCondition::Everywhere);
    }

    #[inline]
    pub(super) fn look_behind(&self) {
        if self.has_zone() {
            red_zones::check(self.context, self.zone());
        }
    }

    #[inline]
    pub(super) fn has_zone(&self) -> bool {
        config::zone_bytes() != 0
    }

    /// Returns whether the red zone is copied after the work of a stream. Otherwise it can be
    /// checked only once that work has completed.
    pub(super) fn copies_zone(&self) -> bool {
        self.has_zone() && rule_holds(Rule::ZonesAreCopied)
    }

    #[cold]
    pub(super) fn zone(&self) -> FreedZone {
        let stack = self.context.recorder.stack_of(self.block.block);
        let LiveBlock { address, requested_bytes, .. } = self.block;
        FreedZone { address, bytes: requested_bytes, stack }
    }

    /// Returns an event that is complete once all recorded work has completed and the zone of the
    /// block has been copied.
    pub(super) fn behind_all(&self, recorded: Recorded) -> (EventRef, Place) {
        let Recorded { event, seen, .. } = recorded;
        let copied = || red_zones::copy_behind(self.thread, self.context, self.zone(), &event);
        match self.has_zone().then(copied).flatten() {
            Some(copied) => (copied, Place::alone()),
            None => (event, Place::behind_all(seen.number())),
        }
    }

    pub(super) fn freed(&self) -> Freed {
        let LiveBlock { block, address, .. } = self.block;
        Freed { block, address, requested_bytes: self.block.requested(), stack: self.stack }
    }
}
