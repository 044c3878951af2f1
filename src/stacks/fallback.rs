//! Captures stacks with libgcc's unwinder: complete, but ten to thirty times slower.

use core::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::place::Shown;
use crate::{Captured, modules};

/// Number of captures that came here.
pub(crate) static COUNT: AtomicU64 = AtomicU64::new(0);

/// Captures the addresses from the caller's frame on. `caller` is the return address of the
/// capturing function. Returns `None` if libgcc does not reach that frame.
#[cold]
pub(crate) fn capture_from<S: Shown>(
    out: &mut [S],
    hide: &Range<u64>,
    caller: u64,
) -> Option<Captured> {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let mut found = false;
    // Modules that only this unwinder sees must be known too.
    let epoch = modules::observe_now();
    let (count, truncated) = collect(out, hide, |address| {
        found |= address == caller;
        found
    });
    found.then_some(Captured { count, truncated, epoch })
}

/// Collects addresses from the first frame for which `started` holds.
fn collect<S: Shown>(
    out: &mut [S],
    hide: &Range<u64>,
    mut started: impl FnMut(u64) -> bool,
) -> (usize, bool) {
    let (mut count, mut truncated, mut leading) = (0, false, true);
    each_frame(|frame| {
        let address = frame.ip() as u64;
        if address == 0 || !started(address) {
            return true;
        }
        leading &= hide.contains(&address);
        if leading {
            return true;
        }
        let Some(slot) = out.get_mut(count) else {
            truncated = true;
            return false;
        };
        *slot = S::of(address, frame.sp() as u64);
        count += 1;
        true
    });
    (count, truncated)
}

pub(crate) fn each_address(mut body: impl FnMut(u64) -> bool) {
    each_frame(|frame| frame.ip().is_null() || body(frame.ip() as u64));
}

fn each_frame(body: impl FnMut(&backtrace::Frame) -> bool) {
    // SAFETY: libgcc's unwinder needs no outer lock; only Windows and symbolization do.
    unsafe { backtrace::trace_unsynchronized(body) }
}
