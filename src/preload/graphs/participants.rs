//! The threads of a capture.
//!
//! Note [Threads of a capture]. A capture belongs to the thread that began it and to every thread
//! that submits work into it, whatever its mode: a framework's backward pass runs in a separate
//! thread, which allocates, launches and frees. Such a thread takes part from its first submission
//! to the end of the capture. Memory that it has allocated since the begin and still holds is
//! attached then (`core::private::attached`): a node may reference it. Memory that it freed before
//! was ordinary memory, which no later node can reference. Memory that any other thread has
//! allocated since the begin is attached when a node references it.
//!
//! If a thread takes part in several captures, its allocations belong to the one it has begun or
//! submitted into last.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::graphs;
use crate::driver::sys::{STREAM_LEGACY, StreamHandle};
use crate::functions::Function;
use crate::graphs::open_captures;
use crate::graphs::open_captures::OpenCapture;
use crate::lock::lock;
use crate::pagemap;
use crate::pagemap::{Kind, Place};
use crate::state::contexts::Context;
use crate::state::thread::Thread;

/// The threads of one capture, each with the moment of its last begin or submission.
#[derive(Default)]
pub(crate) struct Threads(Vec<(usize, u64)>);

/// Blocks that threads that took part in nothing allocated while a stream captured: thread and
/// moment, by address. Blocks freed since are recognized when it matters.
static OUTSIDE: Mutex<BTreeMap<u64, (usize, u64)>> = Mutex::new(BTreeMap::new());

/// Returns a moment later than all before.
pub(crate) fn moment() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Threads {
    pub(crate) fn of(begun_by: usize) -> Threads {
        Threads(vec![(begun_by, moment())])
    }

    /// Returns when this thread last took part, or `None` if it does not.
    pub(crate) fn last(&self, thread: usize) -> Option<u64> {
        self.0.iter().find(|(known, _)| *known == thread).map(|(_, last)| *last)
    }

    /// Notes that this thread takes part now. Returns whether it did not before.
    fn note(&mut self, thread: usize) -> bool {
        let now = moment();
        match self.0.iter_mut().find(|(known, _)| *known == thread) {
            Some((_, last)) => {
                *last = now;
                false
            }
            None => {
                self.0.push((thread, now));
                true
            }
        }
    }
}

/// Notes that a thread that takes part in nothing got this block from `cuMemAlloc`.
pub(crate) fn allocated_outside(thread: &Thread, address: u64) {
    lock(&OUTSIDE).insert(address, (thread.number(), moment()));
}

/// Forgets all blocks: no stream captures any more.
pub(crate) fn forget() {
    lock(&OUTSIDE).clear();
}

/// Notes work that is about to be submitted on this stream.
///
/// # Safety
///
/// `words` must be the program's arguments of this function.
pub(crate) unsafe fn submits(
    thread: &Thread,
    function: &Function,
    stream: StreamHandle,
    words: &[usize],
) {
    // The legacy default stream never captures; querying it may invalidate a capture.
    if stream <= STREAM_LEGACY {
        return;
    }
    let Some(now) = graphs::capturing(stream) else { return };
    let Some(capture) = open_captures::of_number(now.number) else { return };
    thread.captured_before.set(Some(now.mark()));
    takes_part(thread, &capture);
    let mut names = lock(&capture.names);
    // SAFETY: the caller guarantees it.
    let known = unsafe { names.add_submission(function, words) };
    let named = names.take_blocks();
    drop(names);
    if !known {
        capture.reference_all();
    }
    let mut outside = lock(&OUTSIDE);
    let mut leaves = |address: &u64| {
        let joins = |(_, since): &(usize, u64)| belongs(&capture, *since);
        outside.get(address).is_some_and(joins) && outside.remove(address).is_some()
    };
    let joining: Vec<u64> = named.into_iter().filter(&mut leaves).collect();
    drop(outside);
    joining.into_iter().for_each(|address| join(&capture, address));
}

/// Returns whether the capture that this thread's last call submits into is unchanged: the call has
/// added nothing to it, and may be made again.
pub(crate) fn is_as_before(thread: &Thread) -> bool {
    let (Some((_, stream)), Some(before)) = (thread.submits_on.get(), thread.captured_before.get())
    else {
        return false;
    };
    rule_holds(Rule::UnchangedCaptureRetries)
        && graphs::capturing(stream).is_some_and(|now| now.mark() == before)
}

/// Notes that this thread submits into the capture, or has done so.
pub(crate) fn takes_part(thread: &Thread, capture: &OpenCapture) {
    if !rule_holds(Rule::SubmittingThreadTakesPart) {
        return;
    }
    let number = thread.number();
    if !lock(&capture.threads).note(number) {
        return;
    }
    let mut joining = Vec::new();
    lock(&OUTSIDE).retain(|address, (thread, since)| {
        let joins = *thread == number && belongs(capture, *since);
        joining.extend(joins.then_some(*address));
        !joins
    });
    joining.into_iter().for_each(|address| join(capture, address));
}

/// Returns whether a block allocated at this moment belongs to the capture once a participating
/// thread holds it or a node references it.
fn belongs(capture: &OpenCapture, allocated_at: u64) -> bool {
    allocated_at > capture.begun_at && rule_holds(Rule::AllocatedBlocksJoin)
}

fn join(capture: &OpenCapture, address: u64) {
    let Some(work) = capture.enter() else { return };
    let Some(extent) = pagemap::extent_of(address) else { return };
    let context: &'static Context = extent.context();
    let pool = capture.pool(&work, context);
    // Before the block is checked: a concurrent free either sees this or was first.
    extent.note_private(true);
    let mut allocator = lock(&context.allocator);
    if let Place::Block(block) = pagemap::place(address)
        && block.kind == Kind::Context
    {
        allocator.attach_to_pool(block.block, pool);
    }
}
