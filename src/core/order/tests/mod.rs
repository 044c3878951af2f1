//! The proofs of the ordering rules, in reading order:
//!
//! * `explore`: all interleavings of small machines, each state once.
//! * `frees`: launches and frees of three threads and their oracle, for the next three.
//! * `interleave`: marks and covers, one atomic operation a step, against careless versions.
//! * `lanes`: the same where a sum is read in two steps.
//! * `sharing`: frees that share a barrier of another thread.
//! * `deferral`: barriers that put their wait off while one stream is all there is, and the gates
//!   of two contexts.
//! * `threads`: the whole ledger under threads: visible work, an observer that appears in between.
//! * `weak`: what another processor's order of stores and reads would show.
//! * `native`: what a program may observe on the plain driver: a naive model of CUDA's order.
//! * `ours`: the same program under our rules.
//! * `programs`: all small programs, then many random ones, under both.
//! * `reuse`: what a capture may reuse. Its `reach` is a part of the module that it tests.
//! * `small`: captures, pending barriers, the sticky facts, the routes one by one.
//! * `broken`: each rule switched off is caught by one of the above.

extern crate std;

mod deferral;
mod explore;
mod frees;
mod interleave;
mod lanes;
mod sharing;
mod threads;
mod weak;

mod native;
mod ours;
mod world;

mod programs;
mod reuse;
mod small;

#[cfg(feature = "break-rules")]
mod broken;

#[path = "../../../../tests/tier.rs"]
pub(crate) mod tier;

/// Runs a test that breaks rules in a process of its own: a rule is broken for its whole process,
/// and other tests need it.
#[cfg(feature = "break-rules")]
fn in_own_process(test: &str, body: impl FnOnce()) {
    const OWN_PROCESS: &str = "CACHEALLOC_TEST_IN_OWN_PROCESS";
    if std::env::var(OWN_PROCESS).as_deref() == Ok(test) {
        return body();
    }
    let mut own = std::process::Command::new(std::env::current_exe().expect("this program"));
    own.args(["--exact", test, "--nocapture"]).env(OWN_PROCESS, test);
    assert!(own.status().expect("it starts").success(), "{test} fails in its own process");
}

/// Call in a process that has no other tests.
#[cfg(feature = "break-rules")]
fn with_broken<T>(names: &str, run: impl FnOnce() -> T) -> T {
    crate::rules::set_broken(names).expect("a rule of this name");
    let answer = run();
    crate::rules::set_broken("").expect("no name is no rule");
    answer
}
