//! When the library passes by, to give back what nothing uses (`preload/trim/scavenger.rs`): every second, as long as
//! enough is reserved, by the times of the history.

use cachealloc_options::{Config, IdleRelease};

/// As the library.
const PASS_EVERY_TENTHS: u32 = 10;
const WORTH_BYTES: u64 = 64 << 20;
/// After so many in a row nothing is left that could go back, and nothing is remembered.
const PASSES_MAX: u32 = 2_000;

#[derive(Debug)]
pub(crate) struct Passes {
    /// From how much on that is reserved. None: never.
    worth_bytes: Option<u64>,
    /// Tenths of a second, as those that follow.
    now: u32,
    last: u32,
    /// None: it sleeps until more is reserved.
    next: Option<u32>,
}

impl Passes {
    pub(crate) fn new(config: &Config) -> Passes {
        let idle = (config.idle_release != IdleRelease::Never).then_some(WORTH_BYTES);
        let excess = config.policy.free_bytes_max.map(|most| most.saturating_add(1));
        let worth_bytes = idle.into_iter().chain(excess).min();
        Passes { worth_bytes, now: 0, last: 0, next: None }
    }

    /// So many tenths of a second have passed by now.
    pub(crate) fn time_is(&mut self, tenths: u32) {
        self.now = tenths;
        let from = self.now.saturating_sub(PASSES_MAX * PASS_EVERY_TENTHS);
        self.next = self.next.map(|next| next.max(from));
    }

    /// Whether it passes by now; then tell it what is reserved afterwards (`passed`), and ask again.
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
