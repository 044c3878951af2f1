//! Captures while other threads do unrelated work.

use super::maker::Maker;
use super::model::{Kind, Uses, empty, held};
use crate::grammar::Op;

impl Maker {
    /// One thread captures; another continues its ordinary work, including requests.
    pub fn capture_beside(&mut self) {
        let (home, ctx) = (self.thread, self.ctx());
        let mode = self.dice.pick(&[0, 1, 1, 2, 2]);
        let Some(mut capture) = self.begin_capture(mode) else { return };
        self.captured_work(&mut capture, 1);
        self.hold(&capture.uses, 1);
        let other = (usize::from(home) + 1) % self.threads.max(2);
        let own = self.threads < 2 || (mode == 2 && self.dice.chance(30));
        self.switch(if own { home } else { other as u8 });
        self.set_ctx(ctx);
        let count = 4 + self.dice.below(24);
        for _ in 0..count {
            match self.dice.below(10) {
                5..8 if self.bytes_held() > 0 => self.fill(),
                8 => self.copy(),
                9 => self.wait(),
                _ => self.press(),
            }
        }
        self.switch(home);
        self.set_ctx(ctx);
        self.hold(&capture.uses, -1);
        self.captured_work(&mut capture, 1);
        self.end_capture(capture);
    }

    /// Begins many captures at once, with a request meanwhile.
    pub fn many_captures(&mut self) {
        if self.captures_open > 0 || self.dice.chance(50) {
            return;
        }
        let count = self.dice.pick(&[3, 20, 70]);
        let first = 48;
        for stream in first..first + count {
            self.say(Op::StreamCreate, &[stream, 1, 0]);
            self.say(Op::CaptureBegin, &[stream, 1]);
        }
        self.captures_open += 1;
        self.captures_are_global = false;
        let home = self.thread;
        let other = (usize::from(home) + 1) % self.threads.max(2);
        let ctx = self.ctx();
        self.switch(other as u8);
        self.set_ctx(ctx);
        for _ in 0..8 {
            self.press();
        }
        self.switch(home);
        self.captures_open -= 1;
        for stream in first..first + count {
            self.say(Op::CaptureEnd, &[stream, 120]);
            self.say(Op::GraphDestroy, &[120]);
            self.say(Op::StreamDestroy, &[stream]);
        }
    }

    /// Requests and frees memory in a relaxed capture, which on the plain driver works as outside
    /// of a capture.
    pub fn relaxed_requests(&mut self) {
        let Some(mut capture) = self.begin_capture(2) else { return };
        for _ in 0..2 + self.dice.below(6) {
            self.press();
        }
        self.captured_work(&mut capture, 1);
        self.end_capture(capture);
    }

    /// A graph that allocates, uses and frees memory in its capture.
    pub fn graph_memory(&mut self) {
        let (Some(slot), Some(to)) = (empty(&self.model.blocks), self.any_block(false)) else {
            return;
        };
        let mode = self.dice.below(3) as u64;
        let Some(mut capture) = self.begin_capture(mode) else { return };
        let (stream, slot) = (capture.stream, slot as u64);
        let (value, delay) = (self.value(), self.delay());
        self.say(Op::AllocAsync, &[slot, 65536, stream]);
        self.say(Op::Fill, &[slot, stream, value, delay, 0]);
        self.say(Op::Fill, &[to, stream, value, delay, 0]);
        self.say(Op::Copy, &[to, slot, stream, delay, 0]);
        self.say(Op::FreeAsync, &[slot, stream]);
        capture.uses = Uses { writes: vec![to], memory: true, ..Uses::default() };
        self.end_capture(capture);
    }

    /// A capture that a second stream joins.
    pub fn joined_capture(&mut self) {
        let home = self.ctx();
        self.joined_with(home);
    }

    /// A capture that a stream of another context joins, perhaps on another device.
    pub fn joined_beyond(&mut self) {
        let slots = held(&self.model.ctxs);
        let there = self.dice.pick(&slots);
        self.joined_with(there);
    }

    fn joined_with(&mut self, there: usize) {
        let Some(places) = self.room_for_graph() else { return };
        let ctx = self.ctx();
        let (fork, join) = (126, 127);
        self.say(Op::EventCreate, &[fork, 2]);
        self.set_ctx(there);
        let side = self.create_stream(false);
        self.say(Op::EventCreate, &[join, 2]);
        self.set_ctx(ctx);
        let mode = self.dice.below(3) as u64;
        let mut capture = self.begin_capture_into(places, mode);
        let stream = capture.stream;
        self.captured_work(&mut capture, 1);
        self.say(Op::EventRecord, &[fork, stream]);
        let home = self.thread;
        let other = (usize::from(home) + 1) % self.threads.max(1);
        self.switch(other as u8);
        self.set_ctx(there);
        self.say(Op::EventWait, &[side, fork]);
        let Uses { reads, writes, .. } = &capture.uses;
        let taken: Vec<u64> = writes.iter().chain(reads).copied().collect();
        if let Some(slot) = self.any_block(false).filter(|slot| !taken.contains(slot)) {
            let (value, delay) = (self.value(), self.delay());
            self.say(Op::Fill, &[slot, side, value, delay, 0]);
            capture.uses.writes.push(slot);
        }
        self.say(Op::EventRecord, &[join, side]);
        self.switch(home);
        self.set_ctx(ctx);
        self.say(Op::EventWait, &[stream, join]);
        self.captured_work(&mut capture, 1);
        self.end_capture(capture);
        self.say(Op::EventDestroy, &[fork]);
        self.say(Op::EventDestroy, &[join]);
        self.say(Op::StreamDestroy, &[side]);
        self.model.streams[side as usize] = None;
    }

    /// A request in a host function, which the driver refuses with a special code.
    pub fn request_in_host_function(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        let (stream, what) = (self.any_stream(), self.dice.below(8) as u64);
        let block = self.any_block(false).unwrap_or(0);
        self.say(Op::HostRequest, &[stream, what, block]);
        self.wait_for_answer(stream);
    }

    fn wait_for_answer(&mut self, stream: u64) {
        self.say(Op::StreamSync, &[stream]);
        let lane = self.lane(stream);
        self.model.order.submit(lane);
        self.model.order.waited_for(lane);
        self.say(Op::Answers, &[]);
    }

    /// Removes the access to a mapping while work may use it.
    pub fn revoke_access(&mut self) {
        let is_mapped = |slot: &usize| {
            let block = self.model.blocks[*slot].as_ref();
            block.is_some_and(|block| block.kind == Kind::Virtual && block.graphs == 0)
        };
        let slots: Vec<usize> = held(&self.model.blocks).into_iter().filter(is_mapped).collect();
        if slots.is_empty() || self.captures_open > 0 {
            return;
        }
        let slot = self.dice.pick(&slots);
        if self.dice.chance(60) {
            self.free_a_temporary();
        }
        let Some(block) = self.model.blocks[slot].clone() else { return };
        self.ensure_host(&block.touched);
        self.say(Op::Revoke, &[slot as u64]);
        self.free(slot as u64);
    }

    /// A kernel that runs until the program has made a call that must not wait for it.
    pub fn persistent(&mut self) {
        if self.captures_open > 0 || self.flags_used >= 60 {
            return;
        }
        let (flag, stream) = (self.flags_used, self.create_stream(false));
        self.flags_used += 1;
        let how = self.dice.below(4) as u64;
        self.say(Op::Spin, &[stream, flag, how]);
        let lane = self.lane(stream);
        self.model.order.submit(lane);
        // Waiting for the context would never end, so the model treats it like an open capture.
        self.captures_open += 1;
        self.captures_are_global = false;
        for _ in 0..2 + self.dice.below(6) {
            match self.dice.below(6) {
                0 | 1 => self.allocate(),
                2 => {
                    let Some(slot) = self.any_block(false) else { continue };
                    let stream = self.any_other_stream(stream);
                    if self.block(slot).graphs == 0 && self.block(slot).kind != Kind::Virtual {
                        self.free_async(slot, stream);
                    }
                }
                3 => {
                    let Some(slot) = self.any_block(false) else { continue };
                    let stream = self.any_other_stream(stream);
                    self.fill_on(slot, stream);
                }
                4 => self.ask_about_a_block(),
                _ => self.say(Op::MemoryHas, &[1]),
            }
        }
        self.captures_open -= 1;
        self.say(Op::Raise, &[flag, 0, 0]);
    }

    /// A request that the driver serves although the memory it returns is still in use, by work
    /// that ends only after the request.
    pub fn behind_persistent(&mut self) {
        if self.captures_open > 0 || self.flags_used >= 60 {
            return;
        }
        let (flag, how) = (self.flags_used, self.dice.below(4) as u64);
        self.flags_used += 1;
        // There is memory for only one of the two blocks.
        let bytes = (self.memory_mb << 20) * 6 / 10;
        let (first, second) = (self.create_stream(false), self.create_stream(false));
        let value = self.value();
        self.device_wait();
        self.say(Op::AllocAsync, &[BEHIND, bytes, first]);
        self.say(Op::Spin, &[first, flag, how]);
        self.say(Op::FreeAsync, &[BEHIND, first]);
        self.say(Op::AllocAsync, &[BEHIND + 3, bytes, second]);
        self.say(Op::Fill, &[BEHIND + 3, second, value, 0, 0]);
        self.say(Op::Raise, &[flag, 0, 0]);
        self.say(Op::StreamSync, &[second]);
        self.say(Op::Read, &[BEHIND + 3]);
        self.say(Op::FreeAsync, &[BEHIND + 3, second]);
        self.device_wait();
    }

    fn any_other_stream(&mut self, not: u64) -> u64 {
        for _ in 0..4 {
            let stream = self.any_stream();
            if stream != not && stream > 1 {
                return stream;
            }
        }
        self.create_stream(false)
    }
}

/// Slots that the model does not use.
const BEHIND: u64 = 80;
