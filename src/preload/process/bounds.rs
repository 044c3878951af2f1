//! The bounds of every wait and every retry of the library that a number ends.
//!
//! Where the library can know what the plain driver would wait for, no number decides: such a wait
//! is [`until`], and lasts as long as it takes. Where it cannot know, it uses one of the bounds
//! below. Each is a row of the table in section 12 of `docs/ordering.md`, which states what is not
//! known, and what a program notices on either side of the bound. A test compares the two, and
//! finds waits elsewhere (`tests/it/ordering/bounds.rs`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cachealloc_core::policy::ROOM_TRIES_MAX;

use crate::clock::{Instant, now_ns};
use crate::process::library_thread;

/// The longest duration, or the largest number of looks.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Milliseconds(u64),
    Looks(u32),
    #[cfg(feature = "break-rules")]
    Endless,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Bound {
    #[cfg(feature = "break-rules")]
    name: &'static str,
    limit: Limit,
    every: Duration,
}

/// Declares the rows of the table: a name, the limit, and the microseconds between two looks.
macro_rules! bounds {
    ($($(#[$doc:meta])* $name:ident = $limit:ident($amount:expr), $every_us:literal;)*) => {
        $($(#[$doc])*
        pub(crate) static $name: Bound = Bound {
            #[cfg(feature = "break-rules")]
            name: stringify!($name),
            limit: Limit::$limit($amount),
            every: Duration::from_micros($every_us),
        };)*
    };
}

bounds! {
    /// Wait of a query, or of `_exit`, for frees of other threads (a [`Budget`]).
    FREES_OF_OTHERS = Milliseconds(2_000), 20;
    /// Wait until a thread sees whether a call that may end a context has only dropped a reference.
    /// Counts looks, not time: on a busy machine both threads wait for a processor.
    LAST_REFERENCE = Looks(4_500), 20;
    /// Wait for in-flight releases by a call that does not wait on the plain driver (a [`Budget`]).
    MEMORY_ON_ITS_WAY = Milliseconds(5_000), 20;
    /// Wait of the process's end for the work before the last frees.
    WORK_AT_EXIT = Milliseconds(60_000), 100;
    /// Wait of a request for the driver's report that graphs are gone. On a machine with more
    /// threads than processors, the driver's thread may get no processor for half a second.
    REPORTS_OF_GRAPHS = Milliseconds(5_000), 20;
    /// Wait for the same report if the driver has no memory for an empty graph whose own report
    /// would follow it, or if another thread's free holds the context: about twice as long as the
    /// driver's thread takes.
    REPORTS_WITHOUT_MEMORY = Milliseconds(10), 10_000;
    /// Wait of the process's end for copies of red zones.
    ZONES_AT_EXIT = Milliseconds(100), 100;
    /// Wait of a thread for pinned memory that another one is releasing. The driver takes less to
    /// free memory that no work uses, also on a busy machine.
    PINNED_LEAVES = Milliseconds(100), 20;
    /// Wait of the scavenger for work that uses memory requested by another process: on the plain
    /// driver the work would keep that memory as well.
    GIFT = Milliseconds(50), 1_000;
    /// Wait of the process's end for a pass of the scavenger.
    PASS_AT_EXIT = Milliseconds(500), 100;
    /// Wait of a call that announces a filter for system calls for the library's threads. They need
    /// microseconds and a processor; the caller may be a handler that has interrupted one.
    FILTER_COMES = Looks(1_500), 20;
    /// Wait of a request for peer processes that work and do not answer (a [`Budget`]).
    PEERS = Milliseconds(10_000), 0;
    /// Repetitions of a request each time memory has arrived, which other threads may take each
    /// time.
    ROOM = Looks(ROOM_TRIES_MAX), 0;
    /// Repetitions of a reading of the driver's figures while they change.
    READINGS = Looks(64), 0;
    /// Time for finding out what holds the memory that a failed call needed (a [`Budget`]): some
    /// programs fail again and again.
    LOOKS_AT_FAILURES = Milliseconds(1_000), 0;
    /// Test builds: replaces an unbounded wait if the rule `blocked_request_has_no_bound` is off (a
    /// [`Budget`]).
    BROKEN_STANDSTILL = Milliseconds(100), 20;
}

/// A bound that has started. Several waits may share it.
#[derive(Debug)]
pub(crate) struct Running {
    end: Option<Instant>,
    looks_left: u32,
    every: Duration,
}

impl Bound {
    /// Starts the bound now.
    pub(crate) fn begin(&self) -> Running {
        self.less(Duration::ZERO, Duration::ZERO)
    }

    /// Starts the bound now, with `used` already spent and `added` granted on top.
    fn less(&self, used: Duration, added: Duration) -> Running {
        let (end, looks_left) = match self.limit() {
            Limit::Milliseconds(longest) => {
                let left = (Duration::from_millis(longest) + added).saturating_sub(used);
                (Some(Instant::now() + left), u32::MAX)
            }
            Limit::Looks(looks) => (None, looks),
            #[cfg(feature = "break-rules")]
            Limit::Endless => (None, u32::MAX),
        };
        Running { end, looks_left, every: self.every }
    }

    /// Returns the limit in force: in test builds `CACHEALLOC_BOUND` sets it for one bound.
    fn limit(&self) -> Limit {
        #[cfg(feature = "break-rules")]
        if let Some((name, limit)) = in_tests::get()
            && name == self.name
        {
            return *limit;
        }
        self.limit
    }

    /// Waits until `is_over` returns `true` or the bound is spent. Returns whether `is_over` did.
    pub(crate) fn until(&self, is_over: impl FnMut() -> bool) -> bool {
        self.begin().until(is_over)
    }

    /// Returns the tries of a bound that counts.
    pub(crate) fn tries(&self) -> core::ops::Range<u32> {
        0..self.begin().looks_left
    }
}

/// A bound that all waits of a process share. It grows by a fiftieth of the time since its first
/// use: a program that waits again and again loses no more than that.
#[derive(Debug)]
pub(crate) struct Budget {
    bound: &'static Bound,
    spent_ns: AtomicU64,
    began_ns: OnceLock<u64>,
}

impl Budget {
    /// The budget grows by the elapsed time divided by this number.
    const PART: u32 = 50;

    pub(crate) const fn new(bound: &'static Bound) -> Budget {
        Budget { bound, spent_ns: AtomicU64::new(0), began_ns: OnceLock::new() }
    }

    /// Returns the unspent part.
    pub(crate) fn left(&self) -> Running {
        let elapsed_ns = now_ns().saturating_sub(*self.began_ns.get_or_init(now_ns));
        let spent = Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed));
        self.bound.less(spent, Duration::from_nanos(elapsed_ns) / Budget::PART)
    }

    /// Waits until `is_over` returns `true` or the budget is spent. Returns whether `is_over` did.
    pub(crate) fn until(&self, is_over: impl FnMut() -> bool) -> bool {
        let mut left = self.left();
        self.spend(|| left.until(is_over))
    }

    /// Runs `body` and deducts its duration.
    pub(crate) fn spend<T>(&self, body: impl FnOnce() -> T) -> T {
        let begun_ns = now_ns();
        let result = body();
        self.deduct(Duration::from_nanos(now_ns().saturating_sub(begun_ns)));
        result
    }

    pub(crate) fn deduct(&self, spent: Duration) {
        self.spent_ns.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Running {
    /// Returns whether the bound is spent.
    pub(crate) fn is_spent(&self) -> bool {
        self.looks_left == 0 || self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns the unspent time.
    pub(crate) fn left(&self) -> Duration {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        let others = if self.looks_left == 0 { Duration::ZERO } else { Duration::MAX };
        left.unwrap_or(others)
    }

    /// Counts a look. Returns whether one was left.
    pub(crate) fn look(&mut self) -> bool {
        let may = !self.is_spent();
        self.looks_left = self.looks_left.saturating_sub(1);
        may
    }

    /// Waits like [`Bound::until`], for the unspent part of the bound.
    pub(crate) fn until(&mut self, mut is_over: impl FnMut() -> bool) -> bool {
        loop {
            if is_over() {
                return true;
            }
            if !self.look() {
                return false;
            }
            library_thread::sleep(self.every);
        }
    }
}

/// Waits until `is_over` returns `true`, as long as that takes: on the plain driver the call waits
/// for the same event.
pub(crate) fn until(mut is_over: impl FnMut() -> bool) {
    const EVERY: Duration = Duration::from_micros(20);
    while !is_over() {
        library_thread::sleep(EVERY);
    }
}

/// Waits like [`Budget::until`], or like [`until`] without a budget.
pub(crate) fn within(budget: Option<&Budget>, is_over: impl FnMut() -> bool) -> bool {
    match budget {
        Some(budget) => budget.until(is_over),
        None => {
            until(is_over);
            true
        }
    }
}

/// Reads `CACHEALLOC_BOUND`. `NAME:none` removes the bound, and `NAME:0` removes the wait before
/// it. So tests show that each bound has programs on both sides.
#[cfg(feature = "break-rules")]
mod in_tests {
    use std::sync::OnceLock;

    use super::Limit;

    pub(super) fn get() -> Option<&'static (String, Limit)> {
        static SET: OnceLock<Option<(String, Limit)>> = OnceLock::new();
        let read = || {
            let text = std::env::var("CACHEALLOC_BOUND").ok()?;
            let (name, limit) = text.split_once(':')?;
            let limit = if limit == "none" { Limit::Endless } else { Limit::Looks(0) };
            Some((name.to_string(), limit))
        };
        SET.get_or_init(read).as_ref()
    }
}
