//! Every safety rule of the allocator is needed: with the rule broken, the oracle catches the
//! allocator within a few programs. `cargo test -p cachealloc-core --features break-rules`
//!
//! These tests run in a separate process, because a broken rule is broken for the whole process.

use std::panic;
use std::sync::{Mutex, PoisonError};

use cachealloc_core::rules::{Rule, set_broken};

#[path = "allocator/behind.rs"]
mod behind;
#[path = "allocator/count.rs"]
mod count;
#[path = "allocator/driver.rs"]
mod driver;
#[path = "allocator/explore.rs"]
mod explore;
#[path = "allocator/model.rs"]
mod model;
#[path = "allocator/naive.rs"]
mod naive;
#[path = "allocator/programs.rs"]
mod programs;
#[path = "allocator/random.rs"]
mod random;
#[path = "allocator/windows.rs"]
mod windows;
#[path = "allocator/world.rs"]
mod world;

const STEPS_COUNT_MAX: usize = 5;
const PROGRAMS_COUNT_MAX: u64 = 200;
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn merge_same_tag_only() {
    caught(Rule::MergeSameTagOnly);
}

#[test]
fn context_takes_untagged_only() {
    caught(Rule::ContextTakesUntaggedOnly);
}

#[test]
fn stream_takes_own_tag_only() {
    caught(Rule::StreamTakesOwnTagOnly);
}

#[test]
fn split_inherits_tag() {
    caught(Rule::SplitInheritsTag);
}

#[test]
fn later_event_stays() {
    caught(Rule::LaterEventStays);
}

#[test]
fn barrier_mark() {
    caught(Rule::BarrierMark);
}

#[test]
fn elsewhere_outlasts_barrier() {
    caught(Rule::ElsewhereOutlastsBarrier);
}

#[test]
fn unmap_only_free() {
    caught(Rule::UnmapOnlyFree);
}

#[test]
fn idle_since_mark() {
    caught(Rule::IdleSinceMark);
}

#[test]
fn exported_not_reused() {
    caught(Rule::ExportedNotReused);
}

#[test]
fn whole_after_export() {
    caught(Rule::WholeAfterExport);
}

#[test]
fn release_only_free_segments() {
    caught(Rule::ReleaseOnlyFreeSegments);
}

#[test]
fn private_waits_for_pool() {
    caught(Rule::PrivateWaitsForPool);
}

#[test]
fn adopt_only_idle() {
    caught(Rule::AdoptOnlyIdle);
}

/// Only long programs poll a request between other operations.
#[test]
fn poll_takes_unused_memory() {
    caught_by_random_program(Rule::PollTakesUnusedMemory);
}

/// Only long programs take a part of a block.
#[test]
fn adopt_unreferenced() {
    caught_by_random_program(Rule::AdoptUnreferenced);
}

#[test]
fn referenced_stays_with_graph() {
    caught(Rule::ReferencedStaysWithGraph);
}

#[test]
fn waiting_memory_stays() {
    caught(Rule::WaitingMemoryStays);
}

/// Breaks one rule and searches for a program that the oracle rejects: first among all short ones,
/// then among long random ones. No program may fail while the rule holds.
fn caught(rule: Rule) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(set_broken(""), Ok(()));
    assert_eq!(fault(|| programs::run(1, false)), None);
    assert_eq!(set_broken(rule.name()), Ok(()));
    let short = (1..=STEPS_COUNT_MAX).find_map(|steps| {
        let mut trail = Vec::new();
        let message = fault(|| {
            for explorer in explore::Explorer::each(false) {
                explorer.all(steps, &mut trail);
            }
        })?;
        Some(format!("{message}, after {trail:?}"))
    });
    let random = by_random_program();
    assert_eq!(set_broken(""), Ok(()));
    println!("{}\n    short: {short:?}\n    random: {random:?}", rule.name());
    let random = random.expect("no random program shows that the rule is needed");
    let short = short.expect("no short program shows that the rule is needed");
    for message in [short, random] {
        assert!(is_verdict(&message), "not a verdict of the oracle: {message}");
    }
}

/// Breaks one rule and searches for a long random program that the oracle rejects.
fn caught_by_random_program(rule: Rule) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(set_broken(rule.name()), Ok(()));
    let random = by_random_program();
    assert_eq!(set_broken(""), Ok(()));
    let message = random.expect("no random program shows that the rule is needed");
    assert!(is_verdict(&message), "not a verdict of the oracle: {message}");
}

fn by_random_program() -> Option<String> {
    let judged = |seed| Some(format!("{}, seed {seed}", fault(|| programs::run(seed, false))?));
    (0..PROGRAMS_COUNT_MAX).find_map(judged)
}

/// Returns whether the message is the oracle's verdict, and not a later panic on state that the
/// broken rule corrupted.
fn is_verdict(message: &str) -> bool {
    ["handed out", "is released", "goes with"].iter().any(|verdict| message.contains(verdict))
}

/// Returns the message of the panic, if any.
fn fault(run: impl FnOnce()) -> Option<String> {
    let before = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(panic::AssertUnwindSafe(run));
    panic::set_hook(before);
    let payload = outcome.err()?;
    let text = payload.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| "a panic without a message".into()))
}
