//! Events that a library in another program must handle: fork, exit, and the end of threads.

use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_options::StatsOnExit;

use crate::assembly::startup_log;
use crate::assembly::{control, exit_table, report};
use crate::cache::{blocks, red_zones, stream_frees};
use crate::contexts::lookup;
use crate::driver::table;
use crate::functions::id;
use crate::log::stderr;
use crate::ordering::{captures, pending};
use crate::out_of_memory::told;
use crate::process;
use crate::process::lock_timeout::LockWait;
use crate::process::{bypass, in_front, library_thread};
use crate::snapshots::{triggers, writer};
use crate::state::thread;
use crate::statistics::live;
use crate::trim::reclaim;
use crate::{c_library, clock, config, identity, log, memory_hooks, seccomp};

static STARTED: AtomicBool = AtomicBool::new(false);

/// Notes that CUDA was started in this process. The library leaves traces in the process only from
/// here on: before, it is as good as absent, and a child forked earlier is independent (hazard 24).
/// `expect_signals` starts handling the signals that request a snapshot.
pub(crate) fn started(expect_signals: fn()) {
    if STARTED.swap(true, Ordering::AcqRel) {
        return;
    }
    identity::note_start();
    bypass::begin_here();
    stderr::settle();
    // A program may exit in a signal handler, where resolving a symbol is not safe.
    c_library::find_all();
    clock::find();
    say_panics();
    config::note_environment();
    memory_hooks::expect_plugin();
    let config = config::get();
    thread::when_watched_ends(thread_ends);
    // SAFETY: the handlers are `extern "C"` functions of the wanted signatures that live as long
    // as the library, and the library is never unloaded (it is preloaded).
    unsafe {
        libc::pthread_atfork(None, None, Some(in_forked_child));
        at_quick_exit(at_exit);
    }
    if config.stats_on_exit == StatsOnExit::Stderr || triggers::are_wanted() {
        process::watch_end();
    }
    // Every driver from 11.4 on has this function; without it no block belongs to a context.
    if table::load() && !table::has(id::cuCtxGetCurrent) {
        bypass::begin(format_args!("the driver has no cuCtxGetCurrent"));
    }
    in_front::say();
    expect_signals();
    live::serve(live::Service {
        report: |sites| report::json(LockWait::Timeout, sites),
        execute: control::execute,
        offer: reclaim::offer,
    });
    lookup::when_first_seen(context_seen);
}

/// The loader runs this at the end of every process: after everything that the program registered
/// by `atexit`, and after the destructors of its globals, which may still free memory. It also runs
/// after the driver's own end, so nothing from here on may call the driver.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    exits();
}

/// Registers the handlers of the process's end. The first context has made the driver register its
/// own; the library's, registered later, run before them.
fn context_seen() {
    triggers::start();
    static MET: AtomicBool = AtomicBool::new(false);
    if !MET.swap(true, Ordering::Relaxed) {
        // SAFETY: as above.
        unsafe {
            libc::atexit(at_end_of_frees);
            at_quick_exit(at_end_of_frees);
        }
        startup_log::say();
    }
}

/// CUDA does not survive a fork. On the plain driver every call fails in the child, so every call
/// is passed on unchanged. Locks that another thread held are never touched again.
extern "C" fn in_forked_child() {
    identity::note_fork();
    bypass::turn_off();
    seccomp::forget_calls();
    // The rings may belong to the parent process (`record::persistent`).
    config::set_records(false);
}

/// Prints panics of the library as one line. std's own message reads the environment, in any
/// thread.
fn say_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or(("?", 0), |place| (place.file(), place.line()));
        let text = panic.payload_as_str().unwrap_or("");
        log::line(format_args!("internal error at {}:{}: {text}", place.0, place.1));
    }));
}

extern "C" fn thread_ends(_: *mut c_void) {
    // In a forked child, the library's locks may be held forever.
    if bypass::is_switched_off() {
        return;
    }
    thread::with(|thread| {
        stream_frees::thread_ends(thread);
        pending::thread_ended(thread);
        captures::thread_ended(thread);
        // Last, because the calls above may free blocks.
        blocks::thread_ended(thread);
    });
}

unsafe extern "C" {
    /// Missing in the `libc` crate; in glibc since 2.10.
    fn at_quick_exit(function: extern "C" fn()) -> core::ffi::c_int;
}

extern "C" fn at_exit() {
    exits();
}

extern "C" fn at_end_of_frees() {
    frees_end(false);
}

/// Does now what frees have left to later calls. `at_once`: the process ends by `_exit`.
fn frees_end(at_once: bool) {
    if !identity::is_ours() || !bypass::is_caching() || !rule_holds(Rule::EndWaits) {
        return;
    }
    thread::with(|thread| {
        // Inside a hook that a signal has interrupted, a driver call could wait for that hook.
        if !thread.inside.replace(true) {
            let _ = std::panic::catch_unwind(|| {
                pending::wait_at_end(at_once);
                red_zones::check_at_end();
            });
            thread.inside.set(false);
        }
    });
}

/// Handles the end of the process by `_exit`.
pub(crate) fn exits_at_once() {
    if !may_be_in_handler() {
        frees_end(true);
    }
    exits();
}

/// Returns whether this thread may be in a signal handler, which may have interrupted the driver.
/// The signal of a handler is blocked while it runs. Threads that block signals for other reasons
/// count as well.
fn may_be_in_handler() -> bool {
    // SAFETY: the set is local, and written by the first call.
    unsafe {
        let mut blocked: libc::sigset_t = core::mem::zeroed();
        if libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &mut blocked) != 0 {
            return true;
        }
        (1..=SIGNALS).any(|signal| libc::sigismember(&blocked, signal) == 1)
    }
}

/// The number of signals on Linux.
const SIGNALS: i32 = 64;

/// Handles any end of the process: prints the requested output. Does nothing in a child between
/// `vfork` and `exec`, which also ends by `_exit` and shares the parent's memory.
pub(crate) fn exits() {
    if !process::is_end_watched() {
        return;
    }
    if !identity::is_ours() {
        return;
    }
    // The next process removes the remaining file.
    if seccomp::silences() {
        return;
    }
    while process::ends_by() != 0 {
        // This thread runs only for a moment (`stop`), which is too short.
        library_thread::sleep(Duration::from_millis(100));
    }
    if !bypass::is_switched_off() {
        let _ = std::panic::catch_unwind(told::at_end);
        let _ = std::panic::catch_unwind(triggers::at_exit);
        if config::get().stats_on_exit == StatsOnExit::Stderr {
            let _ = std::panic::catch_unwind(exit_table::print_at_exit);
        }
    }
    writer::leave();
}
