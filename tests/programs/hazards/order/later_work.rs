//! [6] [7] [26] Later work on any stream is ordered after the work before a free.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, LEGACY, Outcome, PER_THREAD, Stream, THREAD_LOCAL};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, reuse_on_another_stream),
    hazard!(Always, reuse_on_a_new_stream),
    hazard!(Always, reuse_on_a_per_thread_stream),
    hazard!(Always, reuse_beside_the_legacy_stream),
    hazard!(Always, reuse_after_a_destroyed_stream),
    hazard!(Always, reuse_by_a_programmatic_launch),
    hazard!(Full, free_orders_streams),
    hazard!(Full, free_orders_a_programmatic_launch),
    hazard!(Full, free_orders_every_kind_of_work),
    hazard!(Always, every_kind_of_work_between_two_frees),
    hazard!(Always, many_frees_in_a_row),
    hazard!(Always, first_work_beside_a_second_context),
];

/// Fills a block late on `a`, frees it, and lets `b` have the memory again.
fn reuse(d: &Driver, a: Stream, b: impl FnOnce() -> Outcome<Stream>) -> Verdict {
    let first = d.alloc(BYTES)?;
    fill(d, a, first, BYTES, 1, LATE)?;
    d.free(first)?;
    let stream = b()?;
    let second = d.alloc(BYTES)?;
    fill(d, stream, second, BYTES, 2, 0)?;
    ok_if(holds(d, second, BYTES, 2)?, "the old kernel wrote into the new block")
}

fn reuse_on_another_stream(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    reuse(d, a, || Ok(b))
}

fn reuse_on_a_new_stream(d: &Driver) -> Verdict {
    let a = d.stream()?;
    reuse(d, a, || d.stream())
}

fn reuse_on_a_per_thread_stream(d: &Driver) -> Verdict {
    let (a, first) = (d.stream()?, d.alloc(BYTES)?);
    fill(d, a, first, BYTES, 1, LATE)?;
    d.free(first)?;
    let second = d.alloc(BYTES)?;
    in_thread(d, || fill(d, PER_THREAD, second, BYTES, 2, 0))?;
    let first = reuse(d, PER_THREAD, || Ok(a))?;
    let good = holds(d, second, BYTES, 2)? && first == "ok";
    ok_if(good, "the old kernel wrote into the new block")
}

fn reuse_beside_the_legacy_stream(d: &Driver) -> Verdict {
    let a = d.stream()?;
    let before = reuse(d, a, || Ok(LEGACY))?;
    let after = reuse(d, LEGACY, || Ok(a))?;
    ok_if(before == "ok" && after == "ok", "the old kernel wrote into the new block")
}

fn reuse_after_a_destroyed_stream(d: &Driver) -> Verdict {
    let (a, b, first) = (d.stream()?, d.stream()?, d.alloc(BYTES)?);
    fill(d, a, first, BYTES, 1, LATE)?;
    d.destroy_stream(a)?;
    d.free(first)?;
    let second = d.alloc(BYTES)?;
    fill(d, b, second, BYTES, 2, 0)?;
    ok_if(holds(d, second, BYTES, 2)?, "the old kernel wrote into the new block")
}

/// [7] The dependent kernel may start before its predecessor has ended; the free lies between the
/// two.
fn reuse_by_a_programmatic_launch(d: &Driver) -> Verdict {
    let (stream, first) = (d.stream()?, d.alloc(BYTES)?);
    fill(d, stream, first, BYTES, 1, LATE)?;
    d.free(first)?;
    let second = d.alloc(BYTES)?;
    d.launch_early("late_fill", stream, &[second, BYTES as u64, 2, 0])?;
    ok_if(holds(d, second, BYTES, 2)?, "the old kernel wrote into the new block")
}

/// NVIDIA/thrust#1276: only the free of a sort's temporary memory ordered the streams.
fn free_orders_streams(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let (data, result, temporary) = (d.alloc(BYTES)?, d.alloc(BYTES)?, d.alloc(SMALL)?);
    fill(d, a, data, BYTES, 3, LATE)?;
    d.free(temporary)?;
    copy(d, b, result, data, BYTES, 0)?;
    ok_if(holds(d, result, BYTES, 3)?, "the consumer ran first")
}

fn free_orders_a_programmatic_launch(d: &Driver) -> Verdict {
    let (stream, data, temporary) = (d.stream()?, d.alloc(SMALL)?, d.alloc(SMALL)?);
    fill(d, stream, data, SMALL, 3, LATE)?;
    d.free(temporary)?;
    d.launch_early("late_fill", stream, &[data, SMALL as u64, 4, 0])?;
    ok_if(holds(d, data, SMALL, 4)?, "the dependent kernel ran first")
}

/// Combines each kind of work before the free with each kind after it.
fn free_orders_every_kind_of_work(d: &Driver) -> Verdict {
    let mut wrong = Vec::new();
    for before in KINDS {
        for after in KINDS {
            let (a, b, block) = (d.stream()?, d.stream()?, d.alloc(SMALL)?);
            let temporary = d.alloc(SMALL)?;
            d.launch("delay", a, &[LATE / 10])?;
            before.submit(d, a, block, 1)?;
            d.free(temporary)?;
            after.submit(d, b, block, 2)?;
            if !holds(d, block, 8, 0x0202_0202_0202_0202)? {
                wrong.push((before, after));
            }
            d.free(block)?;
        }
    }
    ok_if(wrong.is_empty(), &format!("not in order: {wrong:?}"))
}

/// Makes two frees on one stream. The work between them may be incomplete when all work before the
/// first is complete.
fn every_kind_of_work_between_two_frees(d: &Driver) -> Verdict {
    let (a, b, c) = (d.stream()?, d.stream()?, d.stream()?);
    let between = KINDS.map(Some).into_iter().chain([None]);
    let mut wrong = Vec::new();
    for kind in between {
        let (first, second) = (d.alloc_async(SMALL, a)?, d.alloc(BYTES)?);
        fill(d, a, first, SMALL, 1, 0)?;
        let elsewhere = d.event()?;
        if kind.is_none() {
            fill(d, c, second, 8, 1, LATE)?;
            d.record(elsewhere, c)?;
        }
        d.free_async(first, a)?;
        d.synchronize_stream(a)?;
        match kind {
            Some(kind) => kind.submit(d, a, second, 1)?,
            None => d.stream_waits(a, elsewhere)?,
        }
        d.free_async(second, a)?;
        // This call queries which events are complete.
        d.memory_info()?;
        let again = d.alloc(BYTES)?;
        fill(d, b, again, BYTES, 2, 0)?;
        if !holds(d, again, BYTES, 2)? {
            wrong.push(kind);
        }
        d.free(again)?;
    }
    ok_if(wrong.is_empty(), &format!("not in order: {wrong:?}"))
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Kernel,
    Memset,
    Copy,
    Value,
    Graph,
    BehindHostFunction,
}

const KINDS: [Kind; 6] =
    [Kind::Kernel, Kind::Memset, Kind::Copy, Kind::Value, Kind::Graph, Kind::BehindHostFunction];

impl Kind {
    /// Writes bytes of this value to the first word of the block.
    fn submit(self, d: &Driver, stream: Stream, block: u64, byte: u8) -> Outcome {
        let word = u64::from_ne_bytes([byte; 8]);
        match self {
            Kind::Kernel => fill(d, stream, block, 8, word, 0),
            Kind::Memset => d.memset(block, byte, 8, stream),
            Kind::Copy => {
                let source = d.alloc(SMALL)?;
                d.write_words(source, &[word])?;
                d.copy(block, source, 8, stream)
            }
            Kind::Value => call!(d, cuStreamWriteValue64(stream, block, word, 0)),
            Kind::Graph => {
                let recorded = d.stream()?;
                d.begin_capture(recorded, THREAD_LOCAL)?;
                fill(d, recorded, block, 8, word, 0)?;
                let executable = d.end_capture(recorded).and_then(|graph| d.instantiate(graph))?;
                d.launch_graph(executable, stream)
            }
            Kind::BehindHostFunction => {
                d.host_function(stream, nothing, std::ptr::null_mut())?;
                fill(d, stream, block, 8, word, 0)
            }
        }
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// Some frees make a barrier, and some rely on the barrier before.
fn many_frees_in_a_row(d: &Driver) -> Verdict {
    let streams = [d.stream()?, d.stream()?, d.stream()?];
    for round in 0..40 {
        let mut blocks = Vec::new();
        for (index, stream) in streams.iter().enumerate() {
            let block = d.alloc(SMALL << index)?;
            fill(d, *stream, block, SMALL << index, round, LATE / 50 * (index as u64 + 1))?;
            blocks.push(block);
        }
        let unused = d.alloc(SMALL)?;
        d.free(unused)?;
        blocks.into_iter().try_for_each(|block| d.free(block))?;
    }
    d.synchronize()?;
    Ok("ok".into())
}

/// [30] The first work of the process is submitted while another thread makes a second context,
/// which works after a free.
fn first_work_beside_a_second_context(d: &Driver) -> Verdict {
    let (first, old, begins) = (d.context(), d.alloc(BYTES)?, AtomicBool::new(false));
    let mut second = 0;
    // Loads the kernel, so that the thread's launch begins at once.
    d.kernel("late_fill")?;
    std::thread::scope(|scope| {
        let working = spawn(scope, d, || {
            begins.store(true, Ordering::SeqCst);
            fill(d, LEGACY, old, BYTES, 1, LATE)
        });
        while !begins.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
        call!(d, cuCtxCreate(&mut second, 0, 0))?;
        working.join().expect("no program panics")
    })?;
    d.set_context(first)?;
    d.free(old)?;
    let new = d.alloc(BYTES)?;
    d.set_context(second)?;
    d.memset(new, 2, BYTES, LEGACY)?;
    let done = holds(d, new, BYTES, 0x0202_0202_0202_0202)?;
    d.set_context(first)?;
    let still = holds(d, new, BYTES, 0x0202_0202_0202_0202)?;
    ok_if(done && still, "the old kernel wrote into the new block")
}
