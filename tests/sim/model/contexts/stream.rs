//! Streams: the order of work within a context.
//!
//! `stream_deps` adds predecessors in this order: everything the host knows, the stream's own
//! earlier work, the context's barrier, and the legacy stream, which every blocking stream waits
//! for and which waits for every blocking stream.

use std::sync::Arc;

use crate::abi::{Code, Handle, Outcome};
use crate::model::graphs::capture::Member;
use crate::model::races::clock::{ChainSet, Clock};
use crate::model::work::op::{Deps, OpRef, Work};
use crate::model::world::{World, config};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    Legacy,
    PerThread,
    Created,
}

pub struct Stream {
    /// Never reused, unlike the handle.
    pub id: u64,
    pub context: Handle,
    pub ctx: u64,
    pub kind: StreamKind,
    pub non_blocking: bool,
    pub priority: i32,
    /// The last work; several operations only if a dependent started early.
    pub tail: Vec<OpRef>,
    /// Operations that a wait for the stream waits for: the tail without records of events.
    over: Vec<OpRef>,
    /// Clock of events that were complete when the stream waited for them.
    pub clock: Clock,
    pub chains: ChainSet,
    /// Chains of requests that are not work.
    pub births: ChainSet,
    /// The tail's last operation, if it is a kernel, which a dependent may overlap.
    pub last_kernel: Option<OpRef>,
    pub capture: Option<Member>,
    /// Whether its green context is gone: then it can only be destroyed.
    pub detached: bool,
}

impl Stream {
    /// Returns the operations that a request for recycled memory comes after. With
    /// `SIM_ONLY_WAITS_TELL` it does not make a wait for the stream wait for records of events.
    pub fn before_request(&self) -> &[OpRef] {
        if self.requests_tell() { &self.tail } else { &self.over }
    }

    /// Returns the last operations that a request does not come after.
    fn beside_request(&self) -> Vec<OpRef> {
        let others = |op: &&OpRef| self.over.iter().all(|known| !Arc::ptr_eq(known, op));
        let beside = self.tail.iter().filter(|_| !self.requests_tell());
        beside.filter(others).cloned().collect()
    }

    /// A wait for the legacy stream waits for all that a request there comes after, except for
    /// frees.
    fn requests_tell(&self) -> bool {
        self.kind == StreamKind::Legacy || !config().only_waits_tell
    }
}

impl World {
    pub fn create_stream(
        &mut self,
        context: Handle,
        kind: StreamKind,
        non_blocking: bool,
        priority: i32,
    ) -> Outcome<Handle> {
        let id = self.fresh_id();
        let ctx = self.contexts.get(context)?.id;
        let handle = self.streams.insert(Stream {
            id,
            context,
            ctx,
            kind,
            non_blocking,
            priority,
            tail: Vec::new(),
            over: Vec::new(),
            clock: Clock::default(),
            chains: ChainSet::default(),
            births: ChainSet::default(),
            last_kernel: None,
            capture: None,
            detached: false,
        });
        self.contexts.get_mut(context)?.streams.push(handle);
        Ok(handle)
    }

    /// Forgets the handle. The work of the stream continues.
    pub fn destroy_stream(&mut self, handle: Handle) -> Outcome {
        if self.streams.get(handle)?.kind != StreamKind::Created {
            return Err(Code::INVALID_HANDLE);
        }
        self.leave_captures(handle);
        let stream = self.streams.remove(handle).ok_or(Code::INVALID_HANDLE)?;
        self.chains.retire(&stream.chains);
        self.chains.retire(&stream.births);
        if stream.detached {
            return Ok(());
        }
        let context = self.contexts.get_mut(stream.context)?;
        context.streams.retain(|known| *known != handle);
        context.orphans_clock.join(&stream.clock);
        let blocking = !stream.non_blocking;
        if blocking {
            context.orphans_blocking_clock.join(&stream.clock);
        }
        context.orphans.extend(stream.tail.into_iter().map(|op| (op, blocking)));
        Ok(())
    }

    /// Detaches the streams of a green context before its destruction. Streams that the program has
    /// created stay, but are unusable.
    pub fn detach_streams(&mut self, green: Handle) -> Outcome {
        let streams = self.contexts.get(green)?.streams.clone();
        for handle in streams {
            if self.streams.get(handle)?.kind == StreamKind::Created {
                self.leave_captures(handle);
                let stream = self.streams.get_mut(handle)?;
                (stream.detached, stream.capture) = (true, None);
                self.contexts.get_mut(green)?.streams.retain(|known| *known != handle);
            }
        }
        Ok(())
    }

    /// Returns the stream that a handle denotes in a call by `thread`.
    pub fn resolve_stream(
        &mut self,
        handle: Handle,
        per_thread: bool,
        thread: u32,
    ) -> Outcome<Handle> {
        let own = match handle {
            0 => per_thread,
            LEGACY => false,
            PER_THREAD => true,
            _ => {
                let stream = self.streams.get(handle)?;
                if stream.detached {
                    return Err(Code::STREAM_DETACHED);
                }
                let error = self.contexts.find(stream.context).and_then(|context| context.error);
                return error.map_or(Ok(handle), Err);
            }
        };
        let context = self.current_context(thread)?;
        if !own {
            return Ok(self.contexts.get(context)?.legacy);
        }
        if let Some(stream) = self.contexts.get(context)?.per_thread.get(&thread) {
            return Ok(*stream);
        }
        let stream = self.create_stream(context, StreamKind::PerThread, false, 0)?;
        self.contexts.get_mut(context)?.per_thread.insert(thread, stream);
        Ok(stream)
    }

    /// Operations that are complete when the stream is: its own work, and the predecessors of that.
    /// Measured: neither a barrier of the context nor, on a blocking stream, work that the legacy
    /// stream has got since. A wait for the legacy stream waits for all blocking streams.
    pub fn stream_ends(&self, handle: Handle) -> Outcome<Deps> {
        let stream = self.streams.get(handle)?;
        let mut deps = Deps::default();
        deps.clock.join(&self.host.clock);
        let mut over = |stream: &Stream| {
            deps.clock.join(&stream.clock);
            stream.over.iter().for_each(|op| deps.after(op));
        };
        over(stream);
        if stream.kind == StreamKind::Legacy {
            let context = self.contexts.get(stream.context)?;
            let of_context = context.streams.iter().filter_map(|other| self.streams.find(*other));
            of_context.filter(|other| !other.non_blocking).for_each(over);
            deps.clock.join(&context.orphans_blocking_clock);
            let orphans = context.orphans.iter().filter(|(_, blocking)| *blocking);
            orphans.for_each(|(op, _)| deps.after(op));
        }
        Ok(deps)
    }

    /// Predecessors of new work on the stream.
    pub fn stream_deps(&self, handle: Handle) -> Outcome<Deps> {
        self.deps(handle, true)
    }

    fn deps(&self, handle: Handle, own_tail: bool) -> Outcome<Deps> {
        let stream = self.streams.get(handle)?;
        let context = self.contexts.get(stream.context)?;
        let mut deps = Deps::default();
        deps.clock.join(&self.host.clock);
        deps.clock.join(&stream.clock);
        if own_tail {
            stream.tail.iter().for_each(|op| deps.after(op));
        }
        deps.clock.join(&context.barrier_clock);
        context.barrier.iter().for_each(|op| deps.after(op));
        if stream.kind == StreamKind::Legacy {
            let orphans = context.orphans.iter().filter(|(_, blocking)| *blocking);
            orphans.for_each(|(op, _)| deps.after(op));
            deps.clock.join(&context.orphans_blocking_clock);
            for other in &context.streams {
                let other = self.streams.get(*other)?;
                if !other.non_blocking && other.kind != StreamKind::Legacy {
                    deps.clock.join(&other.clock);
                    other.tail.iter().for_each(|op| deps.after(op));
                }
            }
        } else if !stream.non_blocking {
            let legacy = self.streams.get(context.legacy)?;
            deps.clock.join(&legacy.clock);
            legacy.tail.iter().for_each(|op| deps.after(op));
        }
        Ok(deps)
    }

    pub fn submit(&mut self, handle: Handle, work: Work, at: u64) -> Outcome<OpRef> {
        let deps = self.stream_deps(handle)?;
        self.submit_after(handle, work, deps, at)
    }

    /// Records an event, with the predecessors that work would have. Measured: a record with timing
    /// is work of the stream. Any other is complete with its predecessors, and a wait for the
    /// stream does not wait for it.
    pub fn record(&mut self, handle: Handle, timing: bool, at: u64) -> Outcome<OpRef> {
        if timing {
            return self.submit(handle, Work::TimedRecord, at);
        }
        self.submit(handle, Work::Record, at)
    }

    /// Submits work to a stream with complete dependencies from the caller.
    pub fn submit_after(
        &mut self,
        handle: Handle,
        work: Work,
        deps: Deps,
        at: u64,
    ) -> Outcome<OpRef> {
        let stream = self.streams.get(handle)?;
        let (place, chains) = ((stream.ctx, stream.id), stream.chains.clone());
        let kernel = matches!(work, Work::Kernel(_));
        let request = matches!(work, Work::Birth { .. });
        // Measured: a wait for the legacy stream does not wait for a free on it.
        let counts = match work {
            Work::Record => false,
            Work::Release { .. } | Work::Give { .. } => stream.kind != StreamKind::Legacy,
            _ => true,
        };
        let op = self.submit_op(work, place, chains, deps, at);
        let stream = self.streams.get_mut(handle)?;
        let beside = if request { stream.beside_request() } else { Vec::new() };
        stream.tail = [vec![op.clone()], beside].concat();
        if counts {
            stream.over = vec![op.clone()];
        }
        stream.last_kernel = kernel.then(|| op.clone());
        Ok(op)
    }

    /// Submits a programmatic dependent launch. It may start as soon as the kernel before it has
    /// started, so it knows nothing of that kernel's work.
    pub fn submit_early(&mut self, handle: Handle, work: Work, at: u64) -> Outcome<OpRef> {
        let stream = self.streams.get(handle)?;
        let Some(before) = stream.last_kernel.clone() else { return self.submit(handle, work, at) };
        if stream.tail.len() >= EARLY_STARTS_MAX {
            return self.submit(handle, work, at);
        }
        let mut tail = stream.tail.clone();
        let mut deps = self.deps(handle, false)?;
        deps.after_start(&before);
        let op = self.submit_after(handle, work, deps, at)?;
        tail.push(op.clone());
        let stream = self.streams.get_mut(handle)?;
        (stream.over, stream.tail) = (tail.clone(), tail);
        Ok(op)
    }

    /// Orders later work of the stream after `op`. A complete `op` leaves no trace in the stream's
    /// order: measured, it does not keep a dependent from starting early. A wait for the stream
    /// waits for `op`, but on a blocking stream not for later work of the legacy stream (measured).
    pub fn stream_waits(&mut self, handle: Handle, op: &OpRef, at: u64) -> Outcome {
        if op.done() {
            self.streams.get_mut(handle)?.clock.join(&op.state().clock);
            return Ok(());
        }
        let mut deps = self.stream_deps(handle)?;
        deps.after(op);
        let before = self.streams.get(handle)?.over.clone();
        self.submit_after(handle, Work::Marker, deps, at)?;
        let stream = self.streams.get_mut(handle)?;
        let (done, running): (Vec<_>, Vec<_>) = before.into_iter().partition(|op| op.done());
        done.iter().for_each(|op| stream.clock.join(&op.state().clock));
        stream.over = running;
        stream.over.push(op.clone());
        Ok(())
    }
}

pub const LEGACY: Handle = 1;
pub const PER_THREAD: Handle = 2;
const EARLY_STARTS_MAX: usize = 32;
