//! The events of one context that freed blocks wait for.

pub(crate) mod lines;

use core::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use cachealloc_core::{Behind, TagEpoch, Waiting};

use crate::lock::lock;
use crate::state::events::EventRef;

pub(crate) use lines::{Lines, Place};

/// The events behind the tags of one context.
#[derive(Default)]
pub(crate) struct StreamFrees {
    /// Whether any free block may have a tag; a barrier asks the core only then.
    pub any: AtomicBool,
    /// Some tag has no event: it waits for a barrier.
    pub parked: AtomicBool,
    pub events: Mutex<Lines>,
    /// How many submissions there were before the last record of an event that other frees may share.
    pub last_record: AtomicU64,
    /// Above this number of events, a free drops those that no tag refers to.
    pub tidy_above: AtomicUsize,
    /// Those of blocks whose free would natively have waited (mode `relaxed`).
    pub plain_frees: Mutex<Vec<PlainFree>>,
    /// The last of them, complete or not.
    pub last_plain_free: Mutex<Option<PlainFree>>,
    /// Held from the record of a tag's event until the core has the tag: if two blocks of one stream
    /// coalesce, the core keeps the event of the later free, which must be the later record.
    pub order: Mutex<()>,
    /// What no work uses any more if the program is right (`free_assumed`).
    pub assumed: Mutex<Vec<Assumed>>,
    /// An event behind all work before a mark, recorded for the tags that have none.
    pub parked_behind: Mutex<Option<(TagEpoch, EventRef)>>,
}

impl StreamFrees {
    /// The last free that natively would have waited; what kernels had printed by then comes before it.
    pub(crate) fn last_plain_free(&self) -> Option<PlainFree> {
        lock(&self.last_plain_free).clone()
    }

    /// This thread has ended.
    pub(crate) fn thread_ended(&self, number: usize) {
        let (mut frees, mut last) = (lock(&self.plain_frees), lock(&self.last_plain_free));
        let of_it = frees.iter_mut().chain(&mut *last).filter(|free| free.thread == number);
        of_it.for_each(|free| free.thread = 0);
    }
}

/// A free that natively would have waited.
#[derive(Clone)]
pub(crate) struct PlainFree {
    pub event: EventRef,
    /// When its tag was made.
    pub made: Range<TagEpoch>,
    /// The number of its thread; 0: which has ended.
    pub thread: usize,
}

/// A wait that natively does not exist.
pub(crate) struct Assumed {
    pub waiting: Waiting,
    /// What the block had been handed out behind.
    pub behind: Option<(Behind, EventRef)>,
}
