//! Vector clocks: which operations are known to have happened before which.
//!
//! A *chain* is a sequence of operations in which each happens before the next, usually a stream.
//! For each chain, a clock holds the number of its operations that lie in the past.

use std::sync::{Arc, Mutex};

pub type Chain = u32;

/// One operation, named by its place in its chain (counted from 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch {
    pub chain: Chain,
    pub count: u32,
}

/// Shared until written: most operations of a stream know exactly what their predecessor knew.
#[derive(Clone, Default)]
pub struct Clock(Arc<Vec<u32>>);

impl Clock {
    pub fn count(&self, chain: Chain) -> u32 {
        self.0.get(chain as usize).copied().unwrap_or(0)
    }

    pub fn covers(&self, epoch: Epoch) -> bool {
        self.count(epoch.chain) >= epoch.count
    }

    pub fn join(&mut self, other: &Clock) {
        if Arc::ptr_eq(&self.0, &other.0) || other.0.is_empty() {
            return;
        }
        if self.0.is_empty() {
            self.0 = other.0.clone();
            return;
        }
        let news = other.0.len() > self.0.len() || other.0.iter().zip(&*self.0).any(|(o, s)| o > s);
        if !news {
            return;
        }
        let mine = Arc::make_mut(&mut self.0);
        mine.resize(mine.len().max(other.0.len()), 0);
        for (mine, other) in mine.iter_mut().zip(&*other.0) {
            *mine = (*mine).max(*other);
        }
    }

    /// Whether this clock covers the other.
    pub fn covers_all(&self, other: &Clock) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || other.0.iter().enumerate().all(|(chain, count)| self.count(chain as Chain) >= *count)
    }

    pub fn note(&mut self, epoch: Epoch) {
        let mine = Arc::make_mut(&mut self.0);
        let index = epoch.chain as usize;
        mine.resize(mine.len().max(index + 1), 0);
        mine[index] = mine[index].max(epoch.count);
    }
}

/// All chains of the process, with their lengths.
#[derive(Default)]
pub struct Chains {
    counts: Vec<u32>,
    retired: Vec<Chain>,
}

impl Chains {
    /// Returns a chain for a new owner. A retired chain is reused only if `known` covers all of it:
    /// then everything the new owner does really comes after the work of the old one.
    pub fn begin(&mut self, known: &Clock) -> Chain {
        let covered = |chain: &Chain| known.count(*chain) >= self.counts[*chain as usize];
        let candidates = self.retired.len().min(RETIRED_LOOKED_AT_MAX);
        if let Some(index) = self.retired[..candidates].iter().position(covered) {
            return self.retired.swap_remove(index);
        }
        self.counts.push(0);
        (self.counts.len() - 1) as Chain
    }

    pub fn retire(&mut self, set: &ChainSet) {
        self.retired.append(&mut set.0.lock().expect("chain sets do not panic"));
    }

    /// Returns the next epoch of a chain of `set` that `clock` knows to its end, or of a new chain
    /// if no such chain exists: early starts and branches of a graph run concurrently.
    pub fn advance(&mut self, set: &ChainSet, clock: &mut Clock) -> Epoch {
        let mut set = set.0.lock().expect("chain sets do not panic");
        let known = |c: &Chain| clock.count(*c) >= self.counts[*c as usize];
        let chain = match set.iter().copied().find(|chain| known(chain)) {
            Some(chain) => chain,
            None => {
                let chain = self.begin(clock);
                set.push(chain);
                chain
            }
        };
        self.counts[chain as usize] += 1;
        let epoch = Epoch { chain, count: self.counts[chain as usize] };
        clock.note(epoch);
        epoch
    }
}

/// The chains of one stream or executable graph.
#[derive(Clone, Default)]
pub struct ChainSet(Arc<Mutex<Vec<Chain>>>);

const RETIRED_LOOKED_AT_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_get_chains_of_their_own_and_share_again_after_a_join() {
        let (mut chains, set) = (Chains::default(), ChainSet::default());
        let (mut left, mut right) = (Clock::default(), Clock::default());
        let a = chains.advance(&set, &mut left);
        let b = chains.advance(&set, &mut right);
        assert_ne!(a.chain, b.chain);
        assert!(!left.covers(b) && !right.covers(a));
        left.join(&right);
        let c = chains.advance(&set, &mut left);
        assert!(c.chain == a.chain || c.chain == b.chain);
        assert!(left.covers(a) && left.covers(b) && left.covers(c));
    }

    #[test]
    fn a_retired_chain_serves_only_those_who_know_its_end() {
        let (mut chains, set) = (Chains::default(), ChainSet::default());
        let mut known = Clock::default();
        let epoch = chains.advance(&set, &mut known);
        chains.retire(&set);
        assert_ne!(chains.begin(&Clock::default()), epoch.chain);
        assert_eq!(chains.begin(&known), epoch.chain);
    }
}
