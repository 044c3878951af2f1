//! Captures and graphs whose blocks stay allocated as long as the graphs exist.

use super::maker::Maker;
use super::model::{GraphModel, Uses, empty, held};
use crate::grammar::Op;

/// An open capture.
pub struct Capture {
    pub stream: u64,
    places: Places,
    /// The blocks that its graph will reference.
    pub uses: Uses,
}

/// The slots of a graph and of what is made from it.
pub struct Places {
    graph: usize,
    exec: usize,
}

impl Maker {
    /// Returns `None` if something captures, or if no slots are free for another graph.
    pub fn room_for_graph(&mut self) -> Option<Places> {
        const STREAMS: usize = 2;
        if self.captures_open > 0 {
            return None;
        }
        let streams = self.model.streams.len() - held(&self.model.streams).len();
        match (empty(&self.model.graphs), empty(&self.model.execs)) {
            (Some(graph), Some(exec)) if streams >= STREAMS => Some(Places { graph, exec }),
            _ => {
                self.drop_graph();
                None
            }
        }
    }

    /// Begins a capture on a stream used for nothing else.
    pub fn begin_capture(&mut self, mode: u64) -> Option<Capture> {
        let places = self.room_for_graph()?;
        Some(self.begin_capture_into(places, mode))
    }

    pub fn begin_capture_into(&mut self, places: Places, mode: u64) -> Capture {
        let stream = self.create_stream(false);
        self.say(Op::CaptureBegin, &[stream, mode]);
        self.set_capturing(stream, true);
        self.captures_are_global = mode == GLOBAL;
        Capture { stream, places, uses: Uses::default() }
    }

    /// Marks a stream as capturing, or not.
    fn set_capturing(&mut self, stream: u64, capturing: bool) {
        if let Some(stream) = &mut self.model.streams[stream as usize] {
            stream.capturing = capturing;
        }
        if capturing { self.captures_open += 1 } else { self.captures_open -= 1 }
    }

    /// Adds fills and copies to a graph, one after the other.
    pub fn captured_work(&mut self, capture: &mut Capture, count: usize) {
        let Capture { stream, uses, .. } = capture;
        let stream = *stream;
        for _ in 0..count {
            let Some(slot) = self.any_block(false) else { return };
            let (value, delay) = (self.value(), self.delay());
            match self.any_block(true).filter(|from| *from != slot) {
                Some(from) if self.dice.chance(40) => {
                    let how = self.dice.below(2) as u64;
                    self.say(Op::Copy, &[slot, from, stream, delay, how]);
                    uses.reads.push(from);
                }
                _ => self.say(Op::Fill, &[slot, stream, value, delay, 0]),
            }
            uses.writes.push(slot);
        }
    }

    pub fn simple_graph(&mut self) {
        let mode = self.dice.below(3) as u64;
        let Some(mut capture) = self.begin_capture(mode) else { return };
        let count = 1 + self.dice.below(3);
        self.captured_work(&mut capture, count);
        self.end_capture(capture);
    }

    /// Builds a graph from nodes; between launches its fill may get another value.
    pub fn built_graph(&mut self) {
        let Some(Places { graph, exec }) = self.room_for_graph() else { return };
        let (Some(first), Some(second)) = (self.any_block(false), self.any_block(false)) else {
            return;
        };
        if first == second {
            return;
        }
        let (value, how) = (self.value(), self.dice.below(3) as u64);
        self.say(Op::GraphBuild, &[graph as u64, first, second, value, how]);
        let uses = Uses { writes: vec![first, second], ..Uses::default() };
        self.hold(&uses, 1);
        let ctx = self.ctx_id(self.ctx());
        self.model.graphs[graph] = Some(GraphModel { ctx, uses: uses.clone() });
        self.say(Op::Instantiate, &[exec as u64, graph as u64]);
        self.hold(&uses, 1);
        self.model.execs[exec] = Some(GraphModel { ctx, uses });
        let stream = self.any_stream();
        self.say(Op::Upload, &[exec as u64, stream]);
        self.launch_on(exec, stream);
        if how == 0 && self.holds(first) && self.dice.chance(60) {
            let value = self.value();
            self.say(Op::ExecSet, &[exec as u64, first, value]);
            self.launch_on(exec, stream);
        }
        if self.dice.chance(60) {
            self.destroy_graph(graph);
        }
    }

    /// Ends the capture. Its graph may be launched from now on.
    pub fn end_capture(&mut self, capture: Capture) {
        let Capture { stream, places: Places { graph, exec }, uses } = capture;
        self.captures_are_global = false;
        self.say(Op::CaptureEnd, &[stream, graph as u64]);
        self.set_capturing(stream, false);
        let ctx = self.ctx_id(self.ctx());
        self.hold(&uses, 1);
        self.model.graphs[graph] = Some(GraphModel { ctx, uses: uses.clone() });
        self.say(Op::Instantiate, &[exec as u64, graph as u64]);
        self.hold(&uses, 1);
        self.model.execs[exec] = Some(GraphModel { ctx, uses });
        if self.dice.chance(60) {
            self.destroy_graph(graph);
        }
        self.say(Op::StreamDestroy, &[stream]);
        self.model.streams[stream as usize] = None;
    }

    /// Adds or removes the references of a graph to its blocks.
    pub fn hold(&mut self, uses: &Uses, by: i32) {
        for slot in uses.reads.iter().chain(&uses.writes) {
            if let Some(block) = &mut self.model.blocks[*slot as usize] {
                block.graphs = block.graphs.saturating_add_signed(by);
            }
        }
        for slot in &uses.hosts {
            if let Some(host) = &mut self.model.hosts[*slot as usize] {
                host.graphs = host.graphs.saturating_add_signed(by);
            }
        }
    }

    fn destroy_graph(&mut self, slot: usize) {
        let Some(graph) = self.model.graphs[slot].take() else { return };
        self.say(Op::GraphDestroy, &[slot as u64]);
        self.hold(&graph.uses, -1);
    }

    pub fn launch_graph(&mut self) {
        let execs = held(&self.model.execs);
        if execs.is_empty() || self.captures_open > 0 {
            return;
        }
        let exec = self.dice.pick(&execs);
        let stream = self.any_stream();
        self.launch_on(exec, stream);
    }

    pub fn launch_on(&mut self, exec: usize, stream: u64) {
        let uses = self.model.execs[exec].as_ref().expect("held").uses.clone();
        for (slots, write) in [(&uses.reads, false), (&uses.writes, true)] {
            for slot in slots {
                if !self.ensure_for(*slot, stream, write) {
                    return;
                }
            }
        }
        self.say(Op::Launch, &[exec as u64, stream]);
        uses.reads.iter().for_each(|slot| self.touched(*slot, stream, false));
        uses.writes.iter().for_each(|slot| self.touched(*slot, stream, true));
    }

    pub fn drop_graph(&mut self) {
        let (graphs, execs) = (held(&self.model.graphs), held(&self.model.execs));
        if !graphs.is_empty() && self.dice.chance(50) {
            let graph = self.dice.pick(&graphs);
            return self.destroy_graph(graph);
        }
        if execs.is_empty() {
            return;
        }
        let slot = self.dice.pick(&execs);
        self.destroy_exec(slot);
    }

    pub fn destroy_exec(&mut self, slot: usize) {
        let Some(exec) = self.model.execs[slot].take() else { return };
        if exec.uses.memory {
            // The graph's memory is freed with it.
            for block in &exec.uses.writes {
                if self.holds(*block) {
                    let touched = self.block(*block).touched.clone();
                    self.ensure_host(&touched);
                }
            }
        }
        self.say(Op::ExecDestroy, &[slot as u64]);
        self.hold(&exec.uses, -1);
    }

    /// Destroys the graphs that reference blocks of a context, before that context ends.
    pub fn drop_graphs_of(&mut self, id: usize) {
        let of_context = |uses: &Uses| {
            let mut slots = uses.reads.iter().chain(&uses.writes);
            slots.any(|slot| {
                self.model.blocks[*slot as usize].as_ref().is_some_and(|block| block.ctx == id)
            })
        };
        let concerned =
            |graph: &Option<GraphModel>| graph.as_ref().is_some_and(|g| of_context(&g.uses));
        let execs: Vec<usize> = (0..self.model.execs.len())
            .filter(|slot| concerned(&self.model.execs[*slot]))
            .collect();
        let graphs: Vec<usize> = (0..self.model.graphs.len())
            .filter(|slot| concerned(&self.model.graphs[*slot]))
            .collect();
        execs.into_iter().for_each(|slot| self.destroy_exec(slot));
        graphs.into_iter().for_each(|slot| self.destroy_graph(slot));
    }

    /// Clones a graph, or updates it from a graph of the same shape.
    pub fn change_graph(&mut self) {
        let (graphs, execs) = (held(&self.model.graphs), held(&self.model.execs));
        if graphs.is_empty() {
            return self.simple_graph();
        }
        let graph = self.dice.pick(&graphs);
        let model = self.model.graphs[graph].clone().expect("held");
        match empty(&self.model.graphs) {
            Some(slot) if self.dice.chance(50) && !model.uses.memory => {
                self.say(Op::GraphClone, &[slot as u64, graph as u64]);
                self.hold(&model.uses, 1);
                self.model.graphs[slot] = Some(model);
            }
            // A graph with memory is instantiated only once.
            _ if model.uses.memory => {}
            _ => {
                let Some(exec) = empty(&self.model.execs) else {
                    let exec = self.dice.pick(&execs);
                    return self.say(Op::CaptureStatus, &[exec as u64 % 2]);
                };
                self.say(Op::Instantiate, &[exec as u64, graph as u64]);
                self.say(Op::ExecUpdate, &[exec as u64, graph as u64]);
                self.hold(&model.uses, 1);
                self.model.execs[exec] = Some(model);
            }
        }
    }
}

/// The capture mode that forbids requests of other threads.
const GLOBAL: u64 = 0;
