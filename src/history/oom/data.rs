//! What is known when a call has failed for lack of memory.

use crate::entry::StackId;
use crate::oom::kind::{OomKind, OomPlace};
use crate::sites::Site;

#[derive(Clone, PartialEq, Debug)]
pub struct OomReport {
    /// The ordinal.
    pub device: u32,
    pub request: OomRequest,
    /// The limit that the user set, if any.
    pub limit: Option<OomLimit>,
    /// Free on the device, and all of it, as the driver says; None if it could not be asked.
    pub driver_free_bytes: Option<u64>,
    pub driver_total_bytes: Option<u64>,
    /// What the host can still give out, as its kernel says; asked for requests of its memory.
    pub host_free_bytes: Option<u64>,
    /// What the process holds on the device, by what it is: the largest first.
    pub parts: Vec<OomPart>,
    /// In use on the device, and in no part.
    pub rest_bytes: Option<u64>,
    pub cache: OomCache,
    /// Free in the driver's pools, and reserved for memory nodes of graphs.
    pub pools_free_bytes: u64,
    pub graphs_bytes: u64,
    /// The largest first, as [`sites`](crate::sites()) returns them. Empty: nothing is recorded.
    pub sites: Vec<Site>,
}

/// The call that failed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OomRequest {
    /// The driver function.
    pub function: &'static str,
    pub kind: OomKind,
    /// None: the call does not say.
    pub bytes: Option<u64>,
    pub stack: StackId,
}

/// Memory of one kind.
#[derive(Clone, PartialEq, Debug)]
pub struct OomPart {
    pub title: &'static str,
    pub bytes: u64,
    /// How many allocations; 0: not known.
    pub count: u64,
}

/// What the cache has of the device, and the program does not hold.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct OomCache {
    pub free_bytes: u64,
    pub free_block_bytes_max: u64,
    /// Freed, and a stream may still use it.
    pub waiting_bytes: u64,
    /// Free, and kept for graphs.
    pub private_free_bytes: u64,
    pub is_expandable: bool,
}

/// What the process may hold of the device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OomLimit {
    pub bytes: u64,
    /// By all libraries of the process together.
    pub held_bytes: u64,
    /// The option that set it.
    pub option: &'static str,
}

impl OomLimit {
    /// Whether the limit is what the request failed on.
    pub(crate) fn forbids(&self, request: &OomRequest) -> bool {
        let counts = matches!(request.kind.place(), OomPlace::Device);
        let asked_bytes = request.bytes.filter(|_| counts);
        asked_bytes.is_some_and(|asked| self.held_bytes.saturating_add(asked) > self.bytes)
    }
}
