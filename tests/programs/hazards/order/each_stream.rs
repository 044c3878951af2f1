//! [75] Several threads submit to several streams, and each stream is ordered after a free
//! separately.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cachealloc_tests::driver::{Driver, Outcome, PER_THREAD, Stream};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, stream_that_cannot_wait),
    hazard!(Always, ended_stream_that_had_waited),
    hazard!(Always, ended_stream_that_had_waited_beside_one),
    hazard!(Always, default_streams_of_two_threads),
    hazard!(Always, one_thread_left_on_two_streams),
    hazard!(
        Always,
        unknown_table_beside_a_free,
        machine = "SIM_PAUSE_MS=cuCtxRecordEvent@2=300,cuCtxWaitEvent@1=400"
    ),
    hazard!(Always, wait_and_tag_beside_a_free),
    hazard!(
        Always,
        idle_context_frees_beside_one_that_owes,
        machine = "SIM_IDLE_MS=5000 SIM_PAUSE_MS=cuCtxRecordEvent@1=400"
    ),
    hazard!(
        Always,
        idle_context_frees_beside_streams_of_another,
        machine = "SIM_IDLE_MS=5000 SIM_PAUSE_MS=cuEventCreate@1=400"
    ),
];

const MIXED: &str = "the old kernel wrote into the new block";

/// Frees a block after late work, when two threads have submitted to two streams. Returns the freed
/// block and its stream.
fn freed_behind_two_streams(d: &Driver) -> Outcome<(u64, Stream)> {
    let (a, b) = (d.stream()?, d.stream()?);
    let (small, block) = (d.alloc(SMALL)?, d.alloc(BYTES)?);
    fill(d, a, block, BYTES, 1, 0)?;
    in_thread(d, || fill(d, b, small, SMALL, 1, 0))?;
    fill(d, a, block, BYTES, 1, LATE)?;
    d.free(block)?;
    Ok((block, b))
}

/// The driver refuses the wait on one stream: the library must use another stream.
fn stream_that_cannot_wait(d: &Driver) -> Verdict {
    let (_, b) = freed_behind_two_streams(d)?;
    let second = d.alloc(BYTES)?;
    d.fail("cuStreamWaitEvent@*=999");
    fill(d, b, second, BYTES, 2, 0)?;
    ok_if(holds(d, second, BYTES, 2)?, MIXED)
}

/// The stream that gets the handle again is another one, and has not waited.
fn ended_stream_that_had_waited(d: &Driver) -> Verdict {
    freed_behind_two_streams(d)?;
    has_waited_and_ends(d)
}

/// Only one stream existed at the free.
fn ended_stream_that_had_waited_beside_one(d: &Driver) -> Verdict {
    let (a, block) = (d.stream()?, d.alloc(BYTES)?);
    fill(d, a, block, BYTES, 1, LATE)?;
    d.free(block)?;
    has_waited_and_ends(d)
}

fn has_waited_and_ends(d: &Driver) -> Verdict {
    let (ends, small) = (d.stream()?, d.alloc(SMALL)?);
    fill(d, ends, small, SMALL, 1, 0)?;
    d.destroy_stream(ends)?;
    let (stream, second) = (under_handle(d, ends)?, d.alloc(BYTES)?);
    fill(d, stream, second, BYTES, 2, 0)?;
    ok_if(holds(d, second, BYTES, 2)?, MIXED)
}

/// The same handle means another stream in each thread.
fn default_streams_of_two_threads(d: &Driver) -> Verdict {
    freed_behind_two_streams(d)?;
    let (small, second) = (d.alloc(SMALL)?, d.alloc(BYTES)?);
    in_thread(d, || fill(d, PER_THREAD, small, SMALL, 1, 0))?;
    in_thread(d, || fill(d, PER_THREAD, second, BYTES, 2, 0))?;
    ok_if(holds(d, second, BYTES, 2)?, MIXED)
}

/// The other threads submit no more, and only free. The streams have no deferred wait left once the
/// context has waited.
fn one_thread_left_on_two_streams(d: &Driver) -> Verdict {
    let (_, b) = freed_behind_two_streams(d)?;
    let a = d.stream()?;
    for value in 2..22 {
        let block = d.alloc(BYTES)?;
        fill(d, a, block, BYTES, value, LATE)?;
        in_thread(d, || d.free(block))?;
        let block = d.alloc(BYTES)?;
        fill(d, b, block, BYTES, value + 100, 0)?;
        in_thread(d, || d.free(block))?;
    }
    let last = d.alloc(BYTES)?;
    fill(d, a, last, BYTES, 7, 0)?;
    ok_if(holds(d, last, BYTES, 7)?, MIXED)
}

/// From this point calls may bypass the library. A free in progress that has just found this has
/// not submitted its wait yet.
fn unknown_table_beside_a_free(d: &Driver) -> Verdict {
    const UNKNOWN: [u8; 16] = [9; 16];
    let (_, b) = freed_behind_two_streams(d)?;
    let (c, small, second) = (d.stream()?, d.alloc(SMALL)?, d.alloc(BYTES)?);
    std::thread::scope(|scope| {
        let frees = spawn(scope, d, || {
            fill(d, c, small, SMALL, 1, 0)?;
            d.free(small)
        });
        sleep_ms(100);
        let asks = spawn(scope, d, || {
            // The simulation returns this table.
            code(call!(d, cuGetExportTable(&mut 0, UNKNOWN.as_ptr().cast())));
            Ok(())
        });
        sleep_ms(300);
        fill(d, b, second, BYTES, 2, 0)?;
        frees.join().expect("no panic")?;
        asks.join().expect("no panic")
    })?;
    ok_if(holds(d, second, BYTES, 2)?, MIXED)
}

/// Sets up two contexts that have done nothing yet, and a third one whose two streams have
/// completed their work. The context current on return has memory and never works. Returns that
/// memory and the other context.
fn two_contexts_behind_a_third(d: &Driver) -> Outcome<(u64, u64)> {
    let works = d.context();
    let idle = d.create_context(0)?;
    let block = d.alloc(SMALL)?;
    let ends = d.create_context(0)?;
    let (a, b, used) = (d.stream()?, d.stream()?, d.alloc(2 * SMALL)?);
    fill(d, a, used, SMALL, 1, 0)?;
    in_thread(d, || fill(d, b, used + SMALL as u64, SMALL, 1, 0))?;
    d.synchronize()?;
    call!(d, cuCtxDestroy(ends))?;
    d.set_context(idle)?;
    Ok((block, works))
}

/// The free has found that its context is the only one in use. That says nothing about a wait that
/// another context has deferred meanwhile.
fn idle_context_frees_beside_one_that_owes(d: &Driver) -> Verdict {
    let (block, works) = two_contexts_behind_a_third(d)?;
    std::thread::scope(|scope| {
        let frees = spawn(scope, d, || d.free(block));
        sleep_ms(100);
        d.set_context(works)?;
        let (_, b) = freed_behind_two_streams(d)?;
        frees.join().expect("no panic")?;
        let second = d.alloc(BYTES)?;
        fill(d, b, second, BYTES, 2, 0)?;
        ok_if(holds(d, second, BYTES, 2)?, MIXED)
    })
}

/// The free says nothing about the streams of another context, which have not waited either. The
/// thread that creates that context counts its own submissions.
fn idle_context_frees_beside_streams_of_another(d: &Driver) -> Verdict {
    let (block, works) = two_contexts_behind_a_third(d)?;
    let freed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            d.set_context(works)?;
            let (a, b, small) = (d.stream()?, d.stream()?, d.alloc(SMALL)?);
            let first = d.alloc(BYTES)?;
            sleep_ms(100);
            fill(d, a, first, BYTES, 1, LATE)?;
            fill(d, b, small, SMALL, 1, 0)?;
            while !freed.load(Ordering::SeqCst) {
                sleep_ms(1);
            }
            fill(d, b, small, SMALL, 1, 0)?;
            d.free(first)?;
            let second = d.alloc(BYTES)?;
            fill(d, b, second, BYTES, 2, 0)?;
            ok_if(holds(d, second, BYTES, 2)?, MIXED)
        });
        let at_end = SetAtEnd(&freed);
        d.free(block)?;
        drop(at_end);
        beside.join().expect("no panic")
    })
}

/// While one thread frees, another waits for all work submitted so far, submits more to a stream,
/// and frees after that. The wait does not cover the later work.
fn wait_and_tag_beside_a_free(d: &Driver) -> Verdict {
    const ROUNDS: u64 = 60;
    let (asked, frees, freed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let await_round = |of: &AtomicU64, round| {
        while of.load(Ordering::SeqCst) < round {
            std::hint::spin_loop();
        }
    };
    let free_each_round = || {
        let stream = d.stream()?;
        for round in 1..=ROUNDS {
            await_round(&asked, round);
            let block = d.alloc(SMALL)?;
            d.launch("delay", stream, &[1])?;
            frees.store(round, Ordering::SeqCst);
            d.free(block)?;
            freed.store(round, Ordering::SeqCst);
        }
        Ok(())
    };
    let wait_and_tag = || {
        let (a, b) = (d.stream()?, d.stream()?);
        let mut good = true;
        for round in 1..=ROUNDS {
            let first = d.alloc_async(BYTES, a)?;
            asked.store(round, Ordering::SeqCst);
            await_round(&frees, round);
            std::thread::sleep(Duration::from_micros(10 * (round % 6)));
            d.synchronize()?;
            fill(d, a, first, BYTES, 1, LATE)?;
            d.free_async(first, a)?;
            await_round(&freed, round);
            let second = d.alloc(BYTES)?;
            fill(d, b, second, BYTES, 2, 0)?;
            good &= holds(d, second, BYTES, 2)?;
            d.free(second)?;
        }
        Ok(good)
    };
    // Neither thread leaves the other waiting, whether it succeeds or fails.
    let good = std::thread::scope(|scope| {
        let beside = spawn(scope, d, || {
            let ended = free_each_round();
            [&frees, &freed].iter().for_each(|round| round.store(ROUNDS, Ordering::SeqCst));
            ended
        });
        let good = wait_and_tag();
        asked.store(ROUNDS, Ordering::SeqCst);
        beside.join().expect("no panic").and(good)
    })?;
    ok_if(good, MIXED)
}
