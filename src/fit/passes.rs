//! When the library passes by, to give back what nothing uses (`preload/trim/scavenger.rs`): every second, as long as
//! enough is reserved, by the times of the history.

use cachealloc_options::{Config, IdleRelease};

/// As the library.
const PASS_EVERY_US: u64 = 1_000_000;
const WORTH_BYTES: u64 = 64 << 20;
/// After so many in a row nothing is left that could go back, and nothing is remembered.
const PASSES_MAX: u64 = 2_000;

#[derive(Debug)]
pub(crate) struct Passes {
    /// From how much on that is reserved. None: never.
    worth_bytes: Option<u64>,
    now_us: u64,
    last_us: u64,
    /// None: it sleeps until more is reserved.
    next_us: Option<u64>,
}

impl Passes {
    pub(crate) fn new(config: &Config) -> Passes {
        let idle = (config.idle_release != IdleRelease::Never).then_some(WORTH_BYTES);
        let excess = config.policy.free_bytes_max.map(|most| most.saturating_add(1));
        let worth_bytes = idle.into_iter().chain(excess).min();
        Passes { worth_bytes, now_us: 0, last_us: 0, next_us: None }
    }

    /// It is so late by now. Time that goes back has not passed.
    pub(crate) fn time_is(&mut self, time_us: u64) {
        self.now_us = self.now_us.max(time_us);
        let from_us = self.now_us.saturating_sub(PASSES_MAX * PASS_EVERY_US);
        self.next_us = self.next_us.map(|next_us| next_us.max(from_us));
    }

    /// Whether it passes by now; then tell it what is reserved afterwards (`passed`), and ask again.
    pub(crate) fn is_due(&mut self) -> bool {
        let due_us = self.next_us.take_if(|next_us| *next_us <= self.now_us);
        self.last_us = due_us.unwrap_or(self.last_us);
        due_us.is_some()
    }

    pub(crate) fn passed(&mut self, reserved_bytes: u64) {
        self.begin(self.last_us, reserved_bytes);
    }

    pub(crate) fn cache_grew(&mut self, reserved_bytes: u64) {
        if self.next_us.is_none() {
            self.begin(self.now_us, reserved_bytes);
        }
    }

    fn begin(&mut self, from_us: u64, reserved_bytes: u64) {
        let is_worth_it = self.worth_bytes.is_some_and(|bytes| reserved_bytes >= bytes);
        self.next_us = is_worth_it.then_some(from_us.saturating_add(PASS_EVERY_US));
    }
}
