//! Times at which the library's scavenger would run to release unused memory
//! (`preload/trim/scavenger.rs`): every second, while enough is reserved, by the times of the
//! history.

use cachealloc_options::{Config, IdleRelease};

/// The library's value.
const PASS_EVERY_TENTHS: u32 = 10;
const WORTH_BYTES: u64 = 64 << 20;
/// Number of passes in a row after which nothing is left that could be released.
const PASSES_MAX: u32 = 2_000;

#[derive(Debug)]
pub(crate) struct Passes {
    /// Reserved bytes from which on it runs, or `None` for never.
    worth_bytes: Option<u64>,
    /// The present time. This and the following are in tenths of a second.
    now: u32,
    last: u32,
    /// Time of the next pass, or `None` while it sleeps until more is reserved.
    next: Option<u32>,
}

impl Passes {
    pub(crate) fn new(config: &Config) -> Passes {
        let idle = (config.idle_release != IdleRelease::Never).then_some(WORTH_BYTES);
        let excess = config.policy.free_bytes_max.map(|most| most.saturating_add(1));
        let worth_bytes = idle.into_iter().chain(excess).min();
        Passes { worth_bytes, now: 0, last: 0, next: None }
    }

    /// Sets the present time, in tenths of a second.
    pub(crate) fn time_is(&mut self, tenths: u32) {
        self.now = tenths;
        let from = self.now.saturating_sub(PASSES_MAX * PASS_EVERY_TENTHS);
        self.next = self.next.map(|next| next.max(from));
    }

    /// Whether a pass is due by now. If so, the caller must call `passed` with what is reserved
    /// afterwards, and ask again.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.next.take_if(|next| *next <= self.now);
        self.last = due.unwrap_or(self.last);
        due.is_some()
    }

    pub(crate) fn passed(&mut self, reserved_bytes: u64) {
        self.begin(self.last, reserved_bytes);
    }

    pub(crate) fn cache_grew(&mut self, reserved_bytes: u64) {
        if self.next.is_none() {
            self.begin(self.now, reserved_bytes);
        }
    }

    fn begin(&mut self, from: u32, reserved_bytes: u64) {
        let is_worth_it = self.worth_bytes.is_some_and(|bytes| reserved_bytes >= bytes);
        self.next = is_worth_it.then_some(from.saturating_add(PASS_EVERY_TENTHS));
    }
}
