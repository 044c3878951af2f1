//! The thread of ours that opens files has a table of descriptors of its own.
//!
//! Note [Apart]. Threads of one table share its numbers: a file of ours would have the lowest free number, which the
//! program's next `open` then does not get; a program that closes all descriptors it does not know, and opens its
//! own files, would find ours written into them; and closing any descriptor of a file drops the record locks that
//! the process has on it. So the writer leaves the table of the program for an empty one, in which
//! nothing of the program's stays open. What needs the program's own table it has done by another thread of ours, the
//! delegate, which opens nothing: lines to stderr, new threads, and calls to the driver, whose devices are
//! descriptors of the program.
//!
//! Where the kernel does not allow it, the writer stays in the program's table, and compares device and inode before
//! it uses a descriptor (`history::file::OwnFile`).

use core::cell::Cell;
use core::ptr::{null, null_mut};
use std::fs;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use crate::seccomp;

thread_local! {
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// The delegate's number; 0: there is none.
static DELEGATE: AtomicI32 = AtomicI32::new(0);
/// What the delegate is to do. One thread is apart, and waits for it: one job at a time.
static JOB: AtomicPtr<Job> = AtomicPtr::new(null_mut());
static ASKED: AtomicU32 = AtomicU32::new(0);
static DONE: AtomicU32 = AtomicU32::new(0);

/// A closure on the stack of the thread that waits for it.
struct Job<'a>(&'a mut (dyn FnMut() + Send));

/// The calling thread becomes the delegate.
pub(crate) fn note_delegate() {
    // SAFETY: asks the kernel for a number.
    DELEGATE.store(unsafe { libc::syscall(libc::SYS_gettid) } as i32, Ordering::SeqCst);
}

/// The delegate's thread, which others must not stop; 0: there is none.
pub(crate) fn delegate_number() -> i32 {
    DELEGATE.load(Ordering::SeqCst)
}

/// What the delegate does, for ever.
pub(crate) fn serve() {
    let mut served = 0;
    loop {
        futex(&ASKED, libc::FUTEX_WAIT, served);
        let asked = ASKED.load(Ordering::Acquire);
        if asked == served {
            continue;
        }
        served = asked;
        // SAFETY: the thread that stored it waits until `DONE` says so.
        if let Some(job) = unsafe { JOB.load(Ordering::Acquire).as_mut() } {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (job.0)()));
        }
        DONE.store(served, Ordering::Release);
        futex(&DONE, libc::FUTEX_WAKE, 1);
    }
}

/// The calling thread leaves the program's table for an empty one. Not without a delegate: it must run by now, or
/// soon.
pub(crate) fn leave(has_delegate: bool) {
    // A program that puts a filter for system calls on its threads waits for this, or has it left out.
    let at_calls = seccomp::at_calls();
    if at_calls.is_some() && has_delegate && (leaves_by_range() || leaves_by_copy()) {
        IS_APART.set(true);
        // The standard numbers are taken, here too: what is opened has another one, or is refused as elsewhere where
        // the process may have no more.
        for _ in 0..=libc::STDERR_FILENO {
            let _ = fs::File::open("/dev/null").map(IntoRawFd::into_raw_fd);
        }
    }
}

/// Since Linux 5.9. Nothing of the table is copied.
fn leaves_by_range() -> bool {
    const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;
    // SAFETY: closes the descriptors of this thread alone, which has opened none.
    unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, CLOSE_RANGE_UNSHARE) == 0 }
}

/// Copies the table, and closes all of the copy. Only where the thread's own folder in `/proc` tells which they are.
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
        // SAFETY: of a table that is this thread's alone; nothing in it is used.
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

/// Sleeps while the word has this value, or wakes so many that do.
fn futex(word: &AtomicU32, what: i32, value: u32) {
    let what = what | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a word of ours, and no time limit.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), what, value, null::<libc::timespec>()) };
}
