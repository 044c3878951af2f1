//! What a free has to wait for, and what may look past its barrier.

pub mod barrier;
pub mod captures;
pub mod early_start;
pub mod kernels;
pub mod observers;
pub mod pending;
pub mod pinned;
pub mod real_frees;
pub mod settle;
pub mod skipping;
pub mod submissions;

use cachealloc_core::order::Ledger;
use cachealloc_core::rules::{Rule, rule_holds};

/// What was submitted, what the host may look at, and who shares the device with us.
pub static LEDGER: Ledger = Ledger::new();

/// Where a rule is broken, time for another thread to show it.
#[inline(always)]
pub fn widen(rule: Rule) {
    if !rule_holds(rule) {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}
