//! Tables of what the driver provides and takes back by address or handle, with what the library
//! knows about it.
//!
//! The driver may hand out an address or a handle again, to another thread, before the call that
//! ended it has returned. An entry removed only after the return may already belong to the other
//! thread. All such knowledge is therefore kept in these tables, which follow one order:
//! - The library enters what the driver provides before the call returns to the program: no other
//!   thread knows it yet.
//! - Other threads may notice some calls while they are under way, such as a registration with
//!   which theirs collides. Their entries are made before the driver's call too, and stay if the
//!   driver agrees. A refused call removes its own entry and no other.
//! - The library removes what a call ends before the driver's call, and restores it if the driver
//!   refuses, unless the place was reused meanwhile.
//!
//! Contexts, streams and captures have ids that are never reused. They are kept by these ids and
//! need no such order.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::CuResult;
use crate::lock::lock;

/// Knowledge about places, by address or handle.
pub(crate) struct HandleTable<V> {
    pages: Mutex<Pages<V>>,
    /// Number of entries, readable without the lock.
    count: AtomicUsize,
}

/// Entries of a table.
pub(crate) struct Pages<V> {
    /// Entries of what the driver has provided.
    pub given: BTreeMap<usize, V>,
    /// Entries of calls to the driver that are under way.
    pub under_way: Vec<(usize, V)>,
}

impl<V: Clone + PartialEq> HandleTable<V> {
    pub(crate) const fn new() -> HandleTable<V> {
        let pages = Pages { given: BTreeMap::new(), under_way: Vec::new() };
        HandleTable { pages: Mutex::new(pages), count: AtomicUsize::new(0) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Reads the entries.
    pub(crate) fn read<T>(&self, body: impl FnOnce(&Pages<V>) -> T) -> T {
        body(&lock(&self.pages))
    }

    /// Changes entries.
    pub(crate) fn with<T>(&self, body: impl FnOnce(&mut Pages<V>) -> T) -> T {
        let mut pages = lock(&self.pages);
        let result = body(&mut pages);
        self.count.store(pages.given.len() + pages.under_way.len(), Ordering::Release);
        result
    }

    /// Enters what the driver has provided. Returns an older entry, whose end was not reported to
    /// the library.
    pub(crate) fn enter(&self, place: usize, value: V) -> Option<V> {
        self.with(|pages| pages.given.insert(place, value))
    }

    /// Runs the driver's call that provides this entry, where other threads may notice it before
    /// the call returns.
    pub(crate) fn enter_by(
        &self,
        place: usize,
        value: V,
        call: impl FnOnce() -> CuResult,
    ) -> CuResult {
        let holds = rule_holds(Rule::RefusedEntryAlone);
        let was_there = self.with(|pages| {
            pages.under_way.push((place, value.clone()));
            pages.given.contains_key(&place)
        });
        let code = call();
        self.with(|pages| {
            pages.has_returned(place, &value);
            if code.is_ok() {
                pages.given.insert(place, value);
            } else if !holds && !was_there {
                pages.given.remove(&place);
            }
        });
        code
    }

    /// Runs the driver's call that ends the entry at this place.
    pub(crate) fn end_by(&self, place: usize, call: impl FnOnce() -> CuResult) -> CuResult {
        if !rule_holds(Rule::OutBeforeDriver) {
            return self.end_after(place, call);
        }
        let ended = self.with(|pages| pages.given.remove(&place));
        let code = call();
        if let Some(value) = ended.filter(|_| code.is_err()) {
            self.with(|pages| _ = pages.given.entry(place).or_insert(value));
        }
        code
    }

    /// `end_by` for an entry that other threads need if the driver refuses: they find it among the
    /// calls under way.
    pub(crate) fn end_visibly_by(&self, place: usize, call: impl FnOnce() -> CuResult) -> CuResult {
        if !rule_holds(Rule::OutBeforeDriver) {
            return self.end_after(place, call);
        }
        let ended = self.with(|pages| {
            let ended = pages.given.remove(&place)?;
            pages.under_way.push((place, ended.clone()));
            Some(ended)
        });
        let code = call();
        if let Some(value) = ended {
            self.with(|pages| {
                pages.has_returned(place, &value);
                if code.is_err() {
                    pages.given.entry(place).or_insert(value);
                }
            });
        }
        code
    }
}

impl<V: PartialEq> Pages<V> {
    /// Removes an entry of a call that was under way. Equal entries of several threads are
    /// interchangeable.
    fn has_returned(&mut self, place: usize, value: &V) {
        let own = |entry: &(usize, V)| entry.0 == place && entry.1 == *value;
        if let Some(index) = self.under_way.iter().position(own) {
            self.under_way.swap_remove(index);
        }
    }
}

impl<V: Clone + PartialEq> HandleTable<V> {
    /// Ends an entry without `Rule::OutBeforeDriver`: the driver may reuse the place before the
    /// entry has left the table.
    #[cold]
    fn end_after(&self, place: usize, call: impl FnOnce() -> CuResult) -> CuResult {
        let code = call();
        if code.is_ok() {
            self.with(|pages| pages.given.remove(&place));
        }
        code
    }
}

impl<V: Clone + PartialEq> Default for HandleTable<V> {
    fn default() -> HandleTable<V> {
        HandleTable::new()
    }
}
