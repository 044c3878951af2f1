//! Captures that allocate and free: `graphs NAME [MODE]`, or `graphs random SEED OPS FREES`.
//!
//! Without the library such a capture is invalidated, except by `cuMemAllocAsync` and in relaxed
//! mode. Each program prints its results, and ends with 1 if a line says FAIL.

use cachealloc_tests::driver::{
    Driver, GLOBAL, Lookup, Outcome, RELAXED, Stream, THREAD_LOCAL, check,
};

mod by_hand;
mod ends;
mod needed;
mod random;
mod several;
mod threads;

use by_hand::*;
use ends::*;
use needed::*;
use several::*;
use threads::*;

type Verdict = Outcome<String>;

/// Virtual nanoseconds: longer than any call.
const LATE: u64 = 15_000_000;
const BYTES: usize = 3 << 20;
/// A block of this size has its own segment.
const LARGE: usize = 24 << 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let name = words.first().map_or("", String::as_str);
    let driver = Driver::open(Lookup::ProcAddress).unwrap_or_else(|error| {
        eprintln!("graphs: {error}");
        std::process::exit(2);
    });
    if name == "random" {
        return random::main(&driver, &words[1..]);
    }
    let mode = match words.get(1).map(String::as_str) {
        Some("global") => GLOBAL,
        Some("relaxed") => RELAXED,
        _ => THREAD_LOCAL,
    };
    let program = PROGRAMS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| {
        eprintln!("graphs NAME: {:?}", PROGRAMS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        std::process::exit(2);
    });
    let verdict = (program.1)(&driver, mode).unwrap_or_else(|code| format!("FAIL, error {code}"));
    println!("{verdict}");
    std::process::exit(verdict.contains("FAIL").into());
}

type Program = fn(&Driver, u32) -> Verdict;

const PROGRAMS: &[(&str, Program)] = &[
    ("launches", launches),
    ("reuse", reuse),
    ("branches", branches),
    ("late_join", late_join),
    ("late_join_of_an_edited", late_join_of_an_edited),
    ("set_back", set_back),
    ("joined_unseen", joined_unseen),
    ("joined_unseen_beside_a_free", joined_unseen_beside_a_free),
    ("outlives", outlives),
    ("freed_later", freed_later),
    ("freed_by_another_thread", freed_by_another_thread),
    ("another_thread", another_thread),
    ("freed_before", freed_before),
    ("dies", dies),
    ("abandoned", abandoned),
    ("full", full),
    ("updated", updated),
    ("ordered_memory", ordered_memory),
    ("captured_again", captured_again),
    ("edited", edited),
    ("edited_by_memory_operations", edited_by_memory_operations),
    ("edited_by_signals", edited_by_signals),
    ("edited_by_waits", edited_by_waits),
    ("early", early),
    ("freed_in_use", freed_in_use),
    ("freed_elsewhere", freed_elsewhere),
    ("freed_outside", freed_outside),
    ("freed_while_full", freed_while_full),
    ("needed_at_once", needed_at_once),
    ("needed_unlaunched", needed_unlaunched),
    ("needed_after_an_update", needed_after_an_update),
    ("needed_behind_a_free", needed_behind_a_free),
    ("needed_behind_several_frees", needed_behind_several_frees),
    ("needed_behind_a_wait", needed_behind_a_wait),
    ("needed_behind_a_query", needed_behind_a_query),
    ("destroyed_beside_a_capture", destroyed_beside_a_capture),
    ("default_streams", default_streams),
    ("modes_beside_each_other", modes_beside_each_other),
    ("another_default_stream", another_default_stream),
    ("side_stream_goes", side_stream_goes),
    ("reset", reset),
    ("forks", forks),
    ("left_open", left_open),
    ("backward", backward),
    ("handed_over", handed_over),
    ("copied_in_rows", copied_in_rows),
    ("two_contexts", two_contexts),
    ("two_devices", two_devices),
    ("unnamed", unnamed),
    ("long_arguments", long_arguments),
    ("part_of_cache", part_of_cache),
    ("named_part", named_part),
];

fn fill(d: &Driver, stream: Stream, at: u64, value: u64) -> Outcome {
    d.launch("late_fill", stream, &[at, BYTES as u64, value, 0])
}

fn copy(d: &Driver, stream: Stream, to: u64, from: u64) -> Outcome {
    d.launch("copy", stream, &[to, from, BYTES as u64, LATE / 100])
}

fn holds(d: &Driver, at: u64, value: u64) -> Outcome<bool> {
    d.synchronize()?;
    Ok(d.read_words(at, BYTES / 8)?.iter().all(|word| *word == value))
}

fn joins(d: &Driver, stream: Stream, other: Stream) -> Outcome {
    let event = d.event()?;
    d.record(event, other)?;
    d.stream_waits(stream, event)?;
    d.destroy_event(event)
}

fn free_bytes(d: &Driver) -> Outcome<usize> {
    // The driver calls destructors in a separate thread.
    std::thread::sleep(std::time::Duration::from_millis(20));
    d.synchronize()?;
    d.memory_info()?;
    Ok(d.memory_info()?.0)
}

/// Queries until exactly `wanted` bytes are free, or for a while, and returns the number of free
/// bytes.
fn free_bytes_again(d: &Driver, wanted: usize) -> Outcome<usize> {
    for _ in 0..250 {
        if free_bytes(d)? == wanted {
            break;
        }
    }
    free_bytes(d)
}

/// Returns the code of a driver call that may fail without the library.
fn code<T>(outcome: Outcome<T>) -> i32 {
    outcome.err().unwrap_or(0)
}

/// Launches a chain of temporaries again and again among ordinary allocations.
fn launches(d: &Driver, mode: u32) -> Verdict {
    let (stream, other) = (d.stream()?, d.stream()?);
    let (input, output) = (d.alloc(BYTES)?, d.alloc(BYTES)?);
    let before = free_bytes(d)?;
    d.begin_capture(stream, mode)?;
    let mut from = input;
    for step in 0..4 {
        let next = d.alloc(BYTES)?;
        copy(d, stream, next, from)?;
        d.launch("add", stream, &[next, next, BYTES as u64, 0])?;
        if step > 0 {
            d.free(from)?;
        }
        from = next;
    }
    copy(d, stream, output, from)?;
    d.free(from)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    let mut kept = Vec::new();
    for round in 1..20 {
        let mine = d.alloc(BYTES)?;
        fill(d, other, mine, 1_000 + round)?;
        fill(d, stream, input, round)?;
        d.launch_graph(executable, stream)?;
        if !holds(d, mine, 1_000 + round)? {
            return Ok("FAIL, a launch wrote to another block".into());
        }
        if !holds(d, output, 16 * round)? {
            return Ok("FAIL, wrong contents".into());
        }
        kept.push(mine);
    }
    kept.into_iter().try_for_each(|mine| d.free(mine))?;
    d.destroy_graph(graph)?;
    d.launch_graph(executable, stream)?;
    let during = free_bytes(d)?;
    d.destroy_executable(executable)?;
    let after = free_bytes_again(d, before)?;
    if during >= before || after != before {
        return Ok(format!("FAIL, {before} bytes were free, {during} with the graph, {after} now"));
    }
    Ok("ok".into())
}

/// Checks whether the second block reuses the first one's memory.
fn reuse(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    d.begin_capture(stream, mode)?;
    let first = d.alloc(BYTES)?;
    fill(d, stream, first, 1)?;
    d.free(first)?;
    let second = d.alloc(BYTES)?;
    fill(d, stream, second, 2)?;
    d.free(second)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    d.launch_graph(executable, stream)?;
    d.synchronize()?;
    Ok(if first == second { "again" } else { "not again" }.into())
}

/// Two branches: one gets the memory that the other has freed only after the two have joined.
fn branches(d: &Driver, mode: u32) -> Verdict {
    let (stream, side) = (d.stream()?, d.stream()?);
    d.begin_capture(stream, mode)?;
    joins(d, side, stream)?;
    let first = d.alloc(LARGE)?;
    fill(d, side, first, 1)?;
    let mine = d.alloc(BYTES)?;
    fill(d, stream, mine, 1)?;
    d.free(first)?;
    let apart = d.alloc(LARGE)?;
    fill(d, stream, apart, 2)?;
    joins(d, stream, side)?;
    fill(d, stream, mine, 1)?;
    let together = d.alloc(LARGE)?;
    fill(d, stream, together, 3)?;
    // The side stream also continues, without waiting for anything.
    let other = d.alloc(LARGE)?;
    fill(d, side, other, 4)?;
    joins(d, stream, side)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    d.launch_graph(executable, stream)?;
    d.synchronize()?;
    Ok(format!("apart: {}, together: {}", first == apart, first == together))
}

/// A stream joins from an event that is older than the free.
fn late_join(d: &Driver, mode: u32) -> Verdict {
    joins_late(d, mode, |_| Ok(()))
}

/// A stream joins late, after which nothing is reused: memory reused before must stay in order.
fn late_join_of_an_edited(d: &Driver, mode: u32) -> Verdict {
    joins_late(d, mode, |stream| add_by_hand(d, stream))
}

fn joins_late(d: &Driver, mode: u32, meanwhile: impl FnOnce(Stream) -> Outcome) -> Verdict {
    let (stream, late) = (d.stream()?, d.stream()?);
    d.begin_capture(stream, mode)?;
    let early = d.event()?;
    d.record(early, stream)?;
    let first = d.alloc(LARGE)?;
    d.launch("late_fill", stream, &[first, BYTES as u64, 1, LATE])?;
    d.free(first)?;
    let again = d.alloc(LARGE)?;
    meanwhile(stream)?;
    d.stream_waits(late, early)?;
    fill(d, late, again, 2)?;
    joins(d, stream, late)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    for _ in 0..3 {
        d.launch_graph(executable, stream)?;
        if !holds(d, again, 2)? {
            return Ok("FAIL, wrong contents".into());
        }
    }
    Ok(if first == again { "again" } else { "not again" }.into())
}

/// If there is no memory, the allocation fails, and the capture survives.
fn full(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    let mut ballast = Vec::new();
    while let Ok(block) = d.alloc(LARGE) {
        ballast.push(block);
    }
    for block in ballast.split_off(ballast.len().saturating_sub(3)) {
        d.free(block)?;
    }
    let before = free_bytes(d)?;
    d.begin_capture(stream, mode)?;
    let mut inside = Vec::new();
    let refused = loop {
        match d.alloc(LARGE) {
            Ok(block) => inside.push(block),
            Err(code) => break code,
        }
    };
    inside.iter().try_for_each(|block| fill(d, stream, *block, 1))?;
    let count = inside.len();
    inside.into_iter().try_for_each(|block| d.free(block))?;
    let again = d.alloc(LARGE)?;
    fill(d, stream, again, 2)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    d.launch_graph(executable, stream)?;
    let good = holds(d, again, 2)?;
    d.destroy_executable(executable)?;
    d.destroy_graph(graph)?;
    d.free(again)?;
    free_bytes_again(d, before)?;
    // All of the memory is available to others again.
    let mut blocks = 0;
    while d.alloc(LARGE).is_ok() {
        blocks += 1;
    }
    Ok(format!("{count} served, then {refused}; right: {good}; afterwards {blocks}"))
}

/// Stream-ordered memory in a capture: with nodes of the driver, or without them under
/// `graph_pool`.
fn ordered_memory(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    d.begin_capture(stream, mode)?;
    let first = d.alloc_async(BYTES, stream)?;
    fill(d, stream, first, 1)?;
    d.free_async(first, stream)?;
    let second = d.alloc_async(BYTES, stream)?;
    fill(d, stream, second, 2)?;
    let output = d.alloc_async(BYTES, stream)?;
    copy(d, stream, output, second)?;
    d.free_async(second, stream)?;
    let graph = d.end_capture(stream)?;
    let (mut nodes, mut copied) = (0, 0);
    // SAFETY: all pointers are valid for writes.
    let clone = unsafe {
        check((d.functions.cuGraphGetNodes)(graph, std::ptr::null_mut(), &mut nodes))?;
        (d.functions.cuGraphClone)(&mut copied, graph)
    };
    let executable = d.instantiate(graph)?;
    let twice = code(d.instantiate(graph));
    d.launch_graph(executable, stream)?;
    let good = holds(d, output, 2)?;
    let freed = code(d.free_async(output, stream));
    d.launch_graph(executable, stream)?;
    let again = holds(d, output, 2)?;
    let freed = (freed, code(d.free(output)));
    Ok(format!(
        "{nodes} nodes, clone {clone}, second executable {twice}, right {good} {again}, freed {freed:?}"
    ))
}

/// The process ends during the capture.
fn left_open(d: &Driver, mode: u32) -> Verdict {
    let (stream, side) = (d.stream()?, d.stream()?);
    d.alloc(LARGE)?;
    d.begin_capture(stream, mode)?;
    joins(d, side, stream)?;
    let (first, _, last) = (d.alloc(BYTES)?, d.alloc(BYTES)?, d.alloc(BYTES)?);
    fill(d, side, first, 1)?;
    fill(d, stream, last, 1)?;
    d.free(first)?;
    d.free(last)?;
    d.alloc(BYTES / 2)?;
    Ok("ok".into())
}

/// The kernel that uses a block just freed would start early.
fn early(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    d.begin_capture(stream, mode)?;
    let first = d.alloc(LARGE)?;
    d.launch("late_fill", stream, &[first, BYTES as u64, 1, LATE])?;
    d.free(first)?;
    let second = d.alloc(LARGE)?;
    d.launch_early("late_fill", stream, &[second, BYTES as u64, 2, 0])?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    d.launch_graph(executable, stream)?;
    let good = holds(d, second, 2)?;
    Ok(format!("again: {}, right: {good}", first == second))
}
