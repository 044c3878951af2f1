//! Queries, waits, and the choice of the thread that acts next.

use super::maker::Maker;
use super::model::{ThreadModel, held};
use super::themes::Theme;
use crate::grammar::Op;

impl Maker {
    pub fn begin(&mut self, _seed: u64, theme: &Theme) {
        self.threads = theme.threads;
        self.memory_mb = theme.memory_mb;
        self.beyond = theme.devices > 1;
        self.attaches = theme.name.starts_with("references");
        for blocking in [true, false, false] {
            self.create_stream(blocking);
        }
    }

    /// Lets another thread act next; the current one may end first.
    pub fn switch_thread(&mut self) {
        if self.threads < 2 {
            return;
        }
        let next = self.dice.below(self.threads) as u8;
        if self.thread != 0 && self.thread != next && self.dice.chance(25) {
            self.say(Op::ThreadEnd, &[]);
            self.model.threads[self.thread as usize] = None;
            // The next thread of this number has its own streams.
            for ctx in self.model.ctxs.iter_mut().flatten() {
                ctx.per_thread.retain(|(owner, _)| *owner != self.thread);
            }
        }
        let home = self.ctx();
        self.switch(next);
        if self.model.threads[next as usize].is_none() {
            self.model.threads[next as usize] = Some(ThreadModel { ctx: 0 });
        }
        self.set_ctx(home);
    }

    pub fn change_streams(&mut self) {
        let streams = held(&self.model.streams);
        if streams.len() < 5 || self.dice.chance(50) {
            let blocking = self.dice.chance(40) && self.captures_open == 0;
            self.create_stream(blocking);
            return;
        }
        let slot = self.dice.pick(&streams);
        let stream = self.model.streams[slot].as_ref().expect("held");
        if !stream.capturing {
            // The stream may still have work, which continues.
            self.say(Op::StreamDestroy, &[slot as u64]);
            self.model.streams[slot] = None;
        }
    }

    pub fn wait(&mut self) {
        let stream = self.any_stream();
        if !self.may_wait() || (stream < 2 && self.captures_open > 0) {
            return;
        }
        self.say(Op::StreamSync, &[stream]);
        let lane = self.lane(stream);
        self.model.order.waited_for(lane);
    }

    /// Whether the host may wait for a stream, allocate, and free, also in stream order. Measured:
    /// a global capture forbids this to every thread.
    pub fn may_wait(&self) -> bool {
        self.captures_open == 0 || !self.captures_are_global
    }

    pub fn device_wait(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        self.say(Op::CtxSync, &[]);
        self.pending_bytes = 0;
        (self.takes_pending, self.sees_pending) = (false, false);
        let ctx = self.ctx_id(self.ctx());
        self.model.order.waited_for_context(ctx);
    }

    /// Queries an event or a stream, often after a free: on the plain driver all work is complete
    /// then.
    pub fn ask(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        let stream = self.any_stream();
        let event = self.event();
        self.record(event, stream);
        if self.dice.chance(10) {
            // This orders more than the model knows.
            self.say(Op::CtxWait, &[event]);
        }
        let freed = self.leaning > 0 && self.dice.chance(70);
        if freed {
            self.free_a_temporary();
        }
        if self.threads > 1 && self.dice.chance(40) {
            // The thread that freed may have ended by now.
            self.switch_thread();
        }
        let timing = self.model.events[event as usize].as_ref().is_some_and(|event| event.timing);
        let kind = self.dice.below(3);
        if timing && !freed {
            // Even on an idle stream such a record takes a while (measured): the answer is chance.
            return;
        }
        match kind {
            0 if timing => self.say(Op::EventElapsed, &[event, event]),
            0 | 1 => self.say(Op::EventQuery, &[event]),
            _ if stream == 1 => {}
            _ => self.say(Op::StreamQuery, &[stream]),
        }
    }
}
