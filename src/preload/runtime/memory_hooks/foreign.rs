//! Memory that the driver served itself while a memory hook listened: so that its free is told with
//! the numbers of its allocation. What was made before, or by calls that hooks do not hear of, is not
//! here, and its free is not told either.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::driver::sys::{CuResult, SUCCESS};
use crate::runtime::{extents, lock};

static LIVE: Mutex<BTreeMap<u64, Foreign>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy)]
pub struct Foreign {
    pub bytes: u64,
    pub pmem_id: u64,
    pub device: i32,
}

/// The driver gave this; answers what tells it from all others.
pub fn note(address: u64, bytes: u64, device: i32) -> u64 {
    let pmem_id = extents::fresh_buffer_id();
    lock(&LIVE).insert(address, Foreign { bytes, pmem_id, device });
    pmem_id
}

pub fn look_up(address: u64) -> Option<Foreign> {
    lock(&LIVE).get(&address).copied()
}

/// Runs the driver's free of an address, which its next owner may have before we know that it is free.
pub fn while_freed(address: u64, free: impl FnOnce() -> CuResult) -> CuResult {
    let freed = lock(&LIVE).remove(&address);
    let code = free();
    if let Some(kept) = freed.filter(|_| code != SUCCESS) {
        lock(&LIVE).insert(address, kept);
    }
    code
}
