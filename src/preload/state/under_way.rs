//! What has begun and has not ended yet, for a thread that must not go on before that.
//!
//! It waits for what had begun when it came, and for nothing that begins later: where many threads free, or give memory back,
//! one after the other, something is always under way.

use std::sync::Mutex;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::lock::lock;
use crate::process::bounds;
use crate::process::bounds::Budget;

/// A call that waits for frees, or for memory that comes back behind them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A request that natively stands still while another thread's free waits, and then is served.
    StandsStill,
    /// Any other call: another thread's free may return only behind it (Note [Which frees to wait for]).
    GoesOn,
}

/// The bound of a call that natively stands still; None: it waits as long as it takes.
pub(crate) fn to_the_end() -> Option<&'static Budget> {
    static BROKEN: Budget = Budget::new(&bounds::BROKEN_STANDSTILL);
    (!rule_holds(Rule::StandsStillToTheEnd)).then_some(&BROKEN)
}

/// Numbered as they begin.
#[derive(Debug)]
pub(crate) struct UnderWay(Mutex<Numbers>);

#[derive(Debug)]
struct Numbers {
    next: u64,
    open: Vec<u64>,
}

/// One that has begun; it has ended when this is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Begun {
    of: &'static UnderWay,
    number: u64,
}

impl UnderWay {
    /// Nothing has begun.
    pub(crate) const fn new() -> UnderWay {
        UnderWay(Mutex::new(Numbers { next: 0, open: Vec::new() }))
    }

    pub(crate) fn begin(&'static self) -> Begun {
        let mut numbers = lock(&self.0);
        let number = numbers.next;
        numbers.next += 1;
        numbers.open.push(number);
        Begun { of: self, number }
    }

    /// Whether anything is under way.
    pub(crate) fn is_any(&self) -> bool {
        !lock(&self.0).open.is_empty()
    }

    /// Waits until all that has begun by now has ended, or nothing is left of the budget. Call without a lock that another thread of the
    /// program may want.
    pub(crate) fn wait(&self, budget: Option<&Budget>) {
        let next = lock(&self.0).next;
        bounds::within(budget, || !lock(&self.0).open.iter().any(|number| *number < next));
    }
}

impl Default for UnderWay {
    fn default() -> UnderWay {
        UnderWay::new()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        lock(&self.of.0).open.retain(|number| *number != self.number);
    }
}
