//! One thread of a random program.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};

use cachealloc_tests::dice::Dice;
use cachealloc_tests::driver::{Driver, Outcome};

use crate::Program;
use crate::cells::Cell;
use crate::graphs::Graph;
use crate::order::{Clock, Streams, covers};
use crate::parcels::Parcel;

/// Memory of this thread. Only one fixed part of it is ever used.
pub struct Block {
    pub address: u64,
    /// Offset and length of the used part.
    pub part: (u64, u64),
    /// Whether the block is from `cuMemAllocAsync`: its plain free waits for nothing.
    ordered: bool,
    /// Value of every word of the part, once filled.
    pub value: Option<u64>,
    pub written: Clock,
    pub touched: Clock,
}

/// Operations that a program prefers: pinned memory, for one, makes frees wait and so hides other
/// errors.
#[derive(Clone, Copy)]
struct Theme {
    pinned: bool,
    graphs: bool,
    /// Percentage of the allocations and of the frees that are stream-ordered.
    ordered: u64,
    /// Percentage of the orderings that rely on a free, if frees wait.
    leaning: u64,
}

#[rustfmt::skip]
const THEMES: [Theme; 5] = [
    Theme { pinned: true, graphs: true, ordered: 35, leaning: 50 },
    Theme { pinned: false, graphs: false, ordered: 20, leaning: 80 },
    Theme { pinned: false, graphs: false, ordered: 95, leaning: 5 },
    Theme { pinned: false, graphs: true, ordered: 50, leaning: 30 },
    Theme { pinned: true, graphs: false, ordered: 50, leaning: 60 },
];

pub struct Worker<'a> {
    pub program: &'a Program,
    pub driver: &'a Driver,
    pub dice: Dice,
    theme: Theme,
    pub streams: Streams,
    pub blocks: Vec<Block>,
    pub graphs: Vec<Graph>,
    pub cells: Vec<Cell>,
    /// Counts the wrong words that each stream's checks have found.
    pub wrong_counts: Vec<u64>,
    pub seen_wrong: u64,
    pub next: Sender<Parcel>,
    pub inbox: &'a Mutex<Receiver<Parcel>>,
}

const BLOCKS_MAX: usize = 16;
const SIZES: [usize; 8] = [512, 4_096, 20_000, 64 << 10, 1 << 20, 3 << 19, 3 << 20, 12 << 20];
const PART_BYTES_MAX: u64 = 8 << 10;
const OUT_OF_MEMORY: i32 = 2;

impl<'a> Worker<'a> {
    pub fn new(
        program: &'a Program,
        index: u64,
        next: Sender<Parcel>,
        inbox: &'a Mutex<Receiver<Parcel>>,
    ) -> Outcome<Worker<'a>> {
        let driver = &program.driver;
        let streams = Streams::new(driver, 3)?;
        let mut wrong_counts = Vec::new();
        for _ in 0..streams.count() {
            let count = driver.alloc(512)?;
            driver.write_words(count, &[0])?;
            wrong_counts.push(count);
        }
        let nothing = streams.nothing();
        let cell = || Ok(Cell { address: driver.pinned(64)?, value: 0, touched: nothing.clone() });
        let theme = THEMES[program.seed as usize % THEMES.len()];
        let cells_count = if theme.pinned { 4 } else { 0 };
        let cells = (0..cells_count).map(|_| cell()).collect::<Outcome<Vec<Cell>>>()?;
        cells.iter().for_each(|cell| driver.host_write(cell.address, 0));
        let dice = Dice::new(program.seed.wrapping_mul(1_000).wrapping_add(index));
        let (blocks, graphs) = (Vec::new(), Vec::new());
        let seen_wrong = 0;
        #[rustfmt::skip]
        let worker = Worker {
            program, driver, dice, theme, streams, blocks, graphs, cells, wrong_counts, seen_wrong, next, inbox,
        };
        Ok(worker)
    }

    /// Runs the program, and returns the number of wrong words.
    pub fn run(mut self) -> Outcome<u64> {
        for _ in 0..self.program.ops {
            self.step()?;
        }
        self.finish()
    }

    fn step(&mut self) -> Outcome {
        let theme = self.theme;
        match self.dice.below(100) {
            0..18 => self.allocate(),
            18..34 => self.free(),
            34..54 => self.fill(),
            54..68 => self.check(),
            68..74 => self.copy(),
            74..80 if theme.pinned => self.cell_to_block(),
            80..87 if theme.pinned => self.block_to_cell(),
            87..90 if theme.graphs => self.record_graph(),
            90..95 if theme.graphs => self.launch_graph(),
            95..97 => self.ask(),
            97..99 => self.send(),
            99 => self.receive(),
            odd if odd % 2 == 1 => self.allocate(),
            _ => self.free(),
        }
    }

    pub fn any_stream(&mut self) -> usize {
        self.dice.below(self.streams.count())
    }

    pub fn any_block(&mut self) -> Option<usize> {
        (!self.blocks.is_empty()).then(|| self.dice.below(self.blocks.len()))
    }

    pub fn delay_ns(&mut self) -> u64 {
        self.dice.pick(&[0, 0, 5_000, 50_000, 400_000])
    }

    fn allocate(&mut self) -> Outcome {
        if self.blocks.len() >= BLOCKS_MAX {
            return self.free();
        }
        let bytes = self.dice.pick(&SIZES);
        let nothing = self.streams.nothing();
        let ordered = self.dice.chance(self.theme.ordered);
        let stream = self.any_stream();
        let handle = self.streams.handles[stream];
        let allocated =
            if ordered { self.driver.alloc_async(bytes, handle) } else { self.driver.alloc(bytes) };
        let address = match allocated {
            Err(OUT_OF_MEMORY) => return Ok(()),
            other => other?,
        };
        let touched = if ordered { self.streams.mark(stream) } else { nothing };
        let length = (bytes as u64).min(PART_BYTES_MAX) / 8 * 8;
        let offset = self.dice.below(((bytes as u64 - length) / 8 + 1) as usize) as u64 * 8;
        let part = (address + offset, length);
        let written = touched.clone();
        self.blocks.push(Block { address, part, ordered, value: None, written, touched });
        Ok(())
    }

    /// Orders an operation on this stream after the operations in the clock.
    pub fn bring_in_order(&mut self, stream: usize, clock: &Clock) -> Outcome {
        if covers(&self.streams.past(stream), clock) {
            return Ok(());
        }
        let before =
            (0..clock.len()).find(|other| self.streams.past(stream)[*other] < clock[*other]);
        let before = before.expect("something is not covered");
        let leans = self.program.frees_wait && self.dice.chance(self.theme.leaning);
        match self.dice.below(5) {
            _ if leans => self.free_a_temporary()?,
            0..4 => {
                let event = self.driver.event()?;
                self.driver.record(event, self.streams.handles[before])?;
                let recorded = self.streams.past(before);
                self.driver.stream_waits(self.streams.handles[stream], event)?;
                self.streams.wait(stream, &recorded);
                self.driver.destroy_event(event)?;
            }
            _ => {
                self.driver.synchronize_stream(self.streams.handles[before])?;
                self.streams.host_waited_for(before);
            }
        }
        self.bring_in_order(stream, clock)
    }

    /// Frees a temporary block, so that only the free orders later work: the main purpose of the
    /// library.
    pub fn free_a_temporary(&mut self) -> Outcome {
        let found =
            self.blocks.iter().position(|block| !block.ordered && self.is_in_no_graph(block));
        match found {
            Some(index) if self.dice.chance(50) => self.free_plainly(index),
            _ => {
                match self.driver.alloc(self.dice.pick(&SIZES)) {
                    Err(OUT_OF_MEMORY) => self.wait_for_streams()?,
                    temporary => self.driver.free(temporary?)?,
                }
                self.streams.host_waited_for_all();
                Ok(())
            }
        }
    }

    fn free(&mut self) -> Outcome {
        let Some(index) = self.any_block() else { return Ok(()) };
        self.drop_graphs_with(index)?;
        if !self.dice.chance(self.theme.ordered) {
            return self.free_plainly(index);
        }
        let (stream, block) = (self.any_stream(), self.blocks.swap_remove(index));
        self.bring_in_order(stream, &block.touched)?;
        self.driver.free_async(block.address, self.streams.handles[stream])?;
        Ok(())
    }

    fn free_plainly(&mut self, index: usize) -> Outcome {
        let block = self.blocks.swap_remove(index);
        if block.ordered {
            // The driver assumes that all work with the block is complete.
            self.wait_for(&block.touched)?;
        }
        self.driver.free(block.address)?;
        if self.program.frees_wait && !block.ordered {
            self.streams.host_waited_for_all();
        }
        Ok(())
    }

    fn wait_for(&mut self, clock: &Clock) -> Outcome {
        for (stream, seen) in clock.iter().enumerate() {
            if self.streams.host()[stream] < *seen {
                self.driver.synchronize_stream(self.streams.handles[stream])?;
                self.streams.host_waited_for(stream);
            }
        }
        Ok(())
    }

    fn wait_for_streams(&self) -> Outcome {
        self.streams.handles.iter().try_for_each(|stream| self.driver.synchronize_stream(*stream))
    }

    fn finish(mut self) -> Outcome<u64> {
        self.wait_for_streams()?;
        self.streams.host_waited_for_all();
        for block in std::mem::take(&mut self.blocks) {
            if let Some(value) = block.value {
                let words = self.driver.read_words(block.part.0, block.part.1 as usize / 8)?;
                self.seen_wrong += words.iter().filter(|word| **word != value).count() as u64;
            }
            self.driver.free(block.address)?;
        }
        for count in &self.wrong_counts {
            self.seen_wrong += self.driver.read_words(*count, 1)?[0];
        }
        Ok(self.seen_wrong)
    }
}
