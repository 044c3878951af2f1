//! Contexts that end, or lose a reference, while other threads destroy objects of earlier work,
//! make queries and request memory.

use super::maker::Maker;
use super::together::{BLOCKS_OF_EACH, FIRST_BLOCK};
use crate::grammar::Op;

const MIB: u64 = 1 << 20;
/// The slot of the context that is made for this.
const MADE: u64 = 8;

/// Action of the first thread meanwhile.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Destroy,
    LastDetach,
    Detach,
    Reset,
    LastReference,
    Reference,
    /// Destroys the primary context, which the driver refuses.
    Refused,
}

impl Maker {
    /// All threads work in one context and free after that work. Then one of them ends the context,
    /// or releases a reference, after a last piece of work that continues until the others are
    /// done.
    pub fn end_beside(&mut self) {
        if self.flags_used >= FLAGS {
            return;
        }
        // Which of two contexts the program works in: while it works in only one, its frees need
        // not wait.
        let of_primary = self.values & PRIMARY != 0;
        let end = match of_primary {
            true => self.dice.pick(&[End::Reset, End::LastReference, End::Reference, End::Refused]),
            false => self.dice.pick(&[End::Destroy, End::LastDetach, End::Detach]),
        };
        let (busy, idle) = if of_primary { (0, MADE) } else { (MADE, 0) };
        let ends = !matches!(end, End::Detach | End::Reference | End::Refused);
        self.thread = 0;
        // Only the first time if the context is kept.
        self.say(Op::CtxCreate, &[MADE]);
        // The words for which work waits outlive the context.
        self.say(Op::CtxSet, &[idle]);
        self.say(Op::Raise, &[FLAGS, 0, 0]);
        match end {
            End::Detach | End::LastDetach => {
                self.say(Op::CtxSet, &[MADE]);
                self.say(Op::CtxAttach, &[MADE]);
            }
            End::Reference => self.say(Op::RefTake, &[]),
            _ => {}
        }
        let flag = self.flags_used;
        self.flags_used += 1;
        let others = 1 + self.dice.below(2) as u8;
        let large =
            self.dice.pick(&[MIB, 3 * MIB, self.memory_mb * MIB * 6 / 10 / (2 * MIB) * (2 * MIB)]);
        for thread in 1..=others {
            self.thread = thread;
            self.work_and_free((idle, busy), if thread == 1 { large } else { MIB }, ends);
        }
        self.thread = 0;
        self.say(Op::CtxSet, &[busy]);
        self.say(Op::StreamCreate, &[STREAM, 1, 0]);
        let lasts = ends || end == End::Refused || self.dice.chance(30);
        if lasts {
            let how = 1 + self.dice.below(3) as u64;
            self.say(Op::Spin, &[STREAM, flag, how]);
        }
        self.say(Op::Together, &[]);
        match end {
            End::Destroy => self.say(Op::CtxDestroy, &[MADE]),
            End::LastDetach => self.say(Op::CtxDetach, &[MADE, 1]),
            End::Detach => self.say(Op::CtxDetach, &[MADE, 0]),
            End::Reset => self.say(Op::CtxReset, &[]),
            End::LastReference => self.say(Op::RefGiveAll, &[]),
            End::Reference => self.say(Op::RefGive, &[]),
            End::Refused => (0..8).for_each(|_| self.say(Op::Wrong, &[DESTROY_PRIMARY])),
        }
        for thread in 1..=others {
            self.thread = thread;
            let ms = self.dice.below(4) as u64;
            self.say(Op::Rest, &[ms]);
            self.ask_and_end(ends, large);
        }
        // A refused call waits for nothing.
        self.thread = u8::from(end != End::Refused);
        self.say(Op::Raise, &[flag, 0, 0]);
        self.thread = 0;
        self.say(Op::Joined, &[]);
        self.say(Op::CtxSet, &[idle]);
        for thread in 1..=others {
            self.thread = thread;
            self.say(Op::CtxSet, &[0]);
            self.say(Op::EventDestroy, &[100 + u64::from(thread)]);
            self.say(Op::StreamDestroy, &[100 + u64::from(thread)]);
        }
        self.thread = 0;
        self.say(Op::StreamDestroy, &[STREAM]);
        if !of_primary {
            self.say(Op::CtxDestroy, &[MADE]);
        }
        self.say(Op::CtxSet, &[0]);
    }

    /// Runs a kernel in a mapping, records an event, and frees after both. On the plain driver the
    /// free has waited for them.
    fn work_and_free(&mut self, (idle, busy): (u64, u64), freed_bytes: u64, leaves: bool) {
        let thread = u64::from(self.thread);
        let (first, stream) = (FIRST_BLOCK + thread * BLOCKS_OF_EACH, 100 + thread);
        let value = self.value();
        self.say(Op::CtxSet, &[idle]);
        self.say(Op::AllocVirtual, &[first, 2 * MIB]);
        self.say(Op::CtxSet, &[busy]);
        self.say(Op::StreamCreate, &[stream, 1, 0]);
        self.say(Op::EventCreate, &[stream, 2]);
        self.say(Op::Alloc, &[first + 1, freed_bytes]);
        self.say(Op::Fill, &[first, stream, value, LATE, 0]);
        self.say(Op::EventRecord, &[stream, stream]);
        self.say(Op::Free, &[first + 1]);
        if leaves || self.dice.chance(50) {
            self.say(Op::CtxSet, &[idle]);
        }
    }

    /// Makes calls that wait for nothing on the plain driver: unmapping, queries, requests for
    /// memory.
    fn ask_and_end(&mut self, ends: bool, large: u64) {
        let thread = u64::from(self.thread);
        let (first, stream) = (FIRST_BLOCK + thread * BLOCKS_OF_EACH, 100 + thread);
        for _ in 0..1 + self.dice.below(3) {
            match self.dice.below(4) {
                // The streams end with the context.
                0 if !ends => self.say(Op::EventQuery, &[stream]),
                1 if !ends => self.say(Op::StreamQuery, &[stream]),
                2 if thread == 1 => self.say(Op::AllocVirtual, &[first + 2, large]),
                3 => self.say(Op::AllocVirtual, &[first + 3, 2 * MIB]),
                _ => self.say(Op::Free, &[first]),
            }
        }
        (0..4).for_each(|block| self.say(Op::Free, &[first + block]));
    }
}

/// Bit of a program's values that selects the context. The values start from the seed.
const PRIMARY: u64 = 1 << 20;
const FLAGS: u64 = 60;
const STREAM: u64 = 110;
/// Virtual nanoseconds.
const LATE: u64 = 5_000_000;
/// The number of the refused call that destroys the primary context.
const DESTROY_PRIMARY: u64 = 19;
