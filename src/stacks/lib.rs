//! Native stacks: addresses cheaply now, names later.
//!
//! Taking a stack ([`capture`]) costs a few nanoseconds a frame, so that every allocation can have
//! one. The addresses mean something only together with the modules (main program and libraries)
//! that were loaded at the time, so each capture also names its *epoch*: a number that grows when a
//! library has been unloaded. Within one epoch an address belongs to one module for good.
//! [`module_at`] and [`symbolise`] translate (address, epoch), also long after the unload.
//!
//! What the caller gets:
//! - the same addresses as from libgcc's unwinder (C++ exceptions, `backtrace()`), or a prefix;
//! - no read outside mapped memory by our own walk, whatever the stack looks like: each address is
//!   checked against the thread's stack, or read by the kernel for us. A stack with a frame that the
//!   rules here cannot express is taken by libgcc, which trusts the unwind tables;
//! - no lock taken, no heap touched and no shared word written where all frames were seen before.
//!   A frame seen for the first time costs the loader's list lock for a microsecond, and a thread's
//!   first capture asks libc for the bounds of its stack (libc allocates and frees a CPU set there).
//!
//! What the caller must do: call [`note_unload`] after each `dlclose`. An unreported unload
//! is noticed at the next frame that was never seen before.
//!
//! What differs between processors is in `x86_64` and `aarch64`: registers, rules and signal frames.
#![warn(unreachable_pub)]

mod arena;
mod cfi;
mod fallback;
mod fork;
mod identity;
mod loader;
mod memory;
mod modules;
mod place;
mod row;
mod rule_cache;
mod stack_bounds;
mod stop;
mod symbols;
mod walk;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64/mod.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
mod processor;

use core::ops::Range;

pub use cfi::function_range;
pub use modules::{
    ModuleInfo, ModuleLife, module_at, module_lives, module_names, modules_version, note_unload,
    object_range,
};
pub use place::Place;
pub use symbols::{Symbol, symbolise};

/// What [`capture`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Addresses written.
    pub count: usize,
    /// There were more frames than room.
    pub truncated: bool,
    /// When this was, for [`module_at`] and [`symbolise`].
    pub epoch: u32,
}

/// Return addresses of the calling thread, innermost first: the first one lies in the caller.
///
/// `hide`: leading frames whose address lies in this range (our own library) are left out.
#[inline(always)]
pub fn capture(out: &mut [u64], hide: Range<u64>) -> Captured {
    walk::capture(out, hide)
}

/// Does what visits the loader's list; not while the process forks, whose child could not visit it again.
pub fn unless_forking<T>(body: impl FnOnce() -> T) -> Option<T> {
    fork::Visit::begin().map(|_visit| body())
}

/// As [`capture`], with the place of each frame.
pub fn capture_places(out: &mut [Place], hide: Range<u64>) -> Captured {
    walk::capture(out, hide)
}

/// Takes a stack with libgcc's unwinder: the oracle of the tests and the yardstick of the bench.
#[doc(hidden)]
pub fn capture_by_libgcc(out: &mut [u64]) -> usize {
    let mut count = 0;
    fallback::each_address(|address| {
        if let Some(slot) = out.get_mut(count) {
            *slot = address;
            count += 1;
        }
        count < out.len()
    });
    count
}

/// How many captures had to be left to libgcc, since the start.
#[doc(hidden)]
pub fn fallbacks() -> u64 {
    fallback::COUNT.load(core::sync::atomic::Ordering::Relaxed)
}
