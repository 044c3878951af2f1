//! Allocations and frees: from the cache, and from the driver if the cache has nothing. This file
//! has what every context keeps for them besides its thread caches and its core.

pub(crate) mod lines;

use core::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use cachealloc_core::{Behind, TagEpoch, Waiting};

use crate::lock::lock;
use crate::state::events::EventRef;

pub(crate) use lines::{Lines, Place};

/// Events that the reuse conditions (tags) of one context wait for.
#[derive(Default)]
pub(crate) struct StreamFrees {
    /// Whether any free block may have a tag; a barrier asks the core only then.
    pub any: AtomicBool,
    /// Whether some tag has no event, and so waits for a barrier.
    pub parked: AtomicBool,
    pub events: Mutex<Lines>,
    /// Number of submissions before the last record of an event that other frees may share.
    pub last_record: AtomicU64,
    /// Number of events above which a free drops those that no tag refers to.
    pub tidy_above: AtomicUsize,
    /// Events of blocks whose free would have waited without the library (mode `relaxed`).
    pub plain_frees: Mutex<Vec<PlainFree>>,
    /// Number of these frees so far.
    pub plain_frees_count: AtomicU64,
    /// The last of these frees, complete or not.
    pub last_plain_free: Mutex<Option<PlainFree>>,
    /// Held from the record of a tag's event until the core has the tag. If two blocks of one
    /// stream coalesce, the core keeps the event of the later free, which must be the later record.
    pub order: Mutex<()>,
    /// Memory that no work uses any more if the program is correct (`free_assumed`).
    pub assumed: Mutex<Vec<Assumed>>,
    /// An event recorded after all work before an epoch, for the tags that have none.
    pub parked_behind: Mutex<Option<(TagEpoch, EventRef)>>,
}

impl StreamFrees {
    /// Returns the last free that would have waited without the library. It is ordered after the
    /// output that kernels had printed by then.
    pub(crate) fn last_plain_free(&self) -> Option<PlainFree> {
        lock(&self.last_plain_free).clone()
    }

    /// Forgets the number of a thread that has ended.
    pub(crate) fn thread_ended(&self, number: usize) {
        let (mut frees, mut last) = (lock(&self.plain_frees), lock(&self.last_plain_free));
        let of_it = frees.iter_mut().chain(&mut *last).filter(|free| free.thread == number);
        of_it.for_each(|free| free.thread = 0);
    }
}

/// A free that would have waited without the library.
#[derive(Clone)]
pub(crate) struct PlainFree {
    pub event: EventRef,
    /// Epochs between which its tag was made.
    pub made: Range<TagEpoch>,
    /// Number of its thread; 0 if that thread has ended.
    pub thread: usize,
}

/// A wait that the driver's own free would not make.
pub(crate) struct Assumed {
    pub waiting: Waiting,
    /// Event that the block's user had to wait for when it was handed out.
    pub behind: Option<(Behind, EventRef)>,
}
