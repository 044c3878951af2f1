//! The steps of a free.

use super::machine::{At, Run, Thread, Went};
use super::{Left, Op};
use crate::order::deferral::DeferralState;
use crate::order::submission_counters::{CounterReading, Lane, quiet};
use crate::rules::{Rule, rule_holds};

impl Run {
    pub(super) fn free(&mut self, own: &mut Thread, lane: usize, op: Op, here: usize) -> Went {
        let seen = CounterReading::new(own.ended, own.begun);
        let each = matches!(op, Op::Free | Op::FreeElsewhere);
        let id = here as u64;
        Ok(Some(match own.at {
            At::Start if self.is_gone(here) => At::Start,
            At::Start => {
                own.needed = self.contexts[here].works;
                own.begun = self.counters().begun();
                own.waits = op == Op::FreeThatWaits;
                At::Quiet
            }
            At::Quiet if quiet(own.begun, self.counters().ended(), self.contexts[here].covered) => {
                At::Publish
            }
            At::Quiet if self.watched => At::FreeState,
            At::Quiet => At::Gate,
            At::FreeState => {
                own.waits |= !self.is_exclusive(here);
                At::Gate
            }
            At::Gate if self.contexts[here].barrier_lock => return Ok(None),
            At::Gate => {
                self.contexts[here].barrier_lock = true;
                At::Ended
            }
            At::Ended => {
                own.ended = self.counters().ended();
                At::Begun
            }
            At::Begun => {
                own.begun = self.counters().begun();
                At::Record
            }
            At::Record => {
                own.recorded = self.contexts[here].works;
                if own.waits { At::Recorded } else { At::PutOff }
            }
            At::PutOff => {
                own.one = self.deferral(|deferral| deferral.is_single_stream());
                match own.one || each {
                    true if self.watched => At::MayPutOff,
                    true => At::Debt,
                    false => At::Wait,
                }
            }
            At::MayPutOff if self.is_exclusive(here) => At::Debt,
            At::MayPutOff => At::Wait,
            At::Debt if self.deferring_context == Some(id) && own.one => At::File,
            At::Debt if self.deferring_context == Some(id) => At::SayEach,
            At::Debt if self.submits(here) => At::Owe,
            At::Debt => At::Wait,
            At::Owe
                if !self.deferring_context(|deferring_context| deferring_context.try_set(id)) =>
            {
                At::Wait
            }
            At::Owe if !own.one => At::SayEach,
            At::Owe if self.left == Left::SecondQuestion => At::File,
            At::Owe => At::AskAgain,
            At::AskAgain if self.deferral(|deferral| deferral.is_single_stream()) => At::File,
            At::SayEach if self.deferral(|deferral| deferral.defer_per_stream()) => At::File,
            At::AskAgain | At::SayEach => At::Wait,
            At::Wait => {
                self.contexts[here].floor |= own.recorded;
                At::Holds
            }
            At::Holds if !rule_holds(Rule::DeferralIsPerContext) => At::NoneOwes,
            At::Holds if self.deferring_context == Some(id) => At::NoneOwes,
            At::Holds if self.submits(here) => At::Take,
            At::Holds => At::File,
            At::Take
                if self.deferring_context(|deferring_context| deferring_context.try_set(id)) =>
            {
                At::NoneOwes
            }
            At::Take => At::File,
            At::NoneOwes => {
                self.deferral(DeferralState::clear_deferred);
                At::Forget
            }
            At::Forget => {
                let lane = if lane == 0 { Lane::Own } else { Lane::Shared };
                let again = self.deferral(|deferral| deferral.forgets(seen, lane));
                if again { At::LookAgain } else { At::OwesNoMore }
            }
            At::LookAgain => {
                let begun = self.counters().begun();
                self.deferral(|deferral| deferral.looks_again(begun, seen));
                At::OwesNoMore
            }
            At::OwesNoMore => {
                self.deferring_context(|deferring_context| deferring_context.clear(id));
                At::File
            }
            At::File => {
                let context = &mut self.contexts[here];
                (context.event, context.barrier_lock) = (own.recorded, false);
                context.number += 1;
                self.cover(here, seen);
                if self.watched { At::Filed } else { At::Publish }
            }
            At::Filed if self.is_exclusive(here) => At::Publish,
            At::Filed => At::Over,
            At::Recorded => {
                self.contexts[here].barrier_lock = false;
                At::Over
            }
            At::Over => {
                if self.left != Left::ItsWait {
                    self.over |= own.recorded;
                }
                self.cover(here, seen);
                At::Publish
            }
            _ => {
                self.published |= own.needed;
                At::Start
            }
        }))
    }

    /// Returns whether the streams belong to this context.
    fn submits(&mut self, context: usize) -> bool {
        let (watched, id) = (self.watched, context as u64);
        let submits = self.exclusive(|exclusive| match watched {
            true => exclusive.is_submitter(id),
            false => exclusive.counts_as_submitter(id),
        });
        submits || !rule_holds(Rule::OnlySubmitterForgets)
    }

    fn cover(&mut self, context: usize, seen: CounterReading) {
        let covered = &mut self.contexts[context].covered;
        *covered = seen.covers().map_or(*covered, |to| to.max(*covered));
    }
}
