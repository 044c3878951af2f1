//! State of the threads between two steps.

use super::{Before, Left, Op};
use crate::order::deferral::{ANY_STREAM, DeferralState};
use crate::order::deferring_context::DeferringContext;
use crate::order::exclusive::Exclusive;
use crate::order::submission_counters::SubmissionCounters;
use crate::order::tests::explore::{Key, Machine};

pub const THREADS: usize = 3;
pub const OPS_MAX: usize = 3;
const CONTEXTS: usize = 2;
const STREAMS: usize = 4;
/// Enough bits for every set of launches, and for their count.
const SET_BITS: u32 = 5;

/// Where a thread is in its operation.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum At {
    #[default]
    Start,
    // A launch.
    Begin,
    Watch,
    Observe,
    Waited,
    Admit,
    Admission,
    Owed,
    PayGate,
    PutIn,
    ComeBehind,
    NothingOwed,
    Paid,
    Launch,
    End,
    // The end of a context, after its deferred wait.
    Gone,
    EndNoted,
    // A free.
    Quiet,
    FreeState,
    Gate,
    Ended,
    Begun,
    Record,
    PutOff,
    MayPutOff,
    Debt,
    Owe,
    AskAgain,
    SayEach,
    Wait,
    Holds,
    Take,
    NoneOwes,
    Forget,
    LookAgain,
    OwesNoMore,
    File,
    Filed,
    Recorded,
    Over,
    Publish,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Thread {
    pub(super) op: u8,
    pub(super) at: At,
    /// Whether this launch is counted.
    pub(super) counted: bool,
    /// Whether this launch was admitted, once it has asked.
    pub(super) admitted: Option<bool>,
    /// Whether the driver refuses this call's waits.
    pub(super) refused: bool,
    /// Context whose deferred wait this launch flushes.
    pub(super) deferring_context: usize,
    /// Whether this free saw a single stream. `waits`: whether it waits on the host.
    pub(super) one: bool,
    pub(super) waits: bool,
    pub(super) begun: u64,
    pub(super) ended: u64,
    /// Launches that this free needs, or after which this launch must be ordered.
    pub(super) needed: u64,
    pub(super) recorded: u64,
}

#[derive(Clone, Copy)]
pub struct Run {
    pub(super) left: Left,
    /// Whether there is more than one context.
    pub(super) watched: bool,
    pub(super) threads: [Thread; THREADS],
    pub(super) deferral: u64,
    pub(super) deferring_context: Option<u64>,
    /// Number of observers, and which context submits.
    pub(super) exclusive: (u32, u64),
    /// Whether the first context has ended.
    pub(super) gone: bool,
    pub(super) begun: [u64; 2],
    pub(super) ended: [u64; 2],
    pub(super) launched: u64,
    pub(super) contexts: [Context; CONTEXTS],
    /// Number of the barrier for which each stream has waited last.
    pub(super) behind: [u64; STREAMS],
    pub(super) tails: [u64; STREAMS],
    /// Launches that the host has waited for.
    pub(super) over: u64,
    /// Launches that the published frees need.
    pub(super) published: u64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Context {
    pub(super) barrier_lock: bool,
    /// Launches of this context.
    pub(super) works: u64,
    pub(super) covered: u64,
    /// Launches that the newest event stands for, and its number.
    pub(super) event: u64,
    pub(super) number: u64,
    /// Launches after which all later work is ordered.
    pub(super) floor: u64,
}

impl Machine for Run {
    type Program = super::super::explore::Program<Op, OPS_MAX>;
    const THREADS: usize = THREADS;
    type Key = (u128, u128);

    fn step(&self, program: &Self::Program, thread: usize) -> Option<Result<Run, &'static str>> {
        let mut next = *self;
        let mut own = next.threads[thread];
        let op = (*program[thread].get(usize::from(own.op))?)?;
        let lane = usize::from(thread != 0);
        let went = match op {
            Op::Submit(stream) => next.submit(&mut own, lane, stream, stream as u64 + 1),
            Op::Refused(stream) => next.submit_refused(&mut own, lane, stream),
            Op::SubmitAnywhere => next.submit(&mut own, lane, 1, ANY_STREAM),
            Op::PayAll => next.pay_all(&mut own),
            Op::End => next.end(&mut own),
            Op::Free | Op::FreeOfAll | Op::FreeThatWaits => next.free(&mut own, lane, op, 0),
            Op::FreeElsewhere | Op::FreeOfAllElsewhere => next.free(&mut own, lane, op, 1),
        };
        match went {
            Err(what) => return Some(Err(what)),
            Ok(None) => return None,
            Ok(Some(At::Start)) => own = Thread { op: own.op + 1, ..Thread::default() },
            Ok(Some(at)) => own.at = at,
        }
        next.threads[thread] = own;
        Some(Ok(next))
    }

    fn key(&self) -> (u128, u128) {
        let mut threads = Key::default();
        for thread in &self.threads {
            threads.put(thread.op.into(), 2);
            threads.put(thread.at as u64, 6);
            threads.put(thread.counted.into(), 1);
            threads.put(thread.admitted.map_or(2, u64::from), 2);
            threads.put(thread.refused.into(), 1);
            threads.put(thread.deferring_context as u64, 1);
            threads.put(thread.one.into(), 1);
            threads.put(thread.waits.into(), 1);
            threads.put(thread.begun, 3);
            threads.put(thread.ended, 3);
            threads.put(thread.needed, SET_BITS);
            threads.put(thread.recorded, SET_BITS);
        }
        let mut key = Key::default();
        // A stream, or one of the states counted down from the greatest number.
        let streams = STREAMS as u64;
        key.put(
            if self.deferral <= streams { self.deferral } else { streams + 1 + !self.deferral },
            4,
        );
        key.put(self.deferring_context.unwrap_or(2), 2);
        let (observed, submitter) = self.exclusive;
        key.put((observed != 0).into(), 1);
        key.put((observed >> 31).into(), 1);
        key.put(submitter.min(2), 2);
        key.put(self.gone.into(), 1);
        [self.begun, self.ended].as_flattened().iter().for_each(|count| key.put(*count, 3));
        key.put(self.launched, SET_BITS);
        // The other launches belong to the second context.
        key.put(self.contexts[0].works, SET_BITS);
        for context in &self.contexts {
            key.put(context.barrier_lock.into(), 1);
            key.put(context.covered, 3);
            key.put(context.event, SET_BITS);
            key.put(context.floor, SET_BITS);
        }
        // Numbers only grow: only whether a stream has waited, and for the newest, matters.
        for (stream, (&behind, &tail)) in self.behind.iter().zip(&self.tails).enumerate() {
            key.put((behind != 0).into(), 1);
            key.put((behind == self.contexts[context_of(stream)].number).into(), 1);
            key.put(tail, SET_BITS);
        }
        key.put(self.over, SET_BITS);
        key.put(self.published, SET_BITS);
        (threads.finish(), key.finish())
    }
}

pub(super) fn context_of(stream: usize) -> usize {
    stream / 2
}

/// The next place, or `None` if another thread must move first.
pub(super) type Went = Result<Option<At>, &'static str>;

impl Run {
    pub fn behind(before: Before, left: Left) -> Run {
        let several = matches!(before, Before::Several | Before::Ended);
        let count = u64::from(before != Before::Nothing);
        let mut run = Run {
            left,
            watched: matches!(before, Before::Ended | Before::Owed),
            threads: Default::default(),
            deferral: if several { ANY_STREAM } else { DeferralState::new().state() },
            deferring_context: None,
            exclusive: Exclusive::new().parts(),
            gone: false,
            begun: [0, count],
            ended: [0, count],
            launched: 0,
            contexts: Default::default(),
            behind: [0; STREAMS],
            tails: [0; STREAMS],
            over: 0,
            published: 0,
        };
        if before == Before::Owed {
            (run.deferral, run.deferring_context, run.exclusive) = (1, Some(0), (0, 0));
            (run.launched, run.tails[0], run.published) = (1, 1, 1);
            run.contexts[0] =
                Context { works: 1, covered: 1, event: 1, number: 1, ..Context::default() };
        }
        run
    }

    pub(super) fn counters(&self) -> SubmissionCounters {
        SubmissionCounters::at(self.begun[0] + self.begun[1], self.ended[0] + self.ended[1])
    }

    pub(super) fn deferral<T>(&mut self, call: impl FnOnce(&DeferralState) -> T) -> T {
        let deferral = DeferralState::at(self.deferral);
        let answer = call(&deferral);
        self.deferral = deferral.state();
        answer
    }

    pub(super) fn deferring_context<T>(&mut self, call: impl FnOnce(&DeferringContext) -> T) -> T {
        let deferring_context = DeferringContext::at(self.deferring_context);
        let answer = call(&deferring_context);
        self.deferring_context = deferring_context.context_id();
        answer
    }

    pub(super) fn exclusive<T>(&mut self, call: impl FnOnce(&Exclusive) -> T) -> T {
        let exclusive = Exclusive::at(self.exclusive.0, self.exclusive.1);
        let answer = call(&exclusive);
        self.exclusive = exclusive.parts();
        answer
    }

    pub(super) fn is_exclusive(&mut self, context: usize) -> bool {
        self.exclusive(|exclusive| exclusive.is_exclusive(context as u64))
    }

    pub(super) fn is_gone(&self, context: usize) -> bool {
        self.gone && context == 0
    }
}
