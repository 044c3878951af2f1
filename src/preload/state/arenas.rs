//! Allocations and frees: from the cache, and from the driver if the cache has nothing. This file
//! has what every context keeps for them besides its thread caches and its core.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::state::inflight_releases::InFlightRelease;

/// The arenas of one context.
#[derive(Default)]
pub(crate) struct Arenas(pub Mutex<Mapped>);

#[derive(Default)]
pub(crate) struct Mapped {
    pub asked: bool,
    /// Base and length of each.
    pub ranges: Vec<(u64, u64)>,
    /// The physical memory of each mapping, by address.
    pub handles: BTreeMap<u64, Physical>,
    /// Memory unmapped for the request in progress, which needs it elsewhere.
    pub spare: Vec<Physical>,
    /// Marks the spare memory as in flight, for all other requests.
    pub spare_departures: Vec<InFlightRelease>,
    /// Devices other than the context's that may access the memory.
    pub peers: Vec<i32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Physical {
    pub device: i32,
    pub handle: u64,
    pub bytes: u64,
}
