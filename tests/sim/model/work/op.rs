//! Operations: their work, their predecessors, and their progress.

use std::sync::{Arc, Mutex, MutexGuard};

use super::kernels::Launch;
use crate::abi::Handle;
use crate::model::graphs::user_object::UserObject;
use crate::model::races::clock::{ChainSet, Clock};
use crate::model::races::shadow::Source;
use crate::model::world::config;

pub type OpRef = Arc<Op>;

pub struct Op {
    pub work: Work,
    /// The context it runs in, by id: the handle may be another context's by the time it runs.
    pub ctx: u64,
    pub source: Source,
    pub chains: ChainSet,
    pub submit_ns: u64,
    state: Mutex<OpState>,
}

/// Effect of an operation at its end.
#[derive(Clone, PartialEq)]
pub enum Work {
    /// Ordering only: waits for events, barriers, the two ends of a graph launch.
    Marker,
    /// A record of an event that takes no time.
    Record,
    /// A record of an event with timing, which is work of its stream.
    TimedRecord,
    Kernel(Launch),
    Copy(CopyWork),
    Fill(FillWork),
    Host(HostWork),
    WaitValue(FlagWork),
    WriteValue(FlagWork),
    /// The begin of recycled stream-ordered memory.
    Birth {
        base: u64,
        allocation: u64,
    },
    /// The end of a stream-ordered free, or of one that does not wait.
    Release {
        allocation: u64,
    },
    /// A release whose memory returns to the device at once.
    Give {
        allocation: u64,
    },
}

/// A copy of a box of rows. `staged` holds the source's bytes if it was read during the call.
#[derive(Clone, PartialEq)]
pub struct CopyWork {
    pub dst: Plane,
    pub src: Plane,
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    pub staged: Option<Arc<Vec<u8>>>,
    /// The source is ordinary host memory that is read when the copy runs (batches).
    pub src_pageable: bool,
    /// The destination is ordinary host memory. The call that asked waits for the copy, unless it
    /// is one of a batch.
    pub dst_pageable: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub struct Plane {
    pub base: u64,
    pub pitch: u64,
    pub slice: u64,
}

#[derive(Clone, PartialEq)]
pub struct FillWork {
    pub dst: u64,
    pub pitch: u64,
    pub value: u32,
    pub element_bytes: u64,
    pub width: u64,
    pub height: u64,
}

#[derive(Clone, Copy, PartialEq)]
pub struct HostWork {
    pub function: usize,
    pub data: usize,
    /// `cuStreamAddCallback` passes the stream and a result code as well.
    pub callback_stream: Option<Handle>,
}

#[derive(Clone, Copy, PartialEq)]
pub struct FlagWork {
    pub address: u64,
    pub value: u64,
    pub bytes: u64,
    /// Comparison of a wait: 0 greater or equal (cyclic), 1 equal, 2 and, 3 nor.
    pub compare: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Waiting,
    Running,
    Done,
}

pub struct OpState {
    pub phase: Phase,
    /// Predecessors that are not complete yet.
    pub waiting: usize,
    pub end_ns: u64,
    /// Everything known to have happened before; grows until the operation is complete.
    pub clock: Clock,
    /// Clock at its start: an early-started successor may know nothing else.
    pub start_clock: Clock,
    pub after_end: Vec<OpRef>,
    pub after_start: Vec<OpRef>,
    /// Operations that begin after this one ends, without knowing of it.
    pub later: Vec<OpRef>,
    /// User objects that live until the operation is complete.
    pub keep: Option<Arc<Vec<Arc<UserObject>>>>,
    /// Graph whose launch this operation ends, if that has memory nodes.
    pub ends_launch_of: Option<u64>,
}

/// Predecessors of an operation to be submitted.
#[derive(Default)]
pub struct Deps {
    pub clock: Clock,
    pub ends: Vec<OpRef>,
    pub starts: Vec<OpRef>,
    /// Operations that end before this one begins by the driver's choice: the program must not rely
    /// on that.
    pub later_than: Vec<OpRef>,
}

impl Op {
    pub fn new(work: Work, ctx: u64, source: Source, chains: ChainSet, submit_ns: u64) -> Op {
        let state = OpState {
            phase: Phase::Waiting,
            waiting: 0,
            end_ns: 0,
            clock: Clock::default(),
            start_clock: Clock::default(),
            after_end: Vec::new(),
            after_start: Vec::new(),
            later: Vec::new(),
            keep: None,
            ends_launch_of: None,
        };
        Op { work, ctx, source, chains, submit_ns, state: Mutex::new(state) }
    }

    /// Returns the state. The caller holds the world's lock, so it is never contended.
    pub fn state(&self) -> MutexGuard<'_, OpState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn done(&self) -> bool {
        self.state().phase == Phase::Done
    }
}

impl Deps {
    /// Adds the end of `op` as a predecessor.
    pub fn after(&mut self, op: &OpRef) {
        let state = op.state();
        if state.phase == Phase::Done {
            self.clock.join(&state.clock);
        } else {
            drop(state);
            self.ends.push(op.clone());
        }
    }

    /// Delays the begin until `op` has ended, without knowledge of it.
    pub fn later_than(&mut self, op: &OpRef) {
        if !op.done() {
            self.later_than.push(op.clone());
        }
    }

    /// Adds the start of `op` as a predecessor, for a programmatic dependent launch.
    pub fn after_start(&mut self, op: &OpRef) {
        let state = op.state();
        if state.phase == Phase::Waiting {
            drop(state);
            self.starts.push(op.clone());
        } else {
            self.clock.join(&state.start_clock);
        }
    }
}

/// The name of frees in the order of a stream.
pub const FREE: &str = "free";
/// The name of requests in the order of a stream.
pub const BIRTH: &str = "request";

impl Work {
    pub fn name(&self) -> &'static str {
        match self {
            Work::Marker => "marker",
            Work::Record | Work::TimedRecord => "record",
            Work::Kernel(launch) => launch.builtin.name(),
            Work::Copy(_) => "memcpy",
            Work::Fill(_) => "memset",
            Work::Host(_) => "host function",
            Work::WaitValue(_) => "wait value",
            Work::WriteValue(_) => "write value",
            Work::Birth { .. } => BIRTH,
            Work::Release { .. } | Work::Give { .. } => FREE,
        }
    }

    /// Whether it may take a while. Pure ordering is complete together with its predecessors, and
    /// so is a record. The driver's own operations are never slow: their time would hide that
    /// nothing waits for them.
    pub fn takes_time(&self) -> bool {
        match self {
            Work::Record => config().records_take_time,
            Work::Marker | Work::Birth { .. } | Work::Release { .. } | Work::Give { .. } => false,
            _ => true,
        }
    }

    pub fn duration_ns(&self) -> u64 {
        match self {
            Work::Marker
            | Work::Record
            | Work::TimedRecord
            | Work::Birth { .. }
            | Work::Host(_)
            | Work::WaitValue(_) => 0,
            Work::WriteValue(_) | Work::Release { .. } | Work::Give { .. } => 500,
            Work::Kernel(launch) => KERNEL_NS + launch.delay_ns(),
            Work::Copy(copy) => COPY_NS + copy.width * copy.height * copy.depth / COPY_BYTES_PER_NS,
            Work::Fill(fill) => {
                COPY_NS + fill.width * fill.element_bytes * fill.height / FILL_BYTES_PER_NS
            }
        }
    }
}

impl CopyWork {
    pub fn linear(dst: u64, src: u64, bytes: u64) -> CopyWork {
        let plane = |base| Plane { base, pitch: bytes, slice: bytes };
        CopyWork {
            dst: plane(dst),
            src: plane(src),
            width: bytes,
            height: 1,
            depth: 1,
            staged: None,
            src_pageable: false,
            dst_pageable: false,
        }
    }

    /// Start addresses of the rows of both sides; one row if both sides are without gaps.
    pub fn rows(&self) -> (Vec<(u64, u64)>, u64) {
        let row = self.width;
        let packed = |p: &Plane| {
            (self.height == 1 || p.pitch == row)
                && (self.depth == 1 || p.slice == row * self.height)
        };
        if packed(&self.dst) && packed(&self.src) {
            return (vec![(self.dst.base, self.src.base)], row * self.height * self.depth);
        }
        let at = |p: &Plane, z: u64, y: u64| p.base + z * p.slice + y * p.pitch;
        let rows = (0..self.depth)
            .flat_map(|z| (0..self.height).map(move |y| (z, y)))
            .map(|(z, y)| (at(&self.dst, z, y), at(&self.src, z, y)))
            .collect();
        (rows, row)
    }
}

impl FlagWork {
    pub fn satisfied_by(&self, word: u64) -> bool {
        let mask = if self.bytes == 4 { u64::from(u32::MAX) } else { u64::MAX };
        let (word, value) = (word & mask, self.value & mask);
        match self.compare {
            0 if self.bytes == 4 => (word as u32).wrapping_sub(value as u32) as i32 >= 0,
            0 => word.wrapping_sub(value) as i64 >= 0,
            1 => word == value,
            2 => word & value != 0,
            _ => !(word | value) & mask != 0,
        }
    }
}

const KERNEL_NS: u64 = 2_000;
const COPY_NS: u64 = 1_500;
const COPY_BYTES_PER_NS: u64 = 32;
const FILL_BYTES_PER_NS: u64 = 1_000;
