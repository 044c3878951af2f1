//! The ways in which memory of a graph is freed, and when it becomes available.

use cachealloc_tests::driver::{Driver, Outcome, RELAXED, check};

use crate::{BYTES, LARGE, LATE, Verdict, code, fill, free_bytes, free_bytes_again, holds};

/// Memory of an ended capture is unavailable to others while its graph lives.
pub fn outlives(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    d.begin_capture(stream, mode)?;
    let inside = d.alloc(LARGE)?;
    fill(d, stream, inside, 1)?;
    d.free(inside)?;
    let graph = d.end_capture(stream)?;
    let (first, second) = (d.instantiate(graph)?, d.instantiate(graph)?);
    d.destroy_graph(graph)?;
    for executable in [first, second] {
        let outside = d.alloc(LARGE)?;
        fill(d, stream, outside, 7)?;
        d.synchronize()?;
        d.launch_graph(executable, stream)?;
        if outside == inside || !holds(d, outside, 7)? {
            return Ok("FAIL, the graph's memory was allocated again".into());
        }
        d.free(outside)?;
        d.destroy_executable(executable)?;
        free_bytes(d)?;
    }
    for _ in 0..250 {
        let blocks = [d.alloc(LARGE)?, d.alloc(LARGE)?];
        if blocks.contains(&inside) {
            return Ok("ok".into());
        }
        blocks.into_iter().try_for_each(|block| d.free(block))?;
        free_bytes(d)?;
    }
    Ok("FAIL, the memory is lost".into())
}

/// A block that is allocated when the capture ends belongs to the program, before and after the
/// graph's life.
pub fn freed_later(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    d.begin_capture(stream, mode)?;
    let (first, second) = (d.alloc(LARGE)?, d.alloc(LARGE)?);
    fill(d, stream, first, 1)?;
    fill(d, stream, second, 2)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    d.launch_graph(executable, stream)?;
    if !holds(d, first, 1)? || !holds(d, second, 2)? {
        return Ok("FAIL, wrong contents".into());
    }
    d.free(first)?;
    // Memory of a relaxed capture no longer belongs to the graph, as on the plain driver.
    if mode != RELAXED {
        let other = d.alloc(LARGE)?;
        fill(d, stream, other, 7)?;
        d.launch_graph(executable, stream)?;
        if !holds(d, other, 7)? {
            return Ok("FAIL, a launch wrote to another block".into());
        }
    }
    d.destroy_executable(executable)?;
    d.destroy_graph(graph)?;
    free_bytes(d)?;
    if !holds(d, second, 2)? {
        return Ok("FAIL, a live block was allocated again".into());
    }
    let twice = (code(d.free(second)), code(d.free(second)), code(d.free(first)));
    Ok(format!("free {twice:?}"))
}

/// Another thread frees memory that the capture uses.
pub fn freed_by_another_thread(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    let context = d.context();
    d.begin_capture(stream, mode)?;
    let first = d.alloc(LARGE)?;
    fill(d, stream, first, 1)?;
    std::thread::scope(|scope| {
        let free = scope.spawn(|| d.set_context(context).and_then(|()| d.free(first)));
        free.join().expect("it does not panic")
    })?;
    let second = d.alloc(LARGE)?;
    fill(d, stream, second, 2)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    d.launch_graph(executable, stream)?;
    if holds(d, second, 2)? { Ok("ok".into()) } else { Ok("FAIL, wrong contents".into()) }
}

/// Another thread allocates for the capture: its memory must live as long.
pub fn another_thread(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    let context = d.context();
    d.begin_capture(stream, mode)?;
    let inside = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            d.set_context(context)?;
            let inside = d.alloc(LARGE)?;
            fill(d, stream, inside, 1)?;
            d.free(inside)?;
            Ok::<u64, i32>(inside)
        });
        work.join().expect("it does not panic")
    })?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    let outside = d.alloc(LARGE)?;
    fill(d, stream, outside, 7)?;
    d.launch_graph(executable, stream)?;
    let kept = holds(d, outside, 7)?;
    let own = outside != inside;
    Ok(format!("own memory: {own}, kept: {kept}"))
}

/// Memory that was allocated before the capture and is freed in it serves other requests, not the
/// capture.
pub fn freed_before(d: &Driver, mode: u32) -> Verdict {
    let (stream, other) = (d.stream()?, d.stream()?);
    let (before, idle) = (d.alloc(LARGE)?, d.alloc(LARGE)?);
    d.launch("late_fill", other, &[before, BYTES as u64, 1, LATE])?;
    d.free(idle)?;
    d.begin_capture(stream, mode)?;
    d.free(before)?;
    let blocks = [d.alloc(LARGE)?, d.alloc(LARGE)?];
    blocks.iter().try_for_each(|block| fill(d, stream, *block, 2))?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    let after = d.alloc(LARGE)?;
    fill(d, other, after, 3)?;
    d.launch_graph(executable, stream)?;
    let good = holds(d, after, 3)? && holds(d, blocks[0], 2)? && holds(d, blocks[1], 2)?;
    let idle_serves = blocks.contains(&idle);
    let held_back = !blocks.contains(&before) && after == before;
    Ok(format!("right: {good}, idle memory serves: {idle_serves}, held back: {held_back}"))
}

/// The program itself invalidates its capture. No memory is lost.
pub fn dies(d: &Driver, mode: u32) -> Verdict {
    let (stream, other) = (d.stream()?, d.stream()?);
    let event = d.event()?;
    d.record(event, other)?;
    let before = free_bytes(d)?;
    d.begin_capture(stream, mode)?;
    let inside = d.alloc(LARGE)?;
    fill(d, stream, inside, 1)?;
    d.free(inside)?;
    let killed = code(d.stream_waits(stream, event));
    let later = d.alloc(BYTES)?;
    d.free(later)?;
    let ended = code(d.end_capture(stream));
    let after = free_bytes_again(d, before)?;
    let fate = if after == before { "back" } else { "FAIL, lost" };
    Ok(format!("killed {killed}, ended {ended}, memory {fate}"))
}

/// The capture is never ended: its stream is destroyed.
pub fn abandoned(d: &Driver, mode: u32) -> Verdict {
    for _ in 0..3 {
        let stream = d.stream()?;
        d.begin_capture(stream, mode)?;
        let inside = d.alloc(LARGE)?;
        fill(d, stream, inside, 1)?;
        d.free(inside)?;
        d.destroy_stream(stream)?;
        let block = d.alloc(LARGE)?;
        d.free(block)?;
    }
    Ok("ok".into())
}

/// An executable graph is updated from another graph, which is then destroyed.
pub fn updated(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    let capture = |value: u64| -> Outcome<(u64, u64)> {
        d.begin_capture(stream, mode)?;
        let inside = d.alloc(LARGE)?;
        fill(d, stream, inside, value)?;
        Ok((d.end_capture(stream)?, inside))
    };
    let (first, old) = capture(1)?;
    let executable = d.instantiate(first)?;
    let (second, new) = capture(2)?;
    let mut result = [0_u64; 4];
    // SAFETY: the result area is larger than the result.
    check(unsafe {
        (d.functions.cuGraphExecUpdate)(executable, second, result.as_mut_ptr().cast())
    })?;
    d.destroy_graph(first)?;
    d.destroy_graph(second)?;
    d.free(old)?;
    d.free(new)?;
    free_bytes(d)?;
    let blocks = [d.alloc(LARGE)?, d.alloc(LARGE)?];
    blocks.iter().try_for_each(|block| fill(d, stream, *block, 7))?;
    d.launch_graph(executable, stream)?;
    let good = holds(d, blocks[0], 7)? && holds(d, blocks[1], 7)?;
    let kept = !blocks.contains(&new);
    d.destroy_executable(executable)?;
    Ok(format!("right: {good}, kept: {kept}"))
}

/// The block is freed on a stream that does not capture, after a kernel for which no launch waits.
pub fn freed_outside(d: &Driver, mode: u32) -> Verdict {
    let (stream, other) = (d.stream()?, d.stream()?);
    d.begin_capture(stream, mode)?;
    let first = d.alloc(LARGE)?;
    d.launch("late_fill", other, &[first, BYTES as u64, 1, LATE])?;
    d.free_async(first, other)?;
    let second = d.alloc(LARGE)?;
    fill(d, stream, second, 2)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    d.launch_graph(executable, stream)?;
    Ok(if holds(d, second, 2)? { "ok" } else { "FAIL, wrong contents" }.into())
}

/// The graph is destroyed while a kernel outside of it still works in its memory. The memory was
/// freed by a wait, or in order after that kernel.
pub fn freed_in_use(d: &Driver, mode: u32) -> Verdict {
    let (stream, other) = (d.stream()?, d.stream()?);
    for waits in [true, false] {
        d.begin_capture(stream, mode)?;
        let inside = d.alloc(LARGE)?;
        fill(d, stream, inside, 1)?;
        let graph = d.end_capture(stream)?;
        d.launch("late_fill", other, &[inside, BYTES as u64, 1, LATE])?;
        if waits {
            d.free(inside)?
        } else {
            d.free_async(inside, other)?
        };
        d.destroy_graph(graph)?;
        std::thread::sleep(std::time::Duration::from_millis(20));
        // This request is a miss, which finds that the graph is destroyed.
        let next = d.alloc(LARGE)?;
        fill(d, stream, next, 2)?;
        if !holds(d, next, 2)? {
            return Ok("FAIL, wrong contents".into());
        }
    }
    Ok("ok".into())
}

/// The memory is freed on a stream of another context, before and after the end of the capture.
pub fn freed_elsewhere(d: &Driver, mode: u32) -> Verdict {
    let (first, stream) = (d.context(), d.stream()?);
    let second = d.create_context(0)?;
    d.set_context(second)?;
    let other = d.stream()?;
    for early in [true, false] {
        d.set_context(first)?;
        d.begin_capture(stream, mode)?;
        let inside = d.alloc(LARGE)?;
        fill(d, stream, inside, 1)?;
        let mut graph = if early { 0 } else { d.end_capture(stream)? };
        d.set_context(second)?;
        d.launch("late_fill", other, &[inside, BYTES as u64, 1, LATE])?;
        d.free_async(inside, other)?;
        d.set_context(first)?;
        if early {
            graph = d.end_capture(stream)?;
        }
        d.destroy_graph(graph)?;
        std::thread::sleep(std::time::Duration::from_millis(20));
        let next = d.alloc(LARGE)?;
        fill(d, stream, next, 2)?;
        d.synchronize_stream(other)?;
        if !holds(d, next, 2)? {
            return Ok("FAIL, wrong contents".into());
        }
    }
    Ok("ok".into())
}

/// One thread requests memory in a capture on a full device, while another thread frees memory of
/// the capture.
pub fn freed_while_full(d: &Driver, mode: u32) -> Verdict {
    let (stream, other, context) = (d.stream()?, d.stream()?, d.context());
    d.begin_capture(stream, mode)?;
    let small = (0..150).map(|_| d.alloc(BYTES / 8)).collect::<Outcome<Vec<u64>>>()?;
    while d.alloc(LARGE).is_ok() {}
    let refused = std::thread::scope(|scope| {
        let free = || {
            d.set_context(context)?;
            small.into_iter().try_for_each(|block| {
                d.launch("delay", other, &[1])?;
                d.free(block)
            })
        };
        let free = scope.spawn(free);
        let mut refused = 0;
        loop {
            refused += u32::from(code(d.alloc(LARGE)) == 2);
            if free.is_finished() {
                break;
            }
        }
        free.join().expect("it does not panic")?;
        Ok::<bool, i32>(refused > 0)
    })?;
    let ended = code(d.end_capture(stream));
    Ok(format!("refused: {refused}, ended {ended}"))
}
