//! The proofs of the ordering rules, in reading order:
//!
//! * `explore`: all interleavings of small machines, each state once.
//! * `frees`: launches and frees of three threads and their oracle, for the next three.
//! * `interleave`: submission counters and coverage, one atomic operation a step, against careless
//!   versions.
//! * `lanes`: the same checks where a sum is read in two steps.
//! * `sharing`: frees that share a barrier of another thread.
//! * `deferral`: barriers that defer their wait while a single stream has work, and the barrier
//!   locks of two contexts.
//! * `threads`: the whole ledger under threads, with visible work and an observer that appears in
//!   between.
//! * `weak`: effects of a processor that reorders stores and reads.
//! * `native`: a naive model of CUDA's order, and what a program may observe on the plain driver.
//! * `ours`: the same program under our rules.
//! * `programs`: all small programs, then many random ones, under both.
//! * `reuse`: what a capture may reuse. Its `reach` is a part of the module that it tests.
//! * `small`: captures, pending barriers, the sticky facts, the routes one by one.
//! * `broken`: checks that one of the above catches each rule that is switched off.

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

/// Runs a test that breaks rules in a separate process: a rule is broken for its whole process, and
/// other tests need it.
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

/// Breaks the named rules while `run` runs. The process must run no other tests.
#[cfg(feature = "break-rules")]
fn with_broken<T>(names: &str, run: impl FnOnce() -> T) -> T {
    crate::rules::set_broken(names).expect("a rule of this name");
    let answer = run();
    crate::rules::set_broken("").expect("no name is no rule");
    answer
}
