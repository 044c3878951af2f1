//! Launches and frees of three threads, one step at a time, and the oracle that checks them. The
//! machines `interleave`, `lanes` and `sharing` share this module.
//!
//! The oracle knows two facts that the code cannot know. One is which launches the device had when
//! a free started: more than those that had returned, since a kernel may be seen to run before its
//! launch returns. The other is which launches are covered by a barrier whose wait was submitted. A
//! free must not publish its block while no such barrier covers a launch that the free must wait
//! for.

use super::explore::{Alike, Key, Machine, Outcome, explore, programs};

pub const THREADS: usize = 3;
const OPS_MAX: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Submit,
    Free,
}

type Program = super::explore::Program<Op, OPS_MAX>;

/// How launches are counted and frees ordered, and the state that all threads share.
pub trait Scheme: Copy {
    /// One step of a launch.
    fn submit(&mut self, turn: &mut Turn) -> Step;

    /// One step of a free.
    fn free(&mut self, turn: &mut Turn) -> Step;

    /// Adds what the threads share.
    fn put(&self, key: &mut Key);
}

/// The result of a step; an error is a violation.
pub type Step = Result<Progress, &'static str>;

pub enum Progress {
    More,
    Done,
    /// The thread cannot go on before another one does.
    Waits,
}

/// The thread that makes this step, and the device.
pub struct Turn<'a> {
    /// 0 to `THREADS - 1`.
    pub thread: usize,
    /// Number of completed steps of this operation.
    pub step: u8,
    /// Values that this operation has read so far.
    pub read: &'a mut [u64; 2],
    launches: &'a mut Launches,
}

impl Turn<'_> {
    pub fn launch(&mut self) {
        self.launches.launch();
    }

    /// Marks all launches that the device has now as needed.
    pub fn free_starts(&mut self) {
        self.launches.needed[self.thread] = self.launches.launched;
    }

    pub fn record(&mut self) {
        self.launches.recorded[self.thread] = self.launches.launched;
    }

    pub fn wait(&mut self) {
        self.launches.behind |= self.launches.recorded[self.thread];
    }

    pub fn publish(&self) -> Step {
        match self.launches.needed[self.thread] & !self.launches.behind {
            0 => Ok(Progress::Done),
            _ => Err("published while a launch is behind no barrier"),
        }
    }
}

/// Sets of launches, one bit each; bit 0 is the newest.
#[derive(Clone, Copy, Default)]
struct Launches {
    launched: u16,
    /// Launches covered by a barrier whose wait was submitted.
    behind: u16,
    /// Launches that the device had when this free started, by thread.
    needed: [u16; THREADS],
    /// Launches that the device had at this free's record, by thread.
    recorded: [u16; THREADS],
}

impl Launches {
    fn launch(&mut self) {
        self.launched = self.launched << 1 | 1;
        // Shift the sets of all others.
        self.behind <<= 1;
        for set in self.needed.iter_mut().chain(&mut self.recorded) {
            *set <<= 1;
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Thread {
    op: u8,
    step: u8,
    read: [u64; 2],
}

#[derive(Clone, Copy)]
struct Run<S> {
    scheme: S,
    threads: [Thread; THREADS],
    launches: Launches,
}

impl<S: Scheme> Machine for Run<S> {
    type Program = Program;
    const THREADS: usize = THREADS;
    type Key = u128;

    fn step(&self, program: &Program, thread: usize) -> Option<Result<Self, &'static str>> {
        let mut next = *self;
        let Run { scheme, threads, launches } = &mut next;
        let own = &mut threads[thread];
        let op = (*program[thread].get(usize::from(own.op))?)?;
        let mut turn = Turn { thread, step: own.step, read: &mut own.read, launches };
        let progress = match op {
            Op::Submit => scheme.submit(&mut turn),
            Op::Free => scheme.free(&mut turn),
        };
        match progress {
            Err(what) => return Some(Err(what)),
            Ok(Progress::Waits) => return None,
            Ok(Progress::More) => own.step += 1,
            Ok(Progress::Done) => {
                *own = Thread { op: own.op + 1, ..Thread::default() };
                launches.needed[thread] = 0;
                launches.recorded[thread] = 0;
            }
        }
        Some(Ok(next))
    }

    fn key(&self) -> u128 {
        let mut key = Key::default();
        let Launches { launched, behind, needed, recorded } = self.launches;
        for (at, thread) in self.threads.iter().enumerate() {
            key.put(thread.op.into(), 2);
            key.put(thread.step.into(), 4);
            key.put(thread.read[0], 3);
            key.put(thread.read[1], 3);
            key.put(needed[at].into(), 6);
            key.put(recorded[at].into(), 6);
        }
        key.put(launched.into(), 6);
        key.put(behind.into(), 6);
        self.scheme.put(&mut key);
        key.finish()
    }
}

/// Explores every program of up to `ops_max` operations in all, or up to the first violation.
pub fn explore_all(scheme: impl Scheme, alike: Alike, ops_max: usize) -> Outcome {
    let start = Run { scheme, threads: Default::default(), launches: Launches::default() };
    let mut outcome = Outcome::default();
    for program in programs(&[Op::Submit, Op::Free], alike, ops_max) {
        outcome.add(explore(&program, start));
        if outcome.violation.is_some() {
            break;
        }
    }
    outcome
}
