//! Memory that the driver served directly while a memory hook was installed, so that its free is
//! reported with the numbers of its allocation. Memory allocated before, or by calls that are not
//! reported, is not here, and its free is not reported.
//!
//! An end counts whether or not a hook observes it: the address is reused.

use crate::books::Book;
use crate::driver::sys::CuResult;
use crate::pagemap;

static LIVE: Book<Served> = Book::new();

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    pub bytes: u64,
    pub pmem_id: u64,
    pub device: i32,
    /// The context with which it ends; 0: with none.
    pub context_id: u64,
}

/// The driver provided so many bytes. Returns an id that no other allocation has.
pub fn note(address: u64, bytes: u64, device: i32, context_id: u64) -> u64 {
    let pmem_id = pagemap::fresh_buffer_id();
    LIVE.enter(address as usize, Served { bytes, pmem_id, device, context_id });
    pmem_id
}

pub fn look_up(address: u64) -> Option<Served> {
    LIVE.read(|live| live.given.get(&(address as usize)).copied())
}

/// Runs the driver's free of this address.
pub fn end_by(address: u64, free: impl FnOnce() -> CuResult) -> CuResult {
    if LIVE.is_empty() { free() } else { LIVE.end_by(address as usize, free) }
}

/// The context is gone with what the driver served in it.
pub fn context_ended(context_id: u64) {
    if !LIVE.is_empty() {
        LIVE.with(|live| live.given.retain(|_, served| served.context_id != context_id));
    }
}
