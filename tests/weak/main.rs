//! Files of the library under Miri, which reorders what a processor may reorder (`scripts/test-weak.sh`): the files
//! themselves, beside `stand_ins` of what they use. On the machine itself this is one try.
//!
//! The names here are those of the library, so that a file finds the others where it looks for them.

mod stand_ins;

#[path = "../../src/preload/process/bounds.rs"]
#[allow(dead_code)]
mod bounds;
#[path = "../../src/preload/handle_table.rs"]
#[allow(dead_code)]
mod handle_table;
#[path = "../../src/preload/intrusive_stack.rs"]
mod intrusive_stack;
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

// What Miri lacks of it.
extern crate self as libc;
use stand_ins::libc_of_miri::*;
use stand_ins::{c_library, clock, config, functions, heap, process, statistics, test_delay};

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

/// So often each test is made: under Miri more than one for each seed, since to begin takes longest there.
const ROUNDS: u64 = if cfg!(miri) { 3 } else { 100 };

/// Looks again and again, and lets others run meanwhile: who looks once looks too early or too late.
fn look_until(mut found: impl FnMut() -> bool) {
    const LOOKS_MAX: u32 = 30;
    for _ in 0..LOOKS_MAX {
        if found() {
            return;
        }
        std::thread::yield_now();
    }
}

/// What the tests say memory holds: written and read without any order, so that Miri reports two threads that do it
/// at once, or one that does not see what the other wrote.
#[derive(Default)]
struct Bare(core::cell::UnsafeCell<u64>);

// SAFETY: one thread at a time uses it, if what is tested is right. Else Miri says so.
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
