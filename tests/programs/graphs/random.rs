//! Random captures among ordinary work: `graphs random SEED OPS [pool]`. With `pool` they also
//! allocate and free in stream order.
//!
//! A capture allocates, fills, checks and frees on streams that fork and join. The program orders
//! its own accesses by events, and relies only on this: its memory is used by nothing else, in no
//! launch. It checks every word, inside the graphs and between them.

use cachealloc_tests::dice::Dice;
use cachealloc_tests::driver::{Driver, Event, GLOBAL, Outcome, RELAXED, Stream, THREAD_LOCAL};

const STREAMS: usize = 4;
const GRAPHS_MAX: usize = 4;
const HELD_MAX: usize = 12;
const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const NOT_SUPPORTED: i32 = 801;
const SIZES: [usize; 7] = [4_096, 64 << 10, 1 << 20, 3 << 19, 3 << 20, 12 << 20, 24 << 20];
/// Number of bytes used in a block, at an offset specific to the block.
const PART_BYTES: u64 = 4_096;

type Clock = [u32; STREAMS];

struct Program<'a> {
    d: &'a Driver,
    dice: Dice,
    streams: [Stream; STREAMS],
    /// Ordinary blocks: address, offset and value.
    held: Vec<(u64, u64, u64)>,
    graphs: Vec<Graph>,
    values: u64,
    wrong: u64,
    /// Percentage of the captures' allocations and frees that are stream-ordered.
    ordered: usize,
}

struct Graph {
    graph: Option<u64>,
    executables: Vec<u64>,
    stream: Stream,
    /// Numbers of wrong words, for each stream.
    counts: [u64; STREAMS],
    /// Blocks still allocated at the end of the capture, with their contents after a launch.
    left: Vec<(u64, u64, u64)>,
    launched: bool,
    /// Whether everything in the capture also works without the library: in that case no launch may
    /// follow the free of a block still allocated at its end.
    native: bool,
    /// Whether the graph is not launched any more.
    spent: bool,
}

/// A block in a capture.
struct Block {
    address: u64,
    at: u64,
    value: Option<u64>,
    written: Clock,
    touched: Clock,
}

/// The streams of a capture, and what each knows of the others' progress.
struct Capture {
    members: Vec<usize>,
    clocks: [Clock; STREAMS],
    events: Vec<(Event, Clock)>,
    blocks: Vec<Block>,
    mode: u32,
    /// Whether its calls are made by a thread other than the one that began it.
    elsewhere: bool,
    /// Whether each call so far would have succeeded without the library.
    native: bool,
}

pub fn main(d: &Driver, words: &[String]) {
    let number = |index: usize| words.get(index).and_then(|word| word.parse().ok()).unwrap_or(1);
    let ordered = if words.get(2).is_some() { 50 } else { 0 };
    match run(d, number(0), number(1), ordered) {
        Ok(wrong) => {
            println!("{wrong} words were wrong");
            std::process::exit((wrong != 0).into());
        }
        Err(code) => {
            println!("driver error {code}");
            std::process::exit(1);
        }
    }
}

fn run(d: &Driver, seed: u64, ops: u64, ordered: usize) -> Outcome<u64> {
    let streams = [d.stream()?, d.stream()?, d.blocking_stream()?, d.stream()?];
    let (held, graphs) = (Vec::new(), Vec::new());
    let mut program =
        Program { d, dice: Dice::new(seed), streams, held, graphs, values: 0, wrong: 0, ordered };
    for _ in 0..ops {
        program.step()?;
    }
    program.finish()
}

impl Program<'_> {
    fn step(&mut self) -> Outcome {
        match self.dice.below(20) {
            0..5 => self.hold(),
            5..9 => self.let_go(),
            9..11 if self.graphs.len() < GRAPHS_MAX => self.capture(),
            9..16 => self.launch(),
            16..18 => self.free_left(),
            18 => self.destroy(),
            _ => self.d.synchronize(),
        }
    }

    fn fresh_value(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    fn place(&mut self, address: u64, bytes: usize) -> u64 {
        let room = (bytes as u64 - PART_BYTES) / 512;
        address + self.dice.below(room as usize + 1) as u64 * 512
    }

    fn delay(&mut self) -> u64 {
        [0, 0, 5_000, 50_000, 400_000][self.dice.below(5)]
    }

    fn alloc(&mut self) -> Outcome<Option<(u64, u64)>> {
        self.alloc_on(None)
    }

    fn alloc_on(&mut self, stream: Option<Stream>) -> Outcome<Option<(u64, u64)>> {
        let bytes = SIZES[self.dice.below(SIZES.len())];
        let allocated = match stream {
            Some(stream) => self.d.alloc_async(bytes, stream),
            None => self.d.alloc(bytes),
        };
        match allocated {
            Ok(address) => Ok(Some((address, self.place(address, bytes)))),
            Err(OUT_OF_MEMORY) => Ok(None),
            Err(code) => Err(code),
        }
    }

    /// Allocates ordinary memory, which no launch may access.
    fn hold(&mut self) -> Outcome {
        if self.held.len() >= HELD_MAX {
            return self.let_go();
        }
        let Some((address, at)) = self.alloc()? else { return Ok(()) };
        let (value, delay, on) = (self.fresh_value(), self.delay(), self.dice.below(STREAMS));
        self.d.launch("late_fill", self.streams[on], &[at, PART_BYTES, value, delay])?;
        self.held.push((address, at, value));
        Ok(())
    }

    fn let_go(&mut self) -> Outcome {
        if self.held.is_empty() {
            return Ok(());
        }
        let index = self.dice.below(self.held.len());
        let (address, at, value) = self.held.swap_remove(index);
        if self.dice.below(3) != 0 {
            self.d.synchronize()?;
            self.look(at, value)?;
        }
        self.d.free(address)
    }

    fn look(&mut self, at: u64, value: u64) -> Outcome {
        let words = self.d.read_words(at, PART_BYTES as usize / 8)?;
        self.wrong += words.iter().filter(|word| **word != value).count() as u64;
        Ok(())
    }

    fn launch(&mut self) -> Outcome {
        if self.graphs.is_empty() {
            return Ok(());
        }
        let (index, again) = (self.dice.below(self.graphs.len()), self.dice.below(3));
        let pick = self.dice.below(2);
        let graph = &mut self.graphs[index];
        if graph.spent {
            return Ok(());
        }
        let executable = graph.executables[pick % graph.executables.len()];
        for _ in 0..=again {
            self.d.launch_graph(executable, graph.stream)?;
        }
        graph.launched = true;
        if pick == 0 {
            self.d.synchronize()?;
            for (_, at, value) in self.graphs[index].left.clone() {
                self.look(at, value)?;
            }
        }
        Ok(())
    }

    /// Frees a block that a capture left allocated, while its graph lives.
    fn free_left(&mut self) -> Outcome {
        let some = self.graphs.iter().position(|graph| !graph.left.is_empty());
        let Some(index) = some else { return Ok(()) };
        let graph = &mut self.graphs[index];
        let (left, launched) = (std::mem::take(&mut graph.left), graph.launched);
        graph.spent = graph.native;
        left.into_iter().try_for_each(|(address, ..)| self.free_one_left(address, launched))
    }

    /// Frees one such block. A memory node, which replaces a refused request, has allocated nothing
    /// before its launch.
    fn free_one_left(&self, address: u64, launched: bool) -> Outcome {
        match self.d.free(address) {
            Err(INVALID_VALUE) if self.ordered > 0 && !launched => Ok(()),
            freed => freed,
        }
    }

    fn destroy(&mut self) -> Outcome {
        if self.graphs.is_empty() {
            return Ok(());
        }
        let index = self.dice.below(self.graphs.len());
        let all = self.dice.below(2) == 0;
        let graph = &mut self.graphs[index];
        if let Some(graph) = graph.graph.take() {
            self.d.destroy_graph(graph)?;
        }
        if graph.executables.len() > 1 {
            self.d.destroy_executable(graph.executables.pop().expect("there are two"))?;
        }
        if all {
            let graph = self.graphs.swap_remove(index);
            self.end(graph)?;
        }
        Ok(())
    }

    /// Destroys a graph. Its blocks belong to the program until then.
    fn end(&mut self, graph: Graph) -> Outcome {
        graph
            .executables
            .iter()
            .try_for_each(|executable| self.d.destroy_executable(*executable))?;
        if let Some(graph) = graph.graph {
            self.d.destroy_graph(graph)?;
        }
        self.d.synchronize()?;
        for (address, at, value) in graph.left {
            if graph.launched {
                self.look(at, value)?;
            }
            self.free_one_left(address, graph.launched)?;
        }
        for count in graph.counts {
            self.wrong += self.d.read_words(count, 1)?[0];
            self.d.free(count)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Outcome<u64> {
        while let Some(graph) = self.graphs.pop() {
            self.end(graph)?;
        }
        self.d.synchronize()?;
        for (address, at, value) in std::mem::take(&mut self.held) {
            self.look(at, value)?;
            self.d.free(address)?;
        }
        Ok(self.wrong)
    }
}

/// Operations in captures.
impl Program<'_> {
    fn capture(&mut self) -> Outcome {
        let mut counts = [0; STREAMS];
        for index in 0..STREAMS {
            match self.d.alloc(512) {
                Ok(count) => counts[index] = count,
                Err(_) => return counts[..index].iter().try_for_each(|count| self.d.free(*count)),
            }
            self.d.write_words(counts[index], &[0])?;
        }
        let mode = [THREAD_LOCAL, GLOBAL, RELAXED][self.dice.below(3)];
        let origin = self.dice.below(STREAMS);
        self.d.begin_capture(self.streams[origin], mode)?;
        let (clocks, events, blocks) = (Default::default(), Vec::new(), Vec::new());
        let (members, elsewhere, native) = (vec![origin], false, true);
        let mut capture = Capture { members, clocks, events, blocks, mode, elsewhere, native };
        for _ in 0..self.dice.below(50) + 2 {
            self.captured(&mut capture, &counts)?;
        }
        for member in capture.members.clone() {
            self.bring(&mut capture, origin, member)?;
        }
        let graph = self.d.end_capture(self.streams[origin])?;
        capture.events.iter().try_for_each(|(event, _)| self.d.destroy_event(*event))?;
        let mut executables = vec![self.d.instantiate(graph)?];
        if self.dice.below(3) == 0 {
            match self.d.instantiate(graph) {
                // The capture uses a memory node in place of the refused request.
                Err(NOT_SUPPORTED) if self.ordered > 0 => {}
                executable => executables.push(executable?),
            }
        }
        let left = capture.blocks.iter().filter_map(|b| Some((b.address, b.at, b.value?)));
        let left = left.collect();
        let unfilled = capture.blocks.iter().filter(|block| block.value.is_none());
        unfilled.map(|block| block.address).try_for_each(|address| self.d.free(address))?;
        let (graph, stream) = (Some(graph), self.streams[origin]);
        let (launched, native, spent) = (false, capture.native, false);
        let new = Graph { graph, executables, stream, counts, left, launched, native, spent };
        self.graphs.push(new);
        Ok(())
    }

    fn captured(&mut self, c: &mut Capture, counts: &[u64; STREAMS]) -> Outcome {
        let stream = c.members[self.dice.below(c.members.len())];
        match self.dice.below(20) {
            0..5 => {
                let on = (self.dice.below(100) < self.ordered).then_some(self.streams[stream]);
                c.allocates();
                if let Some((address, at)) = self.alloc_on(on)? {
                    let clock = if on.is_some() { c.clocks[stream] } else { Clock::default() };
                    let (written, touched) = (clock, clock);
                    c.blocks.push(Block { address, at, value: None, written, touched });
                }
                Ok(())
            }
            5..9 if !c.blocks.is_empty() => {
                let index = self.dice.below(c.blocks.len());
                if self.dice.below(100) < self.ordered {
                    let touched = c.blocks[index].touched;
                    self.order(c, stream, touched)?;
                    let block = c.blocks.swap_remove(index);
                    return self.d.free_async(block.address, self.streams[stream]);
                }
                let block = c.blocks.swap_remove(index);
                c.allocates();
                self.d.free(block.address)
            }
            5..13 if !c.blocks.is_empty() => self.fill(c, stream),
            13..16 if !c.blocks.is_empty() => self.check(c, stream, counts),
            16 => self.note_event(c, stream),
            17 => self.fork(c, stream),
            18 => {
                let other = c.members[self.dice.below(c.members.len())];
                self.bring(c, stream, other)
            }
            19 if self.dice.below(4) == 0 => self.in_another_thread(c, counts),
            19 if c.mode != GLOBAL && self.dice.below(3) == 0 => self.elsewhere(),
            _ => Ok(()),
        }
    }

    fn fill(&mut self, c: &mut Capture, stream: usize) -> Outcome {
        let index = self.dice.below(c.blocks.len());
        let touched = c.blocks[index].touched;
        self.order(c, stream, touched)?;
        let (value, delay) = (self.fresh_value(), self.delay());
        let block = &mut c.blocks[index];
        let arguments = [block.at, PART_BYTES, value, delay];
        self.d.launch("late_fill", self.streams[stream], &arguments)?;
        c.clocks[stream][stream] += 1;
        block.value = Some(value);
        (block.written, block.touched) = (c.clocks[stream], c.clocks[stream]);
        Ok(())
    }

    fn check(&mut self, c: &mut Capture, stream: usize, counts: &[u64; STREAMS]) -> Outcome {
        let index = self.dice.below(c.blocks.len());
        let Some(value) = c.blocks[index].value else { return Ok(()) };
        let written = c.blocks[index].written;
        self.order(c, stream, written)?;
        let delay = self.delay();
        let block = &mut c.blocks[index];
        let arguments = [block.at, PART_BYTES, value, counts[stream], delay];
        self.d.launch("check", self.streams[stream], &arguments)?;
        c.clocks[stream][stream] += 1;
        for (own, other) in block.touched.iter_mut().zip(c.clocks[stream]) {
            *own = (*own).max(other);
        }
        Ok(())
    }

    /// Orders the next captured work of this stream after the operations in the clock.
    fn order(&mut self, c: &mut Capture, stream: usize, clock: Clock) -> Outcome {
        for other in c.members.clone() {
            if c.clocks[stream][other] < clock[other] {
                self.bring(c, stream, other)?;
            }
        }
        Ok(())
    }

    fn bring(&mut self, c: &mut Capture, stream: usize, other: usize) -> Outcome {
        if stream == other {
            return Ok(());
        }
        let event = self.d.event()?;
        self.d.record(event, self.streams[other])?;
        self.d.stream_waits(self.streams[stream], event)?;
        self.d.destroy_event(event)?;
        let knows = c.clocks[other];
        c.learn(stream, &knows);
        Ok(())
    }

    fn note_event(&mut self, c: &mut Capture, stream: usize) -> Outcome {
        let event = self.d.event()?;
        self.d.record(event, self.streams[stream])?;
        c.events.push((event, c.clocks[stream]));
        Ok(())
    }

    /// Adds a stream to the capture, perhaps from an old event.
    fn fork(&mut self, c: &mut Capture, from: usize) -> Outcome {
        let Some(stream) = (0..STREAMS).find(|stream| !c.members.contains(stream)) else {
            return Ok(());
        };
        if c.events.is_empty() || self.dice.below(3) == 0 {
            self.note_event(c, from)?;
        }
        let (event, knows) = c.events[self.dice.below(c.events.len())];
        self.d.stream_waits(self.streams[stream], event)?;
        c.members.push(stream);
        c.learn(stream, &knows);
        Ok(())
    }

    /// Lets another thread do the capture's work for a while.
    fn in_another_thread(&mut self, c: &mut Capture, counts: &[u64; STREAMS]) -> Outcome {
        let (context, before) = (self.d.context(), c.elsewhere);
        c.elsewhere = true;
        let work = || {
            self.d.set_context(context)?;
            (0..self.dice.below(12)).try_for_each(|_| self.captured(c, counts))
        };
        let done = std::thread::scope(|scope| scope.spawn(work).join().expect("it does not panic"));
        c.elsewhere = before;
        done
    }

    /// Lets another thread work meanwhile, on memory unrelated to the capture.
    fn elsewhere(&mut self) -> Outcome {
        let context = self.d.context();
        let (values, delay) = (self.fresh_value(), self.delay());
        let d = self.d;
        let work = || {
            d.set_context(context)?;
            let stream = d.stream()?;
            for bytes in SIZES {
                let block = match d.alloc(bytes) {
                    Err(OUT_OF_MEMORY) => continue,
                    block => block?,
                };
                d.launch("late_fill", stream, &[block, PART_BYTES, values, delay])?;
                d.free(block)?;
            }
            d.destroy_stream(stream)
        };
        std::thread::scope(|scope| scope.spawn(work).join().expect("it does not panic"))
    }
}

impl Capture {
    /// Records that a call that allocates or frees is made.
    fn allocates(&mut self) {
        self.native &= self.mode == RELAXED || self.mode == THREAD_LOCAL && self.elsewhere;
    }

    fn learn(&mut self, stream: usize, knows: &Clock) {
        for (own, other) in self.clocks[stream].iter_mut().zip(knows) {
            *own = (*own).max(*other);
        }
    }
}
