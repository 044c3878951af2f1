//! Calls that the driver refuses, and calls that it fails for a while.

use super::maker::Maker;
use crate::grammar::Op;

impl Maker {
    pub fn wrong_call(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        let what = self.dice.below(20) as u64;
        self.say(Op::Wrong, &[what]);
    }

    /// Calls of the program fail, and so do calls of the library. The model does not include this:
    /// everything here uses separate slots.
    pub fn faults(&mut self) {
        if self.captures_open > 0 || self.memory_mb < 512 {
            return;
        }
        let stream = self.create_stream(false);
        let (block, other, host) = (FIRST, FIRST + 3, 24);
        self.say(Op::Alloc, &[other, 65536]);
        self.say(Op::HostPlain, &[host + 1, 8192]);
        let what = self.dice.below(14) as u64;
        self.say(Op::Fault, &[what]);
        for _ in 0..2 + self.dice.below(6) {
            let value = self.value();
            match self.dice.below(9) {
                0 => self.say(Op::EventCreate, &[60, 2]),
                1 => self.say(Op::HostAlloc, &[host, 8192, 0]),
                2 => self.say(Op::StreamCreate, &[60, 1, 0]),
                3 => self.say(Op::Fill, &[other, stream, value, 5000, 0]),
                4 => self.say(Op::AllocAsync, &[FIRST + 1, 1 << 20, stream]),
                5 => self.say(Op::HostRegister, &[host + 1]),
                6 => self.say(Op::ModuleLoad, &[6]),
                7 => self.say(Op::AllocVirtual, &[FIRST + 2, 2 << 20]),
                _ => self.say(Op::EventRecord, &[60, stream]),
            }
            self.say(Op::Alloc, &[block, 1 << 20]);
            self.say(Op::Fill, &[block, stream, value, 5000, 0]);
            self.say(Op::Free, &[block]);
        }
        self.say(Op::FaultsOver, &[]);
        self.say(Op::StreamSync, &[stream]);
        for slot in [block, other, FIRST + 2] {
            self.say(Op::Read, &[slot]);
            self.say(Op::Free, &[slot]);
        }
        self.say(Op::FreeAsync, &[FIRST + 1, stream]);
        self.say(Op::HostUnregister, &[host + 1]);
        self.say(Op::HostFree, &[host + 1]);
        self.say(Op::HostFree, &[host]);
        self.say(Op::ModuleUnload, &[6]);
        self.say(Op::EventDestroy, &[60]);
        self.say(Op::StreamDestroy, &[60]);
        self.say(Op::CtxSync, &[]);
        let ctx = self.ctx_id(self.ctx());
        self.model.order.waited_for_context(ctx);
    }

    /// A kernel prints, and a free flushes the text.
    pub fn say_something(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        let (stream, value, delay) = (self.any_stream(), self.dice.below(9) as u64, self.delay());
        self.say(Op::Say, &[stream, value, delay]);
        let lane = self.lane(stream);
        self.model.order.submit(lane);
        self.free_a_temporary();
    }
}

/// The first of the slots that the model does not use.
const FIRST: u64 = 72;
