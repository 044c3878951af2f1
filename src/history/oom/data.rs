//! What is known when a call has failed for lack of memory.

use crate::entry::StackId;
use crate::oom::kind::{OomKind, OomPlace};
use crate::sites::Site;

#[derive(Clone, PartialEq, Debug)]
pub struct OomReport {
    /// Ordinal of the device.
    pub device: u32,
    pub request: OomRequest,
    /// Limit that the user set, if any.
    pub limit: Option<OomLimit>,
    /// Free bytes and total bytes of the device as the driver reports them, or `None` if the query
    /// failed.
    pub driver_free_bytes: Option<u64>,
    pub driver_total_bytes: Option<u64>,
    /// Bytes that the host can still provide, as its kernel reports them. Queried for requests of
    /// host memory only.
    pub host_free_bytes: Option<u64>,
    /// Memory of the process on the device by kind, the largest first.
    pub parts: Vec<OomPart>,
    /// Bytes in use on the device that belong to no part.
    pub rest_bytes: Option<u64>,
    pub cache: OomCache,
    /// Free bytes in the driver's pools, and bytes reserved for memory nodes of graphs.
    pub pools_free_bytes: u64,
    pub graphs_bytes: u64,
    /// Call sites, the largest first, as [`sites`](crate::sites()) returns them. Empty if nothing
    /// is recorded.
    pub sites: Vec<Site>,
}

/// The call that failed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OomRequest {
    /// The driver function.
    pub function: &'static str,
    pub kind: OomKind,
    /// Requested bytes, or `None` if the call does not name a size.
    pub bytes: Option<u64>,
    pub stack: StackId,
}

/// Memory of one kind.
#[derive(Clone, PartialEq, Debug)]
pub struct OomPart {
    pub title: &'static str,
    pub bytes: u64,
    /// Number of allocations; 0 if unknown.
    pub count: u64,
}

/// Memory of the device that the cache has and the program does not hold.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct OomCache {
    pub free_bytes: u64,
    pub free_block_bytes_max: u64,
    /// Bytes that were freed but that a stream may still use.
    pub waiting_bytes: u64,
    /// Free bytes that are kept for graphs.
    pub private_free_bytes: u64,
    pub is_expandable: bool,
}

/// How much memory of the device the process may hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OomLimit {
    pub bytes: u64,
    /// Bytes that all libraries of the process hold together.
    pub held_bytes: u64,
    /// Option that set the limit.
    pub option: &'static str,
}

impl OomLimit {
    /// Returns whether the limit made the request fail.
    pub(crate) fn forbids(&self, request: &OomRequest) -> bool {
        let counts = matches!(request.kind.place(), OomPlace::Device);
        let asked_bytes = request.bytes.filter(|_| counts);
        asked_bytes.is_some_and(|asked| self.held_bytes.saturating_add(asked) > self.bytes)
    }
}
