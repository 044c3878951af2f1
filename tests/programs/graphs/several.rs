//! Captures of several threads and contexts, and many captures at once.

use cachealloc_tests::driver::{Driver, Outcome, Stream, check};

use crate::{BYTES, LARGE, LATE, Verdict, copy, fill, free_bytes, holds};

const GRAPHS: u64 = 3;
const ROUNDS: u64 = 15;

/// One graph of `backward`.
struct Step {
    executable: u64,
    input: u64,
    output: u64,
}

/// A framework's training step, three times: a separate thread runs the backward pass, and
/// allocates, submits and frees there. The graphs are replayed in turn, with ordinary allocations
/// between.
pub fn backward(d: &Driver, mode: u32) -> Verdict {
    let (stream, other) = (d.stream()?, d.stream()?);
    let steps = (0..GRAPHS).map(|_| step(d, stream, mode)).collect::<Outcome<Vec<Step>>>()?;
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for round in 1..=ROUNDS {
        let mine = [d.alloc(LARGE)?, d.alloc(BYTES)?, d.alloc(BYTES)?];
        mine.iter().try_for_each(|block| fill(d, other, *block, 1_000 + round))?;
        d.synchronize()?;
        let step = &steps[(round % GRAPHS) as usize];
        fill(d, stream, step.input, round)?;
        d.launch_graph(step.executable, stream)?;
        kept.extend(mine.map(|block| (block, 1_000 + round)));
        for (block, value) in &kept {
            if !holds(d, *block, *value)? {
                return Ok("FAIL, a launch wrote to another block".into());
            }
        }
        if !holds(d, step.output, round)? {
            return Ok("FAIL, wrong contents".into());
        }
        if round % 2 == 0 {
            let gone = kept.split_off(kept.len() - mine.len());
            gone.into_iter().try_for_each(|(block, _)| d.free(block))?;
        }
    }
    Ok("ok".into())
}

fn step(d: &Driver, stream: Stream, mode: u32) -> Outcome<Step> {
    let (input, output) = (d.alloc(BYTES)?, d.alloc(BYTES)?);
    let context = d.context();
    d.begin_capture(stream, mode)?;
    let forward = d.alloc(LARGE)?;
    copy(d, stream, forward, input)?;
    let backward = || {
        d.set_context(context)?;
        let unused = d.alloc(LARGE)?;
        d.free(unused)?;
        // These allocations come before any work.
        let (first, second) = (d.alloc(LARGE)?, d.alloc(BYTES)?);
        copy(d, stream, first, forward)?;
        copy(d, stream, second, first)?;
        d.free(first)?;
        let third = d.alloc(LARGE)?;
        copy(d, stream, third, second)?;
        d.free(second)?;
        copy(d, stream, output, third)?;
        d.free(third)
    };
    std::thread::scope(|scope| scope.spawn(backward).join().expect("it does not panic"))?;
    d.free(forward)?;
    let graph = d.end_capture(stream)?;
    Ok(Step { executable: d.instantiate(graph)?, input, output })
}

/// Copies memory by a call that does not reveal all of its operands.
pub fn copied_in_rows(d: &Driver, mode: u32) -> Verdict {
    let (stream, other, context) = (d.stream()?, d.stream()?, d.context());
    let (input, output) = (d.alloc(BYTES)?, d.alloc(BYTES)?);
    d.begin_capture(stream, mode)?;
    let work = || {
        d.set_context(context)?;
        let early = d.alloc(LARGE)?;
        copy_rows(d, stream, early, input)?;
        let late = d.alloc(LARGE)?;
        copy_rows(d, stream, late, early)?;
        copy_rows(d, stream, output, late)?;
        d.free(early)?;
        d.free(late)
    };
    std::thread::scope(|scope| scope.spawn(work).join().expect("it does not panic"))?;
    let executable = d.instantiate(d.end_capture(stream)?)?;
    let outside = [d.alloc(LARGE)?, d.alloc(LARGE)?];
    outside.iter().try_for_each(|block| fill(d, other, *block, 7))?;
    fill(d, stream, input, 1)?;
    d.synchronize()?;
    d.launch_graph(executable, stream)?;
    let kept = holds(d, outside[0], 7)? && holds(d, outside[1], 7)?;
    let good = kept && holds(d, output, 1)?;
    Ok(if good { "ok" } else { "FAIL, a launch wrote to another block" }.into())
}

fn copy_rows(d: &Driver, stream: Stream, to: u64, from: u64) -> Outcome {
    const DEVICE: u64 = 2;
    let row = BYTES as u64;
    let shape = [0, 0, DEVICE, 0, from, 0, row, 0, 0, DEVICE, 0, to, 0, row, row, 1_u64];
    // SAFETY: the array has the layout of the struct in the driver's header.
    check(unsafe { (d.functions.cuMemcpy2DAsync)(shape.as_ptr().cast(), stream) })
}

/// One thread allocates; another one submits and frees.
pub fn handed_over(d: &Driver, mode: u32) -> Verdict {
    let (stream, other, context) = (d.stream()?, d.stream()?, d.context());
    d.begin_capture(stream, mode)?;
    let allocate = || d.set_context(context).and_then(|()| d.alloc(LARGE));
    let inside = std::thread::scope(|scope| scope.spawn(allocate).join().expect("no panic"))?;
    fill(d, stream, inside, 1)?;
    d.free(inside)?;
    let executable = d.instantiate(d.end_capture(stream)?)?;
    let outside = d.alloc(LARGE)?;
    fill(d, other, outside, 7)?;
    d.synchronize()?;
    d.launch_graph(executable, stream)?;
    Ok(if holds(d, outside, 7)? { "ok" } else { "FAIL, the block was allocated again" }.into())
}

/// A capture over two contexts, which allocates in both.
pub fn two_contexts(d: &Driver, mode: u32) -> Verdict {
    over_contexts(d, mode, 0)
}

pub fn two_devices(d: &Driver, mode: u32) -> Verdict {
    over_contexts(d, mode, 1)
}

fn over_contexts(d: &Driver, mode: u32, device: i32) -> Verdict {
    let (first, stream, fork) = (d.context(), d.stream()?, d.event()?);
    let second = d.create_context(device)?;
    d.set_context(second)?;
    let (joined, back, plain) = (d.stream()?, d.event()?, d.stream()?);
    let source = d.alloc(BYTES)?;
    d.set_context(first)?;
    d.begin_capture(stream, mode)?;
    d.record(fork, stream)?;
    d.stream_waits(joined, fork)?;
    d.set_context(second)?;
    let inside = d.alloc(LARGE)?;
    copy_rows(d, joined, inside, source)?;
    d.free(inside)?;
    let again = d.alloc(LARGE)?;
    copy_rows(d, joined, again, source)?;
    d.free(again)?;
    d.record(back, joined)?;
    d.set_context(first)?;
    d.stream_waits(stream, back)?;
    let executable = d.instantiate(d.end_capture(stream)?)?;
    d.set_context(second)?;
    let outside = [d.alloc(LARGE)?, d.alloc(LARGE)?];
    outside.iter().try_for_each(|block| fill(d, plain, *block, 7))?;
    d.synchronize()?;
    d.set_context(first)?;
    d.launch_graph(executable, stream)?;
    d.synchronize()?;
    d.set_context(second)?;
    for block in outside {
        if !holds(d, block, 7)? {
            return Ok("FAIL, a launch wrote to another block".into());
        }
    }
    Ok("ok".into())
}

/// A block whose free fails on the plain driver stays with the graph, although no node references
/// it.
pub fn unnamed(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    let before = d.alloc(BYTES)?;
    d.begin_capture(stream, mode)?;
    let inside = d.alloc(LARGE)?;
    d.launch("late_fill", stream, &[before, BYTES as u64, 1, LATE])?;
    d.free(inside)?;
    let graph = d.end_capture(stream)?;
    let outside = d.alloc(LARGE)?;
    d.destroy_graph(graph)?;
    Ok(if inside == outside { "given back" } else { "kept" }.into())
}

/// A kernel has as many bytes of arguments as a tensor map; they reference one block and not the
/// other.
pub fn long_arguments(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    let (named, kernel) = (d.alloc(LARGE)?, d.kernel("late_fill")?);
    d.begin_capture(stream, mode)?;
    let unnamed = d.alloc(LARGE)?;
    let mut block = [0; 24];
    block[..4].copy_from_slice(&[named, BYTES as u64, 1, 0]);
    let bytes = size_of_val(&block);
    let (start, length) = (block.as_ptr() as usize, (&raw const bytes) as usize);
    let extra = [1_usize, start, 2, length, 0];
    let (none, extra, launch) =
        (std::ptr::null(), extra.as_ptr().cast(), d.functions.cuLaunchKernel);
    // SAFETY: the list leads to the arguments of the kernel, and outlives the call.
    check(unsafe { launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, none, extra) })?;
    d.free(unnamed)?;
    let graph = d.end_capture(stream)?;
    let outside = d.alloc(LARGE)?;
    d.destroy_graph(graph)?;
    Ok(if unnamed == outside { "given back" } else { "kept" }.into())
}

/// The cache has the memory, and the driver does not. Part of it was freed since the capture began.
pub fn part_of_cache(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    let (before, other) = (d.alloc(BYTES)?, d.alloc(LARGE)?);
    d.begin_capture(stream, mode)?;
    d.free(other)?;
    let inside = match d.alloc(40 << 20) {
        Ok(block) => block,
        Err(code) => {
            d.end_capture(stream)?;
            return Ok(format!("refused {code}"));
        }
    };
    fill(d, stream, inside, 1)?;
    fill(d, stream, before, 1)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    let mut others = Vec::new();
    while let Ok(block) = d.alloc(BYTES) {
        fill(d, stream, block, 2)?;
        others.push(block);
    }
    d.launch_graph(executable, stream)?;
    let mut right = holds(d, inside, 1)? && holds(d, before, 1)?;
    for block in others {
        right &= holds(d, block, 2)?;
        d.free(block)?;
    }
    d.free(inside)?;
    let again = d.alloc(40 << 20);
    let kept = again.is_err();
    again.into_iter().try_for_each(|block| d.free(block))?;
    d.destroy_executable(executable)?;
    d.destroy_graph(graph)?;
    free_bytes(d)?;
    let back = d.alloc(40 << 20).is_ok();
    Ok(format!("served, right: {right}, kept: {kept}, back: {back}"))
}

/// A capture does not get a block again that one of its nodes references.
pub fn named_part(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    let (_before, named) = (d.alloc(BYTES)?, d.alloc(LARGE)?);
    d.begin_capture(stream, mode)?;
    fill(d, stream, named, 1)?;
    d.free(named)?;
    let block = d.alloc(LARGE)?;
    d.end_capture(stream)?;
    let apart = block >= named + LARGE as u64 || block + LARGE as u64 <= named;
    Ok(if apart { "apart" } else { "FAIL" }.into())
}
