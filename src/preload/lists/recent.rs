//! The entries last looked up by a number, readable without a lock: beside a list, or as part of a
//! table that needs a lock.

use core::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::lists::hash::HashMap;
use crate::lock::lock;

/// A place for each of some numbers, such as handles. A later number takes the place of an earlier
/// one.
pub(crate) struct Recent<T: 'static>([AtomicPtr<T>; COUNT]);

const COUNT: usize = 1 << 11;
/// Spreads multiples of a common number over all places.
const FACTOR: usize = 0x9e37_79b9_7f4a_7c15;

impl<T> Recent<T> {
    pub(crate) const fn new() -> Recent<T> {
        Recent([const { AtomicPtr::new(null_mut()) }; COUNT])
    }

    /// Returns the place of this number.
    #[inline(always)]
    pub(crate) fn at(&self, number: usize) -> &AtomicPtr<T> {
        &self.0[number.wrapping_mul(FACTOR) >> (usize::BITS - COUNT.ilog2())]
    }

    fn forget(&self) {
        self.0.iter().for_each(|place| place.store(null_mut(), Ordering::Release));
    }
}

/// Entries by numbers, such as handles.
pub(crate) type Known<V> = HashMap<usize, V>;

/// A table by number.
pub(crate) struct RecentTable<V, T: 'static> {
    known: Mutex<Option<Known<V>>>,
    /// How often all entries were taken out. Changed only within `with`.
    taken_count: AtomicU64,
    recent: Recent<T>,
}

/// Entries that were taken out.
pub(crate) struct Taken<V> {
    all: Known<V>,
    /// `taken_count` afterwards.
    count: u64,
}

impl<V, T> RecentTable<V, T> {
    pub(crate) const fn new() -> RecentTable<V, T> {
        RecentTable {
            known: Mutex::new(None),
            taken_count: AtomicU64::new(0),
            recent: Recent::new(),
        }
    }

    /// Returns the place of this number. It is written only within `with`.
    #[inline(always)]
    pub(crate) fn recent(&self, number: usize) -> &AtomicPtr<T> {
        self.recent.at(number)
    }

    /// Reads or changes the entries under the lock.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut Known<V>) -> R) -> R {
        body(lock(&self.known).get_or_insert_default())
    }

    /// Takes all entries out, before a call that may be refused.
    pub(crate) fn take_all(&self) -> Taken<V> {
        self.with(|known| {
            let all = core::mem::take(known);
            if !all.is_empty() {
                self.recent.forget();
            }
            Taken { all, count: self.taken_count.fetch_add(1, Ordering::Relaxed) + 1 }
        })
    }

    /// Restores the entries after the call was refused, unless their numbers may have been reused
    /// since. Entries made since stay.
    pub(crate) fn put_back(&self, Taken { all, count }: Taken<V>) {
        self.with(|known| {
            let is_latest = self.taken_count.load(Ordering::Relaxed) == count;
            if all.is_empty() || !is_latest && rule_holds(Rule::ForgottenStaysForgotten) {
                return;
            }
            for (number, entry) in all {
                known.entry(number).or_insert(entry);
            }
            self.recent.forget();
        });
    }

    /// Forgets all entries, because their numbers may be reused.
    pub(crate) fn forget_all(&self) {
        drop(self.take_all());
    }
}
