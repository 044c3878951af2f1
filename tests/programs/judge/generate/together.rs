//! Threads that run freely in parallel, each on its own slots. A thread's actions are valid
//! whatever the others do: it waits for its own streams before it reads.

use super::maker::Maker;
use crate::grammar::Op;

pub const FIRST_BLOCK: u64 = 100;
pub const BLOCKS_OF_EACH: u64 = 8;
/// Even, so that the memory is registered without being mapped: otherwise every kernel counts as
/// host-visible.
const SHARED_HOST: u64 = 54;
const MIB: u64 = 1 << 20;

pub type Plot = fn(&mut Maker, u64);

pub const SMALL: &[Plot] =
    &[Maker::pinned_loop, Maker::block_loop, Maker::context_loop, Maker::register_loop];
pub const LARGE: &[Plot] = &[Maker::virtual_loop, Maker::refused_loop];

impl Maker {
    pub fn all_at_once(&mut self) {
        // A large request and a small live block would meet inside a segment: that is known.
        let large = self.dice.chance(30);
        // Mostly all threads do the same, which makes them meet.
        let same = self.dice.chance(60);
        self.at_once(if large { LARGE } else { SMALL }, same);
    }

    /// Runs the threads of the program, each by one of these plots, or all by the same one.
    pub fn at_once(&mut self, plots: &[Plot], same: bool) {
        if self.captures_open > 0 {
            return;
        }
        self.empty_all();
        let home = self.thread;
        self.switch(0);
        self.set_ctx(0);
        self.say(Op::CtxSync, &[]);
        let id = self.ctx_id(0);
        self.model.order.waited_for_context(id);
        let count = self.threads.clamp(2, 4);
        let same = same.then(|| self.dice.pick(plots));
        let twice = self.dice.chance(50);
        if twice {
            self.say(Op::HostPlain, &[SHARED_HOST, 8192]);
        }
        self.say(Op::Together, &[]);
        for thread in 0..count as u8 {
            self.thread = thread;
            if twice {
                // One of the threads registers it, and the others are refused.
                self.say(Op::CtxSet, &[0]);
                self.say(Op::HostRegister, &[SHARED_HOST]);
            }
            let plot = same.unwrap_or_else(|| self.dice.pick(plots));
            plot(self, u64::from(thread));
        }
        self.thread = 0;
        self.say(Op::Joined, &[]);
        if twice {
            let (value, delay) = (self.value(), self.delay());
            self.say(Op::FillHost, &[SHARED_HOST, 1, value, delay, 0]);
            self.say(Op::Alloc, &[FIRST_BLOCK, 4096]);
            self.say(Op::Free, &[FIRST_BLOCK]);
            self.say(Op::HostRead, &[SHARED_HOST]);
            self.say(Op::HostUnregister, &[SHARED_HOST]);
            self.say(Op::HostFree, &[SHARED_HOST]);
        }
        self.say(Op::CtxSync, &[]);
        self.switch(home);
    }

    pub fn own_stream(&mut self, thread: u64) -> u64 {
        let stream = 100 + thread;
        self.say(Op::CtxSet, &[0]);
        self.say(Op::StreamCreate, &[stream, 1, 0]);
        stream
    }

    pub fn rounds(&mut self) -> usize {
        4 + self.dice.below(12)
    }

    /// Copies into pinned memory that is allocated and freed repeatedly; a free lets the host read.
    fn pinned_loop(&mut self, thread: u64) {
        let stream = self.own_stream(thread);
        let (block, temporary) =
            (FIRST_BLOCK + thread * BLOCKS_OF_EACH, FIRST_BLOCK + thread * BLOCKS_OF_EACH + 3);
        self.say(Op::Alloc, &[block, 65536]);
        for round in 0..self.rounds() {
            // Both parts have the same offset.
            let host = 30 + thread * 6 + (round as u64 % 2) * 3;
            self.say(Op::HostAlloc, &[host, 8192, 0]);
            let (value, delay) = (self.value(), self.delay());
            self.say(Op::Fill, &[block, stream, value, delay, 0]);
            let how = self.dice.pick(&[0, 1, 2, 3]);
            self.say(Op::ToHost, &[host, block, stream, delay, how]);
            self.say(Op::Alloc, &[temporary, 4096]);
            self.say(Op::Free, &[temporary]);
            self.say(Op::HostRead, &[host]);
            self.say(Op::HostFree, &[host]);
            for _ in 0..self.dice.below(8) {
                // When one thread's memory is forgotten, another thread may just have got the same
                // address.
                self.say(Op::HostAlloc, &[host, 8192, 0]);
                self.say(Op::HostFree, &[host]);
            }
        }
        self.say(Op::StreamSync, &[stream]);
        self.say(Op::Free, &[block]);
        self.say(Op::StreamDestroy, &[stream]);
    }

    fn block_loop(&mut self, thread: u64) {
        let stream = self.own_stream(thread);
        let first = FIRST_BLOCK + thread * BLOCKS_OF_EACH;
        for _ in 0..self.rounds() {
            let slot = first + self.dice.below(4) as u64;
            let bytes = self.dice.pick(&[512, 64 << 10, MIB, 3 * MIB]);
            let (value, delay) = (self.value(), self.delay());
            let ordered = self.dice.chance(50);
            match ordered {
                true => self.say(Op::AllocAsync, &[slot, bytes, stream]),
                false => self.say(Op::Alloc, &[slot, bytes]),
            }
            self.say(Op::Fill, &[slot, stream, value, delay, 0]);
            if self.dice.chance(50) {
                self.say(Op::StreamSync, &[stream]);
                self.say(Op::Read, &[slot]);
            }
            match ordered {
                true => self.say(Op::FreeAsync, &[slot, stream]),
                false => self.say(Op::Free, &[slot]),
            }
        }
        self.say(Op::StreamSync, &[stream]);
        self.say(Op::StreamDestroy, &[stream]);
    }

    fn context_loop(&mut self, thread: u64) {
        let (ctx, block) = (8 + thread, FIRST_BLOCK + thread * BLOCKS_OF_EACH);
        for _ in 0..self.rounds() {
            self.say(Op::CtxCreate, &[ctx]);
            let bytes = self.dice.pick(&[4096, MIB]);
            let value = self.value();
            self.say(Op::Alloc, &[block, bytes]);
            self.say(Op::Fill, &[block, 1, value, 0, 0]);
            self.say(Op::StreamSync, &[1]);
            self.say(Op::Read, &[block]);
            self.say(Op::Attribute, &[block, 7, 0]);
            if self.dice.chance(70) {
                self.say(Op::Free, &[block]);
            }
            self.say(Op::CtxDestroy, &[ctx]);
        }
        self.say(Op::CtxSet, &[0]);
    }

    /// All threads together request about half of the device, over and over.
    fn virtual_loop(&mut self, thread: u64) {
        self.say(Op::CtxSet, &[0]);
        let block = FIRST_BLOCK + thread * BLOCKS_OF_EACH;
        let bytes = (self.memory_mb * MIB * 14 / 100).next_multiple_of(2 * MIB);
        for _ in 0..self.rounds() {
            let ops = [Op::AllocVirtual, Op::AllocVirtual, Op::Alloc, Op::AllocPitch];
            let op = self.dice.pick(&ops);
            match op {
                Op::AllocPitch => self.say(op, &[block, bytes, 8]),
                _ => self.say(op, &[block, bytes]),
            }
            self.say(Op::Free, &[block]);
        }
    }

    fn register_loop(&mut self, thread: u64) {
        let stream = self.own_stream(thread);
        let (host, block) = (30 + thread * 6, FIRST_BLOCK + thread * BLOCKS_OF_EACH);
        self.say(Op::HostPlain, &[host, 8192]);
        self.say(Op::Alloc, &[block, 65536]);
        for _ in 0..self.rounds() {
            self.say(Op::HostRegister, &[host]);
            let (value, delay) = (self.value(), self.delay());
            self.say(Op::FillHost, &[host, stream, value, delay, 0]);
            self.say(Op::Free, &[block]);
            self.say(Op::HostRead, &[host]);
            self.say(Op::HostUnregister, &[host]);
            self.say(Op::Alloc, &[block, 65536]);
        }
        self.say(Op::StreamSync, &[stream]);
        self.say(Op::Free, &[block]);
        self.say(Op::StreamDestroy, &[stream]);
    }

    /// A request that must fail has no effect on the requests of the others.
    fn refused_loop(&mut self, thread: u64) {
        self.say(Op::CtxSet, &[0]);
        let block = FIRST_BLOCK + thread * BLOCKS_OF_EACH;
        for _ in 0..self.rounds() {
            if thread.is_multiple_of(2) {
                self.say(Op::AllocVirtual, &[block, self.memory_mb * MIB]);
            } else {
                let bytes = (self.memory_mb * MIB * 14 / 100).next_multiple_of(2 * MIB);
                self.say(Op::Alloc, &[block, bytes]);
                self.say(Op::Free, &[block]);
            }
        }
    }
}
