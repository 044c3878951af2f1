//! Files of the library under Miri, which simulates the reorderings of weak memory
//! (`scripts/test-weak.sh`): the files themselves, with `stand_ins` for the code that they use.
//! Without Miri, a run covers only the orders that occur on this machine.
//!
//! The module names are those of the library, so that the files find each other.

mod stand_ins;

#[path = "../../src/preload/process/bounds.rs"]
#[allow(dead_code)]
mod bounds;
#[path = "../../src/preload/gate.rs"]
#[allow(dead_code)]
mod gate;
#[path = "../../src/preload/handle_table.rs"]
#[allow(dead_code)]
mod handle_table;
#[path = "../../src/preload/lists/mod.rs"]
#[allow(dead_code)]
mod lists;
#[path = "../../src/preload/lock.rs"]
#[allow(dead_code)]
mod lock;
#[path = "../../src/preload/pagemap/mod.rs"]
#[allow(dead_code, unused_imports)]
mod pagemap;
#[path = "../../src/preload/process/seats.rs"]
#[allow(dead_code)]
mod seats;

#[path = "../../src/preload/state"]
mod state {
    #[allow(dead_code)]
    pub(crate) mod events;
    #[allow(dead_code)]
    pub(crate) mod inflight_releases;
    #[allow(dead_code)]
    pub(crate) mod registry;
    #[allow(dead_code)]
    pub(crate) mod slot;
    #[allow(dead_code, unused_imports)]
    pub(crate) mod thread_cache;
    #[allow(dead_code)]
    pub(crate) mod under_way;

    pub(crate) use crate::stand_ins::{contexts, thread};
}

#[path = "../../src/preload/ordering"]
mod ordering {
    #[allow(dead_code)]
    pub(crate) mod pinned;
}

#[path = "../../src/preload/driver"]
mod driver {
    #[allow(dead_code)]
    pub(crate) mod table;

    pub(crate) use crate::stand_ins::driver::{api, libraries, sys};
}

// The functions of `libc` that Miri lacks.
extern crate self as libc;
use stand_ins::libc_of_miri::*;
use stand_ins::{
    c_library, clock, config, functions, heap, identity, process, statistics, test_delay,
};

mod tests {
    mod addresses;
    mod contexts;
    mod departing;
    mod driver;
    mod events;
    mod leaving;
    mod lists;
    mod pinned;
}

/// Number of rounds of each test: under Miri more than one for each seed, because the start takes
/// longest there.
const ROUNDS: u64 = if cfg!(miri) { 3 } else { 100 };

/// Polls, and lets other threads run meanwhile: a single check would come too early or too late.
fn look_until(mut found: impl FnMut() -> bool) {
    const LOOKS_MAX: u32 = 30;
    for _ in 0..LOOKS_MAX {
        if found() {
            return;
        }
        std::thread::yield_now();
    }
}

/// Contents of memory in the tests. It is accessed without any ordering, so that Miri reports two
/// threads that do so at once, or one that does not see the other's write.
#[derive(Default)]
struct Bare(core::cell::UnsafeCell<u64>);

// SAFETY: one thread at a time uses it, if the tested code is right. Otherwise Miri reports it.
unsafe impl Sync for Bare {}

impl Bare {
    fn write(&self, value: u64) {
        // SAFETY: as above; no reference to it exists.
        unsafe { self.0.get().write(value) };
    }

    fn read(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.get().read() }
    }
}
