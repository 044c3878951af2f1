//! Allocates, writes, reads and frees blocks.

use super::maker::{Maker, SIZES};
use super::model::{BlockModel, Kind, empty, held};
use super::order::Clock;
use crate::grammar::Op;

impl Maker {
    pub fn allocate(&mut self) {
        let bytes = self.dice.pick(&SIZES);
        let ordered = self.dice.chance(35);
        self.allocate_as(bytes, if ordered { Op::AllocAsync } else { Op::Alloc });
    }

    /// Allocates any kind of memory.
    pub fn allocate_any(&mut self) {
        let ops = [Op::Alloc, Op::AllocAsync, Op::AllocPitch, Op::AllocManaged, Op::AllocVirtual];
        let (bytes, op) = (self.dice.pick(&SIZES), self.dice.pick(&ops));
        self.allocate_as(bytes, op);
    }

    pub fn allocate_as(&mut self, bytes: u64, op: Op) -> Option<u64> {
        let Some(slot) = empty(&self.model.blocks) else {
            if self.captures_open == 0 {
                self.free_any();
            }
            return None;
        };
        self.allocate_in(slot as u64, bytes, op);
        Some(slot as u64)
    }

    pub fn allocate_in(&mut self, slot: u64, bytes: u64, op: Op) {
        if !self.may_wait() || self.captures_open > 0 && op == Op::AllocManaged {
            return;
        }
        let ctx = self.ctx_id(self.ctx());
        let (mut touched, mut kind) = (Clock::default(), Kind::Plain);
        match op {
            Op::AllocAsync => {
                let stream = self.any_stream();
                self.say(op, &[slot, bytes, stream]);
                let lane = self.lane(stream);
                touched = self.model.order.mark(lane);
                kind = Kind::Async;
            }
            Op::AllocPool => {
                let (stream, pool) = (self.any_stream(), 1);
                self.say(op, &[slot, bytes, pool, stream]);
                let lane = self.lane(stream);
                touched = self.model.order.mark(lane);
                kind = Kind::Pooled;
            }
            Op::AllocPitch => self.say(op, &[slot, bytes, 8]),
            Op::AllocVirtual => {
                self.say(op, &[slot, bytes]);
                kind = Kind::Virtual;
            }
            _ => self.say(op, &[slot, bytes]),
        }
        let written = touched.clone();
        let (filled, graphs) = (false, 0);
        self.model.blocks[slot as usize] =
            Some(BlockModel { ctx, kind, bytes, filled, written, touched, graphs });
    }

    /// Returns a block that no graph references.
    pub fn any_block(&mut self, filled: bool) -> Option<u64> {
        let usable = |slot: &usize| {
            let block = self.model.blocks[*slot].as_ref();
            block.is_some_and(|block| block.filled || !filled)
        };
        let slots: Vec<usize> = held(&self.model.blocks).into_iter().filter(usable).collect();
        (!slots.is_empty()).then(|| self.dice.pick(&slots) as u64)
    }

    pub fn free_any(&mut self) {
        let Some(slot) = self.any_block(false) else { return };
        if self.block(slot).graphs > 0 {
            return;
        }
        let stream = self.any_stream();
        let kind = self.block(slot).kind;
        match self.dice.below(10) {
            0..3 => self.free_async(slot, stream),
            3..8 if matches!(kind, Kind::Async | Kind::Pooled) => self.free_async(slot, stream),
            _ => self.free(slot),
        }
    }

    pub fn block(&self, slot: u64) -> &BlockModel {
        self.model.blocks[slot as usize].as_ref().expect("a slot that is held")
    }

    /// Whether to use a call without a stream argument: it is ordered with the legacy stream.
    fn synchronous(&mut self, stream: u64) -> bool {
        stream == 0 && self.captures_open == 0 && self.dice.chance(50)
    }

    /// Records what an operation on a stream does to a block.
    pub fn touched(&mut self, slot: u64, stream: u64, wrote: bool) {
        let lane = self.lane(stream);
        let clock = self.model.order.submit(lane);
        let Some(block) = &mut self.model.blocks[slot as usize] else { return };
        block.touched.join(&clock);
        if wrote {
            block.written = clock;
            block.filled = true;
        }
    }

    /// Orders a stream after the uses of a block. Returns `false` if the block was freed in doing
    /// so.
    pub fn ensure_for(&mut self, slot: u64, stream: u64, write: bool) -> bool {
        let Some(block) = &self.model.blocks[slot as usize] else { return false };
        let clock = if write { block.touched.clone() } else { block.written.clone() };
        self.ensure(stream, &clock) && self.holds(slot)
    }

    pub fn holds(&self, slot: u64) -> bool {
        self.model.blocks[slot as usize].is_some()
    }

    pub fn fill(&mut self) {
        let Some(slot) = self.any_block(false) else { return self.allocate() };
        let stream = self.any_stream();
        self.fill_on(slot, stream);
    }

    pub fn fill_on(&mut self, slot: u64, stream: u64) {
        if !self.ensure_for(slot, stream, true) {
            return; // freed to bring it in order
        }
        let (value, delay) = (self.value(), self.delay());
        if self.dice.chance(75) {
            let mut how = self.dice.pick(&[0, 0, 0, 1, 1]);
            if self.block(slot).touched.is_empty() && self.dice.chance(15) {
                // The kernel may start early: nothing has used the block that it writes.
                how = 2;
            }
            self.say(Op::Fill, &[slot, stream, value, delay, how]);
        } else {
            let synchronous = self.synchronous(stream);
            let how = if synchronous { 9 } else { 0 } + self.dice.below(6) as u64;
            self.say(Op::Memset, &[slot, stream, value & 0xFF, how]);
        }
        if self.dice.chance(5) {
            let (value, how) = (self.value(), self.dice.below(3) as u64);
            self.touched(slot, stream, true);
            self.say(Op::WriteValue, &[slot, stream, value, how]);
        }
        self.touched(slot, stream, true);
    }

    pub fn copy(&mut self) {
        let (Some(from), stream) = (self.any_block(true), self.any_stream()) else { return };
        let Some(to) = self.any_block(false).filter(|to| *to != from) else { return };
        if !self.ensure_for(from, stream, false) {
            return;
        }
        if !self.ensure_for(to, stream, true) || !self.holds(from) {
            return;
        }
        let delay = self.delay();
        if self.dice.chance(25) && self.block(to).filled {
            self.say(Op::Add, &[to, from, stream, delay]);
        } else {
            let mut how = self.dice.pick(&[0, 0, 1, 1, 2, 3, 4, 5, 8]);
            if self.synchronous(stream) {
                how = 9 + self.dice.below(5) as u64;
            }
            if self.beyond {
                // Copies between two devices; on one device this turns the context into more than a
                // plain one.
                how = self.dice.pick(&[how, how, 6, 7, if how < 9 { how } else { 14 }]);
                how = if stream == 0 && how == 14 { 14 + self.dice.below(2) as u64 } else { how };
            }
            self.say(Op::Copy, &[to, from, stream, delay, how]);
        }
        self.touched(from, stream, false);
        self.touched(to, stream, true);
    }

    /// Reads a block back.
    pub fn read(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        let Some(slot) = self.any_block(true) else { return };
        if !self.ensure_for(slot, 0, false) {
            return;
        }
        self.say(Op::Read, &[slot]);
        let lane = self.lane(0);
        self.model.order.waited_for(lane);
    }

    /// Allocates from a pool that the program made, and destroys the pool while some of its memory
    /// is still allocated.
    pub fn explicit_pool(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        self.say(Op::PoolCreate, &[1]);
        for _ in 0..1 + self.dice.below(4) {
            let bytes = self.dice.pick(&SIZES);
            if let Some(slot) = self.allocate_as(bytes, Op::AllocPool) {
                let stream = self.any_stream();
                self.fill_on(slot, stream);
            }
        }
        if self.dice.chance(50) {
            self.free_any();
        }
        self.say(Op::PoolDestroy, &[1]);
    }

    /// Creates, writes, reads and destroys an array.
    pub fn arrays(&mut self) {
        let array = self.dice.below(4) as u64;
        self.say(Op::ArrayCreate, &[array, 64, 4]);
        let (Some(from), stream) = (self.any_block(true), self.any_stream()) else { return };
        let Some(to) = self.any_block(true).filter(|to| *to != from) else { return };
        if !self.ensure_for(from, stream, false) {
            return;
        }
        if !self.ensure_for(to, stream, true) || !self.holds(from) {
            return;
        }
        self.say(Op::FillArray, &[array, from, stream]);
        self.touched(from, stream, false);
        self.say(Op::ReadArray, &[to, array, stream]);
        self.touched(to, stream, true);
        let lane = self.lane(stream);
        if self.dice.chance(50) && self.may_wait() {
            self.say(Op::StreamSync, &[stream]);
            self.model.order.waited_for(lane);
        }
        self.say(Op::ArrayDestroy, &[array]);
        let ctx = self.ctx_id(self.ctx());
        self.model.order.waited_for_context(ctx);
    }

    /// Creates a texture over a block; destroying it is a teardown.
    pub fn textures(&mut self) {
        let Some(slot) = self.any_block(false) else { return };
        let texture = self.dice.below(4) as u64;
        self.say(Op::TextureCreate, &[texture, 0, slot]);
        if self.dice.chance(50) {
            let stream = self.any_stream();
            self.fill_on(slot, stream);
        }
        self.say(Op::TextureDestroy, &[texture]);
    }

    pub fn ask_about_a_block(&mut self) {
        let Some(slot) = self.any_block(false) else { return };
        let place = self.dice.roll() % 100_000;
        if self.block(slot).kind == Kind::Virtual && self.dice.chance(30) {
            self.say(Op::Access, &[slot]);
        } else if self.dice.chance(5) {
            let attribute = self.dice.below(4) as u64;
            self.say(Op::GraphMemory, &[attribute]);
        } else if self.dice.chance(50) {
            self.say(Op::Range, &[slot, place]);
        } else {
            let attribute = self.dice.below(11) as u64;
            self.say(Op::Attribute, &[slot, attribute, place]);
        }
    }
}
