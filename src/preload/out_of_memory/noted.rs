//! The failures so far, as snapshots show them, and which of them were overcome: the same thread
//! got as much by the same function, or not much less.
//!
//! Only while a failure is open, and only for a limited number of allocations, does the library
//! check what a thread gets. Meanwhile the calls that allocate leave their fast path (`bypass`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use cachealloc_history::OomRequest;

use crate::lock::lock;
use crate::process::bypass;
use crate::state::thread::Thread;

/// Number of failures to keep; older ones are dropped.
const FAILURES_MAX: usize = 64;
/// Number of allocations after which a failure that is still open is final.
const LOOKS_MAX: u32 = 4096;
/// A request that gets less than this fraction has not overcome the failure.
const PART: u64 = 16;

#[derive(Clone, Copy)]
pub(crate) struct Failure {
    pub request: OomRequest,
    pub device: i32,
    thread: u32,
    /// Time of its entry, or `None` without one.
    time_ns: Option<u64>,
    is_open: bool,
    is_overcome: bool,
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
    /// Number of open ones, all of one thread and one function.
    open: Option<(u32, &'static str, u64)>,
}

static NOTED: Mutex<Noted> = Mutex::new(Noted {
    latest: [None; FAILURES_MAX],
    counts: Counts { all: 0, overcome: 0 },
    forgotten: Forgotten { standing: 0, open: None },
});
/// Number of further allocations to check.
static LOOKS: AtomicU32 = AtomicU32::new(0);

impl Failure {
    pub(crate) fn new(
        request: OomRequest,
        device: i32,
        thread: u32,
        time_ns: Option<u64>,
    ) -> Failure {
        let is_open = request.bytes.is_some();
        Failure { request, device, thread, time_ns, is_open, is_overcome: false }
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
    if failure.is_open {
        LOOKS.store(LOOKS_MAX, Ordering::Relaxed);
        bypass::note_failures(true);
    }
    number
}

impl Forgotten {
    fn add(&mut self, failure: &Failure) {
        let Failure { request, thread, is_open, is_overcome, .. } = failure;
        match &mut self.open {
            _ if *is_overcome => {}
            _ if !is_open => self.standing += 1,
            Some((of, function, count)) if of == thread && *function == request.function => {
                *count += 1;
            }
            open => {
                self.standing += open.map_or(0, |(.., count)| count);
                *open = Some((*thread, request.function, 1));
            }
        }
    }

    /// Marks this thread's failures of this function as overcome. Returns how many there were.
    fn overcome(&mut self, thread: u32, function: &str) -> u64 {
        let is_it = |open: &(u32, &str, u64)| open.0 == thread && open.1 == function;
        self.open.take_if(|open| is_it(open)).map_or(0, |(.., count)| count)
    }

    fn all_standing(&self) -> u64 {
        self.standing + self.open.map_or(0, |(.., count)| count)
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
            let OomRequest { function, kind, bytes, .. } = failure.request;
            (failure.thread, failure.device, function, kind, bytes)
        };
        of(&before) == of(failure)
    })
}

/// Returns the last failure that was not overcome.
pub(crate) fn last() -> Option<Failure> {
    let all = counts().all;
    (all.saturating_sub(FAILURES_MAX as u64)..all).rev().find_map(standing)
}

/// Notes that this thread has got this much by this function. Returns the first failure that this
/// overcame.
#[cold]
pub(crate) fn got(thread: &Thread, function: &str, bytes: u64) -> Option<(u64, Failure)> {
    let left = LOOKS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if left.is_ok_and(|left| left <= 1) || left.is_err() {
        bypass::note_failures(false);
    }
    let mut noted = lock(&NOTED);
    let all = noted.counts.all;
    let number = thread.number() as u32;
    let is_same = |failure: &Failure| {
        failure.is_open && failure.thread == number && failure.request.function == function
    };
    let first = all.saturating_sub(FAILURES_MAX as u64);
    let of_thread = || (first..all).map(|number| (number, number as usize % FAILURES_MAX));
    let last = of_thread().rev().find_map(|(_, at)| noted.latest[at].filter(is_same))?;
    let asked = last.request.bytes?;
    if bytes > asked || bytes < asked / PART {
        return None;
    }
    noted.counts.overcome += noted.forgotten.overcome(number, function);
    let mut overcome = None;
    for (number, at) in of_thread() {
        let Some(failure) = noted.latest[at].filter(is_same) else { continue };
        noted.latest[at] = Some(Failure { is_open: false, is_overcome: true, ..failure });
        noted.counts.overcome += 1;
        overcome = overcome.or(Some((number, failure)));
    }
    if noted.latest.iter().flatten().all(|failure| !failure.is_open) {
        bypass::note_failures(false);
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
