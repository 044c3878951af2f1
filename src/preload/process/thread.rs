//! Our state of each thread of the program: a hook looks it up once and passes it on. Constant at first
//! and without a destructor, so that a thread's first use allocates nothing; `process` releases what a
//! thread still holds when it ends.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cachealloc_core::order::{Lane, TrackedBarrier};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::contexts::events::Event;
use crate::driver::api;
use crate::driver::sys::{CuError, StreamHandle};

/// The calling thread.
pub(crate) struct Thread {
    /// Set while this thread is inside a hook: calls that the driver or a tool makes meanwhile are
    /// passed on, so that no lock of ours is taken twice.
    pub inside: Cell<bool>,
    /// Set while a memory hook runs in this thread: its own calls are not observed.
    pub in_memory_hook: Cell<bool>,
    /// The call being observed by memory hooks, if any.
    pub observed_call: Cell<*const c_void>,
    /// The stream of its last submission during a capture (`captures::note_submission`).
    pub submits_on: Cell<Option<(u64, StreamHandle)>>,
    number: Cell<u32>,
    /// Set for threads of the program; not for the driver's own thread, which runs host functions.
    is_programs: Cell<bool>,
    lane: Cell<Option<Lane>>,
    /// The barrier of this thread's last free, and a counted reference to its event.
    pub tracked: Cell<TrackedBarrier>,
    pub tracked_event: Cell<*const Event>,
    /// An unreferenced event, kept for this thread's next barrier.
    pub spare_event: Cell<*const Event>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            inside: Cell::new(false),
            in_memory_hook: Cell::new(false),
            observed_call: Cell::new(null()),
            submits_on: Cell::new(None),
            number: Cell::new(0),
            is_programs: Cell::new(false),
            lane: Cell::new(None),
            tracked: Cell::new(TrackedBarrier::new()),
            tracked_event: Cell::new(null()),
            spare_event: Cell::new(null()),
        }
    };
}

/// Runs `body` with the calling thread's record.
#[inline]
pub(crate) fn with<T>(body: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(body)
}

/// The key whose destructor runs when a thread ends; `NO_KEY` if there is none.
static THREAD_KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// `ends` runs at the end of each thread that called `watch`. Call once.
pub(crate) fn when_watched_ends(ends: extern "C" fn(*mut c_void)) {
    let mut key = 0;
    // SAFETY: the function has the wanted signature and lives as long as the library.
    if unsafe { libc::pthread_key_create(&mut key, Some(ends)) } == 0 {
        THREAD_KEY.store(key, Ordering::Release);
    }
}

/// This thread holds something to be released when it ends.
pub(crate) fn watch() {
    let key = THREAD_KEY.load(Ordering::Acquire);
    if key != NO_KEY {
        // SAFETY: the key was created; the value only has to be non-null.
        unsafe { libc::pthread_setspecific(key, core::ptr::dangling::<c_void>()) };
    }
}

impl Thread {
    /// The lane in which this thread counts its submissions: the first thread that submits has its own.
    #[inline]
    pub(crate) fn lane(&self) -> Lane {
        self.lane.get().unwrap_or_else(|| self.choose_lane())
    }

    #[cold]
    fn choose_lane(&self) -> Lane {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let lane = if TAKEN.swap(true, Ordering::Relaxed) { Lane::Shared } else { Lane::Own };
        self.lane.set(Some(lane));
        lane
    }

    /// The driver's code if this thread is inside a host function of a stream, where nearly every call
    /// is refused (measured). Queried from the driver until this thread is known to be the program's.
    #[inline]
    pub(crate) fn refused_inside_callback(&self) -> Option<CuError> {
        if self.is_programs.get() { None } else { self.ask_whether_inside_callback() }
    }

    #[cold]
    fn ask_whether_inside_callback(&self) -> Option<CuError> {
        let refused = api::ctx_get_id(0) == Err(CuError::NOT_PERMITTED);
        self.is_programs.set(!refused);
        (refused && rule_holds(Rule::CallbackIsAsked)).then_some(CuError::NOT_PERMITTED)
    }

    /// A small number, different for threads that began near each other.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        if self.number.get() == 0 {
            self.number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        self.number.get() as usize
    }
}
