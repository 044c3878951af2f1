//! The failures so far, as snapshots show them, and which of them were overcome: the same thread
//! got as much by the same function, or not much less, or the same call succeeded.
//!
//! Only while some failure is not overcome, and only for a limited number of calls of its kind,
//! does the library check which calls succeed. Meanwhile those calls leave their fast path
//! (`bypass`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use cachealloc_history::OomRequest;

use crate::lock::lock;
use crate::process::bypass;
use crate::process::bypass::Failing;
use crate::state::thread::Thread;

/// Number of failures to keep; older ones are dropped.
const FAILURES_MAX: usize = 64;
/// Number of successful calls of its kind after which a failure that is not overcome is final.
const LOOKS_MAX: u32 = 4096;
/// A request that gets less than this fraction has not overcome the failure.
const PART: u64 = 16;

#[derive(Clone, Copy)]
pub(crate) struct Failure {
    pub request: OomRequest,
    /// Tells requests of the function apart that name no size.
    pub call: u64,
    pub device: i32,
    pub thread: u32,
    /// Time of its entry, or `None` without one.
    pub time_ns: Option<u64>,
    pub is_overcome: bool,
}

/// A call that has succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Success {
    /// An allocation of this size.
    Bytes(u64),
    /// A call that names no size, by its `Failure::call`.
    Call(u64),
}

impl Success {
    fn kind(self) -> Failing {
        match self {
            Success::Bytes(_) => Failing::Allocation,
            Success::Call(_) => Failing::Call,
        }
    }
}

/// Number of failures, and how many of them were overcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub all: u64,
    pub overcome: u64,
}

struct Noted {
    /// The latest failures, by number.
    latest: [Option<Failure>; FAILURES_MAX],
    counts: Counts,
    forgotten: Forgotten,
}

/// Failures that were dropped from `latest`.
struct Forgotten {
    /// Number of final ones.
    standing: u64,
    /// The other ones: requests of one thread for the same, and their number.
    open: Option<(Failure, u64)>,
}

static NOTED: Mutex<Noted> = Mutex::new(Noted {
    latest: [None; FAILURES_MAX],
    counts: Counts { all: 0, overcome: 0 },
    forgotten: Forgotten { standing: 0, open: None },
});
/// Number of further calls to check, by `Failing`.
static LOOKS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

impl Failure {
    fn kind(&self) -> Failing {
        if self.request.bytes.is_some() { Failing::Allocation } else { Failing::Call }
    }

    /// Returns whether success with one of the two requests would overcome both, if their sizes
    /// are not too different.
    fn is_like(&self, other: &Failure) -> bool {
        let of = |failure: &Failure| {
            let OomRequest { function, bytes, .. } = failure.request;
            (failure.thread, function, bytes.is_none().then_some(failure.call))
        };
        of(self) == of(other)
    }

    fn is_like_call(&self, thread: u32, function: &str, success: Success) -> bool {
        let is_same = match success {
            Success::Bytes(_) => true,
            Success::Call(call) => self.call == call,
        };
        let is_of_kind = self.kind() == success.kind();
        is_same && is_of_kind && self.thread == thread && self.request.function == function
    }
}

/// Adds a failure. Returns its number, counted from 0.
pub(crate) fn note(failure: Failure) -> u64 {
    let mut noted = lock(&NOTED);
    let number = noted.counts.all;
    let place = &mut noted.latest[number as usize % FAILURES_MAX];
    let before = place.replace(failure);
    before.iter().for_each(|before| noted.forgotten.add(before));
    noted.counts.all += 1;
    LOOKS[failure.kind() as usize].store(LOOKS_MAX, Ordering::Relaxed);
    bypass::note_failures(failure.kind(), true);
    number
}

impl Forgotten {
    fn add(&mut self, failure: &Failure) {
        match &mut self.open {
            _ if failure.is_overcome => {}
            Some((like, count)) if like.is_like(failure) => *count += 1,
            open => {
                self.standing += open.map_or(0, |(_, count)| count);
                *open = Some((*failure, 1));
            }
        }
    }

    /// Forgets the failures like this one, which are overcome. Returns how many there were.
    fn overcome(&mut self, failure: &Failure) -> u64 {
        self.open.take_if(|(like, _)| like.is_like(failure)).map_or(0, |(_, count)| count)
    }

    fn all_standing(&self) -> u64 {
        self.standing + self.open.map_or(0, |(_, count)| count)
    }
}

pub(crate) fn counts() -> Counts {
    lock(&NOTED).counts
}

/// Returns the failure of this number, if it was not overcome.
pub(crate) fn standing(number: u64) -> Option<Failure> {
    let noted = lock(&NOTED);
    let is_known = number + FAILURES_MAX as u64 >= noted.counts.all;
    let failure = noted.latest[number as usize % FAILURES_MAX].filter(|_| is_known);
    failure.filter(|failure| !failure.is_overcome)
}

/// Returns whether the failure of this number is the same thread's same request as the one before
/// it, which was not overcome.
pub(crate) fn repeats_the_last(number: u64, failure: &Failure) -> bool {
    let before = number.checked_sub(1).and_then(standing);
    before.is_some_and(|before| {
        let of = |failure: &Failure| {
            let OomRequest { kind, bytes, .. } = failure.request;
            (failure.device, kind, bytes)
        };
        before.is_like(failure) && of(&before) == of(failure)
    })
}

/// Returns the last failure that was not overcome.
pub(crate) fn last() -> Option<Failure> {
    let all = counts().all;
    (all.saturating_sub(FAILURES_MAX as u64)..all).rev().find_map(standing)
}

/// Notes that a call of this function by this thread has succeeded. Returns the first failure that
/// this overcame.
#[cold]
pub(crate) fn succeeded(
    thread: &Thread,
    function: &str,
    success: Success,
) -> Option<(u64, Failure)> {
    let kind = success.kind();
    let looks = &LOOKS[kind as usize];
    let left = looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if left.is_ok_and(|left| left <= 1) || left.is_err() {
        bypass::note_failures(kind, false);
    }
    let mut noted = lock(&NOTED);
    let all = noted.counts.all;
    let number = thread.number() as u32;
    let is_of =
        |failure: &Failure| !failure.is_overcome && failure.is_like_call(number, function, success);
    let first = all.saturating_sub(FAILURES_MAX as u64);
    let known = || (first..all).map(|number| (number, number as usize % FAILURES_MAX));
    let last = known().rev().find_map(|(_, at)| noted.latest[at].filter(is_of))?;
    if let (Success::Bytes(got), Some(asked)) = (success, last.request.bytes)
        && (got > asked || got < asked / PART)
    {
        return None;
    }
    noted.counts.overcome += noted.forgotten.overcome(&last);
    let mut overcome = None;
    for (number, at) in known() {
        let Some(failure) = noted.latest[at].filter(is_of) else { continue };
        noted.latest[at] = Some(Failure { is_overcome: true, ..failure });
        noted.counts.overcome += 1;
        overcome = overcome.or(Some((number, failure)));
    }
    let mut of_kind = noted.latest.iter().flatten().filter(|failure| failure.kind() == kind);
    if of_kind.all(|failure| failure.is_overcome) {
        bypass::note_failures(kind, false);
    }
    overcome
}

/// Returns a name and a text for each failure, for snapshots. `epoch_us` translates the time of an
/// entry.
pub(crate) fn texts(epoch_us: impl Fn(u64) -> u64) -> Vec<(String, String)> {
    let noted = lock(&NOTED);
    let first = noted.counts.all.saturating_sub(FAILURES_MAX as u64);
    let known = (first..noted.counts.all)
        .filter_map(|number| Some((number, noted.latest[number as usize % FAILURES_MAX]?)));
    let text = |(number, failure): (u64, Failure)| {
        let Failure { request, device, thread, time_ns, is_overcome, .. } = failure;
        let mut text = format!(
            "function={} kind={} device={device} thread={thread} overcome={is_overcome}",
            request.function,
            request.kind.word()
        );
        request.bytes.iter().for_each(|bytes| text += &format!(" bytes={bytes}"));
        time_ns.iter().for_each(|time_ns| text += &format!(" time_us={}", epoch_us(*time_ns)));
        (format!("out_of_memory {number}"), text)
    };
    let mut texts: Vec<(String, String)> = known.map(text).collect();
    if first > 0 {
        let standing = noted.forgotten.all_standing();
        texts.push(("out_of_memory_before".to_string(), format!("standing={standing}")));
    }
    texts
}
