//! The steps of a launch, of a flush without a launch, and of the end of a context.
//!
//! The oracle: work that begins after a free has published is ordered on the device after all that
//! the device had of the context when the free started. A submitted wait, the order of its stream,
//! or completion of that work ensures this.

use super::Left;
use super::machine::{At, Context, Run, Thread, Went, context_of};
use crate::order::deferral::{ANY_STREAM, Admission, DeferralState};
use crate::order::exclusive::Exclusive;
use crate::rules::{Rule, rule_holds};

impl Run {
    pub(super) fn submit(
        &mut self,
        own: &mut Thread,
        lane: usize,
        stream: usize,
        handle: u64,
    ) -> Went {
        let context = context_of(stream);
        Ok(Some(match own.at {
            At::Start if self.is_gone(context) => At::Start,
            At::Start => {
                own.needed = self.published;
                // The store of a plain count may become visible after the load that follows it,
                // except for the first submission.
                let submits = !self.watched || self.exclusive.1 == context as u64;
                if lane == 0 && submits { At::Admit } else { At::Begin }
            }
            At::Begin => {
                self.begun[lane] += 1;
                own.counted = true;
                match own.admitted {
                    Some(true) => At::Launch,
                    Some(false) => At::Admission,
                    None if self.watched => At::Watch,
                    None => At::Admit,
                }
            }
            At::Watch => {
                let second = self.exclusive(|exclusive| exclusive.submits(context as u64));
                if second { At::Observe } else { At::Admit }
            }
            At::Observe => {
                self.over |= self.contexts[0].event | self.contexts[1].event;
                At::Waited
            }
            At::Waited => {
                self.exclusive(Exclusive::waited);
                At::Admit
            }
            At::Admit => {
                let admitted = self.deferral(|deferral| deferral.can_proceed(handle));
                own.admitted = Some(admitted);
                match (own.counted, admitted) {
                    (false, _) => At::Begin,
                    (true, true) => At::Launch,
                    (true, false) => At::Admission,
                }
            }
            At::Launch if self.is_gone(context) => At::End,
            At::Launch => {
                let before = self.contexts[context].floor | self.tails[stream];
                if own.needed & !(before | self.over) != 0 {
                    return Err("a launch is not behind what a free has published");
                }
                let work = self.launched + 1;
                self.launched |= work;
                self.contexts[context].works |= work;
                self.tails[stream] = before | work;
                At::End
            }
            At::End => {
                self.ended[lane] += 1;
                At::Start
            }
            _ => return self.pay(own, Some(stream).filter(|_| handle != ANY_STREAM)),
        }))
    }

    /// A submission whose waits the driver refuses. Nothing of it touches memory.
    pub(super) fn submit_refused(&mut self, own: &mut Thread, lane: usize, stream: usize) -> Went {
        own.refused = true;
        match own.at {
            At::Launch => Ok(Some(At::End)),
            _ => self.submit(own, lane, stream, stream as u64 + 1),
        }
    }

    /// Steps from the question how a submission goes on to the answer that it may. `stream` is
    /// `None` for a submission that does not name its stream.
    fn pay(&mut self, own: &mut Thread, stream: Option<usize>) -> Went {
        let handle = stream.map_or(ANY_STREAM, |stream| stream as u64 + 1);
        let owing = own.deferring_context;
        Ok(Some(match own.at {
            At::Admission => match self.deferral(|deferral| deferral.step(handle)) {
                None => At::Admission,
                Some(Admission::Proceed) => At::Launch,
                Some(Admission::FlushDeferred | Admission::WaitOnStream) => At::Owed,
            },
            At::Owed => match self.deferring_context {
                Some(context) => {
                    own.deferring_context = context as usize;
                    At::PayGate
                }
                None => {
                    self.deferral(DeferralState::flush_not_needed);
                    At::Admission
                }
            },
            At::PayGate if self.contexts[owing].barrier_lock => return Ok(None),
            At::PayGate => {
                self.contexts[owing].barrier_lock = true;
                let here = stream.is_some_and(|stream| context_of(stream) == owing);
                if here && !own.refused && self.is_exclusive(owing) {
                    At::ComeBehind
                } else {
                    At::PutIn
                }
            }
            At::ComeBehind if self.deferring_context != Some(owing as u64) => {
                self.contexts[owing].barrier_lock = false;
                At::Admission
            }
            At::ComeBehind => {
                let stream = stream.expect("else the context waits");
                let Context { number, event, .. } = self.contexts[owing];
                let known = self.behind[stream] >= number
                    || self.behind[stream] != 0 && !rule_holds(Rule::StreamsWaitForTheNewest);
                if !known && rule_holds(Rule::StreamsWaitForThemselves) {
                    self.tails[stream] |= event;
                    self.behind[stream] = number;
                }
                self.deferral(DeferralState::flushed_per_stream);
                self.contexts[owing].barrier_lock = false;
                At::Launch
            }
            At::PutIn => {
                let owes = self.deferring_context == Some(owing as u64);
                if owes && own.refused && rule_holds(Rule::RefusedWaitStaysDeferred) {
                    self.contexts[owing].barrier_lock = false;
                    return Ok(Some(At::Launch));
                }
                if owes && !own.refused && !self.is_gone(owing) {
                    self.contexts[owing].floor |= self.contexts[owing].event;
                }
                let anyway =
                    !rule_holds(Rule::DeferralIsPerContext) || self.left == Left::DebtorUnderGate;
                if owes || anyway {
                    At::Paid
                } else {
                    self.contexts[owing].barrier_lock = false;
                    At::Admission
                }
            }
            At::Paid => {
                self.deferral(DeferralState::flushed);
                At::NothingOwed
            }
            _ => {
                self.deferring_context(|deferring_context| deferring_context.clear(owing as u64));
                self.contexts[owing].barrier_lock = false;
                At::Admission
            }
        }))
    }

    pub(super) fn pay_all(&mut self, own: &mut Thread) -> Went {
        Ok(Some(match own.at {
            At::Start if self.deferral(|deferral| deferral.is(ANY_STREAM)) => At::Start,
            At::Start => At::Begin,
            At::Begin => {
                self.begun[1] += 1;
                At::Admission
            }
            At::Launch => {
                self.ended[1] += 1;
                At::Start
            }
            _ => return self.pay(own, None),
        }))
    }

    pub(super) fn end(&mut self, own: &mut Thread) -> Went {
        Ok(Some(match own.at {
            At::Start if self.gone => At::Start,
            At::Start if self.deferring_context == Some(0) => At::PayGate,
            // Continues here after the flush.
            At::Start | At::Admission => At::Gone,
            At::Gone => {
                self.gone = true;
                self.over |= self.contexts[0].works;
                At::EndNoted
            }
            At::EndNoted => {
                self.exclusive(|exclusive| exclusive.ended(0));
                At::Start
            }
            _ => return self.pay(own, None),
        }))
    }
}
