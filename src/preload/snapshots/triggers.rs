//! When snapshots are written. A thread of the library writes them (`writer`), and serves the
//! readers in other processes.
//!
//! The end of the process, a failed allocation and a call by the program wait for their snapshot; a
//! signal does not. The thread begins with the first context, when CUDA has its threads. A process
//! that never gets that far has neither thread nor files, and without CUDA no handler.

use core::ffi::c_void;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use cachealloc_options::StatsOnExit;
use cachealloc_text::Count;

use crate::assembly::report;
use crate::config::environment;
use crate::lock::lock;
use crate::out_of_memory::told;
use crate::process;
use crate::process::lock_timeout;
use crate::process::watchdog;
use crate::process::watchdog::Watchdog;
use crate::record;
use crate::record::persistent;
use crate::snapshots::contents;
use crate::snapshots::contents::SnapshotReason;
use crate::snapshots::outcomes;
use crate::snapshots::stop;
use crate::snapshots::stop::Next;
use crate::snapshots::writer;
use crate::snapshots::writer::Request;
use crate::statistics::live;
use crate::thread_state::with_thread_state_saved;
use crate::{config, heap, identity, log, seccomp};

/// How long threads wait for a writer without a heartbeat.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// A program that calls for a snapshot waits as long as a slow disk may take.
pub(crate) const SILENCE_IN_CALL_MAX: Duration = Duration::from_secs(60);
/// While the program is stopped, a stopped thread may hold what the writer needs after this time.
const STUCK: Duration = Duration::from_millis(3);
/// How often the thread of a deadly signal may run on, because it may hold the lock that the writer
/// needs.
const RETURNS_MAX: u32 = 20_000;
/// Number of snapshots after out-of-memory failures: some programs find out by failures how much
/// memory there is.
const SHORTAGES_MAX: u32 = 3;

static SIGNALS: Request = Request::new();
static SHORTAGES: Request = Request::new();
/// Signals that end the process once their snapshot is written.
static ENDS: Request = Request::new();
static EXIT: Request = Request::new();
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
/// Takes over the signals that end the process (`interpose::signals`).
static WHEN_END_IS_EXPECTED: OnceLock<fn()> = OnceLock::new();
/// Held while a snapshot is written, so that only one is written at a time.
static WRITING: Mutex<()> = Mutex::new(());
/// Prepares for snapshots, once. Call where a thread may be started.
pub(crate) fn start() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if !are_wanted() || !identity::is_ours() {
        return;
    }
    if wanted_at_exit() || config::get().stats_on_exit == StatsOnExit::Stderr {
        seccomp::is_asked();
    }
    if STARTED.swap(true, Ordering::AcqRel) {
        // This is a later context, or a recording that was switched on later.
        expect_end();
        return;
    }
    seccomp::note();
    // If the program changes its directory, its snapshots still go to the directory in which it
    // started.
    let here = || std::env::current_dir().unwrap_or_default();
    let _ = DIRECTORY.set(environment::folder().unwrap_or_else(here));
    if record::is_on() || config::get().waits_on_exit {
        record::capture::start(record::settings::get().stacks);
    }
    config::note_environment();
    heap::when_short(give_up, record::stop_short);
    live::begin();
    persistent::begin(contents::settings);
    if !writer::start(serve) {
        live::end();
        log::warn(format_args!("cannot start the snapshot thread: signals write no snapshots"));
        return;
    }
    expect_end();
}

/// If something is to be written at exit, also takes over the signals that end the process. Call
/// when the writer is ready for them, or will report that it is not.
fn expect_end() {
    if wanted_at_exit() && writer::runs() {
        stop::prepare();
        WHEN_END_IS_EXPECTED.get().into_iter().for_each(|take_signals| take_signals());
    }
}

/// Registers `take_signals`, which is called whenever something is to be written at exit and the
/// writer is ready for it.
pub(crate) fn when_end_is_expected(take_signals: fn()) {
    let _ = WHEN_END_IS_EXPECTED.set(take_signals);
}

/// Returns whether anything but a call of the program may request a snapshot.
pub(crate) fn are_wanted() -> bool {
    wanted_at_exit() || config::get().history.signal.is_some()
}

/// Returns whether something is written at the end of the process.
fn wanted_at_exit() -> bool {
    let config = config::get();
    let statistics = matches!(config.stats_on_exit, StatsOnExit::File(_));
    record::is_on() || config.waits_on_exit || statistics
}

/// Requests the snapshot for which a signal came. For the handler.
pub(crate) fn from_signal() {
    SIGNALS.post();
}

/// Handles a signal whose default action ends the process. The handler returns from this only if
/// its thread may hold what the writer needs, and comes here again a moment later (`stop`).
pub(crate) fn end_from_signal(signal: i32, context: *const c_void) {
    // SAFETY: asks the kernel for a number.
    if unsafe { libc::getpid() } == 1 {
        // The first process of a container lives on: the kernel ignores signals whose action it
        // leaves at the default.
        return from_signal();
    }
    if process::end_by(signal) {
        ENDS.post_once();
    }
    go_on_ending(context);
}

/// Continues ending the process, in the thread that received the signal.
pub(crate) fn go_on_ending(context: *const c_void) {
    static RETURNS: AtomicU32 = AtomicU32::new(0);
    let signal = process::ends_by();
    let mut watchdog = Watchdog::begin();
    let look = || {
        let silent = watchdog.look();
        if ENDS.is_served(1) || writer::gave_up() {
            Next::End
        } else if silent > SILENCE_MAX || RETURNS.load(Ordering::Relaxed) > RETURNS_MAX {
            log::warn(format_args!("cannot write snapshot: the snapshot thread is blocked"));
            Next::End
        } else if lock_timeout::lacks_a_lock() {
            Next::LacksLock
        } else if silent > STUCK && watchdog::is_asleep() {
            Next::Sleeps
        } else {
            Next::Wait
        }
    };
    if stop::stop_world(signal, context, look) {
        if !ENDS.is_served(1) {
            contents::remove_part();
            live::end();
        }
        process::end_by_default(signal);
        // SAFETY: ends the process even if something has kept the signal from this thread.
        unsafe { libc::syscall(libc::SYS_exit_group, 128 + signal) };
    }
    RETURNS.fetch_add(1, Ordering::Relaxed);
}

/// Writes one last snapshot at the process's end if something is recorded, and completes files in
/// any case. Another thread that ends the process meanwhile waits as well.
pub(crate) fn at_exit() {
    if DIRECTORY.get().is_none() {
        if SIGNALS.pending().is_some() {
            log::warn(format_args!("cannot write a snapshot: the program created no context"));
        }
        return;
    }
    if !writer::runs() {
        if wanted_at_exit() {
            with_thread_state_saved(|| write_last(false, SnapshotReason::Exit));
        }
        return;
    }
    let served = match wanted_at_exit() {
        true => EXIT.wait(EXIT.post_once(), SILENCE_MAX),
        false => SIGNALS.pending().is_none_or(|number| SIGNALS.wait(number, SILENCE_MAX)),
    };
    // A writer that gave up has already reported that.
    if (!served || !writer::finish_jobs(SILENCE_MAX)) && !writer::gave_up() {
        persistent::keep();
        let seconds = SILENCE_MAX.as_secs();
        log::warn(format_args!(
            "the output at exit is incomplete: its thread made no progress within {seconds} s"
        ));
    }
}

/// Writes a snapshot for an allocation that is about to fail for lack of memory. Only the first few
/// failures leave one. `waits`: waits until it is written.
pub(crate) fn on_oom(waits: bool) {
    if SHORTAGES.posted() < SHORTAGES_MAX && identity::is_ours() && writer::runs() {
        let number = SHORTAGES.post();
        if waits {
            SHORTAGES.wait(number, SILENCE_MAX);
        }
    }
}

/// Writes a snapshot to this file, or to one named by the user's template. A relative path is the
/// program's: it is relative to its current directory.
pub(crate) fn to_file(path: Option<PathBuf>) -> io::Result<()> {
    let write = move || {
        let _one_at_a_time = lock(&WRITING);
        let path = path.unwrap_or_else(next_path);
        let written = contents::write(&path, SnapshotReason::Asked);
        outcomes::note(&path, &written);
        written.map(drop)
    };
    if writer::runs() {
        let late = || io::Error::from_raw_os_error(libc::ETIMEDOUT);
        writer::run(write, SILENCE_IN_CALL_MAX).unwrap_or_else(|| Err(late()))
    } else {
        with_thread_state_saved(write)
    }
}

/// Serves the posted requests. One snapshot serves all requests that were posted before it began.
fn serve() {
    let words = [&SIGNALS, &SHORTAGES, &ENDS, &EXIT];
    let asked = words.map(|word| (word, word.pending()));
    if asked.iter().all(|(_, number)| number.is_none()) {
        return;
    }
    let [signals, shortages, ends, exit] = asked.map(|(_, number)| number.is_some());
    let write = || match (exit, ends, shortages) {
        (true, ..) => write_last(signals || shortages, SnapshotReason::Exit),
        // Everything to be written at the end is already written.
        (_, true, _) if EXIT.is_served(1) => (),
        (_, true, _) => {
            told::at_end();
            write_last(signals || shortages, SnapshotReason::Ended);
        }
        (.., true) => write_to_template(SnapshotReason::Shortage),
        (false, false, false) => write_to_template(SnapshotReason::Asked),
    };
    if std::panic::catch_unwind(write).is_err() {
        log::warn(format_args!("cannot write snapshot: internal error"));
    }
    if ends {
        live::end();
        persistent::end();
    }
    for (word, number) in asked {
        number.into_iter().for_each(|number| word.note_served(number));
    }
}

/// Writes what was requested for the end of the process. `asked`: writes a snapshot in any case.
fn write_last(asked: bool, reason: SnapshotReason) {
    if asked || record::is_on() {
        write_to_template(reason);
    }
    if config::get().waits_on_exit {
        contents::print_waits();
    }
    write_statistics();
}

fn write_to_template(reason: SnapshotReason) {
    let _one_at_a_time = lock(&WRITING);
    let path = next_path();
    let written = contents::write(&path, reason);
    outcomes::note(&path, &written);
    match &written {
        Ok(0) => log::warn(format_args!("snapshot: {}", path.display())),
        Ok(dropped) => log::warn(format_args!(
            "snapshot: {} (the oldest {} entries were dropped: max_entries)",
            path.display(),
            Count(*dropped)
        )),
        // A path that is not a file, such as `/dev/null`, means that no snapshot is wanted.
        Err(error)
            if matches!(reason, SnapshotReason::Exit | SnapshotReason::Ended)
                && error.kind() != io::ErrorKind::InvalidInput
                && persistent::keep() =>
        {
            let process = std::process::id();
            log::warn(format_args!(
                "cannot write a snapshot: {error}; write one with: cachealloc recover {process}"
            ));
        }
        Err(error) => log::warn(format_args!("cannot write a snapshot: {error}")),
    }
}

/// Gives up for lack of memory.
fn give_up() -> ! {
    contents::remove_part();
    log::warn(format_args!("cannot write further snapshots: out of host memory"));
    writer::give_up()
}

/// Returns a new name for each snapshot, in the directory where the program was started.
fn next_path() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let template = &config::get().history.snapshot;
    in_directory(&contents::file_name(template, NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn in_directory(name: &str) -> PathBuf {
    DIRECTORY.get().cloned().unwrap_or_default().join(name)
}

/// Writes the statistics, if they go to a file.
fn write_statistics() {
    let StatsOnExit::File(template) = &config::get().stats_on_exit else { return };
    let path = in_directory(&contents::file_name(template, 0));
    match report::write(&path) {
        Ok(()) => log::warn(format_args!("statistics: {}", path.display())),
        Err(error) => log::warn(format_args!("cannot write statistics: {error}")),
    }
}
