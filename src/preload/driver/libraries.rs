//! The libraries underlying this one: the driver; the library with its functions, if `libcuda.so.1`
//! only leads to another file (WSL 2, remote GPUs); and libraries that wrap the driver (shares of a
//! GPU). Their lookups are for internal use: with this library's functions, a call would go in a
//! circle.
//!
//! Also finds another copy of this library, which is ignored.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::c_library::{dlsym, objects};

const LIBRARIES_MAX: usize = 16;

/// The first address, and the first one past the end; an empty span contains nothing.
struct Span {
    begin: AtomicUsize,
    end: AtomicUsize,
}

impl Span {
    const fn none() -> Span {
        Span { begin: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    fn set(&self, (begin, end): (usize, usize)) {
        self.begin.store(begin, Ordering::Relaxed);
        self.end.store(end, Ordering::Release);
    }

    fn has(&self, address: usize) -> bool {
        address < self.end.load(Ordering::Acquire) && self.begin.load(Ordering::Relaxed) <= address
    }
}

static BEHIND: [Span; LIBRARIES_MAX] = [const { Span::none() }; LIBRARIES_MAX];
static BEHIND_COUNT: AtomicUsize = AtomicUsize::new(0);
static OURS: Span = Span::none();
static COPY: Span = Span::none();
/// Whether a copy was searched for.
static COPY_IS_KNOWN: AtomicUsize = AtomicUsize::new(0);

/// Notes that the library of this address underlies this one.
pub(crate) fn note(address: *const c_void) {
    if contain(address) {
        return;
    }
    if let Some(span) = objects::span_of_object(address) {
        let index = BEHIND_COUNT.fetch_add(1, Ordering::Relaxed);
        if let Some(place) = BEHIND.get(index) {
            place.set(span);
        }
    }
}

/// Returns whether the address is in an underlying library.
pub(crate) fn contain(address: *const c_void) -> bool {
    let count = BEHIND_COUNT.load(Ordering::Relaxed).min(LIBRARIES_MAX);
    BEHIND[..count].iter().any(|span| span.has(address as usize))
}

/// Returns whether the address is in a copy of this library that follows it in the loader's order.
pub(crate) fn is_copy(address: *const c_void) -> bool {
    if COPY_IS_KNOWN.load(Ordering::Acquire) == 0 {
        let marker = dlsym::real(libc::RTLD_NEXT, MARKER.as_ptr());
        if let Some(span) = objects::span_of_object(marker).filter(|_| !marker.is_null()) {
            COPY.set(span);
        }
        COPY_IS_KNOWN.store(1, Ordering::Release);
    }
    COPY.has(address as usize)
}

/// Returns whether a copy of this library precedes this one.
pub(crate) fn is_behind_a_copy() -> bool {
    let first = dlsym::first(MARKER.as_ptr());
    !first.is_null() && !is_ours(first)
}

/// Returns whether the address is in this library.
pub(crate) fn is_ours(address: *const c_void) -> bool {
    if OURS.end.load(Ordering::Acquire) == 0
        && let Some(span) = objects::span_of_object(is_ours as *const c_void)
    {
        OURS.set(span);
    }
    OURS.has(address as usize)
}

/// A symbol that every version of this library exports and no other library does.
const MARKER: &core::ffi::CStr = c"cachealloc_version";
