//! Gives the library's thread that opens files a separate table of file descriptors.
//!
//! Note [Apart]. Threads that share a table share its numbers. A file of the library would take the
//! lowest free number, which the program's next `open` then does not get. If a program closes all
//! descriptors that it does not know and then opens its own files, the library would write into
//! those. Closing any descriptor of a file also drops the record locks that the process has on it.
//! So the writer leaves the program's table for an empty one, in which none of the program's files
//! stay open. Work that needs the program's table is done by another thread of the library, the
//! delegate, which opens nothing: lines to stderr, new threads, and calls to the driver, whose
//! devices are descriptors of the program.
//!
//! If the kernel does not allow this, the writer stays in the program's table, and compares device
//! and inode before it uses a descriptor (`history::file::OwnFile`).

use core::cell::Cell;
use core::ptr::{null, null_mut};
use std::fs;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use crate::seccomp;

thread_local! {
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// Thread id of the delegate, or 0 without one.
static DELEGATE: AtomicI32 = AtomicI32::new(0);
/// Job for the delegate. Only one thread is apart and it waits for the job, so there is one job at
/// a time.
static JOB: AtomicPtr<Job> = AtomicPtr::new(null_mut());
static ASKED: AtomicU32 = AtomicU32::new(0);
static DONE: AtomicU32 = AtomicU32::new(0);

/// A closure on the stack of the thread that waits for it.
struct Job<'a>(&'a mut (dyn FnMut() + Send));

/// Makes the calling thread the delegate.
pub(crate) fn note_delegate() {
    // SAFETY: asks the kernel for a number.
    DELEGATE.store(unsafe { libc::syscall(libc::SYS_gettid) } as i32, Ordering::SeqCst);
}

/// Returns the delegate's thread id, or 0 without one. Other code must not stop this thread.
pub(crate) fn delegate_number() -> i32 {
    DELEGATE.load(Ordering::SeqCst)
}

/// Runs the delegate's loop, which does not end.
pub(crate) fn serve() {
    let mut served = 0;
    loop {
        futex(&ASKED, libc::FUTEX_WAIT, served);
        let asked = ASKED.load(Ordering::Acquire);
        if asked == served {
            continue;
        }
        served = asked;
        // SAFETY: the thread that stored it waits until `DONE` has this number.
        if let Some(job) = unsafe { JOB.load(Ordering::Acquire).as_mut() } {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (job.0)()));
        }
        DONE.store(served, Ordering::Release);
        futex(&DONE, libc::FUTEX_WAKE, 1);
    }
}

/// Moves the calling thread from the program's table to an empty one, if there is a delegate. The
/// delegate must be running, or be about to run.
pub(crate) fn leave(has_delegate: bool) {
    // A program that installs a seccomp filter on its threads waits until this has ended, or this
    // is skipped.
    let at_calls = seccomp::at_calls();
    if at_calls.is_some() && has_delegate && (leaves_by_range() || leaves_by_copy()) {
        IS_APART.set(true);
        // Occupy the standard numbers here too. A file opened later then gets another number, or
        // fails as it would elsewhere if the process may have no more.
        for _ in 0..=libc::STDERR_FILENO {
            let _ = fs::File::open("/dev/null").map(IntoRawFd::into_raw_fd);
        }
    }
}

/// Returns whether the calling thread has a table of its own.
pub(crate) fn is_apart() -> bool {
    IS_APART.get()
}

/// Leaves the table without copying it, since Linux 5.9.
fn leaves_by_range() -> bool {
    const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;
    // SAFETY: closes the descriptors of this thread alone, which has opened none.
    unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, CLOSE_RANGE_UNSHARE) == 0 }
}

/// Copies the table and closes everything in the copy, if the thread's own folder in `/proc` lists
/// the descriptors.
fn leaves_by_copy() -> bool {
    const FOLDER: &str = "/proc/thread-self/fd";
    if fs::read_dir(FOLDER).is_err() {
        return false;
    }
    // SAFETY: concerns this thread alone.
    if unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_FILES) } != 0 {
        return false;
    }
    let names = fs::read_dir(FOLDER).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let numbers: Vec<i32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    for number in numbers {
        // SAFETY: a descriptor in a table that only this thread has; nothing in it is used.
        unsafe { libc::close(number) };
    }
    true
}

/// Runs `body` in a thread that has the program's descriptors: this one, or else the delegate.
pub(crate) fn with_descriptors<T: Send>(body: impl FnOnce() -> T + Send) -> Option<T> {
    if !IS_APART.get() {
        return Some(body());
    }
    let (mut body, mut result) = (Some(body), None);
    let mut run = || result = body.take().map(|body| body());
    let mut job = Job(&mut run);
    JOB.store((&raw mut job).cast(), Ordering::Release);
    let number = ASKED.fetch_add(1, Ordering::AcqRel) + 1;
    futex(&ASKED, libc::FUTEX_WAKE, 1);
    loop {
        let done = DONE.load(Ordering::Acquire);
        if done == number {
            break;
        }
        futex(&DONE, libc::FUTEX_WAIT, done);
    }
    JOB.store(null_mut(), Ordering::Release);
    result
}

/// Sleeps while the word has this value, or wakes up to `value` threads that sleep on it.
fn futex(word: &AtomicU32, what: i32, value: u32) {
    let what = what | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a word of the library, and no time limit.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), what, value, null::<libc::timespec>()) };
}
