//! The steps of a launch, of what pays without one, and of the end of a context.
//!
//! The oracle: what begins after a free has published comes, on the device, behind all that the device had of the
//! context when the free started: by a wait that is in, by the order of its stream, or because that is over.

use super::Left;
use super::machine::{At, Context, Run, Thread, Went, context_of};
use crate::order::exclusive::Exclusive;
use crate::order::sole::{ANY_STREAM, Move, SoleStream};
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
                // The store of a plain count may be seen later than the load behind it, but for the first submission.
                let submits = !self.watched || self.exclusive.1 == context as u64;
                if lane == 0 && submits { At::Admit } else { At::Begin }
            }
            At::Begin => {
                self.begun[lane] += 1;
                own.counted = true;
                match own.admitted {
                    Some(true) => At::Launch,
                    Some(false) => At::Move,
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
                let admitted = self.sole(|sole| sole.admits(handle));
                own.admitted = Some(admitted);
                match (own.counted, admitted) {
                    (false, _) => At::Begin,
                    (true, true) => At::Launch,
                    (true, false) => At::Move,
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

    /// From the question how a submission goes on to the answer that it may. None: to a stream that it does not tell.
    fn pay(&mut self, own: &mut Thread, stream: Option<usize>) -> Went {
        let handle = stream.map_or(ANY_STREAM, |stream| stream as u64 + 1);
        let owing = own.debtor;
        Ok(Some(match own.at {
            At::Move => match self.sole(|sole| sole.step(handle)) {
                None => At::Move,
                Some(Move::Ahead) => At::Launch,
                Some(Move::Pay | Move::ComeBehind) => At::Owed,
            },
            At::Owed => match self.debtor {
                Some(context) => {
                    own.debtor = context as usize;
                    At::PayGate
                }
                None => {
                    self.sole(SoleStream::nothing_owed);
                    At::Move
                }
            },
            At::PayGate if self.contexts[owing].gate => return Ok(None),
            At::PayGate => {
                self.contexts[owing].gate = true;
                let here = stream.is_some_and(|stream| context_of(stream) == owing);
                if here && self.is_exclusive(owing) { At::ComeBehind } else { At::PutIn }
            }
            At::ComeBehind if self.debtor != Some(owing as u64) => {
                self.contexts[owing].gate = false;
                At::Move
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
                self.sole(SoleStream::owed_by_each);
                self.contexts[owing].gate = false;
                At::Launch
            }
            At::PutIn => {
                let owes = self.debtor == Some(owing as u64);
                if owes && !self.is_gone(owing) {
                    self.contexts[owing].floor |= self.contexts[owing].event;
                }
                let anyway =
                    !rule_holds(Rule::OneContextOwes) || self.left == Left::DebtorUnderGate;
                if owes || anyway {
                    At::Paid
                } else {
                    self.contexts[owing].gate = false;
                    At::Move
                }
            }
            At::Paid => {
                self.sole(SoleStream::paid);
                At::NothingOwed
            }
            _ => {
                self.debtor(|debtor| debtor.owes_no_more(owing as u64));
                self.contexts[owing].gate = false;
                At::Move
            }
        }))
    }

    pub(super) fn pay_all(&mut self, own: &mut Thread) -> Went {
        Ok(Some(match own.at {
            At::Start if self.sole(|sole| sole.is(ANY_STREAM)) => At::Start,
            At::Start => At::Begin,
            At::Begin => {
                self.begun[1] += 1;
                At::Move
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
            At::Start if self.debtor == Some(0) => At::PayGate,
            // Back from the payment.
            At::Start | At::Move => At::Gone,
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
