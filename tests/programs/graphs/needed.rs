//! Memory of a destroyed graph that is needed at once.

use cachealloc_tests::driver::{Driver, Outcome, RELAXED, Stream, check};

use crate::{BYTES, LARGE, LATE, Verdict, fill};

/// Captures a graph that fills all available memory, which is freed in its capture. Returns the
/// blocks, the graph and its executable.
fn captured_with_all_memory(
    d: &Driver,
    stream: Stream,
    mode: u32,
) -> Outcome<(Vec<u64>, u64, u64)> {
    d.begin_capture(stream, mode)?;
    let mut inside = Vec::new();
    while let Ok(block) = d.alloc(LARGE) {
        inside.push(block);
    }
    inside.iter().try_for_each(|block| fill(d, stream, *block, 1))?;
    inside.iter().try_for_each(|block| d.free(*block))?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    Ok((inside, graph, executable))
}

/// Captures such a graph and launches it.
fn launched_with_all_memory(
    d: &Driver,
    stream: Stream,
    mode: u32,
) -> Outcome<(Vec<u64>, u64, u64)> {
    let (inside, graph, executable) = captured_with_all_memory(d, stream, mode)?;
    d.launch_graph(executable, stream)?;
    Ok((inside, graph, executable))
}

/// Nothing runs, the graph is destroyed, and its memory is needed at once.
pub fn needed_at_once(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    for round in 0..10 {
        let (inside, graph, executable) = launched_with_all_memory(d, stream, mode)?;
        d.synchronize()?;
        d.destroy_executable(executable)?;
        d.destroy_graph(graph)?;
        let blocks = inside.iter().map(|_| d.alloc(LARGE)).collect::<Outcome<Vec<u64>>>();
        let Ok(blocks) = blocks else { return Ok(format!("FAIL, none in round {round}")) };
        blocks.into_iter().try_for_each(|block| d.free(block))?;
    }
    Ok("ok".into())
}

/// The graph is never launched.
pub fn needed_unlaunched(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    for round in 0..10 {
        let (inside, graph, executable) = captured_with_all_memory(d, stream, mode)?;
        d.destroy_executable(executable)?;
        d.destroy_graph(graph)?;
        let blocks = inside.iter().map(|_| d.alloc(LARGE)).collect::<Outcome<Vec<u64>>>();
        let Ok(blocks) = blocks else { return Ok(format!("FAIL, none in round {round}")) };
        blocks.into_iter().try_for_each(|block| d.free(block))?;
    }
    Ok("ok".into())
}

/// Nothing runs, the graph is destroyed, and its executable is updated from another graph: the
/// memory is needed at once.
pub fn needed_after_an_update(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    let other = d.alloc(BYTES)?;
    let (inside, graph, executable) = launched_with_all_memory(d, stream, mode)?;
    d.begin_capture(stream, mode)?;
    inside.iter().try_for_each(|_| fill(d, stream, other, 2))?;
    let second = d.end_capture(stream)?;
    d.synchronize()?;
    d.destroy_graph(graph)?;
    // The executable keeps the memory.
    let early = d.alloc(LARGE);
    let mut result = [0_u64; 4];
    // SAFETY: the result area is larger than the result.
    check(unsafe {
        (d.functions.cuGraphExecUpdate)(executable, second, result.as_mut_ptr().cast())
    })?;
    let served = inside.iter().all(|_| d.alloc(LARGE).is_ok());
    let good = early.is_err() && served && !inside.is_empty();
    Ok(if good { "ok".into() } else { format!("FAIL, early: {early:?}, served: {served}") })
}

/// Another thread needs the memory of a destroyed graph while a capture is open.
pub fn destroyed_beside_a_capture(d: &Driver, mode: u32) -> Verdict {
    let (stream, other, context) = (d.stream()?, d.stream()?, d.context());
    let (inside, graph, executable) = launched_with_all_memory(d, stream, mode)?;
    // Only in a relaxed capture may the graph be destroyed (measured).
    d.begin_capture(other, RELAXED)?;
    d.destroy_executable(executable)?;
    d.destroy_graph(graph)?;
    let served = std::thread::scope(|scope| {
        let serve = || {
            d.set_context(context)?;
            d.synchronize_stream(stream)?;
            Outcome::Ok(inside.iter().all(|_| d.alloc(LARGE).is_ok()))
        };
        scope.spawn(serve).join().expect("it does not panic")
    })?;
    d.end_capture(other)?;
    Ok(if served && !inside.is_empty() { "ok" } else { "FAIL, none" }.into())
}

/// The graph was launched after a kernel, and is destroyed while that kernel runs. On the plain
/// driver its memory is free at once; under the library it is free once the launch is complete, for
/// which a later free waits.
pub fn needed_behind_a_free(d: &Driver, mode: u32) -> Verdict {
    behind_a_free(d, mode, |_| Ok(()))
}

/// Several frees that wait for nothing on the plain driver follow, and then requests.
pub fn needed_behind_several_frees(d: &Driver, mode: u32) -> Verdict {
    let idle = d.stream()?;
    behind_a_free(d, mode, |d| {
        for _ in 0..3 {
            let small = d.alloc_async(BYTES, idle)?;
            d.free(small)?;
            if let Ok(early) = d.alloc(LARGE) {
                d.free(early)?;
            }
        }
        Ok(())
    })
}

fn behind_a_free(d: &Driver, mode: u32, between: impl Fn(&Driver) -> Outcome<()>) -> Verdict {
    destroyed_while_running(d, mode, |d, _, small| {
        between(d)?;
        d.free(small)
    })
}

/// The program waits for the stream of the launch.
pub fn needed_behind_a_wait(d: &Driver, mode: u32) -> Verdict {
    destroyed_while_running(d, mode, |d, stream, _| d.synchronize_stream(stream))
}

/// The program queries an event recorded after the launch until it is complete.
pub fn needed_behind_a_query(d: &Driver, mode: u32) -> Verdict {
    destroyed_while_running(d, mode, |d, stream, _| {
        let event = d.event()?;
        d.record(event, stream)?;
        while d.query_event(event).is_err() {}
        Ok(())
    })
}

/// Destroys a graph that runs, and requests its memory after `wait`, which gets the stream of the
/// graph and a small block.
fn destroyed_while_running(
    d: &Driver,
    mode: u32,
    wait: impl Fn(&Driver, Stream, u64) -> Outcome<()>,
) -> Verdict {
    let stream = d.stream()?;
    let other = d.alloc(BYTES)?;
    for round in 0..10 {
        let small = d.alloc(BYTES)?;
        let (inside, graph, executable) = launched_with_all_memory(d, stream, mode)?;
        d.launch("late_fill", stream, &[other, BYTES as u64, 1, LATE])?;
        d.launch_graph(executable, stream)?;
        d.destroy_executable(executable)?;
        d.destroy_graph(graph)?;
        // The library promises nothing here.
        if let Ok(early) = d.alloc(LARGE) {
            d.free(early)?;
        }
        wait(d, stream, small)?;
        let blocks = inside.iter().map(|_| d.alloc(LARGE)).collect::<Outcome<Vec<u64>>>();
        let Ok(blocks) = blocks else { return Ok(format!("FAIL, none in round {round}")) };
        blocks.into_iter().try_for_each(|block| d.free(block))?;
    }
    Ok("ok".into())
}
