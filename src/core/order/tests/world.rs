//! One program on both sides at once: on the plain driver and under our rules, call by call.
//!
//! The calls are in one total order (the program's threads synchronize with each other; what
//! happens between threads *inside* our calls is tested by `interleave` and `threads`). A program
//! that races on the plain driver proves nothing and is dropped. Otherwise our side must show no
//! race on any address and no unfinished work to the host. It must also add no wait: whatever
//! waits, host or device, may wait only for what it waits for on the plain driver.

use super::native::{BLOCKS_MAX, ELSEWHERE, Invalid, LEGACY, Native, STREAMS, Set, WORKS_MAX};
use super::ours::{Ours, Setting, Violation};
use crate::order::route::Mode;
use crate::order::visible::VisibleCause;
use crate::rules::{Rule, rule_holds};

/// A call, or an event outside the calls. Streams, variables and events are given by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Launch {
        stream: usize,
        var: usize,
        write: bool,
    },
    LaunchTexture {
        stream: usize,
    },
    /// A kernel with a pinned address among its arguments; it writes there.
    LaunchPinned {
        stream: usize,
    },
    /// A kernel that finds the pinned address in its data.
    LaunchIndirect {
        stream: usize,
    },
    /// A kernel of a communication library. Once it is complete, so is its work with other
    /// processes, which the host can then see.
    LaunchCollective {
        stream: usize,
    },
    /// `cuMemHostGetDevicePointer`.
    MapPinned,
    /// A kernel of the second context, ordered after an event that the first one records now; it
    /// writes.
    LaunchBehind {
        stream: usize,
        var: usize,
    },
    CopyOut {
        stream: usize,
        var: usize,
    },
    CopyIn {
        stream: usize,
        var: usize,
    },
    HostRead,
    HostWrite,
    Malloc {
        var: usize,
    },
    Free {
        var: usize,
        thread: usize,
    },
    MallocAsync {
        var: usize,
        stream: usize,
    },
    FreeAsync {
        var: usize,
        stream: usize,
    },
    Record {
        event: usize,
        stream: usize,
    },
    WaitEvent {
        stream: usize,
        event: usize,
    },
    Query {
        event: usize,
        thread: usize,
    },
    SyncStream {
        stream: usize,
    },
    SyncContext,
    DestroyTexture,
    /// Work that none of our hooks sees; it writes the block and pinned memory. Allowed only if a
    /// cause in `Elision` has announced such work.
    Unseen {
        stream: usize,
        var: usize,
    },
    BeginCapture,
    EndCapture,
    LaunchGraph {
        stream: usize,
    },
    Recreate {
        stream: usize,
    },
    /// All work submitted so far completes, which nothing reports.
    TimePasses,
}

/// Reason why a program stops here.
pub enum Stop {
    Invalid,
    Violation(Violation),
}

#[derive(Clone, Copy)]
struct Block {
    number: usize,
    asynchronous: bool,
}

const VARS: usize = 3;
const CAPTURED_MAX: usize = 4;
/// The stream that captures.
pub const CAPTURING: usize = 2;

pub struct World {
    native: Native,
    pub ours: Ours,
    strict_waits: bool,
    vars: [Option<Block>; VARS],
    block_count: usize,
    alive: [bool; BLOCKS_MAX],
    stream_ids: [u64; STREAMS],
    capturing: bool,
    captured: [Option<usize>; CAPTURED_MAX],
    has_graph: bool,
}

impl World {
    pub fn new(setting: Setting) -> World {
        World {
            native: Native::new(setting.mode != Mode::Relaxed),
            ours: Ours::new(setting),
            strict_waits: setting.mode != Mode::Relaxed,
            vars: [None; VARS],
            block_count: 0,
            alive: [false; BLOCKS_MAX],
            stream_ids: core::array::from_fn(|stream| stream as u64),
            capturing: false,
            captured: [None; CAPTURED_MAX],
            has_graph: false,
        }
    }

    pub fn copy(&self) -> World {
        World { ours: self.ours.copy(), ..*self }
    }

    /// Makes one call on both sides.
    pub fn step(&mut self, op: Op) -> Result<(), Stop> {
        if self.native.order.works + 2 >= WORKS_MAX || self.forbidden_in_capture(op) {
            return Err(Stop::Invalid);
        }
        self.call(op)?;
        // In mode relaxed the plain driver is not the yardstick for waits.
        if self.strict_waits && self.ours.order.done & !self.native.order.done != 0 {
            return Err(Stop::Violation("the host waits for more than natively"));
        }
        Ok(())
    }

    fn call(&mut self, op: Op) -> Result<(), Stop> {
        match op {
            Op::Launch { stream, var, write } => {
                let block = self.block(var)?;
                if self.capturing && stream == CAPTURING {
                    return self.capture(block.number);
                }
                self.launch(stream, false, Some((block.number, write)), None)
            }
            Op::LaunchBehind { stream, var } => {
                let block = self.block(var)?;
                self.order(Op::Record { event: 0, stream })?;
                self.order(Op::WaitEvent { stream: ELSEWHERE, event: 0 })?;
                self.launch(ELSEWHERE, false, Some((block.number, true)), None)
            }
            Op::LaunchTexture { stream } => self.launch_texture(stream),
            Op::LaunchPinned { stream } => {
                self.ours.note_visible(VisibleCause::PinnedArgument);
                self.launch(stream, true, None, Some(true))
            }
            Op::LaunchIndirect { stream } => self.launch_indirect(stream),
            Op::LaunchCollective { stream } => {
                self.launch(stream, rule_holds(Rule::CommunicationIsVisible), None, Some(true))
            }
            Op::MapPinned => {
                self.ours.note_visible(VisibleCause::DevicePointer);
                Ok(())
            }
            Op::CopyOut { stream, var } => {
                let block = self.block(var)?;
                self.launch(stream, true, Some((block.number, false)), Some(true))
            }
            Op::CopyIn { stream, var } => {
                let block = self.block(var)?;
                self.launch(stream, true, Some((block.number, true)), Some(false))
            }
            Op::HostRead => self.host_access(false),
            Op::HostWrite => self.host_access(true),
            Op::Malloc { var } => self.alloc(var, None),
            Op::Free { var, thread } => self.free(var, thread),
            Op::MallocAsync { var, stream } => self.alloc(var, Some(stream)),
            Op::FreeAsync { var, stream } => self.free_async(var, stream),
            Op::Query { event, thread } => {
                self.native.query(event, thread)?;
                Ok(self.ours.query(event, thread)?)
            }
            Op::DestroyTexture => {
                self.native.destroy_texture()?;
                Ok(self.ours.destroy_texture()?)
            }
            Op::LaunchGraph { stream } => self.launch_graph(stream),
            Op::Unseen { stream, var } => self.unseen(stream, var),
            _ => self.order(op),
        }
    }

    /// Makes a call that only orders, and that cannot fail on the plain driver.
    fn order(&mut self, op: Op) -> Result<(), Stop> {
        match op {
            Op::Record { event, stream } => {
                self.native.order.record(event, stream);
                self.ours.submits(stream, false, |order| order.record(event, stream))?;
            }
            Op::WaitEvent { stream, event } => {
                self.native.order.wait_event(stream, event);
                self.ours.submits(stream, false, |order| order.wait_event(stream, event))?;
            }
            Op::SyncStream { stream } => {
                self.native.wait(self.native.order.over(stream), 0);
                self.ours.order.wait(self.ours.order.over(stream));
            }
            Op::SyncContext => {
                self.native.wait(self.native.order.all[0], 0);
                self.ours.sync_context();
            }
            Op::BeginCapture => {
                self.capturing = true;
                self.captured = [None; CAPTURED_MAX];
                self.ours.begin_capture(CAPTURING)?;
            }
            Op::EndCapture => {
                self.capturing = false;
                self.has_graph = true;
                self.ours.end_capture(CAPTURING);
            }
            Op::Recreate { stream } => {
                self.native.order.recreate(stream);
                self.ours.recreate(stream)?;
                self.stream_ids[stream] += STREAMS as u64;
            }
            Op::TimePasses => self.ours.time_passes(),
            _ => unreachable!("{op:?} does more than order"),
        }
        Ok(())
    }

    /// Returns whether the call is forbidden, or not modelled, while a stream captures.
    fn forbidden_in_capture(&self, op: Op) -> bool {
        match op {
            Op::BeginCapture => self.capturing || self.has_graph,
            Op::EndCapture => !self.capturing,
            Op::LaunchGraph { stream } => {
                !self.has_graph || self.capturing && [CAPTURING, LEGACY].contains(&stream)
            }
            Op::SyncContext | Op::DestroyTexture | Op::Query { .. } => self.capturing,
            // Thread 0 captures; its own frees are served by the private pool.
            Op::Free { thread: 0, .. } => self.capturing,
            Op::Launch { stream, .. } => self.capturing && stream == LEGACY,
            Op::LaunchTexture { stream }
            | Op::LaunchPinned { stream }
            | Op::LaunchIndirect { stream }
            | Op::LaunchCollective { stream }
            | Op::LaunchBehind { stream, .. }
            | Op::CopyOut { stream, .. }
            | Op::CopyIn { stream, .. }
            | Op::Unseen { stream, .. }
            | Op::MallocAsync { stream, .. }
            | Op::FreeAsync { stream, .. }
            | Op::Record { stream, .. }
            | Op::WaitEvent { stream, .. }
            | Op::SyncStream { stream }
            | Op::Recreate { stream } => self.capturing && [CAPTURING, LEGACY].contains(&stream),
            Op::MapPinned
            | Op::HostRead
            | Op::HostWrite
            | Op::Malloc { .. }
            | Op::Free { .. }
            | Op::TimePasses => false,
        }
    }

    fn block(&self, var: usize) -> Result<Block, Stop> {
        self.vars[var].ok_or(Stop::Invalid)
    }

    /// Submits an item on both sides; returns (item, before) of each.
    fn submit(&mut self, stream: usize, look: bool) -> Result<[(Set, Set); 2], Stop> {
        let native = self.native.order.submit(stream);
        let ours = self.ours.submits(stream, look, |order| order.submit(stream))?;
        self.same_or_fewer(native, ours)?;
        Ok([native, ours])
    }

    fn same_or_fewer(&self, native: (Set, Set), ours: (Set, Set)) -> Result<(), Stop> {
        assert_eq!(native.0, ours.0, "the sides count their work alike");
        if self.strict_waits && ours.1 & !native.1 != 0 {
            return Err(Stop::Violation("the device waits for more than natively"));
        }
        Ok(())
    }

    fn launch(
        &mut self,
        stream: usize,
        look: bool,
        block: Option<(usize, bool)>,
        pinned: Option<bool>,
    ) -> Result<(), Stop> {
        let look = look || self.ours.every_kernel_visible();
        let [native, ours] = self.submit(stream, look)?;
        if let Some((block, write)) = block {
            self.native.access(native, block, write)?;
            self.ours.access(ours, block, write)?;
        }
        if let Some(write) = pinned {
            self.native.access_pinned(native, write)?;
            self.ours.access_pinned(ours.0, write);
        }
        Ok(())
    }

    fn launch_texture(&mut self, stream: usize) -> Result<(), Stop> {
        let [native, ours] = self.submit(stream, self.ours.every_kernel_visible())?;
        self.native.use_texture(native.0);
        self.ours.use_texture(ours.0);
        Ok(())
    }

    fn unseen(&mut self, stream: usize, var: usize) -> Result<(), Stop> {
        let block = self.block(var)?;
        if self.ours.sees_everything() {
            return Err(Stop::Invalid);
        }
        let native = self.native.order.submit(stream);
        let ours = self.ours.order.submit(stream);
        self.same_or_fewer(native, ours)?;
        self.native.access(native, block.number, true)?;
        self.native.access_pinned(native, true)?;
        self.ours.access_pinned(ours.0, true);
        Ok(self.ours.access(ours, block.number, true)?)
    }

    /// Runs only programs that gave a sign before: the others are a known difference.
    fn launch_indirect(&mut self, stream: usize) -> Result<(), Stop> {
        if self.ours.causes() == 0 {
            return Err(Stop::Invalid);
        }
        self.launch(stream, false, None, Some(true))
    }

    fn host_access(&self, write: bool) -> Result<(), Stop> {
        self.native.host_access(write)?;
        Ok(self.ours.host_access(write)?)
    }

    fn alloc(&mut self, var: usize, stream: Option<usize>) -> Result<(), Stop> {
        if self.vars[var].is_some() || self.block_count == BLOCKS_MAX {
            return Err(Stop::Invalid);
        }
        let number = self.block_count;
        self.block_count += 1;
        self.alive[number] = true;
        self.vars[var] = Some(Block { number, asynchronous: stream.is_some() });
        self.ours.alloc(number, stream.map(|stream| self.stream_ids[stream]));
        match stream {
            Some(stream) => self.place_on_stream(number, stream),
            None => Ok(()),
        }
    }

    /// Takes the place of an allocation or a free in the stream, which the plain driver treats as
    /// an access to the block. The place submits nothing, so no submission is counted.
    fn place_on_stream(&mut self, block: usize, stream: usize) -> Result<(), Stop> {
        let native = self.native.order.place(stream);
        let ours = self.ours.place(stream);
        self.same_or_fewer(native, ours)?;
        Ok(self.native.access(native, block, true)?)
    }

    fn free(&mut self, var: usize, thread: usize) -> Result<(), Stop> {
        let block = self.block(var)?;
        self.vars[var] = None;
        self.alive[block.number] = false;
        match block.asynchronous {
            true => self.native.free_async_plainly(block.number)?,
            false => self.native.free(block.number, thread)?,
        }
        Ok(self.ours.free(block.number, block.asynchronous, thread)?)
    }

    fn free_async(&mut self, var: usize, stream: usize) -> Result<(), Stop> {
        let block = self.block(var)?;
        self.vars[var] = None;
        self.alive[block.number] = false;
        self.place_on_stream(block.number, stream)?;
        self.native.order.join(stream);
        self.ours.free_async(block.number, stream, self.stream_ids[stream]);
        Ok(())
    }

    fn capture(&mut self, block: usize) -> Result<(), Stop> {
        let slot = self.captured.iter_mut().find(|slot| slot.is_none()).ok_or(Stop::Invalid)?;
        *slot = Some(block);
        Ok(())
    }

    /// Launches a graph, which is visible to the host whatever is in it: here a host node writes
    /// pinned memory.
    fn launch_graph(&mut self, stream: usize) -> Result<(), Stop> {
        let captured = self.captured;
        if captured.into_iter().flatten().any(|block| !self.alive[block]) || stream == ELSEWHERE {
            return Err(Stop::Invalid);
        }
        let [native, ours] = self.submit(stream, true)?;
        self.native.access_pinned(native, true)?;
        self.ours.access_pinned(ours.0, true);
        for block in captured.into_iter().flatten() {
            self.native.access(native, block, true)?;
            self.ours.access(ours, block, true)?;
        }
        Ok(())
    }
}

impl From<Invalid> for Stop {
    fn from(_: Invalid) -> Stop {
        Stop::Invalid
    }
}

impl From<Violation> for Stop {
    fn from(what: Violation) -> Stop {
        Stop::Violation(what)
    }
}
