//! Stops the program after a deadly signal while a snapshot is still to be written: until the
//! process ends by the signal, no code of the program runs.
//!
//! Note [Stopping]. Without the library the process would be gone at once: no thread of it would
//! print, answer a request or remove a file any more. So the thread that got the signal stays in
//! its handler. It sends every other thread but the writer the signal that glibc reserves for
//! `setuid`, which no program that uses glibc can block; they stay in the handler of that signal.
//! The alternative was a copy of the process (`fork`) that writes while the original dies at once.
//! But a program that waits for the process would not find the file, and the end of a container
//! ends the copy too. Copying the page tables of a process with 100 GB also takes a second, during
//! which the original does not run anyway.
//!
//! A thread may be stopped while it holds something that the writer needs. This is not the heap's
//! lock, because the writer has a separate heap (`heap.rs`). It may be one of the library's locks,
//! or the lock of the loader's list. So a thread that was inside a hook, in the C library or in the
//! loader *may hold* one. If the writer lacks something, these threads run again, one after the
//! other for some 100 us, until it makes progress: one of them is about to release a lock. No other
//! thread runs again.
//!
//! All of this runs in signal handlers: it uses system calls and atomics, takes no lock and
//! allocates nothing.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use crate::apart;
use crate::process::library_thread;
use crate::process::library_thread::set_mask;
use crate::process::{lock_timeout, watchdog};

mod holding;
mod threads;

use holding::may_hold;
pub(crate) use holding::{aborts, prepare};
use threads::{block_all, forget_signals, interrupt_soon, own_number, stop_others, take_signal};

const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long a thread that may hold something runs at a time.
const PULSE: Duration = Duration::from_micros(100);

/// The thread that controls the end, or 0 before there is one.
static LEADER: AtomicI32 = AtomicI32::new(0);
/// Set while the leader stops and resumes threads, and must not be interrupted.
static CONDUCTS: AtomicBool = AtomicBool::new(false);
static STOPPED_COUNT: AtomicU32 = AtomicU32::new(0);
/// The word on which stopped threads sleep. It changes when one of them, which may hold something,
/// is to run again. Only one runs at a time: if several want the same lock, one of them holds it
/// whenever they are stopped.
static PULSES: AtomicU32 = AtomicU32::new(0);
static CHOSEN: AtomicI32 = AtomicI32::new(0);
/// Set if only threads that may hold a lock of the library run again.
static OF_OURS: AtomicBool = AtomicBool::new(false);
/// The leader's finding at each look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The output is complete: the process ends.
    End,
    /// The writer waits for a lock of the library.
    LacksLock,
    /// The writer sleeps: a stopped thread has what it needs.
    Sleeps,
    Wait,
}

/// Stops all threads but the writer, from the handler of `signal`, until `look` returns `End`; then
/// returns `true`. Returns `false` if this thread must run for a moment, because it may hold what
/// the writer needs; it then calls this again.
pub(crate) fn stop_world(
    signal: c_int,
    context: *const c_void,
    mut look: impl FnMut() -> Next,
) -> bool {
    let own = own_number();
    // Before anything else: a second signal in this thread would find it the leader, and send
    // signals that have no handler of the library yet.
    let mask = block_all();
    let first = LEADER.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst);
    if first.is_err_and(|conductor| conductor != own) {
        set_mask(mask);
        park(context);
        return false;
    }
    if first.is_ok() {
        lock_timeout::others_stop();
        take_signal(signal, stop);
    }
    CONDUCTS.store(true, Ordering::SeqCst);
    // Whether every thread was found stopped, including those created meanwhile.
    let mut complete = false;
    let mut turn = 0;
    let ends = loop {
        if !complete {
            let stopped_count = STOPPED_COUNT.load(Ordering::SeqCst);
            complete = stop_others(own, 0).is_none_or(|all| stopped_count >= all.count);
        }
        match look() {
            Next::End => break true,
            lacks @ (Next::LacksLock | Next::Sleeps) => {
                complete = false;
                let ours = lacks == Next::LacksLock;
                OF_OURS.store(ours, Ordering::SeqCst);
                match stop_others(own, turn).and_then(|all| all.chosen) {
                    Some(chosen) => {
                        turn += 1;
                        go_on(own, chosen);
                    }
                    // Every other thread had its turn.
                    None => {
                        turn = 0;
                        if may_hold(context, ours) && interrupt_soon(own) {
                            break false;
                        }
                        library_thread::sleep(PULSE);
                    }
                }
            }
            // Threads that the kernel holds, or that have just begun, stop a little later.
            Next::Wait => library_thread::sleep(if complete { LOOK_EVERY } else { PULSE }),
        }
    };
    CONDUCTS.store(false, Ordering::SeqCst);
    if !ends {
        set_mask(mask);
    }
    ends
}

/// Lets one thread run for a moment, if it may hold something, and gives the writer time to take
/// what is free then.
fn go_on(own: i32, chosen: i32) {
    const LOOKS_MAX: u32 = 20;
    CHOSEN.store(chosen, Ordering::SeqCst);
    PULSES.fetch_add(1, Ordering::SeqCst);
    library_thread::wake_all(&PULSES);
    // The thread may have to wait for a processor first.
    for _ in 0..LOOKS_MAX {
        library_thread::sleep(PULSE);
        if CHOSEN.load(Ordering::SeqCst) == 0 {
            break;
        }
    }
    CHOSEN.store(0, Ordering::SeqCst);
    for _ in 0..LOOKS_MAX {
        let stopped_count = STOPPED_COUNT.load(Ordering::SeqCst);
        if stop_others(own, 0).is_none_or(|all| stopped_count >= all.count) {
            break;
        }
        library_thread::sleep(PULSE / 2);
    }
    library_thread::sleep(PULSE);
}

/// Keeps this thread here until the process ends, or until it may run for a moment because it may
/// hold something.
pub(crate) fn park(context: *const c_void) {
    let mask = block_all();
    let own = own_number();
    STOPPED_COUNT.fetch_add(1, Ordering::SeqCst);
    loop {
        let now = PULSES.load(Ordering::SeqCst);
        let chosen = CHOSEN.compare_exchange(own, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if chosen && may_hold(context, OF_OURS.load(Ordering::SeqCst)) {
            break;
        }
        library_thread::wait(&PULSES, now, None);
    }
    STOPPED_COUNT.fetch_sub(1, Ordering::SeqCst);
    forget_signals();
    set_mask(mask);
}

/// The handler of all threads but the writer.
extern "C" fn stop(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: this thread's own errno.
    let errno = unsafe { *libc::__errno_location() };
    let own = own_number();
    if [watchdog::writer_number(), apart::delegate_number()].contains(&own) {
        // The thread had just begun, and its number was not known yet.
    } else if LEADER.load(Ordering::SeqCst) == own {
        if !CONDUCTS.load(Ordering::SeqCst) {
            crate::snapshots::triggers::go_on_ending(context);
        }
    } else {
        park(context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
