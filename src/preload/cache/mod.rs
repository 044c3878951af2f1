//! Allocations and frees: from the cache, and from the driver if the cache has nothing. Here: what every
//! context keeps for them besides its thread caches and its core.

pub(crate) mod all_work;
pub(crate) mod alloc;
pub(crate) mod arenas;
pub(crate) mod blocks;
pub(crate) mod chunks;
pub(crate) mod fill;
pub(crate) mod free;
mod free_on_stream;
pub(crate) mod inflight_releases;
pub(crate) mod miss;
pub(crate) mod pinned_blocks;
pub(crate) mod pinned_memory;
pub(crate) mod pitches;
pub(crate) mod pool_attributes;
pub(crate) mod pools;
mod publish;
pub(crate) mod red_zones;
pub(crate) mod retry;
pub(crate) mod sticky_error;
pub(crate) mod stream_frees;
pub(crate) mod streams;
pub(crate) mod thread_cache;
pub(crate) mod under_way;

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use cachealloc_core::{Behind, TagEpoch, Waiting};

use crate::cache::inflight_releases::InFlightRelease;
use crate::contexts::events::EventRef;
use crate::driver::sys::StreamHandle;
use crate::lock::lock;

/// The events behind the tags of one context.
#[derive(Default)]
pub(crate) struct StreamFrees {
    /// Whether any free block may have a tag; a barrier asks the core only then.
    any: AtomicBool,
    /// Some tag has no event: it waits for a barrier.
    parked: AtomicBool,
    events: Mutex<stream_frees::Lines>,
    /// How many submissions there were before the last record of an event that other frees may share.
    last_record: AtomicU64,
    /// Above this number of events, a free drops those that no tag refers to.
    tidy_above: AtomicUsize,
    /// Those of blocks whose free would natively have waited (mode `relaxed`).
    plain_frees: Mutex<Vec<PlainFree>>,
    /// The last of them, complete or not.
    last_plain_free: Mutex<Option<PlainFree>>,
    /// Held from the record of a tag's event until the core has the tag: if two blocks of one stream
    /// coalesce, the core keeps the event of the later free, which must be the later record.
    order: Mutex<()>,
    /// What no work uses any more if the program is right (`free_assumed`).
    assumed: Mutex<Vec<Assumed>>,
    /// An event behind all work before a mark, recorded for the tags that have none.
    parked_behind: Mutex<Option<(TagEpoch, EventRef)>>,
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
    made: Range<TagEpoch>,
    /// The number of its thread; 0: which has ended.
    pub thread: usize,
}

/// A wait that natively does not exist.
struct Assumed {
    waiting: Waiting,
    /// What the block had been handed out behind.
    behind: Option<(Behind, EventRef)>,
}

/// The arenas of one context.
#[derive(Default)]
pub(crate) struct Arenas(Mutex<Mapped>);

#[derive(Default)]
struct Mapped {
    asked: bool,
    /// Where they begin, and how long they are.
    ranges: Vec<(u64, u64)>,
    /// The physical memory of each mapping, by address.
    handles: BTreeMap<u64, Physical>,
    /// Unmapped for the request in progress, which needs it elsewhere.
    spare: Vec<Physical>,
    /// Marks it as on its way, for all other requests.
    spare_departures: Vec<InFlightRelease>,
    /// Devices besides the context's own that may reach the memory.
    peers: Vec<i32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Physical {
    device: i32,
    handle: u64,
    bytes: u64,
}

/// Red zones copied at a free and not checked yet (`red_zones.rs`).
#[derive(Default)]
pub(crate) struct Zones {
    /// Each is complete with its event.
    copies: Mutex<Vec<(red_zones::Copied, EventRef)>>,
    /// Free host memory for more copies.
    places: Mutex<Vec<usize>>,
    /// 0 before its first use.
    stream: Mutex<StreamHandle>,
}

/// The stream on which blocks and red zones are written and read; 0 before its first use.
#[derive(Default)]
pub(crate) struct FillStream(Mutex<StreamHandle>);
