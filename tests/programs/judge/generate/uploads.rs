//! Memory that graphs take from a device whose memory is in the cache: when they are uploaded, when
//! their kernels are loaded in a capture, and when they reference blocks that the program has
//! freed.

use super::maker::Maker;
use crate::grammar::Op;

const MIB: u64 = 1 << 20;
/// Memory that contexts, modules, kernels and graphs may take.
const SET_ASIDE: u64 = 112 * MIB;
const FIRST: u64 = 100;
const MANY: u64 = 130;
const STREAM: u64 = 100;
const GRAPH: u64 = 120;
const RELAXED: u64 = 2;
const THREAD_LOCAL: u64 = 1;

impl Maker {
    /// A percentage of the available memory.
    fn share(&self, percent: u64) -> u64 {
        ((self.memory_mb * MIB - SET_ASIDE) * percent / 100) / (2 * MIB) * (2 * MIB)
    }

    /// Fills the cache with free memory of the library.
    fn fill_cache(&mut self) {
        let percent = self.dice.pick(&[19, 24, 31, 48, 96]);
        let (count, bytes) = (96 / percent, self.share(percent));
        (0..count).for_each(|block| self.say(Op::Alloc, &[FIRST + block, bytes]));
        (0..count).for_each(|block| self.say(Op::Free, &[FIRST + block]));
    }

    /// Fills the cache to the last piece: the last requests may be refused.
    fn fill_cache_wholly(&mut self) {
        const PIECE: u64 = 23 * MIB;
        let pieces = MANY..MANY + self.memory_mb * MIB / PIECE;
        pieces.clone().for_each(|block| self.say(Op::Alloc, &[block, PIECE]));
        pieces.for_each(|block| self.say(Op::Free, &[block]));
    }

    /// Requests nearly all memory: on the plain driver as much is free as before.
    fn want_nearly_all(&mut self) {
        let bytes = self.share(85);
        self.say(Op::CtxSync, &[]);
        self.say(Op::AllocVirtual, &[FIRST, bytes]);
        self.say(Op::Free, &[FIRST]);
        // Made after a request, which waits for the driver's notices of destroyed graphs.
        self.say(Op::MemoryHas, &[bytes]);
    }

    fn launch_and_drop(&mut self, exec: u64, first_is_graph: bool) {
        self.say(Op::Launch, &[exec, STREAM]);
        self.say(Op::StreamSync, &[STREAM]);
        let ends = [(Op::GraphDestroy, GRAPH), (Op::ExecDestroy, exec)];
        let ends = if first_is_graph { ends } else { [ends[1], ends[0]] };
        ends.into_iter().for_each(|(op, slot)| self.say(op, &[slot]));
        self.say(Op::StreamDestroy, &[STREAM]);
    }

    /// A graph with memory nodes, uploaded at its instantiation, by a call, or by its launch.
    pub fn upload_beside_cache(&mut self) {
        let (how, exec) = (self.dice.below(3) as u64, 120 + self.dice.below(3) as u64);
        self.thread = 0;
        self.say(Op::StreamCreate, &[STREAM, 1, 0]);
        self.fill_cache();
        self.say(Op::CaptureBegin, &[STREAM, RELAXED]);
        let count = 1 + self.dice.below(2) as u64;
        for node in 0..count {
            let (bytes, value) = (self.share(70 / count), self.value());
            self.say(Op::AllocAsync, &[FIRST + 8 + node, bytes, STREAM]);
            self.say(Op::Fill, &[FIRST + 8 + node, STREAM, value, 0, 0]);
        }
        (0..count).for_each(|node| self.say(Op::FreeAsync, &[FIRST + 8 + node, STREAM]));
        self.say(Op::CaptureEnd, &[STREAM, GRAPH]);
        match how {
            0 => self.say(Op::InstantiateUploaded, &[exec, GRAPH, STREAM]),
            _ => self.say(Op::Instantiate, &[exec, GRAPH]),
        }
        if how == 1 {
            self.say(Op::Upload, &[exec, STREAM]);
        }
        let first_is_graph = self.dice.chance(50);
        self.launch_and_drop(exec, first_is_graph);
        self.want_nearly_all();
    }

    /// Captures the first launches of a context, so that the driver has to load their kernels.
    pub fn first_use_captured(&mut self) {
        const CTX: u64 = 8;
        const BLOCK: u64 = FIRST + 10;
        let (mode, exec) = (self.dice.below(3) as u64, 120 + self.dice.below(3) as u64);
        self.thread = 0;
        self.say(Op::CtxCreate, &[CTX]);
        self.say(Op::StreamCreate, &[STREAM, 1, 0]);
        self.say(Op::Alloc, &[BLOCK, 65536]);
        self.say(Op::Alloc, &[BLOCK + 3, 65536]);
        self.fill_cache_wholly();
        self.say(Op::CaptureBegin, &[STREAM, mode]);
        let value = self.value();
        self.say(Op::Fill, &[BLOCK, STREAM, value, 0, 0]);
        if self.dice.chance(60) {
            self.say(Op::Copy, &[BLOCK + 3, BLOCK, STREAM, 0, 0]);
        }
        self.say(Op::CaptureEnd, &[STREAM, GRAPH]);
        self.say(Op::Instantiate, &[exec, GRAPH]);
        self.launch_and_drop(exec, true);
        self.say(Op::Read, &[BLOCK]);
        self.say(Op::CtxDestroy, &[CTX]);
        self.say(Op::CtxSet, &[0]);
        self.want_nearly_all();
    }

    /// Frees memory that a node references after the last launch, and requests it while the
    /// executable graph lives.
    pub fn named_then_freed(&mut self) {
        const BLOCK: u64 = FIRST + 10;
        let exec = 120 + self.dice.below(3) as u64;
        let of_other = self.dice.chance(50) && self.threads > 1;
        let bytes = self.share(60);
        self.thread = 0;
        self.say(Op::StreamCreate, &[STREAM, 1, 0]);
        let mode = if of_other { THREAD_LOCAL } else { RELAXED };
        self.say(Op::CaptureBegin, &[STREAM, mode]);
        self.thread = u8::from(of_other);
        self.say(Op::Alloc, &[BLOCK, bytes]);
        self.thread = 0;
        let value = self.value();
        self.say(Op::Fill, &[BLOCK, STREAM, value, 0, 0]);
        self.say(Op::CaptureEnd, &[STREAM, GRAPH]);
        self.say(Op::Instantiate, &[exec, GRAPH]);
        if self.dice.chance(50) {
            self.say(Op::GraphDestroy, &[GRAPH]);
        }
        self.say(Op::Launch, &[exec, STREAM]);
        self.say(Op::StreamSync, &[STREAM]);
        self.thread = u8::from(of_other);
        self.say(Op::Free, &[BLOCK]);
        self.thread = 0;
        self.want_nearly_all();
        self.say(Op::ExecDestroy, &[exec]);
        self.say(Op::GraphDestroy, &[GRAPH]);
        self.say(Op::StreamDestroy, &[STREAM]);
    }

    /// Frees a block in the capture that uses it, destroys the graph, which is never launched, and
    /// requests the memory at once: on the plain driver it has been free since its free. Under the
    /// library, another thread may be learning of the graph's end.
    pub fn freed_in_its_capture(&mut self) {
        const BLOCK: u64 = FIRST + 10;
        let (bytes, most, exec) = (self.share(60), self.share(85), 120);
        self.thread = 0;
        self.say(Op::StreamCreate, &[STREAM, 1, 0]);
        self.say(Op::CaptureBegin, &[STREAM, RELAXED]);
        self.say(Op::Alloc, &[BLOCK, bytes]);
        let value = self.value();
        self.say(Op::Fill, &[BLOCK, STREAM, value, 0, 0]);
        self.say(Op::Free, &[BLOCK]);
        self.say(Op::CaptureEnd, &[STREAM, GRAPH]);
        if self.dice.chance(50) {
            self.say(Op::Instantiate, &[exec, GRAPH]);
            self.say(Op::ExecDestroy, &[exec]);
        }
        self.say(Op::GraphDestroy, &[GRAPH]);
        self.say(Op::Alloc, &[BLOCK, most]);
        self.say(Op::Free, &[BLOCK]);
        self.say(Op::StreamDestroy, &[STREAM]);
    }
}
