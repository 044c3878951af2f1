//! Nearly full memory: every kind of request, combined with every kind of memory that is about to
//! become free.
//!
//! All requests of a phase have the same large size, so that the known fragmentation inside
//! segments plays no part: a request either clearly fits or clearly does not. On the plain driver,
//! memory freed in stream order returns to the device only when a thread waits, and counts as held
//! until then.

use super::maker::Maker;
use super::model::{Kind, held};
use crate::grammar::Op;

const MIB: u64 = 1 << 20;
/// Memory that contexts, modules and pinned memory may take.
const SET_ASIDE: u64 = 24 * MIB;

const REQUESTS: [Op; 7] = [
    Op::Alloc,
    Op::Alloc,
    Op::AllocAsync,
    Op::AllocAsync,
    Op::AllocPitch,
    Op::AllocVirtual,
    Op::AllocManaged,
];

impl Maker {
    pub fn bytes_held(&self) -> u64 {
        self.model.blocks.iter().flatten().map(|block| block.bytes).sum()
    }

    fn room(&self) -> u64 {
        (self.memory_mb * MIB).saturating_sub(SET_ASIDE)
    }

    /// Changes the size of the requests when nothing is held. The size only grows: a small block in
    /// a large segment would prevent its release, which is known.
    pub fn new_phase(&mut self) {
        self.empty_all();
        if self.bytes_held() > 0 {
            return; // a graph has some
        }
        let shares = [10, 15, 22, 30, 45, 60, 85];
        let later = self.phase + self.dice.below(3);
        self.phase = later.min(shares.len() - 1);
        let share = shares[self.phase];
        self.phase_bytes = (self.room() * share / 100).next_multiple_of(2 * MIB);
    }

    pub fn empty_all(&mut self) {
        for slot in held(&self.model.blocks) {
            if self.model.blocks[slot].as_ref().is_some_and(|block| block.graphs == 0) {
                self.give_back(slot as u64);
            }
        }
    }

    /// Frees a block by the matching call or by another one: after work, or from another thread.
    fn give_back(&mut self, slot: u64) {
        let (kind, stream) = (self.block(slot).kind, self.any_stream());
        if self.dice.chance(40) {
            self.fill_on(slot, stream);
        }
        if self.model.blocks[slot as usize].is_none() {
            return;
        }
        match kind {
            Kind::Async | Kind::Pooled if self.dice.chance(75) => {
                let stream = self.any_stream();
                self.free_async(slot, stream);
                if self.dice.chance(20) {
                    self.wait_of(stream);
                }
            }
            _ => self.free(slot),
        }
    }

    fn wait_of(&mut self, stream: u64) {
        if self.captures_open == 0 {
            return self.device_wait();
        }
        if stream >= 2 && self.may_wait() {
            self.say(Op::StreamSync, &[stream]);
            let lane = self.lane(stream);
            self.model.order.waited_for(lane);
        }
    }

    pub fn press(&mut self) {
        if self.phase_bytes == 0 {
            self.new_phase();
        }
        let (held_bytes, bytes) = (self.bytes_held(), self.phase_bytes);
        let room = self.room();
        let op = self.dice.pick(&REQUESTS);
        if !self.may_wait() {
            return;
        }
        let (just_fits, wanted) =
            (room + 1..=self.memory_mb * MIB, held_bytes + self.pending_bytes + bytes);
        // A stream-ordered request may take memory that was freed before, complete or not, or other
        // memory: what it leaves to other requests is the driver's choice. What the device gets in
        // a wait for a part of the work depends on time.
        let is_chance = self.sees_pending || self.takes_pending && op != Op::AllocAsync;
        let is_chance = is_chance && wanted > room;
        if just_fits.contains(&wanted) || is_chance {
            return self.device_wait();
        }
        if held_bytes + bytes <= room {
            if let Some(slot) = self.allocate_as(bytes, op)
                && self.dice.chance(60)
            {
                let stream = self.any_stream();
                self.fill_on(slot, stream);
            }
        } else if self.dice.chance(12) {
            // The request must fail, without side effects.
            let slot = REFUSED;
            self.say(Op::Alloc, &[slot, self.memory_mb * MIB]);
        } else {
            let slots = held(&self.model.blocks);
            let slot = self.dice.pick(&slots);
            if self.block(slot as u64).graphs == 0 {
                self.give_back(slot as u64);
            }
        }
    }

    /// Queries the free memory: clearly more, or clearly less than the program asks about.
    pub fn ask_for_room(&mut self) {
        if self.bytes_held() == 0 && self.dice.chance(50) {
            return;
        }
        let pending = self.dice.chance(50);
        if !pending {
            self.device_wait();
        }
        if self.captures_open == 0 {
            let free = self.room().saturating_sub(self.bytes_held());
            self.say(Op::MemoryHas, &[free * 9 / 10]);
        }
    }

    /// Queries the memory that the pools report as used and as reserved.
    pub fn ask_the_pool(&mut self) {
        let of_pool = self.model.blocks.iter().flatten().filter(|block| block.kind == Kind::Async);
        let bytes: u64 = of_pool.map(|block| block.bytes).sum();
        let attribute = self.dice.pick(&[5, 7, 7, 8]);
        if attribute == 5 {
            // Freed memory counts as reserved until a thread waits.
            self.device_wait();
        }
        self.say(Op::PoolHolds, &[0, attribute, (bytes * 9 / 10).max(1)]);
    }

    pub fn trim_pool(&mut self) {
        let keep = self.dice.pick(&[0, 0, 1 << 30]);
        let op = self.dice.pick(&[Op::PoolTrim, Op::PoolKeep]);
        if op == Op::PoolTrim {
            // Memory still in use stays in the pool; the library counts it as free.
            self.device_wait();
        }
        self.say(op, &[0, keep]);
    }
}

const REFUSED: u64 = 41;
