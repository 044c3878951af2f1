//! Checks at a free whether the program wrote past the end of the block (`red_zone`).
//!
//! If the free waits, all work with the block has completed by then. A free in stream order waits
//! for nothing, and the block may be handed out again before the stream gets there. So the zone is
//! copied to the host in the same order, and checked when the copy is complete.

use std::sync::Mutex;

use crate::driver::sys::StreamHandle;
use crate::state::events::EventRef;
use cachealloc_history::StackId;

/// A block that the program freed.
#[derive(Clone, Copy)]
pub(crate) struct FreedZone {
    pub address: u64,
    pub bytes: u64,
    /// Stack of its allocation, if known.
    pub stack: StackId,
}

/// The zone of a block that is being copied to a place in host memory.
pub(crate) struct Copied {
    pub freed: FreedZone,
    pub place: usize,
}

/// Red zones copied at a free and not checked yet (`red_zones.rs`).
#[derive(Default)]
pub(crate) struct Zones {
    /// Each is complete with its event.
    pub copies: Mutex<Vec<(Copied, EventRef)>>,
    /// Free host memory for more copies.
    pub places: Mutex<Vec<usize>>,
    /// 0 before the first use.
    pub stream: Mutex<StreamHandle>,
}

/// The streams on which blocks and red zones are written and read; 0 before their first use. They
/// are two because the copy of a zone to the host may wait during the call.
#[derive(Default)]
pub(crate) struct OwnStreams {
    pub writes: Mutex<StreamHandle>,
    pub reads: Mutex<StreamHandle>,
}
