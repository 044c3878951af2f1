//! Test points: places at which a test that breaks a rule gives another thread time to show it.
//! Empty in a release.

use cachealloc_core::rules::{Rule, rule_holds};

/// Sleeps for a moment if the rule is broken.
#[inline(always)]
pub(crate) fn test_delay(rule: Rule) {
    if !rule_holds(rule) {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}
