//! Seats: a small number for each thread that keeps something of its own in tables of all threads. No other thread has it
//! while this one lives, and the next one gets it then: tables are as long as threads live at once.

use std::sync::atomic::{AtomicU64, Ordering};

/// So many seats there are. Threads beyond share the one of those that have none.
pub(crate) const SEATS_COUNT: usize = 1024;
/// The seat of all threads that have none of their own: that have not asked, have ended, or came too late.
pub(crate) const SHARED: u32 = 0;

/// A bit for each that is taken.
static TAKEN: [AtomicU64; SEATS_COUNT / 64] = {
    let mut taken = [const { AtomicU64::new(0) }; SEATS_COUNT / 64];
    taken[0] = AtomicU64::new(1 << SHARED);
    taken
};

/// The lowest seat that is free, for the calling thread; or the shared one. Allocates nothing and waits for nothing.
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

/// The seat is free again, if it is one.
pub(crate) fn give_back(seat: u32) {
    if seat != SHARED {
        TAKEN[(seat / u64::BITS) as usize].fetch_and(!(1 << (seat % u64::BITS)), Ordering::Release);
    }
}
