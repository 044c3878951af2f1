//! [16] [18] [34] Other threads free while a stream captures; the capture must survive.

use cachealloc_tests::driver::{
    Driver, GLOBAL, LEGACY, Outcome, PER_THREAD, RELAXED, Stream, THREAD_LOCAL,
};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Full, free_during_thread_local_capture),
    hazard!(Full, free_during_relaxed_capture),
    hazard!(Full, free_during_global_capture, ours),
    hazard!(Always, reuse_of_what_was_freed_during_a_capture),
    hazard!(Always, abandoned_capture),
    hazard!(Always, capturing_stream_that_is_not_destroyed),
    hazard!(Always, capturing_context_destroyed),
    hazard!(Full, query_legacy_during_capture),
    hazard!(Always, malloc_in_relaxed_capture),
    hazard!(Always, free_async_of_outside_memory_in_capture),
    hazard!(Always, memory_nodes_in_capture),
    hazard!(Full, stream_of_another_context_joins, machine = "SIM_DEVICES=2"),
    hazard!(Always, failed_call_during_capture),
    hazard!(Always, failed_call_beside_a_capture, ours),
    hazard!(Always, many_captures_at_once, machine = "SIM_MEMORY_MB=192"),
    hazard!(Always, memory_of_a_relaxed_capture, machine = "SIM_MEMORY_MB=192"),
    hazard!(Always, memory_beside_a_capture, machine = "SIM_MEMORY_MB=192"),
    hazard!(Always, memory_that_a_node_names, machine = "SIM_MEMORY_MB=192"),
    hazard!(Always, memory_of_another_thread_that_a_node_names, machine = "SIM_MEMORY_MB=192"),
    hazard!(Always, memory_of_an_abandoned_capture, machine = "SIM_MEMORY_MB=192"),
    hazard!(Always, capture_with_little_memory_left, machine = "SIM_MEMORY_MB=62"),
    hazard!(Always, capture_behind_a_free_of_a_pool, machine = "SIM_MEMORY_MB=64"),
    hazard!(
        Always,
        requests_beside_the_end_of_their_capture,
        machine = "SIM_MEMORY_MB=96 SIM_LINGER_US=100"
    ),
];

const MIB: usize = 1 << 20;

/// A capture on `stream` that writes 3 into `block`.
pub struct Captured {
    pub stream: Stream,
    block: u64,
}

impl Captured {
    pub fn new(d: &Driver, stream: Stream) -> Outcome<Captured> {
        Ok(Captured { stream, block: d.alloc(BYTES)? })
    }

    fn begin(&self, d: &Driver, mode: u32) -> Outcome {
        d.begin_capture(self.stream, mode)?;
        self.write_first(d)
    }

    pub fn write_first(&self, d: &Driver) -> Outcome {
        fill(d, self.stream, self.block, BYTES / 2, 3, 0)
    }

    pub fn write_rest(&self, d: &Driver) -> Outcome {
        fill(d, self.stream, self.block + BYTES as u64 / 2, BYTES / 2, 3, 0)
    }

    pub fn finish(&self, d: &Driver) -> Verdict {
        let graph = match self.write_rest(d).and_then(|()| d.end_capture(self.stream)) {
            Ok(graph) => graph,
            Err(code) => return Ok(format!("FAIL, the capture died: {code}")),
        };
        let executable = d.instantiate(graph)?;
        d.launch_graph(executable, self.stream)?;
        ok_if(holds(d, self.block, BYTES, 3)?, "the graph did not do its work")
    }
}

/// A default stream cannot be destroyed. Its capture continues while another thread frees.
fn capturing_stream_that_is_not_destroyed(d: &Driver) -> Verdict {
    let block = d.alloc(BYTES)?;
    let capture = Captured::new(d, PER_THREAD)?;
    capture.begin(d, THREAD_LOCAL)?;
    if d.destroy_stream(PER_THREAD).is_ok() {
        return Ok("FAIL, the stream was destroyed".into());
    }
    in_thread(d, || {
        fill(d, d.stream()?, block, BYTES, 1, LATE)?;
        d.free(block)
    })?;
    capture.finish(d)
}

fn free_during_thread_local_capture(d: &Driver) -> Verdict {
    free_during_capture(d, THREAD_LOCAL)
}

fn free_during_relaxed_capture(d: &Driver) -> Verdict {
    free_during_capture(d, RELAXED)
}

/// On the plain driver another thread's free invalidates a global capture; under the library it
/// must not.
fn free_during_global_capture(d: &Driver) -> Verdict {
    free_during_capture(d, GLOBAL)
}

fn free_during_capture(d: &Driver, mode: u32) -> Verdict {
    let capture = Captured::new(d, d.stream()?)?;
    free_during(d, || capture.begin(d, mode), || capture.finish(d))
}

/// The other thread still relies on its free for the order of its streams, and for what the host
/// sees.
pub fn free_during(
    d: &Driver,
    begin: impl FnOnce() -> Outcome,
    finish: impl FnOnce() -> Verdict,
) -> Verdict {
    let (a, b, word) = (d.stream()?, d.stream()?, d.pinned(64)?);
    let (block, data) = (d.alloc(BYTES)?, d.alloc(SMALL)?);
    fill(d, a, block, SMALL, 0, 0)?;
    d.synchronize()?;
    begin()?;
    let seen = in_thread(d, || {
        fill(d, a, block, BYTES, 1, LATE)?;
        fill(d, a, data, SMALL, 1, 0)?;
        fill(d, a, word, 8, 9, 0)?;
        d.free(block)?;
        let seen = d.host_read(word);
        let again = d.alloc(BYTES)?;
        fill(d, b, again, BYTES, 2, 0)?;
        fill(d, b, data, SMALL, 2, 0)?;
        d.free(again)?;
        Ok(seen)
    });
    let verdict = finish()?;
    if verdict == "ok" && seen != Ok(9) {
        return Ok(format!("FAIL, the free answered {}, the host saw {seen:?}", code(seen)));
    }
    Ok(verdict)
}

fn reuse_of_what_was_freed_during_a_capture(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let capture = Captured::new(d, d.stream()?)?;
    let blocks = [d.alloc(BYTES)?, d.alloc_async(BYTES, a)?, d.alloc_async(BYTES, a)?];
    capture.begin(d, THREAD_LOCAL)?;
    let again = in_thread(d, || {
        blocks.iter().try_for_each(|block| fill(d, a, *block, BYTES, 1, LATE / 3))?;
        d.free(blocks[0])?;
        d.free(blocks[1])?;
        d.free_async(blocks[2], a)?;
        let again = [d.alloc(BYTES)?, d.alloc(BYTES)?, d.alloc_async(BYTES, b)?];
        again.iter().try_for_each(|block| fill(d, b, *block, BYTES, 2, 0))?;
        Ok(again)
    })?;
    let verdict = capture.finish(d)?;
    for block in again {
        if !holds(d, block, BYTES, 2)? {
            return Ok("FAIL, the old kernel wrote into the new block".into());
        }
    }
    Ok(verdict)
}

/// The capture is never ended: its stream is destroyed.
fn abandoned_capture(d: &Driver) -> Verdict {
    for round in 0..3 {
        let (stream, block) = (d.stream()?, d.alloc(BYTES)?);
        d.begin_capture(stream, THREAD_LOCAL)?;
        fill(d, stream, block, BYTES, 1, 0)?;
        d.destroy_stream(stream)?;
        let other = d.stream()?;
        fill(d, other, block, BYTES, round, LATE / 3)?;
        d.free(block)?;
        let again = d.alloc(BYTES)?;
        fill(d, d.stream()?, again, BYTES, 7, 0)?;
        if !holds(d, again, BYTES, 7)? {
            return Ok("FAIL, wrong contents".into());
        }
        d.free(again)?;
    }
    Ok("ok".into())
}

fn capturing_context_destroyed(d: &Driver) -> Verdict {
    let primary = d.context();
    let other = d.create_context(0)?;
    d.set_context(other)?;
    let stream = d.stream()?;
    d.begin_capture(stream, THREAD_LOCAL)?;
    call!(d, cuCtxDestroy(other))?;
    d.set_context(primary)?;
    let (a, b, block) = (d.stream()?, d.stream()?, d.alloc(BYTES)?);
    fill(d, a, block, BYTES, 1, LATE)?;
    d.free(block)?;
    let again = d.alloc(BYTES)?;
    fill(d, b, again, BYTES, 2, 0)?;
    ok_if(holds(d, again, BYTES, 2)?, "wrong contents")
}

/// The query may return 906, and must leave the capture intact.
fn query_legacy_during_capture(d: &Driver) -> Verdict {
    let capture = Captured::new(d, d.blocking_stream()?)?;
    let block = d.alloc(BYTES)?;
    capture.begin(d, RELAXED)?;
    let asked = code(d.capture_status(LEGACY));
    in_thread(d, || d.free(block))?;
    let verdict = capture.finish(d)?;
    Ok(format!("asked {asked}, {verdict}"))
}

fn malloc_in_relaxed_capture(d: &Driver) -> Verdict {
    let capture = Captured::new(d, d.stream()?)?;
    let before = d.alloc(BYTES)?;
    capture.begin(d, RELAXED)?;
    let during = d.alloc(BYTES)?;
    d.free(before)?;
    let large = d.alloc(12 << 20)?;
    let verdict = capture.finish(d)?;
    d.free(during)?;
    d.free(large)?;
    Ok(verdict)
}

/// [18] The free must return the driver's own code, whatever it is.
fn free_async_of_outside_memory_in_capture(d: &Driver) -> Verdict {
    let capture = Captured::new(d, d.stream()?)?;
    let (plain, ordered) = (d.alloc(BYTES)?, d.alloc_async(BYTES, capture.stream)?);
    d.synchronize_stream(capture.stream)?;
    capture.begin(d, THREAD_LOCAL)?;
    let of_plain = code(d.free_async(plain, capture.stream));
    let of_ordered = code(d.free_async(ordered, capture.stream));
    let ended = code(d.end_capture(capture.stream));
    let later = (code(d.free(plain)), code(d.free_async(ordered, capture.stream)));
    Ok(format!("plain {of_plain}, async {of_ordered}, end {ended}, later {later:?}"))
}

fn memory_nodes_in_capture(d: &Driver) -> Verdict {
    let capture = Captured::new(d, d.stream()?)?;
    capture.begin(d, THREAD_LOCAL)?;
    let inside = d.alloc_async(BYTES, capture.stream)?;
    fill(d, capture.stream, inside, BYTES, 3, 0)?;
    d.free_async(inside, capture.stream)?;
    capture.finish(d)
}

/// [34] An event adds a stream of another context to the capture; both contexts free.
fn stream_of_another_context_joins(d: &Driver) -> Verdict {
    let (first, e, capture) = (d.context(), d.event()?, Captured::new(d, d.stream()?)?);
    let block = d.alloc(SMALL)?;
    let second = d.use_device(1)?;
    let (joined, back) = (d.stream()?, d.event()?);
    let (there, data) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
    d.set_context(first)?;
    capture.begin(d, THREAD_LOCAL)?;
    d.record(e, capture.stream)?;
    d.stream_waits(joined, e)?;
    in_thread(d, || d.free(block))?;
    in_thread(d, || {
        d.set_context(second)?;
        let (a, b) = (d.stream()?, d.stream()?);
        fill(d, a, data, SMALL, 1, LATE)?;
        d.free(there)?;
        fill(d, b, data, SMALL, 2, 0)
    })?;
    d.set_context(second)?;
    d.launch("delay", joined, &[1])?;
    d.record(back, joined)?;
    d.set_context(first)?;
    d.stream_waits(capture.stream, back)?;
    let verdict = capture.finish(d)?;
    d.set_context(second)?;
    let good = holds(d, data, SMALL, 2)?;
    ok_if(good && verdict == "ok", &verdict)
}

/// [21] A failed call has added something to the capture: the library must not repeat it.
fn failed_call_during_capture(d: &Driver) -> Verdict {
    let capture = Captured::new(d, d.stream()?)?;
    let cached = d.alloc(24 << 20)?;
    d.free(cached)?;
    capture.begin(d, THREAD_LOCAL)?;
    if !d.fail("cuLaunchKernel@1=2!") {
        return Ok("no simulation".into());
    }
    let launched = code(fill(d, capture.stream, capture.block, BYTES, 3, 0));
    let verdict = capture.finish(d)?;
    Ok(format!("launched {launched}, {verdict}"))
}

/// A launch on another stream needs memory that the cache holds.
fn failed_call_beside_a_capture(d: &Driver) -> Verdict {
    let (capture, stream) = (Captured::new(d, d.stream()?)?, d.stream()?);
    let cached = d.alloc(24 << 20)?;
    d.launch("delay", stream, &[1])?;
    d.free(cached)?;
    capture.begin(d, THREAD_LOCAL)?;
    let launched = in_thread(d, || {
        d.fail("cuLaunchKernel@1=2");
        Ok(d.launch("delay", stream, &[1]).is_ok())
    })?;
    let verdict = capture.finish(d)?;
    if launched { Ok(verdict) } else { Ok("FAIL, the cache was not emptied for it".into()) }
}

/// [37] After the captures, memory is reused as before.
fn many_captures_at_once(d: &Driver) -> Verdict {
    const COUNT: usize = 70;
    let block = d.alloc(SMALL)?;
    let streams = (0..COUNT).map(|_| d.stream()).collect::<Outcome<Vec<Stream>>>()?;
    for stream in &streams {
        d.begin_capture(*stream, THREAD_LOCAL)?;
        fill(d, *stream, block, SMALL, 1, 0)?;
    }
    for stream in &streams {
        d.end_capture(*stream)?;
    }
    let a = d.stream()?;
    for round in 0..30 {
        let large = d.alloc_async(24 << 20, a)?;
        fill(d, a, large, SMALL, round, 0)?;
        d.free_async(large, a)?;
        d.synchronize()?;
        let large = d.alloc(100 << 20)?;
        d.free(large)?;
    }
    Ok("ok".into())
}

/// [39] Memory that a relaxed capture frees is free, though the graph lives.
fn memory_of_a_relaxed_capture(d: &Driver) -> Verdict {
    const MOST: usize = 110 << 20;
    let (other, capture) = (d.stream()?, Captured::new(d, d.stream()?)?);
    capture.begin(d, RELAXED)?;
    for value in 1..4 {
        let large = d.alloc(MOST)?;
        fill(d, other, large, BYTES, value, LATE / 3)?;
        d.free(large)?;
        let parts = [d.alloc(MOST / 2)?, d.alloc(BYTES)?, d.alloc(SMALL)?];
        parts.into_iter().try_for_each(|part| d.free(part))?;
    }
    // Another thread may get it now, and every thread may after the capture.
    in_thread(d, || {
        let large = d.alloc(MOST)?;
        fill(d, other, large, BYTES, 5, LATE / 3)?;
        d.free(large)
    })?;
    let held = d.alloc(MOST)?;
    let verdict = capture.finish(d)?;
    d.free(held)?;
    let large = d.alloc(MOST)?;
    fill(d, other, large, BYTES, 6, 0)?;
    ok_if(holds(d, large, BYTES, 6)? && verdict == "ok", &verdict)
}

/// [37] A thread that takes no part in the capture allocates and frees as if nothing were being
/// captured.
fn memory_beside_a_capture(d: &Driver) -> Verdict {
    const MOST: usize = 110 << 20;
    let (a, b) = (d.stream()?, d.stream()?);
    let capture = Captured::new(d, d.stream()?)?;
    let kept = d.alloc(MOST)?;
    d.free(kept)?;
    capture.begin(d, THREAD_LOCAL)?;
    in_thread(d, || {
        for value in 0..5 {
            let large = d.alloc(MOST)?;
            fill(d, a, large, BYTES, value, LATE / 3)?;
            d.free(large)?;
            let parts = [d.alloc(MOST / 2)?, d.alloc(MOST / 3)?];
            fill(d, b, parts[0], BYTES, value, 0)?;
            parts.into_iter().try_for_each(|part| d.free(part))?;
        }
        Ok(())
    })?;
    capture.finish(d)
}

/// [39] A block freed after the graph's last launch is free, though the executable graph lives.
fn memory_that_a_node_names(d: &Driver) -> Verdict {
    freed_behind_its_launch(d, RELAXED, |d| d.alloc(80 << 20))
}

fn memory_of_another_thread_that_a_node_names(d: &Driver) -> Verdict {
    freed_behind_its_launch(d, THREAD_LOCAL, |d| in_thread(d, || d.alloc(80 << 20)))
}

fn freed_behind_its_launch(
    d: &Driver,
    mode: u32,
    alloc: impl Fn(&Driver) -> Outcome<u64>,
) -> Verdict {
    let (stream, other) = (d.stream()?, d.stream()?);
    d.begin_capture(stream, mode)?;
    let named = alloc(d)?;
    fill(d, stream, named, BYTES, 3, LATE / 3)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    d.launch_graph(executable, stream)?;
    d.free(named)?;
    d.destroy_graph(graph)?;
    // This block is larger than the memory left beside the first one, and is ordered after the
    // launch.
    let large = d.alloc(120 << 20)?;
    fill(d, other, large, BYTES, 4, 0)?;
    let good = holds(d, large, BYTES, 4)?;
    d.destroy_executable(executable)?;
    ok_if(good, "the graph wrote to another block")
}

/// [39] A block that a node references is freed after the stream of its capture was destroyed.
fn memory_of_an_abandoned_capture(d: &Driver) -> Verdict {
    let mut asked = [0; 3];
    for answer in &mut asked {
        let stream = d.stream()?;
        d.begin_capture(stream, RELAXED)?;
        let block = d.alloc(120 << 20);
        *answer = code(block);
        if let Ok(block) = block {
            fill(d, stream, block, BYTES, 3, LATE / 3)?;
        }
        d.destroy_stream(stream)?;
        block.map_or(Ok(()), |block| d.free(block))?;
    }
    Ok(format!("codes {asked:?}"))
}

/// [50] The last request fits on the device, but not a segment for several such requests.
fn capture_with_little_memory_left(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    d.begin_capture(stream, RELAXED)?;
    let asked = [0; 5].map(|_| code(d.alloc(8 * MIB)));
    Ok(format!("asked {asked:?}, ended {}", code(d.end_capture(stream))))
}

/// [50] What was freed like this is free at once (measured), while the simulated pool still counts
/// it as used: only a call tells whether the driver has the memory.
fn capture_behind_a_free_of_a_pool(d: &Driver) -> Verdict {
    let (stream, mut pool, mut block) = (d.stream()?, 0, 0);
    let mut properties = [0_u32; 22];
    properties[..3].copy_from_slice(&[1, 0, 1]);
    call!(d, cuMemPoolCreate(&mut pool, properties.as_ptr().cast()))?;
    call!(d, cuMemAllocFromPoolAsync(&mut block, 52 * MIB, pool, stream))?;
    d.free(block)?;
    d.begin_capture(stream, RELAXED)?;
    let asked = code(d.alloc(48 * MIB));
    Ok(format!("asked {asked}, ended {}", code(d.end_capture(stream))))
}

/// Another thread takes part in a capture and requests memory while this one ends the capture. The
/// memory is no part of the graph.
fn requests_beside_the_end_of_their_capture(d: &Driver) -> Verdict {
    const ROUNDS: u64 = 40;
    const SIZES: [usize; 6] = [9 * MIB, SMALL, 3 * MIB, 21 * MIB, SMALL, 5 * MIB];
    let (captured, own, target) = (d.stream()?, d.stream()?, d.alloc(BYTES)?);
    for round in 0..ROUNDS {
        d.begin_capture(captured, RELAXED)?;
        let (takes_part, part) = std::sync::mpsc::channel();
        let (graph, blocks) = std::thread::scope(|scope| -> Outcome<_> {
            let requests = spawn(scope, d, move || {
                fill(d, captured, target, BYTES, round, 0)?;
                let _ = takes_part.send(()); // the receiver waits for this alone
                let mut blocks = Vec::new();
                for (place, bytes) in SIZES.into_iter().enumerate() {
                    let block = d.alloc(bytes)?;
                    match (place as u64 + round) % 3 {
                        0 => d.free(block)?,
                        _ => blocks.push(block),
                    }
                }
                Ok(blocks)
            });
            let _ = part.recv(); // an error shows when the thread is joined
            let graph = d.end_capture(captured)?;
            Ok((graph, requests.join().expect("no program panics")?))
        })?;
        for block in &blocks {
            fill(d, own, *block, SMALL, ROUNDS, 0)?;
        }
        let executable = d.instantiate(graph)?;
        d.launch_graph(executable, captured)?;
        d.synchronize()?;
        for block in blocks {
            if !holds(d, block, SMALL, ROUNDS)? {
                return Ok("the graph wrote into memory that it does not have".into());
            }
            d.free(block)?;
        }
        if !holds(d, target, BYTES, round)? {
            return Ok("the graph did not do its work".into());
        }
        call!(d, cuGraphExecDestroy(executable))?;
        call!(d, cuGraphDestroy(graph))?;
    }
    Ok("ok".into())
}
