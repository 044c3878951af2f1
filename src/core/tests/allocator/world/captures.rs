//! Effects of captures on the allocator.

use cachealloc_core::BlockState;

use super::*;

impl World {
    /// Begins a capture.
    pub fn open_pool(&mut self) -> PrivatePool {
        self.pools_count += 1;
        let pool = PrivatePool(self.pools_count);
        self.model.opened(pool);
        let begun = self.allocator.idle_mark();
        self.allocator.open_pool(pool, begun);
        self.pools.push((pool, false));
        pool
    }

    /// Ends the pool: its graph is gone.
    pub fn end_pool(&mut self, pool: PrivatePool) {
        self.model.ended(pool);
        self.allocator.end_pool(pool);
        self.pools.iter_mut().filter(|known| known.0 == pool).for_each(|known| known.1 = true);
    }

    /// Closes the pool: all its work is complete.
    pub fn close_pool(&mut self, pool: PrivatePool) {
        self.model.closed(pool);
        self.allocator.close_pool(pool);
        self.look_at_several();
        self.pools.retain(|known| known.0 != pool);
        self.retire();
    }

    /// Returns the pool of a block while its capture runs.
    pub fn pool_of(&self, block: BlockId) -> Option<PrivatePool> {
        self.allocator.private_pool_of(block).filter(|pool| !self.captured.contains(pool))
    }

    /// Attaches the block to the pool: a thread that has allocated it submits into the capture.
    pub fn join(&mut self, block: BlockId, pool: PrivatePool) {
        self.model.joined(block, pool);
        self.allocator.attach_to_pool(block, pool);
    }

    /// Notes that a node references the block, which was attached to the pool.
    pub fn name(&mut self, block: BlockId, pool: PrivatePool) {
        self.model.named(block, pool);
    }

    /// Notes that a node references a block whose thread does not take part in the capture.
    pub fn name_elsewhere(&mut self, block: BlockId, pool: PrivatePool) {
        self.model.named_elsewhere(block, pool);
    }

    /// Takes a part of a free range for a capture.
    pub fn adopt_part(
        &mut self,
        bytes: u64,
        requester: Requester,
        private: PrivatePool,
    ) -> Option<Allocation> {
        let request = Request::in_pool(bytes, requester, private);
        let model = &self.model;
        let named_end = |bytes| model.last_named_end(private, bytes);
        let is_idle = |bytes| model.is_idle_for(private, bytes);
        let expected = naive::part(&self.allocator, bytes, is_idle, named_end);
        let named = |from: Address, to: Address| named_end(from.0..to.0).map(Address);
        let found = self.allocator.adopt_part(&request, named);
        self.look();
        let expected = expected.filter(|_| self.allocator.serves_pool(private));
        let address = found.map(|found| found.address);
        assert!(address == expected || !self.judges_all, "{address:?}, not {expected:?}");
        let found = found?;
        self.check_sizes(&request, &found);
        self.model.taken_part(&found, requester, private);
        assert_eq!(self.allocator.private_pool_of(found.block), Some(private));
        Some(found)
    }

    /// Frees the block in its capture, ordered after all work, and does what the caller does then.
    pub fn free_in_capture(&mut self, block: BlockId, pool: PrivatePool) {
        let view = self.view(block);
        if self.model.names_any(pool, view.address.0..view.address.0 + view.bytes) {
            return self.free(block, ReuseCondition::Everywhere);
        }
        self.model.freed_unused(block, pool, view.segment.private.is_some());
        self.allocator.free_unused(block);
        self.look();
        let uses = |from: Address, to: Address| self.model.names_any(pool, from.0..to.0);
        if self.allocator.open_unused(view.address, uses) {
            let base = view.segment.base.0;
            let bytes = base..base + view.segment.bytes;
            let held = self.model.is_any_held(bytes.clone());
            assert!(!held || !self.judges_all, "{bytes:x?} is opened");
            self.model.opened_unused(pool, bytes);
        }
        self.look_at_several();
        self.retire();
    }

    /// Prepares a free of the block that is ordered after work outside of its capture.
    pub fn leave(&mut self, block: BlockId, pool: PrivatePool) {
        if self.is_named(block, pool) {
            return;
        }
        let segment = self.view(block).segment;
        let private = |world: &World| {
            let blocks = world.allocator.blocks(segment.id);
            let private = blocks.filter(|view| view.private == Some(pool));
            private.map(|view| (view.address.0, view.address.0 + view.bytes)).collect::<Vec<_>>()
        };
        let views: Vec<_> = self.allocator.blocks(segment.id).collect();
        let views = views.into_iter().filter(|view| view.private == Some(pool));
        let others = views.filter(|view| view.block != block).map(|view| {
            let all_leave = segment.private.is_some() && view.state != BlockState::Allocated;
            (view.address, if all_leave { self.is_opened(&view, pool) } else { Some(false) })
        });
        let others: Vec<_> = others.collect();
        let before = private(self);
        let uses = |from: Address, to: Address| self.model.names_any(pool, from.0..to.0);
        self.allocator.detach_from_pool(block, uses);
        self.look_at_several();
        let after = private(self);
        for (from, to) in before.into_iter().filter(|range| !after.contains(range)) {
            self.model.left(pool, from..to);
        }
        self.check_opened(&others, pool);
        self.retire();
    }

    /// Ends the capture; its graph lives on. Or serves a request of a capture that has ended.
    pub fn open_rest(&mut self, pool: PrivatePool) {
        if !self.captured.contains(&pool) {
            self.captured.push(pool);
        }
        let views = self.allocator.segments().flat_map(|it| self.allocator.blocks(it.id));
        let views = views.filter(|view| view.private == Some(pool));
        let all: Vec<_> = views.map(|view| (view.address, self.is_opened(&view, pool))).collect();
        let model = &self.model;
        let uses = |from: Address, to: Address| model.names_any(pool, from.0..to.0);
        self.allocator.open_rest(pool, uses);
        self.look_at_several();
        self.model.opened_rest(pool);
        self.check_opened(&all, pool);
        self.retire();
    }

    /// Returns whether a block of a pool is ordinary memory: no node references it, or nothing
    /// outside may use it. Returns `None` if that is unknown: a remainder beside a block that was
    /// used again may count as used outside.
    fn is_opened(&self, view: &BlockView, pool: PrivatePool) -> Option<bool> {
        let bytes = view.address.0..view.address.0 + view.bytes;
        let is_free = view.state != BlockState::Allocated;
        if self.model.names_any(pool, bytes.clone()) {
            return Some(false);
        }
        if is_free && self.model.is_any_used_outside(pool, bytes) {
            return Some(false);
        }
        (!is_free || !self.used_outside.contains(&pool)).then_some(true)
    }

    fn check_opened(&self, opened: &[(Address, Option<bool>)], pool: PrivatePool) {
        for (address, opened) in opened {
            let found = self.allocator.find(*address).expect("no memory has gone");
            let right = opened.is_none_or(|opened| opened == (found.private != Some(pool)));
            assert!(right || !self.judges_all, "opened: {opened:?}, {found:x?}");
        }
    }

    pub fn is_named(&self, block: BlockId, pool: PrivatePool) -> bool {
        let view = self.view(block);
        self.model.names_any(pool, view.address.0..view.address.0 + view.bytes)
    }

    pub fn is_free_everywhere(&self, block: BlockId) -> bool {
        self.view(block).private.is_none()
    }
}
