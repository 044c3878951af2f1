//! Captures and graphs of a random program.

use cachealloc_tests::driver::{Outcome, THREAD_LOCAL};

use crate::order::join;
use crate::worker::{Block, Worker};

/// An executable graph that fills some blocks, and checks the contents.
pub struct Graph {
    executable: u64,
    /// The addresses of the blocks, and their contents after a launch.
    fills: Vec<(u64, u64)>,
    /// The stream of its launches, on which its checks count.
    stream: usize,
}

const GRAPHS_MAX: usize = 4;
const FILLS_MAX: usize = 3;

impl Worker<'_> {
    pub fn record_graph(&mut self) -> Outcome {
        let stream = self.streams.count() - 1;
        let handle = self.streams.handles[stream];
        if self.graphs.len() >= GRAPHS_MAX || self.blocks.is_empty() {
            return Ok(());
        }
        self.driver.begin_capture(handle, THREAD_LOCAL)?;
        let mut fills: Vec<(u64, u64)> = Vec::new();
        for _ in 0..FILLS_MAX {
            let block = self.dice.below(self.blocks.len());
            let Block { address, part: (at, bytes), .. } = self.blocks[block];
            if fills.iter().any(|(known, _)| *known == address) {
                continue;
            }
            let (value, delay) = (self.program.fresh_value(), self.delay_ns());
            self.driver.launch("late_fill", handle, &[at, bytes, value, delay])?;
            let arguments = [at, bytes, value, self.wrong_counts[stream], 0];
            self.driver.launch("check", handle, &arguments)?;
            fills.push((address, value));
        }
        let graph = self.driver.end_capture(handle)?;
        let executable = self.driver.instantiate(graph)?;
        self.driver.destroy_graph(graph)?;
        self.graphs.push(Graph { executable, fills, stream });
        Ok(())
    }

    pub fn launch_graph(&mut self) -> Outcome {
        if self.graphs.is_empty() {
            return Ok(());
        }
        let graph = self.graphs.swap_remove(self.dice.below(self.graphs.len()));
        let mut clock = self.streams.nothing();
        for (address, _) in &graph.fills {
            let block = self.blocks.iter().find(|block| block.address == *address);
            join(&mut clock, &block.expect("graphs go before their blocks").touched);
        }
        let stream = graph.stream;
        // No block of the graph may be freed meanwhile.
        let fills = graph.fills.clone();
        self.graphs.push(graph);
        self.bring_in_order(stream, &clock)?;
        let executable = self.graphs.last().expect("pushed above").executable;
        self.driver.launch_graph(executable, self.streams.handles[stream])?;
        let clock = self.streams.submit(stream);
        for (address, value) in fills {
            let block = self.blocks.iter_mut().find(|block| block.address == address);
            let block = block.expect("it is in a graph");
            join(&mut block.touched, &clock);
            (block.written, block.value) = (clock.clone(), Some(value));
        }
        Ok(())
    }

    pub fn is_in_no_graph(&self, block: &Block) -> bool {
        let holds = |graph: &Graph| graph.fills.iter().any(|(known, _)| *known == block.address);
        !self.graphs.iter().any(holds)
    }

    /// Destroys the graphs that reference the block, which is about to be freed.
    pub fn drop_graphs_with(&mut self, index: usize) -> Outcome {
        let address = self.blocks[index].address;
        let concerned = |graph: &Graph| graph.fills.iter().any(|(known, _)| *known == address);
        let (gone, kept) = std::mem::take(&mut self.graphs).into_iter().partition(concerned);
        self.graphs = kept;
        let gone: Vec<Graph> = gone;
        gone.into_iter().try_for_each(|graph| self.driver.destroy_executable(graph.executable))
    }
}
