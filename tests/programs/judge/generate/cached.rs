//! Captures as caching allocators make them.

use super::maker::Maker;
use super::model::Uses;
use crate::grammar::Op;

impl Maker {
    /// A capture as PyTorch makes it without its cache: with requests and frees in the capture,
    /// also by a thread that only submits to it, and with ordinary ones between the launches. The
    /// reference is the behaviour of a caching allocator.
    pub fn cached_capture(&mut self) {
        let Some(to) = self.any_block(false) else { return self.allocate() };
        // Copies in rows reveal less of the accessed memory than a kernel's arguments do.
        let from = self.any_block(true).filter(|from| *from != to);
        let from = from.filter(|_| self.dice.chance(40));
        let mode = self.dice.below(3) as u64;
        let Some(mut capture) = self.begin_capture(mode) else { return };
        let stream = capture.stream;
        let (home, ctx) = (self.thread, self.ctx());
        let other = ((usize::from(home) + 1) % self.threads.max(1)) as u8;
        let mut live: Vec<u64> = Vec::new();
        for round in 0..2 + self.dice.below(6) as u64 {
            if mode != 0 && self.dice.chance(40) {
                self.switch(if self.thread == home { other } else { home });
                self.set_ctx(ctx);
            }
            let slot = 44 + round;
            let (value, delay) = (self.value(), self.delay());
            let bytes = self.dice.pick(&[4096, 64 << 10, 1 << 20, 3 << 20]);
            self.say(Op::Alloc, &[slot, bytes]);
            match from {
                Some(from) => {
                    self.say(Op::Copy, &[slot, from, stream, delay, IN_ROWS]);
                    self.say(Op::Copy, &[to, slot, stream, delay, IN_ROWS]);
                }
                None => {
                    self.say(Op::Fill, &[slot, stream, value, delay, 0]);
                    self.say(Op::Copy, &[to, slot, stream, delay, 0]);
                }
            }
            live.push(slot);
            if self.dice.chance(70) {
                let index = self.dice.below(live.len());
                let slot = live.swap_remove(index);
                self.say(Op::Free, &[slot]);
            }
        }
        self.switch(home);
        self.set_ctx(ctx);
        for slot in live {
            self.say(Op::Free, &[slot]);
        }
        let reads = from.into_iter().collect();
        capture.uses = Uses { reads, writes: vec![to], memory: true, ..Uses::default() };
        self.end_capture(capture);
    }

    /// A cached capture over two contexts: memory requested in the second one also belongs to the
    /// capture.
    pub fn cached_contexts(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        const CTX: u64 = 5;
        const SIDE: u64 = 124;
        const FORK: u64 = 125;
        const JOIN: u64 = 124;
        const GRAPH: u64 = 126;
        // Both parts have the same offset.
        const IN_IT: u64 = 60;
        const AFTER_IT: u64 = 63;
        self.set_ctx(0);
        let (stream, (value, delay)) = (self.create_stream(false), (self.value(), self.delay()));
        let (later, bytes) = (self.value(), self.dice.pick(&[4096, 1 << 20, 3 << 20]));
        let from = self.any_block(true).filter(|_| self.dice.chance(50));
        let from = from.filter(|from| self.ensure_for(*from, stream, false));
        self.say(Op::EventCreate, &[FORK, 2]);
        self.say(Op::CtxCreate, &[CTX]);
        self.say(Op::StreamCreate, &[SIDE, 1, 0]);
        self.say(Op::EventCreate, &[JOIN, 2]);
        self.say(Op::CtxSet, &[0]);
        self.say(Op::CaptureBegin, &[stream, 0]);
        self.say(Op::EventRecord, &[FORK, stream]);
        self.say(Op::EventWait, &[SIDE, FORK]);
        self.say(Op::CtxSet, &[CTX]);
        self.say(Op::Alloc, &[IN_IT, bytes]);
        match from {
            Some(from) => self.say(Op::Copy, &[IN_IT, from, SIDE, delay, IN_ROWS]),
            None => self.say(Op::Fill, &[IN_IT, SIDE, value, delay, 0]),
        }
        self.say(Op::Free, &[IN_IT]);
        self.say(Op::EventRecord, &[JOIN, SIDE]);
        self.say(Op::CtxSet, &[0]);
        self.say(Op::EventWait, &[stream, JOIN]);
        self.say(Op::CaptureEnd, &[stream, GRAPH]);
        self.say(Op::Instantiate, &[GRAPH, GRAPH]);
        self.say(Op::CtxSet, &[CTX]);
        self.say(Op::Alloc, &[AFTER_IT, bytes]);
        self.say(Op::Fill, &[AFTER_IT, SIDE, later, delay, 0]);
        self.say(Op::CtxSync, &[]);
        self.say(Op::CtxSet, &[0]);
        self.say(Op::Launch, &[GRAPH, stream]);
        self.say(Op::StreamSync, &[stream]);
        if let Some(from) = from {
            self.touched(from, stream, false);
        }
        self.say(Op::CtxSet, &[CTX]);
        self.say(Op::Read, &[AFTER_IT]);
        self.say(Op::CtxSet, &[0]);
        self.say(Op::ExecDestroy, &[GRAPH]);
        self.say(Op::GraphDestroy, &[GRAPH]);
        self.say(Op::CtxDestroy, &[CTX]);
        self.say(Op::EventDestroy, &[FORK]);
        self.say(Op::StreamDestroy, &[stream]);
        self.model.streams[stream as usize] = None;
    }
}

/// A copy as a matrix of one row.
const IN_ROWS: u64 = 2;
