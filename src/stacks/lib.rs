//! Native stacks: cheap capture of addresses, and names later.
//!
//! Capturing a stack ([`capture`]) costs a few nanoseconds per frame, so that every allocation can
//! have one. The addresses have a meaning only together with the modules (main program and
//! libraries) that were loaded at the time. So each capture also returns its *epoch*: a number that
//! grows when a library has been unloaded. Within one epoch an address belongs to at most one
//! module. [`module_at`] and [`symbolise`] translate (address, epoch), also long after the unload.
//!
//! Guarantees for the caller:
//! - The addresses are those of libgcc's unwinder (C++ exceptions, `backtrace()`), or a prefix of
//!   them.
//! - The walk reads no unmapped memory, whatever the stack looks like: each address is checked
//!   against the
//!   thread's stack, or the kernel reads it. A stack with a frame that the rules here cannot express
//!   is left to libgcc, which trusts the unwind tables.
//! - If all frames were seen before, a capture takes no lock, allocates nothing and writes no
//!   shared word. A
//!   frame seen for the first time costs the loader's list lock for a microsecond. A thread's first
//!   capture asks libc for the bounds of its stack (libc allocates and frees a CPU set there).
//!
//! A thread that captures again and again keeps its last walk ([`LastWalk`]): the steps between
//! frames that it has met before are checked rather than looked up.
//!
//! The caller must call [`note_unload`] after each `dlclose`. An unreported unload is noticed at
//! the next frame that was never seen before.
//!
//! The modules `x86_64` and `aarch64` contain what differs between processors: registers, rules and
//! signal frames.
#![warn(unreachable_pub)]

mod arena;
mod cfi;
mod fallback;
mod fork;
mod identity;
mod last_walk;
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
pub use last_walk::LastWalk;
pub use modules::{
    ModuleInfo, ModuleLife, module_at, module_lives, module_names, modules_version, note_unload,
    object_range,
};
pub use place::Place;
pub use symbols::{Symbol, symbolise};

/// Result of [`capture`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Number of addresses written.
    pub count: usize,
    /// Whether there were more frames than fit into the buffer.
    pub truncated: bool,
    /// Epoch of the capture, for [`module_at`] and [`symbolise`].
    pub epoch: u32,
}

/// Captures the return addresses of the calling thread, innermost first: the first one lies in the
/// caller.
///
/// Leading frames whose address lies in the range `hide` (the library itself) are omitted.
#[inline(always)]
pub fn capture(out: &mut [u64], hide: Range<u64>) -> Captured {
    walk::capture(out, hide, None)
}

/// Like [`capture`], but faster if the last walk of the calling thread had the same outer frames.
#[inline(always)]
pub fn capture_again(out: &mut [u64], hide: Range<u64>, last: Option<&mut LastWalk>) -> Captured {
    walk::capture(out, hide, last)
}

/// Runs `body`, which visits the loader's list, unless the process is forking: a forked child could
/// then never visit the list again. Returns `None` while the process forks.
pub fn unless_forking<T>(body: impl FnOnce() -> T) -> Option<T> {
    fork::Visit::begin().map(|_visit| body())
}

/// Like [`capture`], with the place of each frame.
pub fn capture_places(out: &mut [Place], hide: Range<u64>) -> Captured {
    walk::capture(out, hide, None)
}

/// Takes a stack with libgcc's unwinder: the oracle of the tests and the baseline of the bench.
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

/// Number of captures left to libgcc since the start.
#[doc(hidden)]
pub fn fallbacks() -> u64 {
    fallback::COUNT.load(core::sync::atomic::Ordering::Relaxed)
}
