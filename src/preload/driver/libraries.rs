//! Which libraries lie behind us: the driver's own, the one with its functions where `libcuda.so.1` only leads to another
//! file (WSL 2, remote GPUs), and those in front of the driver (shares of a GPU). What they look up is for themselves: with
//! our functions in their hands a call would go in a circle.
//!
//! And where another copy of this library is: it is as if it were not there.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::c_library::{dlsym, objects};

const LIBRARIES_MAX: usize = 16;

/// First address, and the one behind the last; an empty span is none.
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
/// Whether a copy was looked for.
static COPY_IS_KNOWN: AtomicUsize = AtomicUsize::new(0);

/// The library of this address lies behind us.
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

/// Whether the address is of a library behind us.
pub(crate) fn contain(address: *const c_void) -> bool {
    let count = BEHIND_COUNT.load(Ordering::Relaxed).min(LIBRARIES_MAX);
    BEHIND[..count].iter().any(|span| span.has(address as usize))
}

/// Whether the address is of a copy of this library behind us.
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

/// Whether a copy of this library stands in front of this one.
pub(crate) fn is_behind_a_copy() -> bool {
    let first = dlsym::first(MARKER.as_ptr());
    !first.is_null() && !is_ours(first)
}

/// Whether the address is of this library.
pub(crate) fn is_ours(address: *const c_void) -> bool {
    if OURS.end.load(Ordering::Acquire) == 0
        && let Some(span) = objects::span_of_object(is_ours as *const c_void)
    {
        OURS.set(span);
    }
    OURS.has(address as usize)
}

/// What every version of this library exports and no other does.
const MARKER: &core::ffi::CStr = c"cachealloc_version";
