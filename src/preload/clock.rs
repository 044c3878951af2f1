//! Time as the kernel counts it. Another preloaded library may interpose the C library's clocks and
//! show the program a different time (libfaketime), which the library's waits must not follow. So
//! the library calls the C library's own function, found by its file, and the kernel until that is
//! found.

use core::ops::Add;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use crate::c_library::dlsym;

type Gettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;
static GETTIME: AtomicPtr<libc::c_void> = AtomicPtr::new(null_mut());

/// Finds the C library's own function, which reads the clock without a system call. Must be called
/// outside signal handlers, after the C library's constructor.
pub(crate) fn find() {
    let how = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: C strings; the handle is of a library that is never unloaded.
    unsafe {
        let library = libc::dlopen(c"libc.so.6".as_ptr(), how);
        if !library.is_null() {
            GETTIME.store(dlsym::real(library, c"clock_gettime".as_ptr()), Ordering::Relaxed);
            libc::dlclose(library);
        }
    }
}

/// Returns the monotonic time in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// Returns the offset that turns `now_ns` into nanoseconds since 1970.
pub(crate) fn epoch_offset_ns() -> u64 {
    read_ns(libc::CLOCK_REALTIME).wrapping_sub(now_ns())
}

/// Returns the nanoseconds of a clock, or 0 if no clock has this number. Safe in signal handlers.
pub(crate) fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let found = GETTIME.load(Ordering::Relaxed);
    // SAFETY: the C library's function of this name has this signature, and the kernel's call the
    // same arguments; a valid place for the answer.
    unsafe {
        match found.is_null() {
            true => {
                libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time);
            }
            false => {
                core::mem::transmute::<*mut libc::c_void, Gettime>(found)(clock, &raw mut time);
            }
        }
    }
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// A replacement for std's `Instant`, which reads the interposed clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Instant(u64);

impl Instant {
    pub(crate) fn now() -> Instant {
        Instant(now_ns())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(*self)
    }

    /// Returns the time since an earlier moment, or zero if that is later.
    pub(crate) fn saturating_duration_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}
