//! Pinned host memory that the program has freed, kept for its next request.
//!
//! The driver's own free waits for all work of the device, and programs depend on that wait
//! (docs/ordering.md 4). So the library waits too. No work uses kept memory any more, so it needs
//! no event. The program saves the driver's time to pin and to unpin pages (milliseconds).
//!
//! Each piece is one allocation of the driver. It serves only a request by the same function, of
//! the same size and flags, in the same context, so that each query about it gets the same answer.
//! It is filled with zeros, as new pages are.

use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::all_work;
use crate::cache::pinned_blocks;
use crate::cache::pinned_blocks::{Lent, Owner, Shape};
use crate::config;
use crate::contexts::lookup;
use crate::driver::api;
use crate::driver::sys::CuError;
use crate::driver_memory::ending;
use crate::driver_memory::table;
use crate::driver_memory::table::Key;
use crate::functions::Function;
use crate::ordering::{observers, real_frees};
use crate::process::bypass;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::thread;
use crate::state::thread::Thread;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::test_delay::test_delay;

/// Outcome of a free.
pub(crate) enum Freed {
    /// Memory of a request that could not be served from here: the driver frees it.
    Unknown,
    Refused(CuError),
    /// The library has waited as the driver's own free does; keep the memory.
    Waited(Shape),
    /// The driver frees it, and waits.
    ByDriver(Lent),
}

/// Returns the shape of a request in the current context, or `None` if the driver must serve it.
pub(crate) fn shape(function: &Function, bytes: usize, flags: u32) -> Option<Shape> {
    let may_keep = bytes != 0 && bytes as u64 <= config::host_cache_bytes();
    if !may_keep || !bypass::keeps_other_kinds() {
        return None;
    }
    let context_id = lookup::current().ok()?.id;
    Some(Shape { context_id, function: function.id, flags, bytes })
}

/// Returns memory for this request, in the state of new memory. Returns `None` if none is kept.
pub(crate) fn take(thread: &Thread, shape: Shape) -> Option<usize> {
    // The driver refuses the request in a host function.
    if thread.refused_inside_callback().is_some() {
        return None;
    }
    let address = pinned_blocks::take(shape)?;
    if rule_holds(Rule::PinnedIsZeroed) {
        // SAFETY: pinned memory of `shape.bytes` bytes, which only this thread knows.
        unsafe { core::ptr::write_bytes(address as *mut u8, 0, shape.bytes) };
    }
    counters::count(Count::PinnedFromCache);
    Some(address)
}

/// Begins the free of this memory: from here on it is in no table.
pub(crate) fn claim(thread: &Thread, address: usize) -> Freed {
    let lent = match pinned_blocks::owner(address) {
        Owner::Program(lent) => lent,
        Owner::Kept => return Freed::Refused(CuError::INVALID_VALUE),
        Owner::Unknown => return Freed::Unknown,
    };
    if let Some(error) = thread.refused_inside_callback() {
        return Freed::Refused(error);
    }
    if !pinned_blocks::forget(address) {
        return Freed::Refused(CuError::INVALID_VALUE);
    }
    if has_waited(thread, lent.shape) { Freed::Waited(lent.shape) } else { Freed::ByDriver(lent) }
}

/// Waits as the driver's own free does. Returns `false` if only that free can wait here, or if an
/// error occurred, which that free will return.
fn has_waited(thread: &Thread, shape: Shape) -> bool {
    let context = lookup::current().ok().filter(|context| context.id == shape.context_id);
    // Only then can nothing beyond this context have work with the memory, or know that its free
    // has returned.
    let alone = |context: &&Context| LEDGER.exclusive.is_exclusive(context.id);
    let Some(context) = context.filter(alone).filter(|_| bypass::keeps_other_kinds()) else {
        return false;
    };
    !rule_holds(Rule::PinnedFreeWaits) || all_work::wait(thread, context).is_ok()
}

/// Keeps memory after the wait, unless its context ends. In that case the memory is released with
/// the context, or already has been, and the driver may have given its address to another
/// allocation.
pub(crate) fn keep(address: usize, shape: Shape) {
    let holds = rule_holds(Rule::KeptWhileOpen);
    test_delay(Rule::KeptWhileOpen);
    let hold = match rule_holds(Rule::KeptBesideReferences) {
        true => Context::stay_open,
        false => Context::keep_open,
    };
    let open = contexts::find(shape.context_id).and_then(hold);
    if open.is_none() && holds {
        return;
    }
    table::kept(address as u64);
    let too_much = pinned_blocks::keep(address, shape, config::host_cache_bytes());
    drop(open);
    give_back(too_much);
}

/// Releases kept memory to the driver, unless its free would wait for work. Neither a request nor a
/// trim waits for work, which may wait for this thread (hazard 10). The driver's free waits for
/// every context that may have work. Returns the number of pieces.
pub(crate) fn empty(thread: &Thread) -> usize {
    let Ok(current) = lookup::current() else { return 0 };
    let is_over = |context| all_work::is_over(thread, context);
    let alone = LEDGER.exclusive.is_exclusive(current.id);
    let all_over = || {
        let seen = observers::contexts_seen().into_iter();
        seen.for_each(|seen| _ = lookup::of_handle(seen.handle));
        rule_holds(Rule::KeptIsReleasedInAnyContext) && contexts::all().all(is_over)
    };
    if !pinned_blocks::are_any_kept() {
        return 0;
    }
    let left = pinned_blocks::wait_for_leaving();
    if !(if alone { is_over(current) } else { all_over() }) {
        return left;
    }
    left + give_back(pinned_blocks::take_all(None))
}

/// Releases the kept memory of a context that is about to end: `surely`, or if this is the last
/// reference to it. Without the library the context would have none of this memory, so this does
/// not depend on what the driver does with pinned memory then. The driver's free waits for the work
/// of every context. A certain end waits for its own work, and a dropped reference for none.
pub(crate) fn context_ends(context: &'static Context, surely: bool) {
    let may_wait = surely || !rule_holds(Rule::ReferenceWaitsForNone);
    let is_over = || thread::with(|thread| all_work::is_over(thread, context));
    let alone = || LEDGER.exclusive.is_exclusive(context.id);
    if pinned_blocks::are_any_kept() && alone() && (may_wait || is_over()) {
        let kept = pinned_blocks::take_all(Some(context.id));
        let _ = context.enter(|| Ok(give_back(kept)));
    }
}

/// Frees the pieces, ignoring refusals of the driver: there is nothing left to try. Returns the
/// number of pieces.
fn give_back(pieces: Vec<(usize, Shape)>) -> usize {
    for (address, _) in &pieces {
        let ending = ending::ends(Key::Memory(*address as u64));
        let free = || real_frees::announced_everywhere(|| api::mem_free_host(*address));
        ending.finish(api::relaxed(free));
        test_delay(Rule::LeavingMayBeAnothers);
        pinned_blocks::has_left(*address);
    }
    pieces.len()
}
