//! Generates lines, and keeps the model consistent with them.

use cachealloc_tests::dice::Dice;

use super::model::{BlockModel, CtxModel, EventModel, Kind, Model, StreamModel, ThreadModel, held};
use super::order::{Clock, LaneKind};
use crate::grammar::{Line, Op};

pub struct Maker {
    pub dice: Dice,
    pub lines: Vec<Line>,
    pub model: Model,
    /// The thread that acts next.
    pub thread: u8,
    pub values: u64,
    /// Percentage of the orderings that rely on a free.
    pub leaning: u64,
    /// Number of open captures. While there are any, only calls that they allow are made.
    pub captures_open: u32,
    pub threads: usize,
    /// Whether one of the captures forbids requests of other threads.
    pub captures_are_global: bool,
    pub memory_mb: u64,
    /// Size of each request in a phase under pressure.
    pub phase_bytes: u64,
    pub phase: usize,
    /// Bytes freed in stream order since the host last waited for all streams.
    pub pending_bytes: u64,
    /// Whether a stream-ordered request may have taken some of that memory since.
    pub takes_pending: bool,
    /// Whether a wait for a part of the work may have given some of it to the device since.
    pub sees_pending: bool,
    pub flags_used: u64,
    /// Preferences of this program, as bits.
    taste: u64,
    /// Whether there is a second device.
    pub beyond: bool,
    /// Whether contexts are attached to, and ended by the last detach.
    pub attaches: bool,
}

pub const SIZES: [u64; 8] = [512, 4_096, 20_000, 64 << 10, 1 << 20, 3 << 19, 3 << 20, 12 << 20];

impl Maker {
    pub fn new(seed: u64, leaning: u64) -> Maker {
        let mut model = Model::default();
        model.streams.resize(40, None);
        model.events.resize(40, None);
        model.blocks.resize(20, None);
        model.hosts.resize(10, None);
        model.graphs.resize(8, None);
        model.execs.resize(8, None);
        model.ctxs.resize_with(8, || None);
        let mut dice = Dice::new(seed);
        let taste = dice.roll();
        let (lines, values) = (Vec::new(), seed << 20);
        let mut maker = Maker {
            dice,
            lines,
            model,
            thread: 0,
            values,
            leaning,
            captures_open: 0,
            threads: 1,
            captures_are_global: false,
            memory_mb: 1024,
            phase_bytes: 0,
            phase: 0,
            pending_bytes: 0,
            takes_pending: false,
            sees_pending: false,
            flags_used: 0,
            taste,
            beyond: false,
            attaches: false,
        };
        maker.begin_context(0);
        maker.model.threads[0] = Some(ThreadModel { ctx: 0 });
        maker
    }

    pub fn say(&mut self, op: Op, args: &[u64]) {
        let pending = self.pending_bytes > 0;
        self.takes_pending |= pending && op == Op::AllocAsync;
        self.sees_pending |= pending && matches!(op, Op::StreamSync | Op::EventSync);
        self.lines.push(Line { thread: self.thread, op, args: args.to_vec() });
    }

    pub fn value(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    pub fn delay(&mut self) -> u64 {
        self.dice.pick(&[0, 0, 5_000, 50_000, 200_000])
    }

    /// Picks one of several ways to do something. Every second program has two favourites.
    pub fn one_of(&mut self, count: u64) -> u64 {
        let any = self.dice.roll() % count;
        match self.taste % 2 {
            0 => any,
            _ => self.dice.pick(&[(self.taste >> 8) % count, (self.taste >> 24) % count]),
        }
    }

    /// Whether the program uses no pinned memory: after a kernel was passed some, every kernel
    /// counts as host-visible.
    pub fn shows_little(&self) -> bool {
        (self.taste >> 40).is_multiple_of(4)
    }

    /// Whether the program's kernels access pinned memory only through textures.
    pub fn reaches_by_texture(&self) -> bool {
        (self.taste >> 44).is_multiple_of(6)
    }

    pub fn begin_context(&mut self, slot: usize) {
        let id = self.model.ctx_ids;
        self.model.ctx_ids += 1;
        let legacy = self.model.order.lane(id, LaneKind::Legacy);
        self.model.ctxs[slot] = Some(CtxModel { id, legacy, per_thread: Vec::new() });
    }

    /// Slot of the context that is current in this thread.
    pub fn ctx(&self) -> usize {
        self.model.threads[self.thread as usize].as_ref().map_or(0, |thread| thread.ctx)
    }

    pub fn ctx_id(&self, slot: usize) -> usize {
        self.model.ctxs[slot].as_ref().map_or(usize::MAX, |ctx| ctx.id)
    }

    pub fn set_ctx(&mut self, slot: usize) {
        if self.ctx() != slot {
            self.say(Op::CtxSet, &[slot as u64]);
            self.model.threads[self.thread as usize] = Some(ThreadModel { ctx: slot });
        }
    }

    pub fn set_ctx_id(&mut self, id: usize) {
        let found = held(&self.model.ctxs).into_iter().find(|slot| self.ctx_id(*slot) == id);
        if let Some(slot) = found {
            self.set_ctx(slot);
        }
    }

    pub fn switch(&mut self, thread: u8) {
        self.thread = thread;
        if self.model.threads[thread as usize].is_none() {
            self.model.threads[thread as usize] = Some(ThreadModel { ctx: 0 });
        }
    }

    /// Lane of a stream's slot, as seen by this thread.
    pub fn lane(&mut self, slot: u64) -> usize {
        if slot >= 2 {
            return self.model.streams[slot as usize].as_ref().map_or(0, |stream| stream.lane);
        }
        let (ctx, thread) = (self.ctx(), self.thread);
        let state = self.model.ctxs[ctx].as_mut().expect("the current context exists");
        if slot == 0 {
            return state.legacy;
        }
        if let Some((_, lane)) = state.per_thread.iter().find(|(owner, _)| *owner == thread) {
            return *lane;
        }
        let lane = self.model.order.lane(state.id, LaneKind::Blocking);
        state.per_thread.push((thread, lane));
        lane
    }

    /// Returns any stream of the current context that may be given work.
    pub fn any_stream(&mut self) -> u64 {
        let ctx = self.ctx_id(self.ctx());
        let usable = |slot: &usize| {
            let stream = self.model.streams[*slot].as_ref();
            stream.is_some_and(|stream| stream.ctx == ctx && !stream.capturing)
        };
        let mut slots: Vec<u64> =
            held(&self.model.streams).into_iter().filter(usable).map(|slot| slot as u64).collect();
        // A default stream would wait for a capturing stream.
        if self.captures_open == 0 {
            slots.extend([0, 1]);
        }
        if slots.is_empty() {
            return self.create_stream(false);
        }
        self.dice.pick(&slots)
    }

    pub fn create_stream(&mut self, blocking: bool) -> u64 {
        let free = (2..self.model.streams.len()).find(|slot| self.model.streams[*slot].is_none());
        let slot = free.unwrap_or(2);
        if free.is_none() {
            return slot as u64;
        }
        let ctx = self.ctx_id(self.ctx());
        let kind = if blocking { LaneKind::Blocking } else { LaneKind::NonBlocking };
        let lane = self.model.order.lane(ctx, kind);
        let priority = self.dice.pick(&[0, 0, 2]);
        self.say(Op::StreamCreate, &[slot as u64, u64::from(!blocking), priority]);
        self.model.streams[slot] = Some(StreamModel { ctx, lane, capturing: false });
        slot as u64
    }

    /// Returns an event of the current context on which nothing depends.
    pub fn event(&mut self) -> u64 {
        let ctx = self.ctx_id(self.ctx());
        let slots = held(&self.model.events);
        let own: Vec<usize> = slots
            .into_iter()
            .filter(|slot| self.model.events[*slot].as_ref().is_some_and(|event| event.ctx == ctx))
            .collect();
        let free = super::model::empty(&self.model.events);
        if own.len() > 4 || free.is_none() {
            return self.dice.pick(&own) as u64;
        }
        let slot = free.expect("looked at just now");
        let timing = self.dice.chance(40);
        self.say(Op::EventCreate, &[slot as u64, if timing { 0 } else { 2 }]);
        self.model.events[slot] = Some(EventModel { ctx, timing, recorded: None });
        slot as u64
    }

    pub fn record(&mut self, event: u64, stream: u64) {
        let lane = self.lane(stream);
        let op = self.dice.pick(&[Op::EventRecord, Op::EventRecord, Op::EventRecordFlags]);
        self.say(op, &[event, stream]);
        let past = self.model.order.past(lane);
        if let Some(event) = &mut self.model.events[event as usize] {
            event.recorded = Some(past);
        }
    }

    /// Orders the next operation on the stream after the operations in the clock. Returns `false`
    /// if no permitted call achieves this.
    pub fn ensure(&mut self, stream: u64, clock: &Clock) -> bool {
        for _ in 0..16 {
            let lane = self.lane(stream);
            let Some(before) = self.model.order.past(lane).lacks(clock) else { return true };
            self.bring_behind(Some((stream, lane)), before);
        }
        false
    }

    /// Makes the host wait for the operations in the clock. Returns `false` if no permitted call
    /// achieves this.
    pub fn ensure_host(&mut self, clock: &Clock) -> bool {
        for _ in 0..16 {
            let Some(before) = self.model.order.host.lacks(clock) else { return true };
            self.bring_behind(None, before);
        }
        false
    }

    /// Makes the stream, or the host, wait for a lane.
    fn bring_behind(&mut self, waiter: Option<(u64, usize)>, before: usize) {
        let ctx = self.model.order.ctx_of(before);
        let slot = (2..self.model.streams.len()).find(|slot| {
            self.model.streams[*slot].as_ref().is_some_and(|stream| stream.lane == before)
        });
        let home = self.ctx();
        if self.captures_open == 0 && self.dice.chance(self.leaning) {
            self.set_ctx_id(ctx);
            self.free_a_temporary();
            self.set_ctx(home);
            return;
        }
        let (Some(slot), true) = (slot, self.dice.chance(85)) else {
            // A capture of another thread forbids waiting for everything.
            if self.captures_open == 0 {
                self.set_ctx_id(ctx);
                if self.dice.chance(30) {
                    let event = self.event();
                    self.say(Op::CtxRecord, &[event]);
                    self.say(Op::EventSync, &[event]);
                } else {
                    self.say(Op::CtxSync, &[]);
                }
                self.model.order.waited_for_context(ctx);
                self.set_ctx(home);
            }
            return;
        };
        match waiter {
            Some((stream, lane)) if !self.may_wait() || self.dice.chance(75) => {
                self.set_ctx_id(ctx);
                let event = self.event();
                self.record(event, slot as u64);
                self.set_ctx(home);
                self.say(Op::EventWait, &[stream, event]);
                let recorded = self.model.order.past(before);
                self.model.order.wait(lane, &recorded);
            }
            _ if self.may_wait() => {
                self.say(Op::StreamSync, &[slot as u64]);
                self.model.order.waited_for(before);
            }
            _ => {}
        }
    }

    /// Frees a temporary block, so that only the free orders later work: the main purpose of the
    /// library.
    pub fn free_a_temporary(&mut self) {
        let (ctx, id) = (self.ctx(), self.ctx_id(self.ctx()));
        let free = |block: &Option<BlockModel>| {
            block.as_ref().is_some_and(|block| {
                block.ctx == id && block.kind == Kind::Plain && block.graphs == 0
            })
        };
        let found = self.model.blocks.iter().position(free);
        match found {
            Some(slot) if self.dice.chance(50) => self.free(slot as u64),
            _ if self.memory_mb < 512 => {
                // The request for a temporary might fail.
                self.say(Op::CtxSync, &[]);
                self.model.order.waited_for_context(id);
            }
            _ => {
                let bytes = self.dice.pick(&SIZES);
                self.say(Op::Alloc, &[TEMPORARY + ctx as u64, bytes]);
                self.say(Op::Free, &[TEMPORARY + ctx as u64]);
                self.model.order.waited_for_context(id);
            }
        }
    }

    /// Frees a block by the plain free, which waits if the block is a plain one.
    pub fn free(&mut self, slot: u64) {
        let Some(block) = self.model.blocks[slot as usize].clone() else { return };
        let outside = self.model.order.outside(&block.touched, block.ctx);
        // Unmapping waits for nothing, and the driver assumes that work with stream-ordered memory
        // is complete.
        let clock = if block.kind == Kind::Plain { &outside } else { &block.touched };
        if !self.may_wait() || !self.ensure_host(clock) {
            return;
        }
        self.say(Op::Free, &[slot]);
        self.model.blocks[slot as usize] = None;
        if block.kind == Kind::Plain && self.leaning > 0 {
            self.model.order.waited_for_context(block.ctx);
        }
    }

    pub fn free_async(&mut self, slot: u64, stream: u64) {
        let Some(block) = self.model.blocks[slot as usize].clone() else { return };
        if block.kind == Kind::Virtual {
            return self.free(slot);
        }
        if !self.may_wait()
            || !self.ensure(stream, &block.touched)
            || self.model.blocks[slot as usize].is_none()
        {
            return;
        }
        self.say(Op::FreeAsync, &[slot, stream]);
        self.model.blocks[slot as usize] = None;
        self.pending_bytes += block.bytes;
        let lane = self.lane(stream);
        self.model.order.mark(lane);
    }
}

/// The first of the slots that the model does not use.
pub const TEMPORARY: u64 = 24;
