//! Threads of the library in the program's process.
//!
//! They are created with the C library's own calls: std's threads allocate in the new thread, which
//! costs a process another heap arena. All signals stay with the program's threads.

use core::ffi::c_void;
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use core::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::apart;
use crate::c_library::STACK_LEAST;
use crate::state::thread;

/// Enough for symbolizing function names at any nesting, and for the driver. Untouched pages cost
/// only addresses. The thread-local data of the program and its libraries, which may be megabytes,
/// is added to this: the C library takes it from the stack.
const STACK_BYTES: usize = 2 << 20;

/// The work of a library thread.
pub(crate) struct Body {
    /// Runs first, before any signal can arrive.
    pub begin: fn(),
    /// Never returns.
    pub go_on: fn(),
}

/// Starts the thread that works with the program's descriptors on behalf of a thread that no longer
/// shares them (`apart`).
pub(crate) fn start_delegate() -> bool {
    start(&Body { begin: apart::note_delegate, go_on: apart::serve })
}

/// Starts a thread, which shares the program's descriptors. Returns `false` if that failed.
pub(crate) fn start(body: &'static Body) -> bool {
    apart::with_descriptors(|| make(body)).unwrap_or(false)
}

fn make(body: &'static Body) -> bool {
    // A filter for system calls may refuse those that the first way needs.
    [Scheduled::AsUsual, Scheduled::AsItsMaker].into_iter().any(|how| make_scheduled(body, how))
}

/// How a new thread is scheduled. By default it inherits the scheduling of its creator. At a
/// real-time priority, or on the one processor that a thread of the program keeps busy, a library
/// thread would delay that thread for as long as a snapshot takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheduled {
    /// The policy without priorities, on every processor that the process may use.
    AsUsual,
    AsItsMaker,
}

fn make_scheduled(body: &'static Body, how: Scheduled) -> bool {
    // SAFETY: a complete description of the thread, whose argument lives forever.
    unsafe {
        let before = set_mask(u64::MAX);
        let mut attributes: libc::pthread_attr_t = zeroed();
        libc::pthread_attr_init(&mut attributes);
        let least_bytes = STACK_LEAST.get().map_or(0, |least| least(&attributes));
        libc::pthread_attr_setstacksize(&mut attributes, STACK_BYTES.saturating_add(least_bytes));
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        if how == Scheduled::AsUsual {
            let usual = libc::sched_param { sched_priority: 0 };
            let mut processors: libc::cpu_set_t = zeroed();
            (0..libc::CPU_SETSIZE as usize).for_each(|it| libc::CPU_SET(it, &mut processors));
            libc::pthread_attr_setinheritsched(&mut attributes, libc::PTHREAD_EXPLICIT_SCHED);
            libc::pthread_attr_setschedpolicy(&mut attributes, libc::SCHED_OTHER);
            libc::pthread_attr_setschedparam(&mut attributes, &usual);
            let size = size_of_val(&processors);
            libc::pthread_attr_setaffinity_np(&mut attributes, size, &processors);
        }
        let mut made: libc::pthread_t = zeroed();
        let body = core::ptr::from_ref(body).cast_mut().cast();
        let code = libc::pthread_create(&mut made, &attributes, work, body);
        libc::pthread_attr_destroy(&mut attributes);
        set_mask(before);
        code == 0
    }
}

extern "C" fn work(body: *mut c_void) -> *mut c_void {
    // SAFETY: names the calling thread, for tools that list threads.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"cachealloc".as_ptr()) };
    // SAFETY: `start` passed it.
    let body = unsafe { &*body.cast::<Body>() };
    (body.begin)();
    set_mask(!GLIBC_SIGNALS);
    // Calls of this thread are not the program's.
    thread::with(|thread| thread.inside.set(true));
    (body.go_on)();
    null_mut()
}

/// Signals 32 and 33, by which glibc makes every thread change its user. Blocking them would block
/// that call.
const GLIBC_SIGNALS: u64 = 1 << 31 | 1 << 32;

/// Sets the thread's mask and returns the previous one. It uses the system call, because the C
/// library's function omits its internal signals.
pub(crate) fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: the calling thread's own mask; sets are 8 bytes for the kernel.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &mask, &mut before, 8usize)
    };
    before
}

/// Sleeps while the word has this value, at most this long. Preserves `errno`.
pub(crate) fn wait(word: &AtomicU32, value: u32, no_longer: Option<Duration>) {
    let time = no_longer.map(timespec);
    let time = time.as_ref().map_or(null(), core::ptr::from_ref);
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a word of the library, and a time that outlives the call. Anything unexpected returns
    // at once. `errno` is this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        libc::syscall(libc::SYS_futex, word.as_ptr(), wait, value, time);
        *libc::__errno_location() = errno;
    }
}

pub(crate) fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() }
}

/// Wakes one thread that sleeps on the word. Safe in signal handlers.
pub(crate) fn wake(word: &AtomicU32) {
    let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: wakes threads that sleep on a word of the library.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wake, 1) };
}

/// Wakes all threads that sleep on the word. Safe in signal handlers.
pub(crate) fn wake_all(word: &AtomicU32) {
    let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wake, i32::MAX) };
}

/// Sleeps by the system call, because the C library's function is a cancellation point. A signal
/// may shorten the sleep.
pub(crate) fn sleep(time: Duration) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: a plain sleep.
    unsafe { libc::syscall(libc::SYS_nanosleep, &time, null_mut::<libc::timespec>()) };
}
