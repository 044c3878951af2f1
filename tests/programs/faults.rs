//! A program that does everything for which the library calls the driver: `faults`.
//!
//! It continues after any error, prints the code of each step, and checks what it wrote. A failing
//! driver call (`SIM_FAIL`) may change a code, but never a byte, and loses no memory.

use cachealloc_tests::driver::{Driver, Lookup, Outcome, RELAXED, Stream, THREAD_LOCAL, check};
use cachealloc_tests::functions::IpcHandle;

/// Calls a function of the driver that has no wrapper.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: each argument is a value, or a pointer of the program that outlives the call.
        check(unsafe { ($driver.functions.$function)($($argument),*) })
    };
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Virtual nanoseconds that work takes, so that frees find it in flight.
const LATE: u64 = 300_000;

fn main() {
    let driver = Driver::load(Lookup::ProcAddress).expect("a driver");
    let mut script = Script { d: &driver };
    let context = script.said("primary context", driver.use_device(0));
    let at_start = script.said("memory", driver.memory_info());
    script.one_context();
    script.capture();
    script.pools();
    script.out_of_memory();
    script.exports();
    script.second_context(context);
    let at_end = script.said("memory", driver.memory_info());
    if let (Some(start), Some(end)) = (at_start, at_end) {
        let lost = start.0.saturating_sub(end.0);
        // The driver may keep one page for the smallest allocations.
        println!("lost: {}", if lost <= 2 * MIB { 0 } else { lost });
    }
    script.said("reset", call!(driver, cuDevicePrimaryCtxReset(0)));
    script.said("primary context again", driver.use_device(0));
    let after = script.said("memory", driver.memory_info());
    if let (Some(start), Some(after)) = (at_start, after) {
        println!("not given back: {}", start.0.saturating_sub(after.0));
    }
    println!("end");
}

struct Script<'a> {
    d: &'a Driver,
}

impl Script<'_> {
    /// Prints the code of a step.
    fn said<T>(&mut self, what: &str, outcome: Outcome<T>) -> Option<T> {
        println!("{what}: {}", outcome.as_ref().err().unwrap_or(&0));
        outcome.ok()
    }

    fn part(&mut self, name: &str) {
        println!("-- {name}");
    }

    fn alloc(&mut self, bytes: usize) -> Option<u64> {
        let outcome = self.d.alloc(bytes);
        self.said("alloc", outcome)
    }

    /// Frees a block. A block whose free is refused still belongs to the program, which tries once
    /// more.
    fn free(&mut self, block: Option<u64>) -> bool {
        let Some(block) = block else { return false };
        let outcome = self.d.free(block);
        if self.said("free", outcome).is_some() {
            return true;
        }
        let outcome = self.d.free(block);
        self.said("free again", outcome).is_some()
    }

    fn free_async(&mut self, block: Option<u64>, stream: Stream) {
        let Some(block) = block else { return };
        let outcome = self.d.free_async(block, stream);
        if self.said("free async", outcome).is_none() {
            let outcome = self.d.free_async(block, stream);
            self.said("free again", outcome);
        }
    }

    /// Synchronizes in several ways, so that the program's own order does not depend on one call.
    fn synchronize(&mut self) {
        let outcome = self.d.synchronize();
        if self.said("synchronize", outcome).is_none() {
            let outcome = self.d.synchronize();
            self.said("synchronize again", outcome);
        }
    }

    fn stream(&mut self) -> Stream {
        let mut stream = 0;
        let outcome = call!(self.d, cuStreamCreate(&mut stream, 1));
        self.said("stream", outcome);
        stream
    }

    fn fill(&mut self, stream: Stream, block: Option<u64>, bytes: usize, value: u64) -> bool {
        let Some(block) = block else { return false };
        let outcome = self.d.launch("late_fill", stream, &[block, bytes as u64, value, LATE]);
        self.said("fill", outcome).is_some()
    }

    /// Checks the contents of a block, if it was filled.
    fn holds(&mut self, filled: bool, block: Option<u64>, bytes: usize, value: u64) {
        let (Some(block), true) = (block, filled) else { return };
        self.synchronize();
        let words = self.d.read_words(block, bytes / 8);
        let Some(words) = self.said("read", words) else { return };
        let wrong = words.iter().filter(|word| **word != value).count();
        println!("contents: {}", if wrong == 0 { "right" } else { "WRONG" });
    }

    /// Frees after work in flight, and uses the same bytes on other streams, which needs barriers.
    fn one_context(&mut self) {
        self.part("one context");
        let (a, b) = (self.stream(), self.stream());
        let sizes = [KIB, 700 * KIB, 3 * MIB, 12 * MIB];
        for (index, bytes) in sizes.into_iter().enumerate() {
            let value = 10 + index as u64;
            let (kept, block) = (self.alloc(bytes), self.alloc(bytes));
            let filled = self.fill(a, kept, bytes, value);
            self.fill(a, block, bytes, 99);
            self.free(block);
            let next = self.alloc(bytes);
            let filled_next = self.fill(b, next, bytes, value + 50);
            self.holds(filled_next, next, bytes, value + 50);
            self.holds(filled, kept, bytes, value);
            self.free(next);
            self.free(kept);
        }
        for bytes in [4 * KIB, 2 * MIB] {
            let outcome = self.d.alloc_async(bytes, a);
            let block = self.said("alloc async", outcome);
            let filled = self.fill(a, block, bytes, 7);
            self.holds(filled, block, bytes, 7);
            self.fill(a, block, bytes, 8);
            self.free_async(block, a);
            let other = self.d.alloc_async(bytes, b);
            let other = self.said("alloc async", other);
            let filled = self.fill(b, other, bytes, 9);
            self.holds(filled, other, bytes, 9);
            self.free(other);
            let plain = self.alloc(bytes);
            self.fill(b, plain, bytes, 1);
            self.free_async(plain, b);
        }
        self.visible(a);
    }

    /// The host reads pinned memory directly after a free, which must have waited.
    fn visible(&mut self, stream: Stream) {
        let pinned = self.d.pinned(4096);
        let Some(pinned) = self.said("pinned", pinned) else { return };
        self.d.host_write(pinned, 5);
        let block = self.alloc(MIB);
        let filled = self.fill(stream, block, MIB, 6);
        let copied = block.map_or(Err(-1), |block| self.d.copy(pinned, block, 8, stream));
        let copied = self.said("copy", copied).is_some();
        if self.free(block) && copied && filled {
            let seen = self.d.host_read(pinned);
            println!("seen: {}", if seen == 6 { "right" } else { "WRONG" });
        }
        let freed = self.d.free_pinned(pinned);
        self.said("free pinned", freed);
    }

    /// Frees while a stream captures, and adds memory nodes.
    fn capture(&mut self) {
        for mode in [THREAD_LOCAL, RELAXED] {
            self.part("capture");
            let (captured, stream) = (self.stream(), self.stream());
            let (block, inside) = (self.alloc(MIB), self.alloc(MIB));
            let begun = call!(self.d, cuStreamBeginCapture(captured, mode));
            let begun = self.said("begin", begun).is_some();
            let filled = begun && self.fill(captured, inside, MIB, 3);
            if mode == RELAXED {
                self.fill(stream, block, MIB, 4);
                self.free(block);
                let again = self.alloc(MIB);
                self.free(again);
                let node = self.d.alloc_async(MIB, captured);
                if let Some(node) = self.said("node", node) {
                    let freed = self.d.free_async(node, captured);
                    self.said("free node", freed);
                }
            }
            let (mut graph, mut executable) = (0, 0);
            let ended = call!(self.d, cuStreamEndCapture(captured, &mut graph));
            if self.said("end", ended).is_some() {
                let made = call!(self.d, cuGraphInstantiateWithFlags(&mut executable, graph, 0));
                if self.said("instantiate", made).is_some() {
                    let launched = call!(self.d, cuGraphLaunch(executable, captured));
                    let launched = self.said("launch", launched).is_some();
                    self.holds(filled && launched, inside, MIB, 3);
                    let destroyed = call!(self.d, cuGraphExecDestroy(executable));
                    self.said("destroy executable", destroyed);
                }
                let destroyed = call!(self.d, cuGraphDestroy(graph));
                self.said("destroy graph", destroyed);
            }
            if mode != RELAXED {
                self.free(block);
            }
            self.free(inside);
            self.synchronize();
        }
    }

    fn pools(&mut self) {
        self.part("pools");
        let stream = self.stream();
        let (mut pool, mut used) = (0, 0);
        let found = call!(self.d, cuDeviceGetDefaultMemPool(&mut pool, 0));
        if self.said("pool", found).is_some() {
            let outcome = call!(self.d, cuMemAllocFromPoolAsync(&mut used, 3 * MIB, pool, stream));
            let block = self.said("from pool", outcome).map(|()| used);
            let filled = self.fill(stream, block, 3 * MIB, 2);
            self.holds(filled, block, 3 * MIB, 2);
            self.free_async(block, stream);
            let mut bytes = 0;
            let asked = call!(self.d, cuMemPoolGetAttribute(pool, 7, &mut bytes));
            self.said("attribute", asked);
            let trimmed = call!(self.d, cuMemPoolTrimTo(pool, 0));
            self.said("trim", trimmed);
            let native = self.d.alloc_async(MIB, stream);
            let native = self.said("alloc async", native);
            self.free_async(native, stream);
        }
        self.synchronize();
    }

    /// The cache holds nearly everything, in pieces; then the program requests one large block.
    fn out_of_memory(&mut self) {
        self.part("out of memory");
        let stream = self.stream();
        let kept = self.alloc(MIB);
        let filled = self.fill(stream, kept, MIB, 77);
        let blocks: Vec<_> = (0..5).map(|_| self.alloc(40 * MIB)).collect();
        for block in blocks {
            self.fill(stream, block, MIB, 1);
            self.free(block);
        }
        let large = self.alloc(190 * MIB);
        let filled_large = self.fill(stream, large, MIB, 78);
        let impossible = self.alloc(1 << 40);
        self.free(impossible);
        self.holds(filled_large, large, MIB, 78);
        self.holds(filled, kept, MIB, 77);
        self.free(large);
        self.free(kept);
    }

    fn exports(&mut self) {
        self.part("exports");
        let stream = self.stream();
        let (first, second) = (self.alloc(64 * KIB), self.alloc(64 * KIB));
        for block in [first, second] {
            let mut handle = IpcHandle::default();
            let exported =
                block.map_or(Ok(()), |block| call!(self.d, cuIpcGetMemHandle(&mut handle, block)));
            self.said("export", exported);
            self.fill(stream, block, 64 * KIB, 4);
            self.free(block);
        }
        let next = self.alloc(64 * KIB);
        let filled = self.fill(stream, next, 64 * KIB, 5);
        self.holds(filled, next, 64 * KIB, 5);
        self.free(next);
    }

    fn second_context(&mut self, first: Option<u64>) {
        self.part("second context");
        let made = self.d.create_context(0);
        if let Some(context) = self.said("create context", made) {
            let stream = self.stream();
            let (block, left) = (self.alloc(3 * MIB), self.alloc(MIB));
            let filled = self.fill(stream, block, 3 * MIB, 6);
            self.holds(filled, block, 3 * MIB, 6);
            self.free(block);
            self.fill(stream, left, MIB, 6);
            let destroyed = call!(self.d, cuCtxDestroy(context));
            self.said("destroy context", destroyed);
        }
        let back = self.d.set_context(first.unwrap_or(0));
        self.said("set context", back);
        let stream = self.stream();
        let block = self.alloc(3 * MIB);
        let filled = self.fill(stream, block, 3 * MIB, 8);
        self.holds(filled, block, 3 * MIB, 8);
        self.free(block);
        self.synchronize();
    }
}
