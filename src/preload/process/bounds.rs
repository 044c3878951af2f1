//! Every wait and every retry of the library that ends by a number.
//!
//! Where the library can know what natively happens, no number decides: such a wait is [`until`], and lasts as long as it
//! takes. Where it cannot know, it takes one of the bounds below. Each is a row of the table in section 12 of
//! `docs/ordering.md`, which names what is not known, and what a program notices on either side of the bound. A test
//! compares the two, and finds waits elsewhere (`tests/it/bounds.rs`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Instant, now_ns};
use crate::process::library_thread;

/// How long, or how often.
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

/// Those of the table, by name: the limit, and how many microseconds lie between two looks.
macro_rules! bounds {
    ($($(#[$doc:meta])* $name:ident = $limit:ident($amount:literal), $every_us:literal;)*) => {
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
    /// A query, or `_exit`, waits for frees of other threads (a [`Budget`]).
    FREES_OF_OTHERS = Milliseconds(2_000), 20;
    /// A thread looks whether a call that may end a context has only counted a reference less. Looks, not a time: on a busy
    /// machine both threads wait for a processor.
    LAST_REFERENCE = Looks(4_500), 20;
    /// A call that natively goes on waits for memory on its way to the device (a [`Budget`]).
    MEMORY_ON_ITS_WAY = Milliseconds(5_000), 20;
    /// A request for a capture waits for frees in progress. It holds the lock of the capture, which a call by which the
    /// work of such a free ends may want (a [`Budget`]).
    FREES_BESIDE_A_CAPTURE = Milliseconds(5_000), 20;
    /// The end of the process waits for the work behind the last frees.
    WORK_AT_EXIT = Milliseconds(60_000), 100;
    /// A request waits for the driver's word on graphs that are gone. On a machine with more threads than processors its
    /// thread may get none for 100 ms.
    REPORTS_OF_GRAPHS = Milliseconds(500), 20;
    /// The same, where the driver has no memory for an empty graph behind which its word would come: about twice as long as
    /// its thread takes.
    REPORTS_WITHOUT_MEMORY = Milliseconds(10), 10_000;
    /// The end of the process waits for copies of red zones.
    ZONES_AT_EXIT = Milliseconds(100), 100;
    /// A thread waits for pinned memory that another one is giving back: the driver frees what no work uses in less, also on
    /// a busy machine.
    PINNED_LEAVES = Milliseconds(100), 20;
    /// The scavenger waits for work that uses memory which another process has asked for: natively it would keep that as well.
    GIFT = Milliseconds(50), 1_000;
    /// The end of the process waits for a pass of the scavenger.
    PASS_AT_EXIT = Milliseconds(500), 100;
    /// A call that announces a filter for system calls waits for our threads. They need microseconds and a processor; the
    /// caller may be a handler that has interrupted one.
    FILTER_COMES = Looks(1_500), 20;
    /// A request asks again as often as memory has come back, which other threads may take each time.
    ROOM = Looks(64), 0;
    /// A reading of the driver's figures is repeated while they change.
    READINGS = Looks(64), 0;
    /// It is looked what holds the memory that a failed call lacked (a [`Budget`]): some programs fail again and again.
    LOOKS_AT_FAILURES = Milliseconds(1_000), 0;
    /// Test builds: what stands for no end where the rule `stands_still_to_the_end` is off (a [`Budget`]).
    BROKEN_STANDSTILL = Milliseconds(100), 20;
}

/// A bound from some moment on: several waits may share it.
#[derive(Debug)]
pub(crate) struct Running {
    end: Option<Instant>,
    looks_left: u32,
    every: Duration,
}

impl Bound {
    /// The bound begins now.
    pub(crate) fn begin(&self) -> Running {
        self.less(Duration::ZERO, Duration::ZERO)
    }

    /// As `begin`, where so much of the bound is used, and so much was added to it.
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

    /// The limit in force: in test builds `CACHEALLOC_BOUND` sets it for one bound.
    fn limit(&self) -> Limit {
        #[cfg(feature = "break-rules")]
        if let Some((name, limit)) = in_tests::get()
            && name == self.name
        {
            return *limit;
        }
        self.limit
    }

    /// Waits until this is over, or the bound is. Returns whether it is over.
    pub(crate) fn until(&self, is_over: impl FnMut() -> bool) -> bool {
        self.begin().until(is_over)
    }

    /// The tries of a bound that counts.
    pub(crate) fn tries(&self) -> core::ops::Range<u32> {
        0..self.begin().looks_left
    }
}

/// A bound that all waits of a process share. It grows by a fiftieth of the time since its first use: a program that waits
/// again and again loses no more.
#[derive(Debug)]
pub(crate) struct Budget {
    bound: &'static Bound,
    spent_ns: AtomicU64,
    began_ns: OnceLock<u64>,
}

impl Budget {
    /// By this part of the elapsed time it grows.
    const PART: u32 = 50;

    pub(crate) const fn new(bound: &'static Bound) -> Budget {
        Budget { bound, spent_ns: AtomicU64::new(0), began_ns: OnceLock::new() }
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Running {
        let elapsed_ns = now_ns().saturating_sub(*self.began_ns.get_or_init(now_ns));
        let spent = Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed));
        self.bound.less(spent, Duration::from_nanos(elapsed_ns) / Budget::PART)
    }

    /// Waits until this is over, or nothing is left. Returns whether it is over.
    pub(crate) fn until(&self, is_over: impl FnMut() -> bool) -> bool {
        let mut left = self.left();
        self.spend(|| left.until(is_over))
    }

    /// Takes from it what this takes.
    pub(crate) fn spend<T>(&self, body: impl FnOnce() -> T) -> T {
        let begun_ns = now_ns();
        let result = body();
        self.spent_ns.fetch_add(now_ns().saturating_sub(begun_ns), Ordering::Relaxed);
        result
    }
}

impl Running {
    /// Whether nothing is left of it.
    pub(crate) fn is_spent(&self) -> bool {
        self.looks_left == 0 || self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Counts a look. Returns whether there may be one more.
    pub(crate) fn look(&mut self) -> bool {
        let may = !self.is_spent();
        self.looks_left = self.looks_left.saturating_sub(1);
        may
    }

    /// As [`Bound::until`], for what is left of the bound.
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

/// Waits until this is over, as long as that takes: natively the call waits for the same.
pub(crate) fn until(mut is_over: impl FnMut() -> bool) {
    const EVERY: Duration = Duration::from_micros(20);
    while !is_over() {
        library_thread::sleep(EVERY);
    }
}

/// As [`Budget::until`]; without one, as [`until`].
pub(crate) fn within(budget: Option<&Budget>, is_over: impl FnMut() -> bool) -> bool {
    match budget {
        Some(budget) => budget.until(is_over),
        None => {
            until(is_over);
            true
        }
    }
}

/// `CACHEALLOC_BOUND=NAME:none` takes the bound away, and `NAME:0` what lies before it. So tests show of each bound
/// that there are programs on both sides.
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
