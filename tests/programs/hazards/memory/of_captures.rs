//! [84] Memory that is requested beside or in a capture, where the library cannot ask the stream
//! that began it, or where the capture ends without a call; and the memory of a graph on another
//! device.

use cachealloc_tests::driver::{Driver, GLOBAL, PER_THREAD, RELAXED};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, capture_on_a_default_stream_freed_elsewhere, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, local_mode_beside_a_global_capture, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, capture_whose_context_ends, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, capture_whose_thread_ends, machine = "SIM_MEMORY_MB=64"),
    hazard!(
        Always,
        graph_with_memory_of_another_device,
        machine = "SIM_DEVICES=2 SIM_GRAPH_MEMORY_LATE=1 SIM_MEMORY_MB=64"
    ),
];

const MIB: usize = 1 << 20;

/// No other thread can ask the default stream of a thread whether it captures.
fn capture_on_a_default_stream_freed_elsewhere(d: &Driver) -> Verdict {
    d.begin_capture(PER_THREAD, RELAXED)?;
    let block = d.alloc(40 * MIB)?;
    in_thread(d, || d.free(block))?;
    let asked = code(d.alloc(40 * MIB));
    let ended = code(d.end_capture(PER_THREAD));
    Ok(format!("asked {asked}, end {ended}"))
}

/// A thread in this mode is not concerned by another thread's capture, into which it submits.
fn local_mode_beside_a_global_capture(d: &Driver) -> Verdict {
    const LOCAL: u32 = 1;
    let stream = d.stream()?;
    d.begin_capture(stream, GLOBAL)?;
    let asked = in_thread(d, || {
        d.exchange_capture_mode(LOCAL)?;
        d.launch("delay", stream, &[1000])?;
        d.free(d.alloc(40 * MIB)?)
    });
    let again = in_thread(d, || {
        d.exchange_capture_mode(LOCAL)?;
        d.free(d.alloc(40 * MIB)?)
    });
    let ended = code(d.end_capture(stream));
    Ok(format!("asked {}, {}, end {ended}, {}", code(asked), code(again), code(d.alloc(40 * MIB))))
}

fn capture_whose_context_ends(d: &Driver) -> Verdict {
    let first = d.context();
    let second = d.create_context(0)?;
    let stream = d.stream()?;
    d.begin_capture(stream, RELAXED)?;
    d.launch("delay", stream, &[1000])?;
    d.set_context(first)?;
    let block = d.alloc(40 * MIB)?;
    call!(d, cuCtxDestroy(second))?;
    d.set_context(first)?;
    d.free(block)?;
    Ok(format!("code {}", code(d.alloc(40 * MIB))))
}

/// The thread's default stream ends with it.
fn capture_whose_thread_ends(d: &Driver) -> Verdict {
    let block = in_thread(d, || {
        d.begin_capture(PER_THREAD, RELAXED)?;
        d.alloc(40 * MIB)
    })?;
    // The scope of the thread waits for its closure only.
    sleep_ms(50);
    d.free(block)?;
    Ok(format!("code {}", code(d.alloc(40 * MIB))))
}

/// The driver allocates the memory of the graph at its launch. What it has allocated when it finds
/// the device too full is lost.
fn graph_with_memory_of_another_device(d: &Driver) -> Verdict {
    let (first, second) = (d.context(), d.use_device(1)?);
    let stream = d.stream()?;
    d.begin_capture(stream, RELAXED)?;
    let blocks = [d.alloc_async(30 * MIB, stream)?, d.alloc_async(20 * MIB, stream)?];
    blocks.into_iter().try_for_each(|block| d.free_async(block, stream))?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    d.free(d.alloc(25 * MIB)?)?;
    d.set_context(first)?;
    let launched = code(d.launch_graph(executable, stream));
    d.synchronize_stream(stream)?;
    d.set_context(second)?;
    d.destroy_executable(executable)?;
    d.destroy_graph(graph)?;
    d.synchronize()?;
    call!(d, cuDeviceGraphMemTrim(1))?;
    Ok(format!("launched {launched}, then {}", code(d.alloc(50 * MIB))))
}
