//! References to contexts, taken and released beside running work: only the last one ends a
//! context.

use super::contexts::CONTEXTS_MAX;
use super::maker::{Maker, TEMPORARY};
use super::model::{ThreadModel, held};
use super::together::{BLOCKS_OF_EACH, FIRST_BLOCK, LARGE, Plot, SMALL};
use crate::grammar::Op;

const MIB: u64 = 1 << 20;

/// Loops of a thread that runs beside the working threads.
const GIVING: &[Plot] = &[Maker::giving_loop, Maker::reference_loop, Maker::attach_loop];

impl Maker {
    /// Some threads take and release references, and the others work.
    pub fn references_at_once(&mut self) {
        let large = self.dice.chance(20);
        let giving = if large { &GIVING[..1] } else { GIVING };
        let mut plots: Vec<Plot> = [giving, if large { LARGE } else { SMALL }].concat();
        if self.beyond {
            plots.extend([Maker::taking_loop as Plot; 4]);
        }
        let same = self.dice.chance(if self.beyond { 40 } else { 15 });
        self.at_once(&plots, same);
    }

    pub fn reference(&mut self) {
        let ops = [Op::RefTake, Op::RefTake, Op::RefGive];
        let op = self.dice.pick(&ops);
        self.say(op, &[]);
        if self.dice.chance(15) {
            let flags = self.dice.pick(&[0, 1, 2, 4]);
            self.say(Op::PrimaryFlags, &[flags]);
        }
    }

    /// Another thread takes and releases references beside the lines that follow.
    pub fn storm(&mut self) {
        let begins = u64::from(self.dice.chance(65));
        self.say(Op::RefStorm, &[begins]);
    }

    /// Resets the context by releasing all references.
    pub fn last_reference(&mut self) {
        self.end_primary(Op::RefGiveAll);
    }

    /// Adds a user to a context that the program has made, or removes one that is not the last.
    pub fn attach(&mut self) {
        let slots: Vec<usize> =
            held(&self.model.ctxs).into_iter().filter(|slot| *slot > 0).collect();
        if slots.is_empty() || self.captures_open > 0 {
            return;
        }
        let (slot, home) = (self.dice.pick(&slots), self.ctx());
        self.set_ctx(slot);
        if self.dice.chance(60) {
            self.say(Op::CtxAttach, &[slot as u64]);
        } else {
            self.say(Op::CtxDetach, &[slot as u64, 0]);
        }
        if self.dice.chance(50) {
            self.set_ctx(home);
        }
    }

    /// Operations that a thread may make while no context is current to it.
    pub fn nowhere(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        let (home, id) = (self.ctx(), self.ctx_id(self.ctx()));
        let own = |slot: &usize| self.model.streams[*slot].as_ref().is_some_and(|s| s.ctx == id);
        let streams: Vec<usize> = held(&self.model.streams).into_iter().filter(own).collect();
        self.say(Op::Alloc, &[TEMPORARY + home as u64, 20_000]);
        self.say(Op::CtxNone, &[]);
        for _ in 0..1 + self.dice.below(3) {
            match self.dice.below(4) {
                0 => self.reference(),
                // This free is refused, or works like any other.
                1 => self.say(Op::Free, &[TEMPORARY + home as u64]),
                2 if !streams.is_empty() => {
                    let stream = self.dice.pick(&streams);
                    self.say(Op::StreamSync, &[stream as u64]);
                    let lane = self.lane(stream as u64);
                    self.model.order.waited_for(lane);
                }
                _ => self.host_read(),
            }
        }
        self.say(Op::CtxSet, &[home as u64]);
        self.model.threads[self.thread as usize] = Some(ThreadModel { ctx: home });
        self.say(Op::Free, &[TEMPORARY + home as u64]);
    }

    /// Only takes and releases references, as fast as possible.
    fn giving_loop(&mut self, _thread: u64) {
        for _ in 0..4 * self.rounds() {
            self.say(Op::RefTake, &[]);
            self.say(Op::RefGive, &[]);
        }
    }

    /// Keeps memory, pinned memory, an event and a stream while a reference is released.
    fn reference_loop(&mut self, thread: u64) {
        let stream = self.own_stream(thread);
        let (first, host, event) =
            (FIRST_BLOCK + thread * BLOCKS_OF_EACH, 30 + thread * 6, 100 + thread);
        let (block, temporary) = (first, first + 3);
        self.say(Op::Alloc, &[block, 65536]);
        self.say(Op::HostAlloc, &[host, 8192, 0]);
        self.say(Op::EventCreate, &[event, 2]);
        for _ in 0..self.rounds() {
            let (value, delay) = (self.value(), self.delay());
            self.say(Op::RefTake, &[]);
            self.say(Op::Fill, &[block, stream, value, delay, 0]);
            self.say(Op::ToHost, &[host, block, stream, delay, 0]);
            self.say(Op::EventRecord, &[event, stream]);
            let bytes = self.dice.pick(&[4096, MIB, 3 * MIB]);
            self.say(Op::Alloc, &[temporary, bytes]);
            let steps = [self.dice.chance(50), self.dice.chance(50)];
            if steps[0] {
                self.say(Op::RefGive, &[]);
            }
            if steps[1] {
                self.say(Op::CtxNone, &[]);
                self.say(Op::RefGive, &[]);
                self.say(Op::CtxSet, &[0]);
            }
            self.say(Op::Free, &[temporary]);
            if self.dice.chance(40) {
                self.say(Op::RefGive, &[]);
            }
            match self.dice.below(3) {
                0 => self.say(Op::EventQuery, &[event]),
                1 => self.say(Op::StreamQuery, &[stream]),
                _ => {}
            }
            self.say(Op::HostRead, &[host]);
            self.say(Op::Read, &[block]);
        }
        self.say(Op::StreamSync, &[stream]);
        self.say(Op::Free, &[block]);
        self.say(Op::HostFree, &[host]);
        self.say(Op::EventDestroy, &[event]);
        self.say(Op::StreamDestroy, &[stream]);
    }

    /// Uses the thread's own context with several users; the last detach ends it.
    fn attach_loop(&mut self, thread: u64) {
        let (ctx, block) = (8 + thread, FIRST_BLOCK + thread * BLOCKS_OF_EACH);
        for _ in 0..self.rounds() / 2 {
            self.say(Op::CtxCreate, &[ctx]);
            self.say(Op::CtxAttach, &[ctx]);
            let (value, delay) = (self.value(), self.delay());
            self.say(Op::Alloc, &[block, 65536]);
            self.say(Op::Fill, &[block, 1, value, delay, 0]);
            self.say(Op::CtxDetach, &[ctx, 0]);
            self.say(Op::StreamSync, &[1]);
            self.say(Op::Read, &[block]);
            if self.dice.chance(60) {
                self.say(Op::Free, &[block]);
            }
            match self.dice.chance(60) {
                true => self.say(Op::CtxDetach, &[ctx, 1]),
                false => self.say(Op::CtxDestroy, &[ctx]),
            }
        }
        self.say(Op::CtxSet, &[0]);
    }

    /// Uses the second device's primary context, which exists as long as some thread has taken it:
    /// each thread uses what it has taken.
    fn taking_loop(&mut self, thread: u64) {
        let (ctx, first) = (12 + thread, FIRST_BLOCK + thread * BLOCKS_OF_EACH);
        let (block, other, host, stream) = (first, first + 1, 30 + thread * 6, 110 + thread);
        for _ in 0..self.rounds() {
            self.say(Op::PrimaryTake, &[ctx]);
            let (value, delay) = (self.value(), self.delay());
            self.say(Op::StreamCreate, &[stream, 1, 0]);
            let bytes = self.dice.pick(&[4096, MIB, 3 * MIB]);
            let pinned = self.dice.chance(40);
            let ordered = self.dice.chance(30);
            self.say(Op::Alloc, &[block, bytes]);
            match ordered {
                true => self.say(Op::AllocAsync, &[other, bytes, stream]),
                false => self.say(Op::Alloc, &[other, bytes]),
            }
            if pinned {
                self.say(Op::HostAlloc, &[host, 8192, 0]);
            }
            self.say(Op::Fill, &[block, stream, value, delay, 0]);
            self.say(Op::Copy, &[other, block, stream, delay, 0]);
            if pinned {
                self.say(Op::ToHost, &[host, other, stream, delay, 0]);
            }
            self.say(Op::StreamSync, &[stream]);
            self.say(Op::Read, &[other]);
            if pinned {
                self.say(Op::HostRead, &[host]);
                self.say(Op::HostFree, &[host]);
            }
            match (ordered, self.dice.chance(70)) {
                (true, true) => self.say(Op::FreeAsync, &[other, stream]),
                (false, true) => self.say(Op::Free, &[other]),
                _ => {}
            }
            if self.dice.chance(50) {
                self.say(Op::Free, &[block]);
            }
            let how = self.dice.below(3) as u64;
            self.say(Op::PrimaryGive, &[ctx, how]);
        }
        self.say(Op::CtxSet, &[0]);
    }
}

const _: () = assert!(CONTEXTS_MAX <= 8, "slots from 8 on belong to threads");
