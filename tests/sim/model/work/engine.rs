//! Virtual time: a queue of starts and ends, taken in order.
//!
//! An operation starts when all its predecessors are complete, and its effect on memory
//! happens at its end. Nothing runs by itself: time moves when a host thread's own clock
//! moves (every call costs something) or when a host thread waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::callbacks::{self, Job};
use super::kernels::Builtin;
use super::op::{BIRTH, Deps, FREE, Op, OpRef, Phase, Work};
use crate::abi::Code;
use crate::model::memory::allocations::{Kind, Standing};
use crate::model::races::clock::{ChainSet, Clock};
use crate::model::races::shadow::{Access, AccessKind, HOST_STREAM, Race, Source};
use crate::model::world::{World, config};

#[derive(Default)]
pub struct Engine {
    pub now: u64,
    /// Number of changes so far. A wait during which it stays the same is stuck.
    pub progress: u64,
    /// Number of host functions that the driver's thread is running.
    pub host_running: usize,
    queue: BinaryHeap<Reverse<Entry>>,
    spinners: Vec<OpRef>,
    ops_count: u64,
    sequence: u64,
}

struct Entry {
    at: u64,
    sequence: u64,
    starts: bool,
    op: OpRef,
}

impl Engine {
    fn push(&mut self, at: u64, starts: bool, op: OpRef) {
        self.sequence += 1;
        self.queue.push(Reverse(Entry { at, sequence: self.sequence, starts, op }));
    }
}

impl World {
    pub fn submit_op(
        &mut self,
        work: Work,
        place: (u64, u64),
        chains: ChainSet,
        deps: Deps,
        submit_ns: u64,
    ) -> OpRef {
        // The program may now wait without a driver call.
        callbacks::start();
        let (ctx, stream) = place;
        self.engine.ops_count += 1;
        let source = Source { name: work.name(), op: self.engine.ops_count, stream };
        let op = Arc::new(Op::new(work, ctx, source, chains, submit_ns));
        let mut state = op.state();
        state.clock = deps.clock;
        state.waiting = deps.ends.len() + deps.starts.len() + deps.later_than.len();
        for before in &deps.ends {
            before.state().after_end.push(op.clone());
        }
        for before in &deps.starts {
            before.state().after_start.push(op.clone());
        }
        for before in &deps.later_than {
            before.state().later.push(op.clone());
        }
        if state.waiting == 0 {
            self.engine.push(submit_ns.max(self.engine.now), true, op.clone());
        }
        drop(state);
        op
    }

    /// Processes everything up to a moment of virtual time.
    pub fn run_until(&mut self, at: u64) {
        while self.engine.queue.peek().is_some_and(|next| next.0.at <= at) {
            self.step();
        }
        self.engine.now = self.engine.now.max(at);
    }

    /// Processes the earliest start or end. Returns `false` if the queue is empty.
    pub fn step(&mut self) -> bool {
        let Some(Reverse(entry)) = self.engine.queue.pop() else { return false };
        self.engine.now = self.engine.now.max(entry.at);
        self.engine.progress += 1;
        if entry.starts {
            self.start(&entry.op);
        } else {
            self.finish(&entry.op);
        }
        true
    }

    /// Resumes the spinners whose word has changed. The program may have written it itself.
    pub fn poll_spinners(&mut self) -> bool {
        let spinners = std::mem::take(&mut self.engine.spinners);
        let before = spinners.len();
        for op in spinners {
            if self.may_go_on(&op) {
                self.engine.push(self.engine.now + SPIN_NS, false, op);
            } else {
                self.engine.spinners.push(op);
            }
        }
        let went_on = self.engine.spinners.len() < before;
        self.engine.progress += u64::from(went_on);
        went_on
    }

    /// Called by the driver's thread when a host function has returned.
    pub fn host_function_done(&mut self, op: OpRef) {
        self.engine.host_running -= 1;
        self.engine.progress += 1;
        self.engine.push(self.engine.now + HOST_FUNCTION_NS, false, op);
    }

    fn start(&mut self, op: &OpRef) {
        let mut state = op.state();
        state.phase = Phase::Running;
        state.start_clock = state.clock.clone();
        let early = std::mem::take(&mut state.after_start);
        let clock = state.clock.clone();
        drop(state);
        for next in early {
            self.predecessor_done(&next, &clock);
        }
        match &op.work {
            Work::Host(host) if self.error_of(op.ctx).is_none() => {
                self.engine.host_running += 1;
                callbacks::push(Job { op: op.clone(), work: *host });
            }
            _ if !self.may_go_on(op) => self.engine.spinners.push(op.clone()),
            work => {
                let of_stream = op.source.stream != 0 && work.takes_time();
                let least = if of_stream { config().work_ns } else { 0 };
                let end = self.engine.now + work.duration_ns().max(least);
                self.engine.push(end, false, op.clone());
            }
        }
    }

    fn may_go_on(&self, op: &OpRef) -> bool {
        let Some((address, bytes)) = self.awaited_word(&op.work) else { return true };
        if self.error_of(op.ctx).is_some() {
            return true;
        }
        // A dead address does not spin: the end of the operation reports it.
        let Some(word) = self.memory.read_word(address, bytes) else { return true };
        match &op.work {
            Work::Kernel(launch) => word == launch.arg(1),
            Work::WaitValue(wait) => wait.satisfied_by(word),
            _ => true,
        }
    }

    fn finish(&mut self, op: &OpRef) {
        if self.error_of(op.ctx).is_none() {
            self.run_effects(op);
        } else if let Work::Release { allocation } | Work::Give { allocation } = op.work {
            self.release(allocation);
        }
        let mut state = op.state();
        state.phase = Phase::Done;
        state.end_ns = self.engine.now;
        let next = std::mem::take(&mut state.after_end);
        let later = std::mem::take(&mut state.later);
        let clock = state.clock.clone();
        let keep = state.keep.take();
        let launched = state.ends_launch_of.take();
        drop(state);
        launched.into_iter().for_each(|graph| self.drop_graph_memory(graph));
        keep.iter()
            .flat_map(|objects| objects.iter())
            .for_each(|object| object.note_launch(&clock));
        drop(keep);
        for op in next {
            self.predecessor_done(&op, &clock);
        }
        for op in later {
            self.predecessor_done(&op, &Clock::default());
        }
    }

    fn predecessor_done(&mut self, op: &OpRef, clock: &Clock) {
        let mut state = op.state();
        state.clock.join(clock);
        state.waiting -= 1;
        if state.waiting == 0 {
            let at = self.engine.now.max(op.submit_ns);
            self.engine.push(at, true, op.clone());
        }
    }

    fn run_effects(&mut self, op: &OpRef) {
        let accesses = op.work.accesses(&self.memory);
        if let Work::Release { allocation } = op.work {
            self.judge_free(allocation, &accesses);
            self.judge_birth(op);
        }
        let mut clock = op.state().clock.clone();
        if let Some((address, _)) = self.awaited_word(&op.work) {
            // The operation that set the flag comes before us; if none did, the host has.
            clock.join(self.flags.get(&address).unwrap_or(&self.host.clock));
        }
        // Operations that touch no memory need an epoch, too: a query may report their completion.
        if !accesses.is_empty() || op.work.takes_time() {
            let epoch = self.chains.advance(&op.chains, &mut clock);
            let live = self.check_live(op, &accesses);
            for access in accesses.iter().filter(|_| live) {
                for race in self.shadow.access(*access, op.source, epoch, &clock) {
                    self.report.race(&race);
                }
            }
            op.state().clock = clock;
            if live {
                op.work.apply(&self.memory);
            }
        }
        self.after_effects(op);
    }

    /// Records an access by the host, inside a host function (which is an operation) or outside.
    pub fn touch(&mut self, access: Access, source: Source, inside: Option<&OpRef>) {
        let (chains, mut clock) = match inside {
            Some(op) => (op.chains.clone(), op.state().clock.clone()),
            None => (self.host.chains.clone(), self.host.clock.clone()),
        };
        let epoch = self.chains.advance(&chains, &mut clock);
        for race in self.shadow.access(access, source, epoch, &clock) {
            self.report.race(&race);
        }
        match inside {
            Some(op) => op.state().clock = clock,
            None => {
                self.host.clock = clock;
            }
        }
    }

    /// Reports a race unless the host knew, when it freed this pool memory by `cuMemFree`, that all
    /// accesses had ended.
    fn judge_free(&mut self, allocation: u64, ends: &[Access]) {
        let Some((epoch, clock)) = self.judged_frees.remove(&allocation) else { return };
        let source = Source { name: "cuMemFree", op: 0, stream: HOST_STREAM };
        // The free of the earlier owner, after which the memory was reused, and the request are not
        // accesses.
        let counts = |race: &&Race| ![FREE, BIRTH].contains(&race.first.name);
        let mut shadow = self.shadow.clone();
        for end in ends {
            let races = shadow.access(*end, source, epoch, &clock);
            races.iter().filter(counts).for_each(|race| self.report.race(race));
        }
    }

    fn after_effects(&mut self, op: &OpRef) {
        match &op.work {
            Work::Release { allocation } => self.release_in_order(*allocation, op.source.stream),
            Work::Give { allocation } => self.release(*allocation),
            Work::Kernel(launch) if launch.builtin == Builtin::Fault => {
                self.set_error(op.ctx, Code::ILLEGAL_ADDRESS);
            }
            Work::Kernel(launch) if launch.builtin == Builtin::Say => {
                self.kernel_text += &format!("the kernel says {}\n", launch.arg(0));
            }
            Work::Kernel(launch) if launch.builtin == Builtin::Set => {
                self.flags.entry(launch.arg(0)).or_default().join(&op.state().clock);
            }
            Work::WriteValue(flag) => {
                self.flags.entry(flag.address).or_default().join(&op.state().clock);
            }
            _ => {}
        }
        if !self.engine.spinners.is_empty() {
            self.poll_spinners();
        }
    }

    fn check_live(&mut self, op: &OpRef, accesses: &[Access]) -> bool {
        let mut live = true;
        for access in accesses {
            let what = match self.memory.standing(access.start, access.bytes) {
                Standing::Live if !self.is_open(op, access) => "access was taken away",
                Standing::Live if self.may_reach(op, access.start) => continue,
                Standing::Live => "no access of another device",
                Standing::Freed => "use after free",
                Standing::Wild => "wild access",
            };
            live = false;
            let (start, end) = (access.start, access.start + access.bytes);
            self.report.problem(format!("sim: {what}: {} bytes [{start:#x}, {end:#x})", op.source));
        }
        live
    }
}

impl World {
    /// Whether mapped memory is open to the device of the operation, or, for copies, to its own.
    fn is_open(&self, op: &OpRef, access: &Access) -> bool {
        let Some(found) = self.memory.find(access.start) else { return true };
        // An import from another process is accessible as a whole.
        if !matches!(found.kind, Kind::Mapped { handle, .. } if handle != 0) {
            return true;
        }
        let context = self.context_handles.get(&op.ctx);
        let context = context.and_then(|handle| self.contexts.find(*handle));
        let own = context.map_or(found.device, |context| context.device);
        let flags = self.memory.access(found.base, own);
        let flags = match &op.work {
            Work::Kernel(_) => flags,
            _ => flags | self.memory.access(found.base, found.device),
        };
        let wanted = match access.kind {
            AccessKind::Read | AccessKind::AtomicRead => 1,
            AccessKind::Write | AccessKind::AtomicWrite => 3,
        };
        flags & wanted == wanted
    }

    /// Returns the address and size of the word that this work waits for, if it waits for one.
    fn awaited_word(&self, work: &Work) -> Option<(u64, u64)> {
        match work {
            Work::Kernel(launch) => match launch.builtin {
                Builtin::Spin => Some((launch.arg(0), 8)),
                Builtin::IndirectSpin => Some((self.memory.read_word(launch.arg(0), 8)?, 8)),
                _ => None,
            },
            Work::WaitValue(wait) => Some((wait.address, wait.bytes)),
            _ => None,
        }
    }

    /// Copies between devices need no permission, kernels do.
    fn may_reach(&self, op: &OpRef, address: u64) -> bool {
        let (Work::Kernel(_), Some(found)) = (&op.work, self.memory.find(address)) else {
            return true;
        };
        let handle = |id: u64| self.context_handles.get(&id).copied();
        let Some(context) = handle(op.ctx).and_then(|handle| self.contexts.find(handle)) else {
            return true;
        };
        let own = context.device == found.device;
        match found.kind {
            Kind::Device if !own => {
                handle(found.ctx).is_some_and(|owner| context.peers.contains(&owner))
            }
            Kind::Pool { pool, .. } => self.pools.find(pool).is_some_and(|pool| {
                (own && !pool.is_on_host()) || pool.open_to.contains(&context.device)
            }),
            _ => true,
        }
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

const SPIN_NS: u64 = 1_000;
const HOST_FUNCTION_NS: u64 = 1_000;
