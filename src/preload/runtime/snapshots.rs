//! When snapshots are written, and by whom: a thread of ours that does nothing else.
//!
//! Whoever wants one leaves word and, at the end of the process or when memory ran out, waits. The
//! asker may stand anywhere: in a signal handler, inside `malloc`, with a lock of ours in its hands.
//! So the asker never writes itself, and does not wait for a writer that no longer gets on: what the
//! asker holds may be what the writer lacks.
//!
//! The thread begins with the first context, when CUDA has threads of its own; a process that never
//! gets that far has neither thread nor handlers nor files.

use core::ffi::c_void;
use core::mem::zeroed;
use core::ptr::null_mut;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::doors::signals;
use crate::runtime::{lock, process, snapshot, thread};
use crate::{config, log, record};

/// Enough for names of functions at any nesting that symbolising meets.
const STACK_BYTES: usize = 2 << 20;
/// A writer that gives no sign of life for so long is not waited for any longer.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// A handler gives up sooner: the thread that it interrupted may hold what the writer lacks.
const SILENCE_IN_HANDLER_MAX: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Snapshots because of memory that ran out: some programs find out by failing what there is.
const SHORTAGES_MAX: u32 = 3;

static ASKED: Word = Word::new();
static WRITER_RUNS: AtomicBool = AtomicBool::new(false);
static SIGNS_OF_LIFE: AtomicUsize = AtomicUsize::new(0);
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
/// Held while a snapshot is written, so that one at a time is.
static WRITING: Mutex<()> = Mutex::new(());

/// What is asked for. Counters, because a signal may come while the last one is served.
struct Word {
    signals: AtomicU32,
    shortages: AtomicU32,
    exits: AtomicU32,
    /// The signal that ends the process when the snapshot is there; 0: none.
    end_by: AtomicU32,
    /// How many words of each kind have been served.
    served_signals: AtomicU32,
    served_shortages: AtomicU32,
    served_exits: AtomicU32,
    /// What the writer sleeps on: changes with every word.
    bell: AtomicU32,
}

impl Word {
    const fn new() -> Word {
        Word {
            signals: AtomicU32::new(0),
            shortages: AtomicU32::new(0),
            exits: AtomicU32::new(0),
            end_by: AtomicU32::new(0),
            served_signals: AtomicU32::new(0),
            served_shortages: AtomicU32::new(0),
            served_exits: AtomicU32::new(0),
            bell: AtomicU32::new(0),
        }
    }

    /// Leaves word. For signal handlers, too: a system call, no lock.
    fn leave(&self, kind: &AtomicU32) -> u32 {
        let number = kind.fetch_add(1, Ordering::AcqRel) + 1;
        self.bell.fetch_add(1, Ordering::Release);
        // SAFETY: wakes whoever sleeps on a word of ours.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.bell.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            )
        };
        number
    }

    fn sleep(&self, heard: u32) {
        let forever = core::ptr::null::<libc::timespec>();
        // SAFETY: sleeps while the word still has this value; anything else returns at once.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.bell.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                heard,
                forever,
            )
        };
    }
}

/// Whether the end of the process has something to say.
pub fn wanted_at_exit() -> bool {
    record::is_on() || config::get().waits_on_exit
}

/// Makes ready for snapshots, once. Call where a thread may be made.
pub fn start() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    let history = &config::get().history;
    let wanted = wanted_at_exit() || history.signal.is_some();
    if !wanted || !process::is_ours() || STARTED.swap(true, Ordering::AcqRel) {
        return;
    }
    // A program that changes its directory later finds its snapshots where it was started.
    let _ = DIRECTORY.set(std::env::current_dir().unwrap_or_default());
    if wanted_at_exit() {
        record::capture::start();
    }
    if !start_writer() {
        log::warn(format_args!("no thread for snapshots: none on a signal"));
        return;
    }
    signals::hold(history.signal, wanted_at_exit());
}

/// By the C library's own call: std's allocates in the new thread, which costs a process that never
/// asks for a snapshot an arena of the heap. Every signal stays with the program's own threads.
fn start_writer() -> bool {
    // SAFETY: the sets are filled by the calls; the mask is put back.
    unsafe {
        let mut all: libc::sigset_t = zeroed();
        let mut before: libc::sigset_t = zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let mut attributes: libc::pthread_attr_t = zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, STACK_BYTES);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let mut writer: libc::pthread_t = zeroed();
        let code = libc::pthread_create(&mut writer, &attributes, write_on_request, null_mut());
        libc::pthread_attr_destroy(&mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        WRITER_RUNS.store(code == 0, Ordering::Release);
        code == 0
    }
}

/// The signal for a snapshot came. For the handler.
pub fn from_signal() {
    ASKED.leave(&ASKED.signals);
}

/// A signal came whose default action ends the process. For the handler: returns when the process
/// cannot be ended from here.
pub fn end_from_signal(signal: i32) {
    ASKED.end_by.store(signal as u32, Ordering::Release);
    let number = ASKED.leave(&ASKED.exits);
    if wait_for(&ASKED.served_exits, number, SILENCE_IN_HANDLER_MAX) {
        signals::end_by(signal);
    }
}

/// The process ends: one last snapshot, unless a signal has had it written already.
pub fn at_exit() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    if !WRITER_RUNS.load(Ordering::Acquire) {
        if DIRECTORY.get().is_some() {
            write_last();
        }
        return;
    }
    let number = ASKED.leave(&ASKED.exits);
    if !wait_for(&ASKED.served_exits, number, SILENCE_MAX) {
        log::warn(format_args!("the snapshot at exit is not complete, and the process ends now"));
    }
}

/// An allocation is about to fail for lack of memory: the first few leave a snapshot.
pub fn at_shortage() {
    if ASKED.shortages.load(Ordering::Relaxed) >= SHORTAGES_MAX || !process::is_ours() {
        return;
    }
    if WRITER_RUNS.load(Ordering::Acquire) {
        let number = ASKED.leave(&ASKED.shortages);
        wait_for(&ASKED.served_shortages, number, SILENCE_MAX);
    }
}

/// Writes a snapshot in the calling thread, to this file or to one named by the user's template.
/// A relative path is the program's own: it counts from its current directory.
pub fn to_file(path: Option<PathBuf>) -> std::io::Result<()> {
    let _one_at_a_time = lock(&WRITING);
    snapshot::write(&path.unwrap_or_else(next_path)).map(drop)
}

/// A step of the writer is done: it gets on.
pub fn sign_of_life() {
    SIGNS_OF_LIFE.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn write_on_request(_: *mut c_void) -> *mut c_void {
    // SAFETY: names the calling thread, for whoever looks at the process's threads.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"cachealloc".as_ptr()) };
    // What this thread does is not the program's doing.
    thread::with(|thread| thread.inside.set(true));
    loop {
        let heard = ASKED.bell.load(Ordering::Acquire);
        serve();
        ASKED.sleep(heard);
    }
}

/// One snapshot answers all that was asked for before it was begun.
fn serve() {
    let signals = ASKED.signals.load(Ordering::Acquire);
    let shortages = ASKED.shortages.load(Ordering::Acquire);
    let exits = ASKED.exits.load(Ordering::Acquire);
    let served = |counter: &AtomicU32, number| counter.load(Ordering::Relaxed) == number;
    if served(&ASKED.served_signals, signals)
        && served(&ASKED.served_shortages, shortages)
        && served(&ASKED.served_exits, exits)
    {
        return;
    }
    let last = !served(&ASKED.served_exits, exits);
    if std::panic::catch_unwind(if last { write_last } else { write_to_template }).is_err() {
        log::warn(format_args!("a snapshot failed inside the library"));
    }
    ASKED.served_signals.store(signals, Ordering::Release);
    ASKED.served_shortages.store(shortages, Ordering::Release);
    ASKED.served_exits.store(exits, Ordering::Release);
    let end_by = ASKED.end_by.load(Ordering::Acquire);
    if end_by != 0 && exits != 0 {
        signals::end_by(end_by as i32);
    }
}

/// What was asked for at the end of the process.
fn write_last() {
    if record::is_on() {
        write_to_template();
    }
    if config::get().waits_on_exit {
        snapshot::print_waits();
    }
}

fn write_to_template() {
    let _one_at_a_time = lock(&WRITING);
    let path = next_path();
    match snapshot::write(&path) {
        Ok(0) => log::warn(format_args!("snapshot: {}", path.display())),
        Ok(dropped) => log::warn(format_args!(
            "snapshot: {} (the oldest {dropped} entries are not in it: max_entries)",
            path.display()
        )),
        Err(error) => log::warn(format_args!("no snapshot: {error}")),
    }
}

/// A name of its own for each snapshot, where the program was started.
fn next_path() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = snapshot::file_name(NEXT.fetch_add(1, Ordering::Relaxed));
    DIRECTORY.get().cloned().unwrap_or_default().join(name)
}

/// Waits until this word is served. False: the writer has given no sign of life for too long.
fn wait_for(served: &AtomicU32, number: u32, silence_max: Duration) -> bool {
    let mut seen = SIGNS_OF_LIFE.load(Ordering::Relaxed);
    let mut silence = Duration::ZERO;
    while (served.load(Ordering::Acquire).wrapping_sub(number) as i32) < 0 {
        let now = SIGNS_OF_LIFE.load(Ordering::Relaxed);
        silence = if now == seen { silence + LOOK_EVERY } else { Duration::ZERO };
        seen = now;
        if silence > silence_max {
            return false;
        }
        // SAFETY: a plain sleep; a signal may shorten it.
        unsafe { libc::usleep(LOOK_EVERY.as_micros() as u32) };
    }
    true
}
