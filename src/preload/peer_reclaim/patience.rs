//! How long a request waits for its peers.
//!
//! Without the library, the memory that a peer has freed is the driver's again, and the request is
//! served. So it waits for a peer that works: the library's thread there may be waiting for a
//! processor, or be releasing memory. A process that does not work, such as a stopped one, costs
//! the request a moment.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use cachealloc_foreign::process;
use cachealloc_statistics::sender::Receiver;

use crate::clock::Instant;
use crate::process::bounds;
use crate::process::bounds::Budget;

/// Longest wait of one request for peers that do not work.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// Peers are looked at no more often.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Time that was spent on peers that work and did not answer.
static SPENT: Budget = Budget::new(&bounds::PEERS);

/// The patience of one request with all its peers.
pub(super) struct Patience {
    idle_left: Cell<Duration>,
}

/// A wait for one answer of a peer.
pub(super) struct Waiting<'a> {
    patience: &'a Patience,
    /// The peer, if it can be seen.
    process: Option<u32>,
    looked: Cell<Instant>,
    idle_left: Cell<Duration>,
    /// Time in which the peer worked.
    worked: Cell<Duration>,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { idle_left: Cell::new(IDLE_MAX) }
    }
}

impl Patience {
    /// Begins a wait for this process, for at most `idle_max` in which it does not work.
    pub(super) fn begin(&self, process: Option<u32>, idle_max: Duration) -> Waiting<'_> {
        let (looked, worked) = (Cell::new(Instant::now()), Cell::new(Duration::ZERO));
        Waiting { patience: self, process, looked, idle_left: Cell::new(idle_max), worked }
    }
}

impl Waiting<'_> {
    /// Returns how much longer to wait.
    pub(super) fn left(&self) -> Duration {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.looked.get());
        let idle_left = || self.idle_left.get().min(self.patience.idle_left.get());
        if passed < LOOK_EVERY {
            return idle_left();
        }
        self.looked.set(now);
        let left = || SPENT.left().left().saturating_sub(self.worked.get());
        let working_left = if self.works() { left() } else { Duration::ZERO };
        if working_left.is_zero() {
            for left in [&self.idle_left, &self.patience.idle_left] {
                left.set(left.get().saturating_sub(passed));
            }
        } else {
            self.worked.set(self.worked.get() + passed);
        }
        idle_left().max(working_left)
    }

    fn works(&self) -> bool {
        let folder = |process: u32| Path::new("/proc").join(process.to_string());
        self.process.is_some_and(|process| process::is_at_work(&folder(process)))
    }

    /// Ends the wait without an answer.
    pub(super) fn give_up(self) {
        SPENT.deduct(self.worked.get());
    }
}

impl Receiver for Waiting<'_> {
    fn has_ended(&self) -> bool {
        false // it no longer works
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn timeout(&self) -> Duration {
        self.left()
    }
}
