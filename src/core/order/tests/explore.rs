//! All interleavings of the steps of a few threads, each distinct state visited once.

use core::hash::{BuildHasherDefault, Hash, Hasher};

use super::std::collections::HashMap;
use alloc::vec;
use alloc::vec::Vec;

/// A state of all threads and of what they share. A step is atomic.
pub trait Machine: Copy {
    /// Operations of all threads.
    type Program;
    const THREADS: usize;
    type Key: Eq + Hash;

    /// Returns the state after the next step of this thread, or an error if it is a violation.
    /// Returns `None` if the thread is done.
    fn step(&self, program: &Self::Program, thread: usize) -> Option<Result<Self, &'static str>>;

    /// Returns a key that is equal for equal states only.
    fn key(&self) -> Self::Key;
}

/// Packs small numbers into a key.
#[derive(Default)]
pub struct Key(u128, u32);

impl Key {
    pub fn put(&mut self, value: u64, bits: u32) {
        assert!(value >> bits == 0, "{value} needs more than {bits} bits");
        self.0 = self.0 << bits | u128::from(value);
        self.1 += bits;
        assert!(self.1 <= 128, "the state needs more than 128 bits");
    }

    pub fn finish(self) -> u128 {
        self.0
    }
}

/// Result of an exploration.
#[derive(Clone, Copy, Default, Debug)]
pub struct Outcome {
    /// Number of interleavings, from the start to the end of all threads.
    pub paths: u128,
    pub states: usize,
    /// First violation in the order of search.
    pub violation: Option<&'static str>,
}

/// Explores everything, or up to the first violation.
pub fn explore<M: Machine>(program: &M::Program, start: M) -> Outcome {
    let mut known = Known::<M>::default();
    let mut violation = None;
    let paths = visit(program, start, &mut known, &mut violation);
    Outcome { paths, states: known.len(), violation }
}

impl Outcome {
    /// Sums up many explorations.
    pub fn add(&mut self, other: Outcome) {
        self.paths += other.paths;
        self.states += other.states;
        self.violation = self.violation.or(other.violation);
    }
}

/// Operations of up to three threads, each up to `OPS`.
pub type Program<Op, const OPS: usize> = [[Option<Op>; OPS]; 3];

/// Whether the threads may be exchanged for one another: then one order of them is enough.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Alike {
    All,
    AllButTheFirst,
}

/// Returns every program of these operations with at most `ops_max` in all.
pub fn programs<Op: Copy, const OPS: usize>(
    alphabet: &[Op],
    alike: Alike,
    ops_max: usize,
) -> Vec<Program<Op, OPS>> {
    let threads = sequences(alphabet, OPS);
    let list = |ops: &Vec<Op>| core::array::from_fn(|at| ops.get(at).copied());
    let mut programs = vec![];
    for (i, a) in threads.iter().enumerate() {
        let from = if alike == Alike::All { i } else { 0 };
        for (j, b) in threads.iter().enumerate().skip(from) {
            for c in threads.iter().skip(j) {
                if a.len() + b.len() + c.len() <= ops_max {
                    programs.push([list(a), list(b), list(c)]);
                }
            }
        }
    }
    programs
}

/// Returns every sequence of these operations up to a length: the candidates for one thread.
fn sequences<Op: Copy>(alphabet: &[Op], length_max: usize) -> Vec<Vec<Op>> {
    let mut all = vec![vec![]];
    let mut from = 0;
    for _ in 0..length_max {
        let to = all.len();
        for at in from..to {
            for &op in alphabet {
                let mut longer = all[at].clone();
                longer.push(op);
                all.push(longer);
            }
        }
        from = to;
    }
    all
}

/// Map from each state to the number of paths from there to the end.
type Known<M> = HashMap<<M as Machine>::Key, u128, BuildHasherDefault<Mix>>;

fn visit<M: Machine>(
    program: &M::Program,
    state: M,
    known: &mut Known<M>,
    violation: &mut Option<&'static str>,
) -> u128 {
    let key = state.key();
    if let Some(paths) = known.get(&key) {
        return *paths;
    }
    let mut paths = 0;
    let mut done = true;
    for thread in 0..M::THREADS {
        if violation.is_some() {
            return paths;
        }
        match state.step(program, thread) {
            None => {}
            Some(Ok(next)) => {
                done = false;
                paths += visit(program, next, known, violation);
            }
            Some(Err(what)) => *violation = Some(what),
        }
    }
    let paths = if done { 1 } else { paths };
    known.insert(key, paths);
    paths
}

/// A hash for keys; the standard one takes most of the time in a debug build.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are u128");
    }

    fn write_u128(&mut self, key: u128) {
        let folded = self.0 ^ (key >> 64) as u64 ^ (key as u64).rotate_left(29);
        let mixed = (folded ^ folded >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 29;
    }
}
