//! Calls beside another thread's call that waits in the driver and holds its context meanwhile.

use super::maker::Maker;
use super::together::{BLOCKS_OF_EACH, FIRST_BLOCK};
use crate::grammar::Op;

const MIB: u64 = 1 << 20;
/// The slot of a second context.
const MADE: u64 = 8;
const FLAGS: u64 = 60;
/// Slots that the model does not use.
const SPINS: u64 = 110;
const CAPTURES: u64 = 111;
const ENDED: u64 = 50;
const TABLE: u64 = 96;
const FREED: u64 = 98;

/// Call of the first thread, which returns once the kernel has ended.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    Free,
    Pitched,
    Managed,
    Pinned,
    Registration,
    Array,
    Context,
}

/// What a round does, and the slots that its threads use.
struct Round {
    wait: Wait,
    /// The context of the work, and the one of the waiting thread.
    ctxs: [u64; 2],
    captures: bool,
    flag: u64,
    /// Whether the kernel finds the flag in device memory. The library cannot know that the host
    /// ends it (docs/ordering.md 10): its free returns early, and calls that end something, query a
    /// stream, or need memory that was freed, wait for that kernel.
    hidden: bool,
}

impl Maker {
    /// One thread makes a call that waits for a kernel. A second thread makes calls that go on
    /// meanwhile in the driver, and then ends the kernel. A third one makes calls that may have to
    /// wait as well.
    pub fn wait_beside(&mut self) {
        if self.flags_used >= FLAGS {
            return;
        }
        let round = self.prepare_round();
        self.say(Op::Together, &[]);
        self.wait_in_driver(&round);
        self.go_on_beside(&round);
        if self.dice.chance(60) {
            self.stand_still_beside();
        }
        self.thread = 1;
        self.say(Op::Raise, &[round.flag, 0, 0]);
        self.thread = 0;
        self.say(Op::Joined, &[]);
        self.clean_up(&round);
    }

    fn prepare_round(&mut self) -> Round {
        use Wait::*;
        let kinds = [Free, Free, Free, Pitched, Managed, Pinned, Registration, Array, Context];
        let (wait, flag) = (self.dice.pick(&kinds), self.flags_used);
        self.flags_used += 1;
        let (one, other) = if self.dice.chance(70) { (0, MADE) } else { (MADE, 0) };
        // Only memory can be freed while another context is current.
        let elsewhere = matches!(wait, Free | Pitched | Managed | Pinned) && self.dice.chance(25);
        let ctxs = [one, if elsewhere { other } else { one }];
        let captures = self.dice.chance(40);
        self.thread = 0;
        self.say(Op::CtxSet, &[0]);
        self.say(Op::Raise, &[FLAGS, 0, 0]);
        if ctxs.contains(&MADE) || self.dice.chance(20) {
            // Only the first time.
            self.say(Op::CtxCreate, &[MADE]);
        }
        self.say(Op::CtxSet, &[one]);
        self.say(Op::StreamCreate, &[SPINS, 1, 0]);
        match wait {
            Free => self.say(Op::Alloc, &[FREED, 3 * MIB]),
            Pitched => self.say(Op::AllocPitch, &[FREED, MIB, 8]),
            Managed => self.say(Op::AllocManaged, &[FREED, MIB]),
            Pinned => self.say(Op::HostAlloc, &[ENDED, 8192, 0]),
            Registration => {
                self.say(Op::HostPlain, &[ENDED, 8192]);
                self.say(Op::HostRegister, &[ENDED]);
            }
            Array => self.say(Op::ArrayCreate, &[ENDED, 64, 4]),
            Context => {}
        }
        self.say(Op::Alloc, &[TABLE, 4096]);
        for thread in 1..=2 {
            self.thread = thread;
            self.own_objects(one);
        }
        // What the second thread needs has been freed before.
        self.thread = 0;
        self.say(Op::Alloc, &[FREED + 1, self.scarce_bytes()]);
        if self.dice.chance(50) {
            let value = self.value();
            self.say(Op::Fill, &[FREED + 1, SPINS, value, 0, 0]);
        }
        self.say(Op::Free, &[FREED + 1]);
        if captures {
            self.say(Op::StreamCreate, &[CAPTURES, 1, 0]);
            self.thread = 3;
            let mode = 1 + self.dice.below(2) as u64;
            self.say(Op::CaptureBegin, &[CAPTURES, mode]);
            self.thread = 0;
        }
        let hidden = self.dice.chance(20);
        match hidden {
            true => self.say(Op::SpinFound, &[SPINS, flag, TABLE]),
            false => {
                let how = self.dice.below(4) as u64;
                self.say(Op::Spin, &[SPINS, flag, how]);
            }
        }
        Round { wait, ctxs, captures, flag, hidden }
    }

    /// Most of the device.
    fn scarce_bytes(&self) -> u64 {
        self.memory_mb * MIB * 6 / 10 / (2 * MIB) * (2 * MIB)
    }

    fn own_objects(&mut self, ctx: u64) {
        let thread = u64::from(self.thread);
        let (first, stream) = (FIRST_BLOCK + thread * BLOCKS_OF_EACH, 100 + thread);
        self.say(Op::CtxSet, &[ctx]);
        self.say(Op::StreamCreate, &[stream, 1, 0]);
        self.say(Op::EventCreate, &[stream, 2]);
        self.say(Op::EventRecord, &[stream, stream]);
        self.say(Op::Alloc, &[first, 4096]);
        self.say(Op::AllocVirtual, &[first + 1, 2 * MIB]);
    }

    fn wait_in_driver(&mut self, round: &Round) {
        self.thread = 0;
        if round.ctxs[1] != round.ctxs[0] {
            self.say(Op::CtxSet, &[round.ctxs[1]]);
        }
        match round.wait {
            Wait::Free | Wait::Pitched | Wait::Managed => self.say(Op::Free, &[FREED]),
            Wait::Pinned => self.say(Op::HostFree, &[ENDED]),
            Wait::Registration => self.say(Op::HostUnregister, &[ENDED]),
            Wait::Array => self.say(Op::ArrayDestroy, &[ENDED]),
            Wait::Context if !round.captures => self.say(Op::CtxSync, &[]),
            Wait::Context => {}
        }
    }

    /// Calls that wait for nothing on the plain driver.
    fn go_on_beside(&mut self, round: &Round) {
        self.thread = 1;
        let (first, stream) = (FIRST_BLOCK + BLOCKS_OF_EACH, 101);
        let ms = self.dice.below(4) as u64;
        self.say(Op::Rest, &[ms]);
        let bytes = [2 * MIB, 8 * MIB, self.scarce_bytes()];
        let mut large = !round.hidden;
        for _ in 0..1 + self.dice.below(5) {
            let bytes = self.dice.pick(&bytes[..if large { 3 } else { 2 }]);
            match self.dice.below(9) {
                0..3 => {
                    self.say(Op::AllocVirtual, &[first + 4, bytes]);
                    large &= bytes < 16 * MIB;
                }
                3 => {
                    let bytes = self.dice.pick(&[4096, 8 * MIB]);
                    self.say(Op::AllocAsync, &[first + 5, bytes, stream]);
                }
                4 | 5 => self.say(Op::MemoryHas, &[8 * MIB]),
                6 if !round.hidden => self.say(Op::Free, &[first + 1]),
                7 => self.say(Op::EventWait, &[stream, stream]),
                _ if !round.hidden => self.say(Op::StreamQuery, &[stream]),
                _ => {}
            }
            if !round.hidden && self.dice.chance(20) {
                self.say(Op::Free, &[first + 4]);
            }
        }
        if round.captures && self.dice.chance(30) {
            self.thread = 3;
            self.say(Op::CaptureEnd, &[CAPTURES, 120]);
        }
    }

    /// Calls that wait, on the plain driver, until the first thread's call has returned.
    fn stand_still_beside(&mut self) {
        self.thread = 2;
        let (first, stream) = (FIRST_BLOCK + 2 * BLOCKS_OF_EACH, 102);
        let ms = self.dice.below(4) as u64;
        self.say(Op::Rest, &[ms]);
        for _ in 0..1 + self.dice.below(3) {
            match self.dice.below(6) {
                0 => self.say(Op::Alloc, &[first + 4, 4 * MIB]),
                1 => self.say(Op::AllocPitch, &[first + 5, MIB, 4]),
                2 => self.say(Op::Free, &[first]),
                3 => {
                    let value = self.value();
                    self.say(Op::Fill, &[first, stream, value, 0, 0]);
                }
                4 => self.say(Op::EventRecord, &[stream, stream]),
                _ => self.say(Op::Free, &[first + 1]),
            }
        }
    }

    fn clean_up(&mut self, round: &Round) {
        if round.captures {
            self.thread = 3;
            self.say(Op::CaptureEnd, &[CAPTURES, 120]);
            self.say(Op::GraphDestroy, &[120]);
            self.thread = 0;
            self.say(Op::StreamDestroy, &[CAPTURES]);
        }
        self.thread = 0;
        self.say(Op::CtxSet, &[round.ctxs[0]]);
        self.say(Op::CtxSync, &[]);
        for thread in 1..=2 {
            self.thread = thread;
            let (first, stream) =
                (FIRST_BLOCK + u64::from(thread) * BLOCKS_OF_EACH, 100 + u64::from(thread));
            (0..6).for_each(|block| self.say(Op::Free, &[first + block]));
            self.say(Op::EventDestroy, &[stream]);
            self.say(Op::StreamDestroy, &[stream]);
        }
        self.thread = 0;
        self.say(Op::HostFree, &[ENDED]);
        self.say(Op::Free, &[TABLE]);
        self.say(Op::StreamDestroy, &[SPINS]);
        if self.dice.chance(30) {
            self.say(Op::CtxDestroy, &[MADE]);
        }
        self.say(Op::CtxSet, &[0]);
    }
}
