//! The state of a program while it is generated.

use super::order::{Clock, Order};
use crate::grammar::{Op, THREADS_MAX};

pub struct ThreadModel {
    pub ctx: usize,
}

pub struct CtxModel {
    /// Unlike the slot, this number is never reused.
    pub id: usize,
    pub legacy: usize,
    pub per_thread: Vec<(u8, usize)>,
}

#[derive(Clone)]
pub struct StreamModel {
    pub ctx: usize,
    pub lane: usize,
    pub capturing: bool,
}

#[derive(Clone)]
pub struct EventModel {
    pub ctx: usize,
    pub timing: bool,
    pub recorded: Option<Clock>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Plain,
    Async,
    /// Like `Async`, from a pool that the program has made.
    Pooled,
    Virtual,
}

#[derive(Clone)]
pub struct BlockModel {
    pub ctx: usize,
    pub kind: Kind,
    pub bytes: u64,
    pub filled: bool,
    pub written: Clock,
    pub touched: Clock,
    /// Number of graphs that reference the block.
    pub graphs: u32,
}

#[derive(Clone)]
pub struct HostModel {
    pub ctx: usize,
    pub op: Op,
    pub registered: bool,
    pub filled: bool,
    pub written: Clock,
    pub touched: Clock,
    pub graphs: u32,
    /// Whether device memory of the same context has the address.
    pub kept: bool,
}

impl HostModel {
    pub fn new(ctx: usize, op: Op) -> HostModel {
        let (written, touched) = Default::default();
        HostModel {
            ctx,
            op,
            registered: false,
            filled: false,
            written,
            touched,
            graphs: 0,
            kept: false,
        }
    }
}

/// Blocks that the launch of a graph reads and writes.
#[derive(Clone, Default)]
pub struct Uses {
    pub reads: Vec<u64>,
    pub writes: Vec<u64>,
    pub hosts: Vec<u64>,
    /// Whether the graph has memory nodes: it is then launched once at a time, and never cloned.
    pub memory: bool,
}

#[derive(Clone)]
pub struct GraphModel {
    pub ctx: usize,
    pub uses: Uses,
}

#[derive(Default)]
pub struct Model {
    pub order: Order,
    pub threads: [Option<ThreadModel>; THREADS_MAX],
    pub ctxs: Vec<Option<CtxModel>>,
    pub ctx_ids: usize,
    pub streams: Vec<Option<StreamModel>>,
    pub events: Vec<Option<EventModel>>,
    pub blocks: Vec<Option<BlockModel>>,
    pub hosts: Vec<Option<HostModel>>,
    pub graphs: Vec<Option<GraphModel>>,
    pub execs: Vec<Option<GraphModel>>,
}

/// Slots of a model's tables that hold something.
pub fn held<T>(table: &[Option<T>]) -> Vec<usize> {
    (0..table.len()).filter(|slot| table[*slot].is_some()).collect()
}

pub fn empty<T>(table: &[Option<T>]) -> Option<usize> {
    table.iter().position(Option::is_none)
}
