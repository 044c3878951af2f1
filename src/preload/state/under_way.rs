//! Operations that have begun and not ended yet, for a thread that must wait for them.
//!
//! A waiter waits for operations that had begun when it started to wait, and for none that begins
//! later. Where many threads free, or release memory, one after the other, some operation is always
//! under way.

use std::sync::Mutex;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::lock::lock;
use crate::process::bounds;
use crate::process::bounds::Budget;

/// Kind of a call that waits for frees, or for memory that is released after them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A request that stands still on the plain driver while another thread's free waits, and then
    /// is served.
    StandsStill,
    /// Any other call: another thread's free may return only after it
    /// (Note [Which frees to wait for]).
    GoesOn,
}

/// Returns the bound of a call that stands still on the plain driver, or `None` if it waits as long
/// as it takes.
pub(crate) fn to_the_end() -> Option<&'static Budget> {
    static BROKEN: Budget = Budget::new(&bounds::BROKEN_STANDSTILL);
    (!rule_holds(Rule::BlockedRequestHasNoBound)).then_some(&BROKEN)
}

/// Operations, numbered in the order of their beginnings.
#[derive(Debug)]
pub(crate) struct UnderWay(Mutex<Numbers>);

#[derive(Debug)]
struct Numbers {
    next: u64,
    open: Vec<u64>,
}

/// An operation that has begun; it has ended when this is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Begun {
    of: &'static UnderWay,
    number: u64,
}

impl UnderWay {
    /// Creates a set in which nothing has begun.
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

    /// Returns whether anything is under way.
    pub(crate) fn is_any(&self) -> bool {
        !lock(&self.0).open.is_empty()
    }

    /// Waits until every operation that has begun by now has ended, or the budget is spent. The
    /// caller must hold no lock that another thread of the program may need.
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
