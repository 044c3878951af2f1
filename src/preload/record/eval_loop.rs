//! Finds the code that evaluates Python, from the stacks themselves.
//!
//! A compiler may move a part of the evaluation loop far away from the function, under a separate
//! symbol, which distributions strip from the file. So names alone do not find each evaluation on a
//! native stack. But from 3.12 on, each evaluation keeps a mark in its C frame
//! (`cachealloc_python::marks`). The native frame around a mark is an evaluation, and so is
//! anything else that runs in the same part of a function. Each new stack is examined, because any
//! may be the first one with another part.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use cachealloc_stacks::Place;

/// A compiler makes two parts; one that arranges code by a profile may make a few.
const PARTS_MAX: usize = 16;

/// A part of the loop. It is never removed, since an interpreter stays loaded. Empty while `start`
/// is 0, which is set last.
struct Part {
    start: AtomicU64,
    end: AtomicU64,
}

static PARTS: [Part; PARTS_MAX] =
    [const { Part { start: AtomicU64::new(0), end: AtomicU64::new(0) } }; PARTS_MAX];

/// Returns the parts known so far.
pub(crate) fn code() -> Vec<Range<u64>> {
    let parts = PARTS.iter().map(|part| {
        let start = part.start.load(Ordering::Acquire);
        start..part.end.load(Ordering::Relaxed)
    });
    parts.filter(|part| part.start != 0).collect()
}

/// Examines the calling thread's stack, up to `NATIVE` and `PYTHON` frames. Takes no lock of the
/// library and allocates nothing.
#[cold]
#[inline(never)]
pub(crate) fn learn<const NATIVE: usize, const PYTHON: usize>(own_addresses: Range<u64>) {
    // On the thread's stack, which is large enough for an interpreter.
    let mut marks = [0; PYTHON];
    let mut count = 0;
    cachealloc_python::marks(PYTHON, |mark| {
        marks[count] = mark;
        count += 1;
    });
    if count != 0 {
        learn_from::<NATIVE>(&marks[..count], own_addresses);
    }
}

#[inline(never)]
fn learn_from<const NATIVE: usize>(marks: &[u64], own_addresses: Range<u64>) {
    let mut places = [Place::default(); NATIVE];
    let count = cachealloc_stacks::capture_places(&mut places, own_addresses).count;
    for pair in places[..count].windows(2) {
        let frame = pair[0].stack_pointer..pair[1].stack_pointer;
        let call = pair[0].address.wrapping_sub(1);
        if marks.iter().any(|mark| frame.contains(mark)) && !is_known(call) {
            note(cachealloc_stacks::function_range(call));
        }
    }
}

fn is_known(address: u64) -> bool {
    PARTS.iter().any(|part| {
        let start = part.start.load(Ordering::Acquire);
        start != 0 && (start..part.end.load(Ordering::Relaxed)).contains(&address)
    })
}

/// Adds a part. Two threads may add the same part, or a fork may come between the two stores: the
/// next call repairs that.
fn note(range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    for part in &PARTS {
        let taken = part.end.compare_exchange(0, range.end, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() || taken == Err(range.end) {
            part.start.store(range.start, Ordering::Release);
            return;
        }
    }
}
