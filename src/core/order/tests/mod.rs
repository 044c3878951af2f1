//! The proofs of the ordering rules, in reading order:
//!
//! * `explore`: all interleavings of small machines, each state once.
//! * `interleave`: marks and covers, one atomic operation a step, against careless versions.
//! * `threads`: the whole ledger under threads: visible work, an agent that shows in between.
//! * `native`: what a program may observe on the plain driver: a naive model of CUDA's order.
//! * `ours`: the same program under our rules.
//! * `programs`: all small programs, then many random ones, under both.
//! * `small`: captures, debts, the sticky facts, the routes one by one.
//! * `broken`: each rule switched off is caught by one of the above.

extern crate std;

mod explore;
mod interleave;
mod native;
mod ours;
mod programs;
mod threads;
mod world;
