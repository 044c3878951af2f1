//! One program in a capture: on the plain driver, where allocations and frees are nodes of the
//! graph, and under our rules, where they are not.
//!
//! On the plain driver, a use that the graph does not order between its allocation and its free
//! proves nothing, and the program is dropped. `cuMemAlloc` and `cuMemFree` have no place in a
//! graph: their blocks may be used anywhere between the two calls. Under our rules no use of a
//! block may begin, in any replay, before all uses of its earlier lives are complete.

use std::string::String;
use std::vec;
use std::vec::Vec;

use super::super::std;
use super::graph::{Graph, Link, Promise, STREAMS};
use crate::order::reuse::{AllocationPoint, Edge, EdgeKind, EdgeUpdate, Look, Reuse, Scope};
use crate::types::BlockId;

pub const VARS: usize = 2;

/// A call. Streams, variables and events are given by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// `cuMemAlloc`, or an allocation in the order of a stream.
    Alloc {
        var: usize,
        stream: Option<usize>,
    },
    /// `cuMemFree`, or a free in the order of a stream.
    Free {
        var: usize,
        stream: Option<usize>,
    },
    /// A kernel that uses a variable, and may start earlier than others if it has a promise.
    Kernel {
        stream: usize,
        var: usize,
        promise: Option<Promise>,
    },
    Record {
        event: usize,
        stream: usize,
    },
    Wait {
        stream: usize,
        event: usize,
    },
    /// Sets the terminals of a stream to the nodes after which an event was recorded.
    Set {
        stream: usize,
        event: usize,
    },
    /// Sets the terminals as `Set` does, by other edges.
    SetBy {
        stream: usize,
        event: usize,
        promise: Promise,
    },
    /// Destroys the stream; it may be created again.
    Destroy {
        stream: usize,
    },
    /// Adds a kernel by hand after a stream, as a program may; an event stands for it.
    ByHand {
        stream: usize,
        var: usize,
        event: usize,
    },
}

#[derive(Debug)]
pub enum Stop {
    Invalid,
    Violation(String),
}

#[derive(Clone, Debug)]
struct Block {
    /// Uses in earlier lives.
    old: Vec<usize>,
    /// Uses in this life, on the plain driver and under our rules.
    uses: Vec<(usize, usize)>,
    point: Option<AllocationPoint>,
    /// Stream whose allocation node stands for this life on the plain driver.
    native: Option<usize>,
    home: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct World {
    native: Graph,
    ours: Graph,
    /// Whether the next node of a stream must not start early.
    in_order: [bool; STREAMS],
    /// Whether a stream has waited, and captured nothing since.
    branches: [bool; STREAMS],
    reuse: Reuse,
    vars: [Option<usize>; VARS],
    blocks: Vec<Block>,
    /// Free blocks, each with the id of the stream that it is free for.
    free: Vec<(usize, Option<u64>)>,
    /// Id of each stream. A stream that is created again gets another id.
    ids: [u64; STREAMS],
    /// Whether to check by trying all replays as well.
    pub thorough: bool,
    pub reused_count: u64,
}

type Stepped = Result<(), Stop>;

impl World {
    pub fn new() -> World {
        World {
            native: Graph::new(),
            ours: Graph::new(),
            in_order: [false; STREAMS],
            branches: [false; STREAMS],
            reuse: Reuse::new(),
            vars: [None; VARS],
            blocks: vec![],
            free: vec![],
            ids: core::array::from_fn(|stream| stream as u64),
            thorough: false,
            reused_count: 0,
        }
    }

    pub fn step(&mut self, op: Op) -> Stepped {
        match op {
            Op::Alloc { var, stream } => self.alloc(var, stream),
            Op::Free { var, stream } => self.free(var, stream),
            Op::Kernel { stream, var, promise } => self.kernel(stream, var, promise),
            Op::Record { event, stream } => self.both(|graph| graph.record(event, stream)),
            Op::Wait { stream, event } => {
                self.both(|graph| graph.wait(stream, event))?;
                self.branches[stream] = true;
                let id = self.ids[stream];
                self.look(|look, _| look.waited(id));
                self.mend();
                Ok(())
            }
            Op::Set { stream, event } => self.set(stream, event, None),
            Op::SetBy { stream, event, promise } => self.set(stream, event, Some(promise)),
            Op::Destroy { stream } => self.destroy(stream),
            Op::ByHand { stream, var, event } => self.by_hand(stream, var, event),
        }
    }

    fn both(&mut self, mut call: impl FnMut(&mut Graph) -> Option<()>) -> Stepped {
        call(&mut self.native).ok_or(Stop::Invalid)?;
        call(&mut self.ours).ok_or(Stop::Invalid)
    }

    fn alloc(&mut self, var: usize, stream: Option<usize>) -> Stepped {
        if self.vars[var].is_some() {
            return Err(Stop::Invalid);
        }
        let native = match stream {
            None => None,
            Some(stream) => Some(self.native.capture_solid(stream).ok_or(Stop::Invalid)?),
        };
        self.ready();
        self.runs_beside()?;
        self.mend();
        let id = stream.map(|stream| self.ids[stream]);
        let fits = |of: Option<u64>| of.is_none() || of == id;
        let found = self.free.iter().position(|(_, of)| fits(*of));
        let (block, free_for) = match found {
            Some(index) => self.free.remove(index),
            None => {
                let fresh = Block { old: vec![], uses: vec![], point: None, native, home: id };
                self.blocks.push(fresh);
                (self.blocks.len() - 1, None)
            }
        };
        self.reused_count += u64::from(found.is_some());
        let point = self.look(|look, _| look.allocation_point(free_for));
        let state = &mut self.blocks[block];
        let uses = core::mem::take(&mut state.uses);
        state.old.extend(uses.into_iter().map(|(_, ours)| ours));
        (state.point, state.native, state.home) = (Some(point), native, id);
        self.vars[var] = Some(block);
        Ok(())
    }

    fn free(&mut self, var: usize, stream: Option<usize>) -> Stepped {
        let block = self.vars[var].take().ok_or(Stop::Invalid)?;
        let scope = match stream {
            None => Scope::Everywhere,
            Some(stream) => {
                let node = self.native.capture_solid(stream).ok_or(Stop::Invalid)?;
                let uses = &self.blocks[block].uses;
                let ordered = |(native, _): &(usize, _)| self.native.is_complete(*native, node);
                let allocated = self.blocks[block].native;
                if !uses.iter().all(ordered)
                    || allocated.is_some_and(|first| !self.native.is_complete(first, node))
                {
                    return Err(Stop::Invalid);
                }
                Scope::Stream(self.ids[stream])
            }
        };
        let point = self.blocks[block].point.take().expect("it was handed out");
        let home = self.blocks[block].home;
        self.look(|look, _| look.freed(BlockId(block as u32), &point, scope, home));
        Ok(())
    }

    fn kernel(&mut self, stream: usize, var: usize, promise: Option<Promise>) -> Stepped {
        let native = self.native.capture(stream, promise).ok_or(Stop::Invalid)?;
        let promise = promise.filter(|_| !self.in_order[stream]);
        let ours = self.ours.capture(stream, promise).expect("a stream of both");
        self.in_order[stream] = false;
        self.branches[stream] = false;
        self.used(var, native, ours)
    }

    fn used(&mut self, var: usize, native: usize, ours: usize) -> Stepped {
        let block = self.vars[var].ok_or(Stop::Invalid)?;
        let Block { old, native: allocated, .. } = &self.blocks[block];
        if allocated.is_some_and(|first| !self.native.is_complete(first, native)) {
            return Err(Stop::Invalid);
        }
        for earlier in old {
            let ordered = self.ours.is_complete(*earlier, ours);
            if self.thorough {
                assert_eq!(ordered, self.ours.always_complete(*earlier, ours), "two ways to ask");
            }
            if !ordered {
                let what = std::format!("node {ours} uses block {block} while {earlier} may");
                return Err(Stop::Violation(what));
            }
        }
        self.blocks[block].uses.push((native, ours));
        Ok(())
    }

    fn set(&mut self, stream: usize, event: usize, promise: Option<Promise>) -> Stepped {
        let set = |graph: &mut Graph| {
            let mut links = graph.events[event].clone()?;
            links.iter_mut().for_each(|link| link.promise = promise.unwrap_or(link.promise));
            graph.streams[stream].as_mut().map(|terminals| *terminals = links)
        };
        self.look(|_, _| ());
        self.both(set)?;
        self.branches[stream] = false;
        self.mend();
        Ok(())
    }

    fn destroy(&mut self, stream: usize) -> Stepped {
        if stream == 0 {
            return Err(Stop::Invalid);
        }
        self.look(|_, _| ());
        self.both(|graph| graph.streams[stream].take().map(|_| ()))?;
        let (id, graph) = (self.ids[stream], &self.ours);
        self.reuse.leaves(id, |node, edges| graph.ask(node, edges));
        // Blocks freed in the order of the destroyed stream cannot be reused.
        self.free.retain(|(_, of)| *of != Some(id));
        self.ids[stream] += STREAMS as u64;
        self.in_order[stream] = false;
        Ok(())
    }

    fn by_hand(&mut self, stream: usize, var: usize, event: usize) -> Stepped {
        let (mut native, mut ours) = (0, 0);
        for (graph, node) in [(&mut self.native, &mut native), (&mut self.ours, &mut ours)] {
            let links = graph.streams[stream].clone().ok_or(Stop::Invalid)?;
            *node = graph.nodes.len();
            graph.nodes.push(links);
            graph.events[event] = Some(vec![Link::full(*node)]);
        }
        self.reuse.becomes_opaque();
        self.used(var, native, ours)
    }

    /// Calls `then` with a look that shows every stream.
    fn look<T>(&mut self, then: impl FnOnce(&mut Look<'_>, &Graph) -> T) -> T {
        let graph = &self.ours;
        let mut look = self.reuse.look();
        for stream in (0..STREAMS).filter(|stream| graph.streams[*stream].is_some()) {
            let terminals = graph.shown(stream);
            look.stream(self.ids[stream], &terminals, |node, edges| graph.ask(node, edges));
        }
        then(&mut look, graph)
    }

    fn ready(&mut self) {
        let ready = self.look(|look, graph| look.ready(|node, edges| graph.ask(node, edges)));
        assert!(!self.reuse.overlooks(), "a block waits for nothing");
        for (block, scope) in ready {
            let id = match scope {
                Scope::Stream(id) => Some(id),
                Scope::Everywhere => None,
            };
            self.free.push((block.0 as usize, id));
        }
        for id in self.ids {
            let joined =
                self.look(|look, graph| look.is_joined(id, |node, edges| graph.ask(node, edges)));
            if joined {
                self.free
                    .iter_mut()
                    .filter(|free| free.1 == Some(id))
                    .for_each(|free| free.1 = None);
            }
        }
    }

    /// Checks that independent work is not made to wait because a block is used again.
    fn runs_beside(&mut self) -> Stepped {
        for stream in 0..STREAMS {
            let id = self.ids[stream];
            let EdgeUpdate::Set(edges) = self.look(|look, _| look.edge_update(id)) else {
                continue;
            };
            let waits = edges.iter().any(|edge| !self.is_behind(edge.from.0 as usize, stream));
            let terminals = self.ours.streams[stream].iter().flatten();
            let terminals: Vec<usize> = terminals.map(|link| link.from).collect();
            let joined = |by: usize| terminals.iter().all(|node| self.is_behind(*node, by));
            let idle = !self.branches[stream] && (0..STREAMS).any(|by| by != stream && joined(by));
            if waits && !idle {
                return Err(Stop::Violation(std::format!("stream {stream} has to wait")));
            }
        }
        Ok(())
    }

    /// Returns whether a stream's next node comes after a node anyway.
    fn is_behind(&self, node: usize, stream: usize) -> bool {
        let mut terminals = self.ours.streams[stream].iter().flatten();
        terminals.any(|link| link.from == node || self.ours.is_complete(node, link.from))
    }

    fn mend(&mut self) {
        for stream in 0..STREAMS {
            let id = self.ids[stream];
            let mend = self.look(|look, _| look.edge_update(id));
            // The caller does not ask where nothing was handed out again.
            assert!(self.reuse.has_reused() || mend == EdgeUpdate::Nothing, "{mend:?} for nothing");
            assert!(!self.reuse.has_reused() || !self.blocks.is_empty(), "there is no block");
            match mend {
                EdgeUpdate::Nothing => {}
                EdgeUpdate::FullOrder => self.in_order[stream] = true,
                EdgeUpdate::Set(edges) => {
                    self.in_order[stream] = true;
                    let link = |edge: &Edge| {
                        assert_eq!(edge.kind, EdgeKind::Full);
                        Link::full(edge.from.0 as usize)
                    };
                    self.ours.streams[stream] = Some(edges.iter().map(link).collect());
                }
            }
        }
    }
}
