//! [27] [40] [56] Two contexts of one process, and the threads that submit in them.

use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Event, Outcome, Stream};
use cachealloc_tests::functions::IpcHandle;

use crate::order::teardown::texture;
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, one_thread_in_two_contexts, machine = "SIM_DEVICES=2"),
    hazard!(Always, another_thread_submits_elsewhere, machine = "SIM_DEVICES=2"),
    hazard!(Always, another_thread_frees, machine = "SIM_DEVICES=2"),
    hazard!(Full, query_behind_frees_in_two_contexts, machine = "SIM_DEVICES=2"),
    hazard!(Full, queries_behind_a_thread_of_two_contexts, machine = "SIM_DEVICES=2"),
    hazard!(Full, teardown_behind_frees_in_two_contexts, machine = "SIM_DEVICES=2"),
    hazard!(Always, events_between_contexts, machine = "SIM_DEVICES=2"),
    hazard!(Always, event_of_an_idle_stream, machine = "SIM_DEVICES=2"),
    hazard!(Always, freed_on_a_peers_stream, machine = "SIM_DEVICES=2"),
    hazard!(Always, halves_of_two_threads, machine = "SIM_DEVICES=2"),
    hazard!(Always, halves_and_a_teardown, machine = "SIM_DEVICES=2"),
    hazard!(Always, halves_and_an_export, machine = "SIM_DEVICES=2"),
];

const MIXED: &str = "the old kernel wrote into the new block";

struct Two {
    first: u64,
    second: u64,
    /// One stream of each context.
    a: Stream,
    b: Stream,
}

/// This thread has submitted work in both contexts; the first one is current.
fn two_contexts(d: &Driver) -> Outcome<Two> {
    let (first, a) = (d.context(), d.stream()?);
    let second = d.use_device(1)?;
    call!(d, cuCtxEnablePeerAccess(first, 0))?;
    let b = d.stream()?;
    d.launch("delay", b, &[1])?;
    d.set_context(first)?;
    d.launch("delay", a, &[1])?;
    Ok(Two { first, second, a, b })
}

/// Waits for both contexts; the first one is current on return.
fn synchronize_both(d: &Driver, two: &Two) -> Outcome {
    d.set_context(two.second)?;
    d.synchronize()?;
    d.set_context(two.first)?;
    d.synchronize()
}

/// Checks that every word of the block has this value once both contexts are done.
fn both_done(d: &Driver, two: &Two, block: u64, value: u64) -> Verdict {
    synchronize_both(d, two)?;
    ok_if(holds(d, block, BYTES, value)?, MIXED)
}

/// One thread knows that its free has returned, and uses the memory in another context.
fn one_thread_in_two_contexts(d: &Driver) -> Verdict {
    let two = two_contexts(d)?;
    let mut q = 0;
    for round in 1..5 {
        let p = d.alloc(BYTES)?;
        fill(d, two.a, p, BYTES, round, LATE)?;
        d.free(p)?;
        q = d.alloc(BYTES)?;
        d.set_context(two.second)?;
        fill(d, two.b, q, BYTES, 10 * round, 0)?;
        d.synchronize()?;
        d.set_context(two.first)?;
        if round < 4 {
            d.free(q)?;
        }
    }
    both_done(d, &two, q, 40)
}

/// The other thread knows of the free, and has submitted nothing before.
fn another_thread_submits_elsewhere(d: &Driver) -> Verdict {
    let two = two_contexts(d)?;
    let p = d.alloc(BYTES)?;
    fill(d, two.a, p, BYTES, 1, LATE)?;
    d.free(p)?;
    let q = d.alloc(BYTES)?;
    in_thread(d, || {
        d.set_context(two.second)?;
        fill(d, two.b, q, BYTES, 2, 0)
    })?;
    both_done(d, &two, q, 2)
}

/// The thread that submits in the other context knows of the free, but did not make it.
fn another_thread_frees(d: &Driver) -> Verdict {
    let two = two_contexts(d)?;
    let p = d.alloc(BYTES)?;
    fill(d, two.a, p, BYTES, 1, LATE)?;
    in_thread(d, || d.free(p))?;
    let q = d.alloc(BYTES)?;
    d.set_context(two.second)?;
    fill(d, two.b, q, BYTES, 2, 0)?;
    both_done(d, &two, q, 2)
}

/// Frees a block in the first context after the kernel that `late` launches, and then another block
/// in the second context.
fn freed_in_both(d: &Driver, two: &Two, late: impl FnOnce() -> Outcome) -> Outcome {
    let here = d.alloc(SMALL)?;
    d.set_context(two.second)?;
    let there = d.alloc(SMALL)?;
    d.launch("delay", two.b, &[LATE / 4])?;
    d.set_context(two.first)?;
    late()?;
    d.free(here)?;
    d.set_context(two.second)?;
    d.free(there)?;
    d.set_context(two.first)
}

/// The event precedes the first of the two frees.
fn query_behind_frees_in_two_contexts(d: &Driver) -> Verdict {
    let (two, stop) = (two_contexts(d)?, d.event()?);
    freed_in_both(d, &two, || late_before(d, &two, stop))?;
    ok_if_done(d, &two, stop)
}

/// Both frees and the kernel before them come from a thread that has ended.
fn queries_behind_a_thread_of_two_contexts(d: &Driver) -> Verdict {
    let (two, stop) = (two_contexts(d)?, d.event()?);
    in_thread(d, || freed_in_both(d, &two, || late_before(d, &two, stop)))?;
    ok_if_done(d, &two, stop)
}

fn late_before(d: &Driver, two: &Two, stop: Event) -> Outcome {
    d.launch("delay", two.a, &[LATE])?;
    d.record(stop, two.a)
}

fn ok_if_done(d: &Driver, two: &Two, stop: Event) -> Verdict {
    let answer = d.query_event(stop);
    synchronize_both(d, two)?;
    ok_if(answer.is_ok(), "it was not done after the free")
}

/// The texture belongs to the first context, and the second one is current.
fn teardown_behind_frees_in_two_contexts(d: &Driver) -> Verdict {
    let two = two_contexts(d)?;
    let texture = texture(d, d.alloc(SMALL)?)?;
    freed_in_both(d, &two, || d.launch("delay", two.a, &[LATE]))?;
    d.set_context(two.second)?;
    call!(d, cuTexObjectDestroy(texture))?;
    let late = d.virtual_ns().is_none_or(|now| now >= LATE);
    synchronize_both(d, &two)?;
    ok_if(late, "the texture was destroyed while a kernel ran")
}

/// One thread per device, as in frameworks; only events order their work.
fn events_between_contexts(d: &Driver) -> Verdict {
    let two = two_contexts(d)?;
    d.set_context(two.second)?;
    let (read, sums) = (d.event()?, d.alloc(BYTES)?);
    fill(d, two.b, sums, BYTES, 0, 0)?;
    d.set_context(two.first)?;
    let written = d.event()?;
    for round in 1..6 {
        let block = d.alloc(BYTES)?;
        fill(d, two.a, block, BYTES, round, LATE / 8)?;
        d.record(written, two.a)?;
        in_thread(d, || {
            d.set_context(two.second)?;
            d.stream_waits(two.b, written)?;
            d.launch("add", two.b, &[sums, block, BYTES as u64, LATE / 8])?;
            let unrelated = d.alloc(SMALL)?;
            d.free(unrelated)?;
            d.record(read, two.b)
        })?;
        d.stream_waits(two.a, read)?;
        d.free(block)?;
    }
    d.synchronize()?;
    d.set_context(two.second)?;
    let good = holds(d, sums, BYTES, 15)?;
    d.set_context(two.first)?;
    ok_if(good, MIXED)
}

/// The event is recorded after the allocation, on a stream that has never had work.
fn event_of_an_idle_stream(d: &Driver) -> Verdict {
    let (two, idle, allocated) = (two_contexts(d)?, d.stream()?, d.event()?);
    let p = d.alloc(BYTES)?;
    fill(d, two.a, p, BYTES, 1, LATE)?;
    d.free(p)?;
    let q = d.alloc(BYTES)?;
    d.record(allocated, idle)?;
    in_thread(d, || {
        d.set_context(two.second)?;
        d.stream_waits(two.b, allocated)?;
        fill(d, two.b, q, BYTES, 2, 0)
    })?;
    both_done(d, &two, q, 2)
}

/// [56] The block's own context has nothing to wait for; the stream of the other context does.
fn freed_on_a_peers_stream(d: &Driver) -> Verdict {
    let (two, allocated) = (two_contexts(d)?, d.event()?);
    let (p, unrelated) = (d.alloc(BYTES)?, d.alloc(SMALL)?);
    d.record(allocated, two.a)?;
    d.set_context(two.second)?;
    d.stream_waits(two.b, allocated)?;
    fill(d, two.b, p, BYTES, 1, LATE)?;
    d.set_context(two.first)?;
    d.free(unrelated)?;
    d.free_async(p, two.b)?;
    let q = d.alloc(BYTES)?;
    fill(d, two.a, q, BYTES, 2, 0)?;
    both_done(d, &two, q, 2)
}

/// Each thread submits one half of a collective, and the first thread frees after its half. On the
/// plain driver that free waits for the other half, and nothing else does. `before` is what the
/// other thread does before its half, the first work that it ever submits.
fn halves(d: &Driver, two: &Two, before: impl FnOnce() -> Outcome + Send) -> Verdict {
    let (flag, unrelated) = (d.alloc(64)?, d.alloc(SMALL)?);
    d.write_words(flag, &[0])?;
    d.launch("spin", two.a, &[flag, 1])?;
    let freeing = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = spawn(scope, d, || {
            while !freeing.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // The free is now ordered after the spinning kernel, or has returned.
            sleep_ms(20);
            d.set_context(two.second)?;
            before()?;
            d.launch("set", two.b, &[flag, 1])
        });
        freeing.store(true, Ordering::SeqCst);
        d.free(unrelated)?;
        other.join().expect("no program panics")
    })?;
    synchronize_both(d, two)?;
    Ok("ok".into())
}

fn halves_of_two_threads(d: &Driver) -> Verdict {
    let two = two_contexts(d)?;
    halves(d, &two, || Ok(()))
}

fn halves_and_a_teardown(d: &Driver) -> Verdict {
    let two = two_contexts(d)?;
    d.set_context(two.second)?;
    let texture = texture(d, d.alloc(SMALL)?)?;
    d.set_context(two.first)?;
    halves(d, &two, || call!(d, cuTexObjectDestroy(texture)))
}

fn halves_and_an_export(d: &Driver) -> Verdict {
    let two = two_contexts(d)?;
    d.set_context(two.second)?;
    let exported = d.alloc(12 << 20)?;
    d.set_context(two.first)?;
    halves(d, &two, || {
        let mut handle = IpcHandle::default();
        // Memory in an arena cannot be exported.
        code(call!(d, cuIpcGetMemHandle(&mut handle, exported)));
        Ok(())
    })
}
