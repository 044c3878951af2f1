//! Effects that no total order of steps shows: a processor that makes stores and reads visible in
//! another order.
//!
//! `scripts/test-weak.sh` runs these tests under Miri, which exploits all that its memory model
//! allows, for a processor other than x86-64. Run directly on the machine, they are a single try.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32};

use super::std::{thread, vec::Vec};
use crate::order::deferral::{Admission, DeferralState};
use crate::order::exclusive::Exclusive;
use crate::order::submission_counters::{Coverage, Lane, SubmissionCounters};

/// The flag is the device's: neither side's access to it orders anything.
#[test]
fn device_flag_is_ordered_after_its_counter() {
    for lane in [Lane::Own, Lane::Shared] {
        let (counters, cover, flag) =
            (SubmissionCounters::new(), Coverage::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                counters.begin(lane);
                flag.store(1, Relaxed);
            });
            scope.spawn(|| {
                if flag.load(Relaxed) == 1 {
                    assert!(!counters.quiet_since(&cover), "{lane:?}: a free finds no launch");
                }
            });
            scope.spawn(|| {
                if flag.load(Relaxed) == 1 {
                    let over = counters.nothing_begun_since(&cover);
                    assert!(!over, "{lane:?}: a free on its shortest path finds no launch");
                }
            });
            scope.spawn(|| {
                if flag.load(Relaxed) == 1 {
                    let (ended, begun) = counters.before_barrier().parts();
                    assert_eq!((ended, begun), (0, 1), "{lane:?}: a barrier finds no launch");
                }
            });
        });
    }
}

/// M1 and M2, with one thread in each lane.
#[test]
fn ended_submissions_have_begun() {
    let counters = SubmissionCounters::new();
    thread::scope(|scope| {
        for lane in [Lane::Own, Lane::Shared] {
            let counters = &counters;
            scope.spawn(move || {
                counters.begin(lane);
                counters.end(lane);
            });
        }
        scope.spawn(|| {
            let (ended, begun) = counters.before_barrier().parts();
            assert!(ended <= begun, "{ended} ended, {begun} begun");
        });
    });
}

/// The submission that another thread of the context has just entered may not be visible yet.
#[test]
fn single_context_is_seen_by_all_threads() {
    let tries: u32 = if cfg!(miri) { 1 } else { 100_000 };
    let all: Vec<Exclusive> = (0..tries).map(|_| Exclusive::new()).collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for exclusive in &all {
                    assert!(!exclusive.submits(1), "the same context is a second one");
                }
            });
        }
    });
    assert!(all.iter().all(|exclusive| exclusive.is_exclusive(1)));
}

/// A thread submits work to one stream and frees; a flag of the device reports the free. Another
/// thread, whose processor saw several streams a moment ago, must flush before it proceeds to
/// another stream.
#[test]
fn deferred_wait_is_published_with_its_free() {
    let (counters, deferral) = (SubmissionCounters::new(), DeferralState::new());
    let (owed, flag) = (AtomicBool::new(false), AtomicU32::new(0));
    deferral.flushed();
    thread::scope(|scope| {
        scope.spawn(|| {
            deferral.forgets(counters.before_barrier(), Lane::Own);
            counters.begin(Lane::Own);
            while deferral.admission(1) == Admission::FlushDeferred {
                deferral.flush_not_needed();
            }
            counters.end(Lane::Own);
            counters.before_barrier();
            let mut defers = deferral.is_single_stream();
            if defers {
                owed.store(true, SeqCst);
                defers = deferral.is_single_stream();
            }
            flag.store(if defers { 2 } else { 1 }, Relaxed);
        });
        scope.spawn(|| {
            let told = flag.load(Relaxed);
            counters.begin(Lane::Shared);
            if deferral.can_proceed(2) {
                assert_ne!(told, 2, "it goes ahead of what is owed");
            } else if deferral.admission(2) == Admission::FlushDeferred {
                assert!(told != 2 || owed.load(SeqCst), "it does not find what is owed");
                deferral.flushed();
            }
            counters.end(Lane::Shared);
        });
    });
}
