//! The thread that writes snapshots, and how others reach it.
//!
//! A thread posts a request, and may wait until it is served. It may be anywhere: in a signal
//! handler, inside `malloc`, or with a lock of the library held. So posting takes no lock, and no
//! thread waits for a writer that makes no progress (`process::watchdog`): the writer may need the
//! very lock that this thread holds. Threads of the program may have small stacks, which is another
//! reason to write here.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::lock::lock;
use crate::process::library_thread;
use crate::process::library_thread::Body;
use crate::process::watchdog;
use crate::process::watchdog::Watchdog;
use crate::record::persistent;
use crate::statistics::live;
use crate::statistics::live::Look;
use crate::{apart, heap, process};

/// Interval at which a waiting thread checks whether the writer still makes progress.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Interval at which the writer tries the file for other processes again, if it could not be
/// opened.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The function that the thread calls after every request.
static SERVE: OnceLock<fn()> = OnceLock::new();
static HAS_DELEGATE: AtomicBool = AtomicBool::new(false);
static RUNS: AtomicBool = AtomicBool::new(false);
/// The word on which the writer sleeps without a file for other processes. It changes with every
/// request.
static DOORBELL: AtomicU32 = AtomicU32::new(0);
/// Set after memory ran out: nothing is served any more.
static GAVE_UP: AtomicBool = AtomicBool::new(false);
/// The process ends: requests that the file for other processes be removed.
static LEAVES: Request = Request::new();

/// One kind of request. It uses counters, because another may be posted while the last is served.
#[derive(Default)]
pub(crate) struct Request {
    left: AtomicU32,
    served: AtomicU32,
}

impl Request {
    pub(crate) const fn new() -> Request {
        Request { left: AtomicU32::new(0), served: AtomicU32::new(0) }
    }

    /// Posts a request and returns its number. Safe in signal handlers: makes a system call, and
    /// takes no lock.
    pub(crate) fn post(&self) -> u32 {
        let number = self.left.fetch_add(1, Ordering::AcqRel) + 1;
        wake();
        number
    }

    /// Posts a request that is served only once, however often it is posted. Its number is 1.
    pub(crate) fn post_once(&self) -> u32 {
        self.left.store(1, Ordering::Release);
        wake();
        1
    }

    /// Returns how often it was posted so far.
    pub(crate) fn posted(&self) -> u32 {
        self.left.load(Ordering::Acquire)
    }

    /// Returns the number of the last request, unless it was served.
    pub(crate) fn pending(&self) -> Option<u32> {
        let left = self.posted();
        (!self.is_served(left)).then_some(left)
    }

    pub(crate) fn is_served(&self, number: u32) -> bool {
        self.served.load(Ordering::SeqCst).wrapping_sub(number) as i32 >= 0
    }

    /// Notes that all requests up to this one are served. For the writer.
    pub(crate) fn note_served(&self, number: u32) {
        self.served.store(number, Ordering::SeqCst);
        library_thread::wake_all(&self.served);
    }

    /// Waits until this request is served. Returns `false` if it is not, because the writer has
    /// slept for longer than `stall_max` or has given up.
    pub(crate) fn wait(&self, number: u32, stall_max: Duration) -> bool {
        let mut watchdog = Watchdog::begin();
        loop {
            let served = self.served.load(Ordering::SeqCst);
            if self.is_served(number) {
                return true;
            }
            if gave_up() || watchdog.look() > stall_max {
                return self.is_served(number);
            }
            library_thread::wait(&self.served, served, Some(LOOK_EVERY));
        }
    }
}

/// Work to be done in the writer's thread.
type Job = Box<dyn FnOnce() + Send>;
static JOBS: Mutex<VecDeque<Job>> = Mutex::new(VecDeque::new());
static JOBS_LEFT: Request = Request::new();

/// Starts the thread, which calls `serve` after every request. Returns `false` if it could not be
/// started.
pub(crate) fn start(serve: fn()) -> bool {
    let _ = SERVE.set(serve);
    HAS_DELEGATE.store(library_thread::start_delegate(), Ordering::Release);
    let runs = library_thread::start(&Body { begin: watchdog::note_writer, go_on: work });
    RUNS.store(runs, Ordering::Release);
    runs
}

pub(crate) fn runs() -> bool {
    RUNS.load(Ordering::Acquire)
}

/// Runs `body` in the writer's thread, after the snapshots requested before, and returns its
/// result. Returns `None` if it failed, or is not done yet.
pub(crate) fn run<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
    stall_max: Duration,
) -> Option<T> {
    let result = Arc::new(Mutex::new(None));
    let place = result.clone();
    lock(&JOBS).push_back(Box::new(move || *lock(&place) = Some(body())));
    let number = JOBS_LEFT.post();
    let done = JOBS_LEFT.wait(number, stall_max);
    lock(&result).take().filter(|_| done)
}

/// Waits until all jobs of `run` are done.
pub(crate) fn finish_jobs(stall_max: Duration) -> bool {
    JOBS_LEFT.pending().is_none_or(|number| JOBS_LEFT.wait(number, stall_max))
}

/// Returns whether the writer will never serve a request again, for lack of memory.
pub(crate) fn gave_up() -> bool {
    GAVE_UP.load(Ordering::Acquire)
}

/// Stops the writer permanently. It can do nothing more, and keeps what it has. For the writer.
pub(crate) fn give_up() -> ! {
    GAVE_UP.store(true, Ordering::Release);
    loop {
        library_thread::sleep(Duration::from_millis(900));
    }
}

/// Ends the writer's work at the end of the process. The writer removes the file for other
/// processes, because a filter for system calls that the program has put on its threads does not
/// apply to the writer.
pub(crate) fn leave() {
    const SILENCE_MAX: Duration = Duration::from_secs(1);
    if !runs() || gave_up() || !LEAVES.wait(LEAVES.post_once(), SILENCE_MAX) {
        live::end();
        persistent::end();
    }
}

fn work() {
    let Some(serve) = SERVE.get() else { return };
    apart::leave(HAS_DELEGATE.load(Ordering::Acquire));
    heap::become_writer();
    loop {
        let heard = DOORBELL.load(Ordering::Acquire);
        if let Some(number) = LEAVES.pending() {
            live::end();
            persistent::end();
            LEAVES.note_served(number);
        }
        let look = live::get().filter(|_| !live::has_ended()).map(|live| live.look());
        let (look, look_again) = match look {
            Some(Look::Open(look)) => (Some(look), None),
            Some(Look::Later) => (None, Some(LOOK_AGAIN)),
            Some(Look::Gone) | None => (None, None),
        };
        serve();
        do_jobs();
        if let (Some(live), Some(look)) = (live::get(), &look) {
            if is_idle() {
                let _ = catch_unwind(AssertUnwindSafe(|| live.execute(look)));
            }
            let _ = catch_unwind(AssertUnwindSafe(|| live.answer(look)));
        }
        if is_idle() {
            let _ = catch_unwind(persistent::keep_up);
            heap::shrink();
        }
        // `wake` rings both doorbells; if there is a file, other processes can ring the one in it.
        let no_longer = persistent::next().into_iter().chain(look_again).min();
        if !look.is_some_and(|look| live::wait_for_request(&look, no_longer)) {
            library_thread::wait(&DOORBELL, heard, no_longer);
        }
    }
}

/// Returns whether no thread waits for the end of the process, and the end has not begun.
fn is_idle() -> bool {
    LEAVES.posted() == 0 && process::ends_by() == 0
}

fn do_jobs() {
    let Some(number) = JOBS_LEFT.pending() else { return };
    loop {
        let Some(job) = lock(&JOBS).pop_front() else { break };
        // A job that failed leaves no result, which tells its caller.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
    JOBS_LEFT.note_served(number);
}

/// Makes the writer check for work.
pub(crate) fn wake() {
    DOORBELL.fetch_add(1, Ordering::Release);
    library_thread::wake(&DOORBELL);
    live::wake_writer();
}
