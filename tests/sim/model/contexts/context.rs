//! Contexts: streams that belong together, a barrier over all of them, a sticky error.

use std::collections::{HashMap, HashSet};

use super::stream::{Stream, StreamKind};
use crate::abi::{Code, Handle, Outcome};
use crate::model::memory::allocations::{Allocation, Kind};
use crate::model::memory::code::CodeMemory;
use crate::model::races::clock::Clock;
use crate::model::work::op::{Deps, OpRef, Phase, Work};
use crate::model::world::{World, config};

pub struct Context {
    pub id: u64,
    pub device: usize,
    pub primary: bool,
    /// For a green context, the context that owns its memory, and whose waits wait for it, too
    /// (measured).
    pub part_of: Option<Handle>,
    /// ID of that context, to which this one holds a reference.
    pub refers_to: u64,
    pub flags: u32,
    /// Whether it shares its device with a graphics API (`CUctxCigParam`).
    pub is_graphics: bool,
    /// Number of attaches by the program, besides the creation.
    pub attached: u32,
    /// Set by a fault; every later call in the context returns it.
    pub error: Option<Code>,
    pub streams: Vec<Handle>,
    pub legacy: Handle,
    pub per_thread: HashMap<u32, Handle>,
    /// Work of destroyed streams, with whether the legacy stream waits for it.
    pub orphans: Vec<(OpRef, bool)>,
    pub orphans_clock: Clock,
    /// Clock of the orphaned work that the legacy stream waits for.
    pub orphans_blocking_clock: Clock,
    /// Barrier that all later work comes after.
    pub barrier: Option<OpRef>,
    pub barrier_clock: Clock,
    /// The thread with a waiting free: other threads cannot submit meanwhile.
    pub held_by: Option<u32>,
    pub peers: HashSet<Handle>,
    pub limits: HashMap<u32, usize>,
    pub code: CodeMemory,
}

impl World {
    pub fn create_context(&mut self, device: usize, primary: bool, flags: u32) -> Outcome<Handle> {
        if !self.memory.devices[device].take_pages(config().context_bytes) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let id = self.fresh_id();
        let handle = self.contexts.insert(Context {
            id,
            device,
            primary,
            part_of: None,
            refers_to: 0,
            flags,
            is_graphics: false,
            attached: 0,
            error: None,
            streams: Vec::new(),
            legacy: 0,
            per_thread: HashMap::new(),
            orphans: Vec::new(),
            orphans_clock: Clock::default(),
            orphans_blocking_clock: Clock::default(),
            barrier: None,
            barrier_clock: Clock::default(),
            held_by: None,
            peers: HashSet::new(),
            limits: HashMap::new(),
            code: CodeMemory::default(),
        });
        self.context_handles.insert(id, handle);
        // Memory of the driver in the first small page of a context.
        if let Err(code) = self.memory.alloc(DRIVER_BYTES, Kind::Global, id, device) {
            self.memory.devices[device].give_pages(config().context_bytes);
            self.contexts.remove(handle);
            self.context_handles.remove(&id);
            return Err(code);
        }
        let legacy = self.create_stream(handle, StreamKind::Legacy, false, 0)?;
        self.contexts.get_mut(handle)?.legacy = legacy;
        Ok(handle)
    }

    /// Destroys a context whose work is complete, with everything in it.
    pub fn destroy_context(&mut self, handle: Handle) {
        let Some(context) = self.contexts.remove(handle) else { return };
        self.context_handles.remove(&context.id);
        for stream in context.streams {
            self.leave_captures(stream);
            if let Some(Stream { chains, births, .. }) = self.streams.remove(stream) {
                self.chains.retire(&chains);
                self.chains.retire(&births);
            }
        }
        // Handles of its kernels are reused.
        let modules = self.modules.unload_all_of(context.id);
        let held_bytes = modules * config().module_bytes + context.code.bytes;
        self.memory.devices[context.device].give_pages(held_bytes);
        let of_context = |a: &&Allocation| a.ctx == context.id;
        let bases: Vec<u64> = self.memory.live().filter(of_context).map(|a| a.base).collect();
        for base in bases {
            self.discard(base);
        }
        self.collect(None, Some(context.id));
        self.memory.devices[context.device].give_pages(config().context_bytes);
        for other in self.contexts.values_mut() {
            other.peers.remove(&handle);
        }
    }

    /// Removes a live allocation at once. The caller knows that nothing uses it.
    pub fn discard(&mut self, base: u64) {
        let Some(allocation) = self.memory.remove(base) else { return };
        self.shadow.clear(base, base + allocation.bytes.max(1));
        match self.graphs.unbacked.remove(&base) {
            true => self.memory.devices[allocation.device].free_addresses(base, allocation.bytes),
            false => self.memory.give_back(&allocation),
        }
    }

    /// Context that owns memory allocated while this one is current.
    pub fn owner_of_memory(&self, handle: Handle) -> Handle {
        self.contexts.find(handle).and_then(|context| context.part_of).unwrap_or(handle)
    }

    /// Dependencies on everything submitted to the context so far, and to its green parts.
    pub fn context_deps(&mut self, handle: Handle) -> Outcome<Deps> {
        let mut deps = self.own_deps(handle)?;
        let is_part = |context: &Context| context.part_of == Some(handle);
        let parts = self.context_handles.values().copied();
        let parts: Vec<_> =
            parts.filter(|part| self.contexts.find(*part).is_some_and(is_part)).collect();
        for part in parts {
            let more = self.own_deps(part)?;
            deps.clock.join(&more.clock);
            deps.ends.extend(more.ends);
        }
        Ok(deps)
    }

    fn own_deps(&mut self, handle: Handle) -> Outcome<Deps> {
        self.prune_orphans(handle)?;
        let context = self.contexts.get(handle)?;
        let mut deps = Deps::default();
        deps.clock.join(&self.host.clock);
        deps.clock.join(&context.barrier_clock);
        deps.clock.join(&context.orphans_clock);
        context.barrier.iter().for_each(|op| deps.after(op));
        context.orphans.iter().for_each(|(op, _)| deps.after(op));
        for stream in &context.streams {
            if let Some(stream) = self.streams.find(*stream) {
                deps.clock.join(&stream.clock);
                stream.tail.iter().for_each(|op| deps.after(op));
            }
        }
        Ok(deps)
    }

    /// Submits a marker after everything submitted to the context so far.
    pub fn mark_context(&mut self, handle: Handle, submit_ns: u64) -> Outcome<OpRef> {
        self.mark_context_with(handle, Work::Marker, submit_ns)
    }

    pub fn mark_context_with(&mut self, handle: Handle, work: Work, at: u64) -> Outcome<OpRef> {
        let deps = self.context_deps(handle)?;
        let context = self.contexts.get(handle)?;
        let (id, legacy) = (context.id, context.legacy);
        let chains = match work {
            Work::Marker => Default::default(),
            _ => self.streams.get(legacy)?.chains.clone(),
        };
        let mark = matches!(work, Work::Marker);
        let op = self.submit_op(work, (id, 0), chains, deps, at);
        if !mark {
            // The marker belongs to no stream, but a wait for the context waits for it, too.
            self.contexts.get_mut(handle)?.orphans.push((op.clone(), false));
        }
        Ok(op)
    }

    /// Orders all later work of the context after `op`.
    pub fn bar_context(&mut self, handle: Handle, op: &OpRef, submit_ns: u64) -> Outcome {
        let context = self.contexts.get_mut(handle)?;
        let mut deps = Deps::default();
        deps.after(op);
        if let Some(barrier) = &context.barrier {
            deps.after(barrier);
        }
        if deps.ends.is_empty() {
            context.barrier_clock.join(&deps.clock);
            context.barrier = None;
            return Ok(());
        }
        let id = context.id;
        let marker = self.submit_op(Work::Marker, (id, 0), Default::default(), deps, submit_ns);
        self.contexts.get_mut(handle)?.barrier = Some(marker);
        Ok(())
    }

    pub fn current_context(&self, thread: u32) -> Outcome<Handle> {
        let handle = self.threads.get(&thread).and_then(|thread| thread.contexts.last());
        let handle = handle.copied().filter(|handle| *handle != 0).ok_or(Code::INVALID_CONTEXT)?;
        let context = self.contexts.find(handle).ok_or(Code::CONTEXT_IS_DESTROYED)?;
        context.error.map_or(Ok(handle), Err)
    }

    fn prune_orphans(&mut self, handle: Handle) -> Outcome {
        let context = self.contexts.get_mut(handle)?;
        let clock = &mut context.orphans_clock;
        let blocking_clock = &mut context.orphans_blocking_clock;
        context.orphans.retain(|(op, blocking)| {
            let state = op.state();
            let done = state.phase == Phase::Done;
            if done {
                clock.join(&state.clock);
            }
            if done && *blocking {
                blocking_clock.join(&state.clock);
            }
            !done
        });
        Ok(())
    }
}

/// Bytes that the driver takes in the small page of a context.
const DRIVER_BYTES: u64 = 64 << 10;
