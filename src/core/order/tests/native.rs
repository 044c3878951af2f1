//! A naive model of CUDA's order, and of the effects that a program may observe on the plain
//! driver.
//!
//! Work items are numbered in the order of submission; a set of them is a bit set. All sets express
//! happens-before: for a stream, the work that its next item waits for; for the host, the work that
//! it has waited for. Sets are closed: a set that holds an item also holds everything that ran
//! before it.

/// A set of work items.
pub type Set = u64;

pub const STREAMS: usize = 7;
pub const LEGACY: usize = 0;
/// Blocking streams: the legacy stream, one created stream, the threads' default streams.
pub const BLOCKING: [bool; STREAMS] = [true, true, false, false, true, true, false];
/// The stream of a second context.
pub const ELSEWHERE: usize = 6;
pub const EVENTS: usize = 2;
pub const CONTEXTS: usize = 2;
/// Work items, blocks and barriers that a program can have.
pub const WORKS_MAX: usize = 64;
pub const BLOCKS_MAX: usize = 24;

pub fn context_of(stream: usize) -> usize {
    usize::from(stream == ELSEWHERE)
}

/// Dependencies between streams, events and the host. The same calls build them up on the plain
/// driver and under our rules; only frees differ.
#[derive(Clone, Copy, Default)]
pub struct Order {
    pub works: usize,
    tail: [Set; STREAMS],
    pub all: [Set; CONTEXTS],
    /// Work that every later item of the context waits for: its barriers.
    floor: [Set; CONTEXTS],
    pub events: [Set; EVENTS],
    /// Work that the host has waited for, or knows to be complete because the program waited.
    pub done: Set,
}

impl Order {
    /// Returns the work that an item submitted to this stream now would wait for.
    pub fn prefix(&self, stream: usize) -> Set {
        let mut before = self.tail[stream] | self.floor[context_of(stream)] | self.done;
        if stream == LEGACY {
            let blocking = (0..STREAMS).filter(|&other| BLOCKING[other]);
            before |= blocking.fold(0, |set, other| set | self.tail[other]);
        } else if BLOCKING[stream] {
            before |= self.tail[LEGACY];
        }
        before
    }

    /// Returns the work that is complete when the host has waited for the stream: its own work, and
    /// on the legacy stream the work of every blocking one. A blocking stream is ordered after the
    /// legacy stream's work only by items submitted to it since.
    pub fn over(&self, stream: usize) -> Set {
        if stream == LEGACY { self.prefix(stream) } else { self.tail[stream] | self.done }
    }

    /// Submits an item. Returns its bit and the work that runs before it.
    pub fn submit(&mut self, stream: usize) -> (Set, Set) {
        let before = self.prefix(stream);
        let work = 1 << self.works;
        self.works += 1;
        self.tail[stream] = before | work;
        self.all[context_of(stream)] |= before | work;
        (work, before)
    }

    /// Takes a place in the stream that is no work: it orders the stream after nothing.
    pub fn place(&mut self, stream: usize) -> (Set, Set) {
        let tail = self.tail[stream];
        let (place, before) = self.submit(stream);
        self.tail[stream] = tail | place;
        (place, before)
    }

    /// Orders the stream now after everything that its new work would wait for.
    pub fn join(&mut self, stream: usize) {
        self.tail[stream] = self.prefix(stream);
    }

    pub fn record(&mut self, event: usize, stream: usize) {
        self.events[event] = self.prefix(stream);
    }

    pub fn wait_event(&mut self, stream: usize, event: usize) {
        self.tail[stream] = self.prefix(stream) | self.events[event];
        self.all[context_of(stream)] |= self.tail[stream];
    }

    /// Makes all later work of the context, on whatever stream, wait for all earlier work.
    pub fn barrier(&mut self, context: usize) -> Set {
        self.come_behind(context, self.all[context]);
        self.all[context]
    }

    /// Makes all later work of the stream wait for `works`, and so whatever waits for the stream.
    /// This orders a blocking stream after no work of the legacy one (measured).
    pub fn stream_behind(&mut self, stream: usize, works: Set) {
        self.tail[stream] |= works;
    }

    /// Makes all later work of the context, on whatever stream, wait for `works`.
    pub fn come_behind(&mut self, context: usize, works: Set) {
        self.floor[context] |= works;
    }

    pub fn wait(&mut self, works: Set) {
        self.done |= works;
    }

    /// Destroys the stream and creates another under the same handle. The work of the old one
    /// continues.
    pub fn recreate(&mut self, stream: usize) {
        self.tail[stream] = 0;
    }
}

/// The work that has read and written some bytes.
#[derive(Clone, Copy, Default)]
pub struct Bytes {
    pub readers: Set,
    pub writers: Set,
}

impl Bytes {
    /// Returns the work that must be complete before an access.
    pub fn conflicts(&self, write: bool) -> Set {
        if write { self.readers | self.writers } else { self.writers }
    }

    pub fn add(&mut self, work: Set, write: bool) {
        let list = if write { &mut self.writers } else { &mut self.readers };
        *list |= work;
    }
}

/// The plain driver: each allocation has separate bytes.
#[derive(Clone, Copy)]
pub struct Native {
    pub order: Order,
    blocks: [Bytes; BLOCKS_MAX],
    pinned: Bytes,
    texture: Bytes,
    /// Work that each thread itself has waited for.
    waited_by: [Set; 2],
    /// Whether a free waits. `false` finds the programs that need mode `relaxed` only.
    free_waits: bool,
}

/// The program races, or breaks another rule of CUDA: it proves nothing.
pub struct Invalid;

impl Native {
    pub fn new(free_waits: bool) -> Native {
        Native {
            order: Order::default(),
            blocks: [Bytes::default(); BLOCKS_MAX],
            pinned: Bytes::default(),
            texture: Bytes::default(),
            waited_by: [0; 2],
            free_waits,
        }
    }

    pub fn access(
        &mut self,
        (work, before): (Set, Set),
        block: usize,
        write: bool,
    ) -> Result<(), Invalid> {
        access(&mut self.blocks[block], work, before, write)
    }

    pub fn access_pinned(
        &mut self,
        (work, before): (Set, Set),
        write: bool,
    ) -> Result<(), Invalid> {
        access(&mut self.pinned, work, before, write)
    }

    pub fn use_texture(&mut self, work: Set) {
        self.texture.add(work, false);
    }

    pub fn host_access(&self, write: bool) -> Result<(), Invalid> {
        over(self.pinned.conflicts(write), self.order.done)
    }

    pub fn destroy_texture(&self) -> Result<(), Invalid> {
        over(self.texture.readers, self.order.done)
    }

    pub fn wait(&mut self, works: Set, thread: usize) {
        self.order.wait(works);
        self.waited_by[thread] |= works;
    }

    /// Models `cuMemFree` of a context block: a wait for its context. The program is at fault if
    /// another context still uses the block.
    pub fn free(&mut self, block: usize, thread: usize) -> Result<(), Invalid> {
        let all = self.order.all[0];
        if self.free_waits {
            self.wait(all, thread);
        }
        over(self.blocks[block].conflicts(true), self.order.done | all)
    }

    /// Models `cuMemFree` of an async block: no wait.
    pub fn free_async_plainly(&self, block: usize) -> Result<(), Invalid> {
        over(self.blocks[block].conflicts(true), self.order.done | self.order.all[0])
    }

    /// Models a query asked once, where a correct program may rely on "ready".
    pub fn query(&self, event: usize, thread: usize) -> Result<(), Invalid> {
        over(self.order.events[event], self.waited_by[thread])
    }
}

fn access(bytes: &mut Bytes, work: Set, before: Set, write: bool) -> Result<(), Invalid> {
    over(bytes.conflicts(write), before)?;
    bytes.add(work, write);
    Ok(())
}

fn over(works: Set, before: Set) -> Result<(), Invalid> {
    if works & !before == 0 { Ok(()) } else { Err(Invalid) }
}
