//! The reserve for when the system has no memory: a few megabytes, each byte given out at most
//! once.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::heap::head::*;

struct Reserve(UnsafeCell<[u8; RESERVE_BYTES]>);
// SAFETY: each byte is given out once.
unsafe impl Sync for Reserve {}
/// The reserve, which takes only addresses until it is used.
static RESERVE: Reserve = Reserve(UnsafeCell::new([0; RESERVE_BYTES]));
static RESERVE_USED: AtomicUsize = AtomicUsize::new(0);
static IS_SHORT: AtomicBool = AtomicBool::new(false);

/// Whether the system has ever refused memory to the library. Everything that is not essential is
/// skipped from then on, because the reserve is small.
pub(crate) fn is_short() -> bool {
    IS_SHORT.load(Ordering::Relaxed)
}

pub(super) fn reserve_alloc(layout: Layout) -> *mut u8 {
    IS_SHORT.store(true, Ordering::Relaxed);
    let note = NOTE_SHORT.load(Ordering::Acquire);
    if !note.is_null() {
        // SAFETY: `when_short` stored a function of this signature.
        unsafe { core::mem::transmute::<*mut (), fn()>(note)() };
    }
    reserve_take(layout).unwrap_or(null_mut())
}

pub(super) fn reserve_take(layout: Layout) -> Option<*mut u8> {
    let bytes = with_head(layout)?.size().checked_add(offset(layout))?;
    let take = |used: usize| used.checked_add(bytes).filter(|used| *used <= RESERVE_BYTES);
    let used = RESERVE_USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
    let base = RESERVE.0.get().cast::<u8>().wrapping_add(used);
    let base = base.wrapping_add(base.align_offset(offset(layout)));
    Some(place(base, layout, OF_RESERVE, 0))
}
