//! Seats: a small number for each thread that keeps its data in tables of all threads. While the
//! thread lives, no other thread has its number. After that another thread gets it, so tables need
//! only one entry per thread alive at once.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of seats. Threads beyond it share the seat `SHARED`.
pub(crate) const SEATS_COUNT: usize = 1024;
/// The seat of all threads without their own: those that have not asked, have ended, or came too
/// late.
pub(crate) const SHARED: u32 = 0;

/// One bit for each seat, set if it is taken.
static TAKEN: [AtomicU64; SEATS_COUNT / 64] = {
    let mut taken = [const { AtomicU64::new(0) }; SEATS_COUNT / 64];
    taken[0] = AtomicU64::new(1 << SHARED);
    taken
};

/// Takes the lowest free seat for the calling thread, or the shared one. Neither allocates nor
/// waits.
pub(crate) fn take() -> u32 {
    for (index, word) in TAKEN.iter().enumerate() {
        let mut taken = word.load(Ordering::Relaxed);
        while taken != u64::MAX {
            let bit = taken.trailing_ones();
            let before = word.fetch_or(1 << bit, Ordering::Acquire);
            if before >> bit & 1 == 0 {
                return index as u32 * u64::BITS + bit;
            }
            taken = before;
        }
    }
    SHARED
}

/// Frees the seat, unless it is the shared one.
pub(crate) fn give_back(seat: u32) {
    if seat != SHARED {
        TAKEN[(seat / u64::BITS) as usize].fetch_and(!(1 << (seat % u64::BITS)), Ordering::Release);
    }
}
