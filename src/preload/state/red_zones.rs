//! Red zones of one context that are copied but not checked yet, and the stream of such copies.

use std::sync::Mutex;

use crate::driver::sys::StreamHandle;
use crate::state::events::EventRef;
use cachealloc_history::StackId;

/// A block that the program freed.
#[derive(Clone, Copy)]
pub(crate) struct FreedZone {
    pub address: u64,
    pub bytes: u64,
    /// Where it was allocated, if known.
    pub stack: StackId,
}

/// The zone of a block, on its way to a place in host memory.
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
    /// 0 before its first use.
    pub stream: Mutex<StreamHandle>,
}

/// The stream on which blocks and red zones are written and read; 0 before its first use.
#[derive(Default)]
pub(crate) struct FillStream(pub Mutex<StreamHandle>);
