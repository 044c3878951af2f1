//! References to contexts that the program holds: decides whether a reference that it drops is the
//! last.
//!
//! A primary context lives while something has retained it, and a context that the program has made
//! while something is attached to it. The driver does not report how many references there are. The
//! preparations for dropping the last one are too expensive for any other: the library waits for
//! all work, and meanwhile other threads find nothing of the context. So it counts the calls that
//! take and drop references. There may be more references than these, as a green context has one to
//! the primary context. So the counts can prove that the context stays. They prove that it ends
//! only where there can be no other references.
//!
//! The reset of a primary context ends it and leaves the references, which must be dropped all the
//! same. On driver 580, a context retained after a reset stays until those before the reset are
//! dropped, too (measured). Another driver may have forgotten them. So while only as many are left
//! as there were at a reset, it is unknown whether the context stays.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::lock::lock;
use crate::state::barriers::LEDGER;
use crate::test_delay::test_delay;

/// Context that references are to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Referent {
    /// The primary context of a device, one after another.
    Primary(i32),
    /// A context that the program has made, by its id.
    Made(u64),
}

/// Effect of a call on a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Stays,
    /// The driver waits for all its work, and destroys it.
    Ends,
    /// Either of the two.
    InDoubt,
}

/// A call that drops references, until the driver has returned.
#[must_use]
pub(crate) struct GivenUp {
    pub fate: Fate,
    to: Referent,
    /// Number of references to restore if the driver refuses.
    count: u32,
    /// Whether the call is the reset of a primary context.
    resets: bool,
}

#[derive(Clone, Copy)]
struct Held {
    to: Referent,
    count: u32,
    /// Number of these at the last reset.
    before_reset: u32,
    /// Number of calls that drop a reference which is not the last, and have not returned.
    leaving: u32,
}

static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());
/// Notified when a call has returned that dropped a reference which was not the last.
static LEFT: Condvar = Condvar::new();

/// Counts a reference: the program has retained a primary context, or made a context.
pub(crate) fn taken(to: Referent) {
    entry(&mut lock(&HELD), to).count += 1;
}

/// Counts an attachment of the program to a context. Nothing is known about a context that it did
/// not make.
pub(crate) fn attached(id: u64) {
    let mut held = lock(&HELD);
    if let Some(held) = held.iter_mut().find(|held| held.to == Referent::Made(id)) {
        held.count += 1;
    }
}

/// Begins to drop a reference that was counted.
pub(crate) fn give_up(to: Referent) -> GivenUp {
    let mut held = lock(&HELD);
    let one = entry(&mut held, to);
    let count = one.count.min(1);
    one.count -= count;
    if !rule_holds(Rule::ReferencesAreJudgedInTurn) {
        drop(held);
        (0..50).for_each(|_| test_delay(Rule::ReferencesAreJudgedInTurn));
        held = lock(&HELD);
    }
    GivenUp { fate: fate(held, to, count == 1), to, count, resets: false }
}

/// Begins to drop a reference that was not counted.
pub(crate) fn give_up_another(to: Referent) -> GivenUp {
    GivenUp { fate: fate(lock(&HELD), to, false), to, count: 0, resets: false }
}

/// Begins the destruction of a context, whatever refers to it.
pub(crate) fn destroy(to: Referent) -> GivenUp {
    let resets = matches!(to, Referent::Primary(_));
    let count = match resets {
        true => 0,
        false => core::mem::take(&mut entry(&mut lock(&HELD), to).count),
    };
    let fate = if sees_all() { Fate::Ends } else { Fate::InDoubt };
    GivenUp { fate, to, count, resets }
}

/// Forgets a context that the program has made and that has ended.
pub(crate) fn ended(id: u64) {
    lock(&HELD).retain(|held| held.to != Referent::Made(id));
}

impl GivenUp {
    /// Concludes the call once the driver has returned.
    pub(crate) fn answered(self, is_refused: bool) {
        let mut held = lock(&HELD);
        // Otherwise another thread has destroyed the context.
        let Some(one) = held.iter_mut().find(|held| held.to == self.to) else { return };
        if self.fate == Fate::Stays {
            one.leaving -= 1;
            LEFT.notify_all();
        }
        if is_refused {
            one.count += self.count;
        } else if self.resets || one.count == 0 {
            one.before_reset = one.count;
        }
    }
}

/// Returns the effect of dropping a reference. Once no counted reference is left, waits for the
/// calls that drop earlier ones: the driver counts references in the order in which it gets the
/// calls, and the last one ends the context. `held` is the lock under which the reference was taken
/// off the count: of two threads that drop the last two, only one drops the last.
fn fate(mut held: MutexGuard<'_, Vec<Held>>, to: Referent, was_counted: bool) -> Fate {
    loop {
        let one = entry(&mut held, to);
        if one.count > one.before_reset && sees_all() {
            one.leaving += 1;
            return Fate::Stays;
        }
        if one.leaving == 0 {
            let is_known = was_counted && one.count == 0 && sees_all() && !others_refer(to);
            return if is_known { Fate::Ends } else { Fate::InDoubt };
        }
        held = LEFT.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Returns whether other references exist: a green context refers to the primary one.
fn others_refer(to: Referent) -> bool {
    matches!(to, Referent::Primary(_)) && LEDGER.exclusive.has_observed(Observer::GreenContext)
}

/// Returns whether no call has bypassed the library. Without one of the other rules the count is
/// not consulted, so that it does not replace them.
fn sees_all() -> bool {
    const OF_DOUBT: [Rule; 7] = [
        Rule::ReferencesAreCounted,
        Rule::ReferenceHidesNothing,
        Rule::ReferenceWaitsForNone,
        Rule::ReleasedReferenceFlushes,
        Rule::BarrierOutlastsReference,
        Rule::KeptBesideReferences,
        Rule::OpensOutliveReference,
    ];
    LEDGER.elision.is_allowed() && OF_DOUBT.into_iter().all(rule_holds)
}

fn entry(held: &mut Vec<Held>, to: Referent) -> &mut Held {
    let known = held.iter().position(|held| held.to == to);
    let at = known.unwrap_or_else(|| {
        held.push(Held { to, count: 0, before_reset: 0, leaving: 0 });
        held.len() - 1
    });
    &mut held[at]
}
