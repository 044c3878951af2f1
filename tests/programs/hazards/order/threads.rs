//! [11] [14] [26] Races inside the library: each needs two threads, and many repetitions.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::yield_now;

use cachealloc_tests::driver::{Driver, Event, GLOBAL, LEGACY, Outcome, Stream, THREAD_LOCAL};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Full, frees_of_several_threads),
    hazard!(Always, a_block_changes_hands),
    hazard!(Always, one_block_freed_twice_at_once),
    hazard!(Full, a_flag_is_raised_before_the_launch_returns),
    hazard!(Always, captures_begin_during_frees),
    hazard!(Always, global_captures_begin_during_frees_that_wait, ours),
    hazard!(Always, capture_beside_frees_of_two_contexts, machine = "SIM_DEVICES=2"),
    hazard!(Always, capture_beside_the_end_of_pinned_memory),
    hazard!(Always, capture_beside_the_end_of_an_array),
    hazard!(
        Full,
        event_in_a_host_function_behind_a_free,
        machine = "SIM_PAUSE_MS=cuCtxRecordEvent@1=200 SIM_IDLE_MS=5000"
    ),
    hazard!(Full, queries_behind_a_thread_that_has_ended),
    hazard!(Full, queries_behind_a_thread_that_lives),
];

const ROUNDS: u64 = 300;

/// Each thread relies only on its own frees, while the others submit and free.
fn frees_of_several_threads(d: &Driver) -> Verdict {
    let work = |seed: u64| {
        let (a, b) = (d.stream()?, d.stream()?);
        let data = d.alloc(SMALL)?;
        for round in 0..ROUNDS {
            let block = d.alloc(SMALL)?;
            fill(d, a, block, SMALL, round, 20_000 * (1 + (round + seed) % 3))?;
            fill(d, a, data, SMALL, round, 0)?;
            yield_sometimes(round + seed);
            d.free(block)?;
            // No event orders the streams: the free does.
            fill(d, b, data, SMALL, round, 10_000)?;
            yield_sometimes(round);
            let other = d.alloc(SMALL)?;
            d.free(other)?;
        }
        Ok(())
    };
    in_threads(d, 3, work)?;
    ok_if(d.races().is_none_or(|races| races == 0), "two kernels used one block at once")
}

/// A block that one thread frees is taken by another as soon as possible. Sizes change, so that no
/// thread retains its own blocks.
fn a_block_changes_hands(d: &Driver) -> Verdict {
    let left = AtomicU32::new(2);
    let work = |seed: u64| {
        let stream = d.stream()?;
        let mut round = 0;
        while round < ROUNDS || left.load(Ordering::Relaxed) == 2 && round < 4 * ROUNDS {
            let bytes = SMALL << (round % 2);
            let block = d.alloc(bytes)?;
            fill(d, stream, block, bytes, round, 50_000 * seed)?;
            yield_sometimes(round);
            d.free(block)?;
            round += 1;
        }
        left.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    };
    in_threads(d, 2, work)?;
    d.synchronize()?;
    ok_if(d.races().is_none_or(|races| races == 0), "two kernels used one block at once")
}

/// Exactly one of two frees succeeds, and the block is not handed out twice afterwards.
fn one_block_freed_twice_at_once(d: &Driver) -> Verdict {
    for _ in 0..ROUNDS {
        let block = d.alloc(SMALL)?;
        let (ready, freed) = (AtomicU32::new(0), AtomicU32::new(0));
        in_threads(d, 2, |_| {
            ready.fetch_add(1, Ordering::SeqCst);
            while ready.load(Ordering::SeqCst) < 2 {
                yield_now();
            }
            freed.fetch_add(d.free(block).is_ok().into(), Ordering::SeqCst);
            Ok(())
        })?;
        let (one, two) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
        if freed.into_inner() != 1 || one == two {
            return Ok("FAIL, one block was freed twice".into());
        }
        d.free(one)?;
        d.free(two)?;
    }
    Ok("ok".into())
}

/// [26] A kernel raises its flag, and a third thread frees, before the launch has returned to the
/// thread that made it.
fn a_flag_is_raised_before_the_launch_returns(d: &Driver) -> Verdict {
    let word = d.pinned(4096)?;
    let done = AtomicBool::new(false);
    let launching = || {
        let _done = SetAtEnd(&done);
        let stream = d.stream()?;
        for round in 0..ROUNDS {
            fill(d, stream, word, 8, round, 20_000)?;
            yield_now();
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let launching = spawn(scope, d, launching);
        while !done.load(Ordering::SeqCst) {
            let block = d.alloc(SMALL)?;
            d.free(block)?;
        }
        launching.join().expect("no program panics")
    })?;
    let block = d.alloc(SMALL)?;
    d.free(block)?;
    ok_if(d.host_read(word) == ROUNDS - 1, "the host read too early")
}

/// [14] One thread's captures begin and end while another thread's frees make barriers.
fn captures_begin_during_frees(d: &Driver) -> Verdict {
    let word = d.alloc(SMALL)?;
    captures_beside_frees(d, THREAD_LOCAL, word)
}

/// The free lets the capture begin before it waits. On the plain driver it invalidates the capture.
fn global_captures_begin_during_frees_that_wait(d: &Driver) -> Verdict {
    let word = d.pinned(SMALL)?;
    captures_beside_frees(d, GLOBAL, word)
}

/// Before each free, work writes to `written`: in pinned memory the host may read it.
fn captures_beside_frees(d: &Driver, mode: u32, written: u64) -> Verdict {
    let done = AtomicBool::new(false);
    let capturing = || {
        let _done = SetAtEnd(&done);
        let (stream, block) = (d.stream()?, d.alloc(SMALL)?);
        let mut lost = 0;
        for round in 0..ROUNDS {
            d.begin_capture(stream, mode)?;
            fill(d, stream, block, SMALL, round, 0)?;
            yield_now();
            match d.end_capture(stream) {
                Ok(graph) => d.destroy_graph(graph)?,
                Err(_) => lost += 1,
            }
            if lost > 0 {
                break;
            }
        }
        Ok(lost)
    };
    let lost = std::thread::scope(|scope| {
        let capturing = spawn(scope, d, capturing);
        let stream = d.stream()?;
        while !done.load(Ordering::SeqCst) {
            let block = d.alloc(SMALL)?;
            fill(d, stream, written, 8, 0, 10_000)?;
            d.free(block)?;
        }
        capturing.join().expect("no program panics")
    })?;
    ok_if(lost == 0, &format!("{lost} captures were lost"))
}

/// [32] One free waits for a kernel, and another free waits beside it. A capture begins, and a free
/// in an unrelated context follows. Only the first two may wait.
fn capture_beside_frees_of_two_contexts(d: &Driver) -> Verdict {
    let (stream, flag) = (d.stream()?, d.pinned(64)?);
    let (block, mut managed) = (d.alloc(SMALL)?, 0);
    call!(d, cuMemAllocManaged(&mut managed, SMALL, 1))?;
    let (first, captured) = (d.context(), d.stream()?);
    d.launch("delay", stream, &[1])?;
    d.use_device(1)?;
    d.launch("delay", LEGACY, &[1])?;
    d.synchronize()?;
    d.set_context(first)?;
    d.synchronize()?;
    d.launch("spin", stream, &[flag, 1])?;
    let freed = std::thread::scope(|scope| {
        let waiting = [spawn(scope, d, || d.free(block)), spawn(scope, d, || d.free(managed))];
        sleep_ms(20);
        let elsewhere = spawn(scope, d, || {
            d.use_device(1)?;
            let (stream, other) = (d.stream()?, d.alloc(SMALL)?);
            fill(d, stream, other, SMALL, 1, 1000)?;
            d.free(other)
        });
        let capturing = spawn(scope, d, || {
            d.begin_capture(captured, THREAD_LOCAL)?;
            d.end_capture(captured).map(drop)
        });
        let free = [elsewhere, capturing].map(|thread| code(thread.join().expect("no panic")));
        d.set_flag(flag, 1);
        let waited = waiting.map(|thread| code(thread.join().expect("no panic")));
        [free, waited]
    });
    Ok(format!("codes {freed:?}"))
}

/// [32] A call other than a free waits, and holds the context meanwhile.
fn capture_beside_the_end_of_pinned_memory(d: &Driver) -> Verdict {
    let page = d.pinned(SMALL)?;
    capture_beside(d, || d.free_pinned(page))
}

fn capture_beside_the_end_of_an_array(d: &Driver) -> Verdict {
    // CUDA_ARRAY_DESCRIPTOR: width, height, format (unsigned bytes) and channels.
    let (description, mut array) = ([4096_usize, 1, 1 << 32 | 1], 0);
    call!(d, cuArrayCreate(&mut array, description.as_ptr().cast()))?;
    capture_beside(d, || call!(d, cuArrayDestroy(array)))
}

fn capture_beside(d: &Driver, end: impl FnOnce() -> Outcome + Send) -> Verdict {
    let (stream, captured, flag) = (d.stream()?, d.stream()?, d.pinned(64)?);
    let block = d.alloc(SMALL)?;
    // Earlier frees make the library allocate everything that it needs for one.
    in_thread(d, || {
        for _ in 0..3 {
            let other = d.alloc(SMALL)?;
            d.launch("delay", stream, &[1])?;
            d.free(other)?;
        }
        Ok(())
    })?;
    d.synchronize()?;
    d.launch("spin", stream, &[flag, 1])?;
    let codes = std::thread::scope(|scope| {
        let ending = spawn(scope, d, end);
        sleep_ms(20);
        let freeing = spawn(scope, d, || d.free(block));
        sleep_ms(20);
        let capturing = spawn(scope, d, || {
            d.begin_capture(captured, THREAD_LOCAL)?;
            d.end_capture(captured).map(drop)
        });
        let captured = code(capturing.join().expect("no panic"));
        d.set_flag(flag, 1);
        [captured, code(ending.join().expect("no panic")), code(freeing.join().expect("no panic"))]
    });
    Ok(format!("codes {codes:?}"))
}

/// [40] After a thread has been joined, its free has waited.
fn queries_behind_a_thread_that_has_ended(d: &Driver) -> Verdict {
    let mut answers = Vec::new();
    for ask in ASK {
        let (stream, events) = (d.stream()?, [d.event()?, d.event()?]);
        in_thread(d, || work_and_free(d, stream, events, LATE))?;
        answers.push(code(ask(d, stream, events)));
        d.synchronize()?;
    }
    // A second thread's free skips its barrier, and makes no query.
    let (stream, events, other) = (d.stream()?, [d.event()?, d.event()?], d.alloc(SMALL)?);
    in_thread(d, || work_and_free(d, stream, events, LATE))?;
    in_thread(d, || d.free(other))?;
    answers.push(code(d.query_event(events[1])));
    ok_if(answers == [0; 4], &format!("answers {answers:?}"))
}

/// [40] The thread reports its free and continues.
fn queries_behind_a_thread_that_lives(d: &Driver) -> Verdict {
    let mut answers = Vec::new();
    for ask in ASK {
        let (stream, events) = (d.stream()?, [d.event()?, d.event()?]);
        let (freed, asked) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        let answer = std::thread::scope(|scope| {
            let freeing = spawn(scope, d, || {
                let done = work_and_free(d, stream, events, LATE / 10);
                freed.wait();
                asked.wait();
                done
            });
            freed.wait();
            let answer = code(ask(d, stream, events));
            asked.wait();
            freeing.join().expect("no program panics").map(|()| answer)
        });
        answers.push(answer?);
        d.synchronize()?;
    }
    ok_if(answers == [0; 3], &format!("answers {answers:?}"))
}

type Ask = fn(&Driver, Stream, [Event; 2]) -> Outcome;

const ASK: [Ask; 3] = [
    |d, _, events| d.query_event(events[1]),
    |d, stream, _| d.query_stream(stream),
    |d, _, events| d.elapsed_ms(events[0], events[1]).map(drop),
];

fn work_and_free(d: &Driver, stream: Stream, events: [Event; 2], ns: u64) -> Outcome {
    let block = d.alloc(SMALL)?;
    d.record(events[0], stream)?;
    d.launch("delay", stream, &[ns])?;
    d.record(events[1], stream)?;
    d.free(block)
}

fn in_threads(d: &Driver, count: u64, work: impl Fn(u64) -> Outcome + Sync) -> Outcome {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|seed| spawn(scope, d, move || work(seed))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("no program panics"));
        ended.fold(Ok(()), Result::and)
    })
}

fn yield_sometimes(round: u64) {
    if round.is_multiple_of(3) {
        yield_now();
    }
}

/// [86] The host function was launched beside the free, and records an event after it: its thread
/// cannot submit the wait of the barrier.
fn event_in_a_host_function_behind_a_free(d: &Driver) -> Verdict {
    struct Inside<'a> {
        d: &'a Driver,
        event: Event,
        stream: Stream,
        recorded: Option<Outcome>,
    }
    unsafe extern "C" fn record(inside: *mut c_void) {
        // SAFETY: the launch passes a struct that outlives its work.
        let inside = unsafe { &mut *inside.cast::<Inside>() };
        sleep_ms(400);
        inside.recorded = Some(call!(inside.d, cuEventRecord(inside.event, inside.stream)));
    }
    let (slow, host, stream) = (d.stream()?, d.stream()?, d.stream()?);
    let (block, other) = (d.alloc(BYTES)?, d.alloc(BYTES)?);
    let mut inside = Inside { d, event: d.event()?, stream, recorded: None };
    let submitted = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let launching = spawn(scope, d, || {
            let done = d.memset(other, 0, BYTES, host);
            submitted.wait();
            sleep_ms(60);
            done.and_then(|()| d.host_function(host, record, (&raw mut inside).cast()))?;
            sleep_ms(1000);
            Ok(())
        });
        submitted.wait();
        fill(d, slow, block, BYTES, 1, LATE)?;
        d.free(block)?;
        launching.join().expect("no program panics")
    })?;
    let next = d.alloc(BYTES)?;
    fill(d, stream, next, BYTES, 2, 0)?;
    let kept = holds(d, next, BYTES, 2)?;
    ok_if(kept && inside.recorded == Some(Ok(())), &format!("{kept}, {:?}", inside.recorded))
}
