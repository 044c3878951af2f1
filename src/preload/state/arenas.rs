//! The arenas of one context: what is reserved, and what is mapped there.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::state::inflight_releases::InFlightRelease;

/// The arenas of one context.
#[derive(Default)]
pub(crate) struct Arenas(pub Mutex<Mapped>);

#[derive(Default)]
pub(crate) struct Mapped {
    pub asked: bool,
    /// Where they begin, and how long they are.
    pub ranges: Vec<(u64, u64)>,
    /// The physical memory of each mapping, by address.
    pub handles: BTreeMap<u64, Physical>,
    /// Unmapped for the request in progress, which needs it elsewhere.
    pub spare: Vec<Physical>,
    /// Marks it as on its way, for all other requests.
    pub spare_departures: Vec<InFlightRelease>,
    /// Devices besides the context's own that may reach the memory.
    pub peers: Vec<i32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Physical {
    pub device: i32,
    pub handle: u64,
    pub bytes: u64,
}
