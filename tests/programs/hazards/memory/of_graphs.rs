//! [39] Memory of a graph that has ended.

use cachealloc_tests::driver::{Driver, Outcome, RELAXED, Stream};

use crate::memory::scarce::physical_memory;
use crate::memory::shortage::beside_a_capture;
use crate::tools::*;
use crate::waits::beside_a_free::beside_a_free_that_waits;

pub const ALL: &[Hazard] = &[
    hazard!(Always, memory_of_a_graph_that_ends_beside_a_capture, machine = "SIM_MEMORY_MB=192"),
    hazard!(Always, block_in_use_of_a_graph_that_ends_beside_a_capture),
    hazard!(Always, physical_memory_behind_a_graph_beside_a_free, machine = "SIM_MEMORY_MB=64"),
];

const MIB: usize = 1 << 20;

/// [39] A stream frees a block that a node references, and the graph ends beside another capture.
fn memory_of_a_graph_that_ends_beside_a_capture(d: &Driver) -> Verdict {
    let (captured, other, later) = (d.stream()?, d.stream()?, d.stream()?);
    let graph = graph_without_its_block(d, captured, 80 * MIB, |named| {
        fill(d, other, named, BYTES, 3, LATE / 3)?;
        d.free_async(named, other)
    })?;
    d.synchronize_stream(other)?;
    d.begin_capture(later, RELAXED)?;
    d.destroy_graph(graph)?;
    let large = d.alloc(120 * MIB)?;
    fill(d, other, large, BYTES, 4, 0)?;
    d.end_capture(later)?;
    ok_if(holds(d, large, BYTES, 4)?, "wrong contents")
}

/// [39] The stream still uses the block when the graph has ended: no other stream may get it.
fn block_in_use_of_a_graph_that_ends_beside_a_capture(d: &Driver) -> Verdict {
    let (captured, other, later) = (d.stream()?, d.stream()?, d.stream()?);
    let graph = graph_without_its_block(d, captured, BYTES, |named| {
        fill(d, other, named, BYTES, 3, LATE)?;
        d.free_async(named, other)
    })?;
    d.begin_capture(later, RELAXED)?;
    d.destroy_graph(graph)?;
    let mut blocks = Vec::new();
    in_thread(d, || {
        let stream = d.stream()?;
        // More than the rest of its segment.
        for _ in 0..8 {
            let block = d.alloc(BYTES)?;
            fill(d, stream, block, BYTES, 4, 0)?;
            blocks.push(block);
        }
        Ok(())
    })?;
    d.end_capture(later)?;
    for block in blocks {
        if !holds(d, block, BYTES, 4)? {
            return Ok("FAIL, the old kernel wrote into the new block".into());
        }
    }
    Ok("ok".into())
}

/// [10] A request finds no memory while another thread's free waits in the driver, because a stream
/// captures. A graph has just ended, and another one keeps memory.
fn physical_memory_behind_a_graph_beside_a_free(d: &Driver) -> Verdict {
    let (stream, spins) = (d.stream()?, (d.stream()?, d.pinned(64)?));
    let _held = d.alloc(30 * MIB)?;
    let ends = graph_without_its_block(d, stream, MIB, |block| d.free(block))?;
    let _stays = graph_without_its_block(d, stream, MIB, |block| d.free(block))?;
    d.destroy_graph(ends)?;
    let asks = || physical_memory(d, 40 * MIB);
    let beside = || beside_a_free_that_waits(d, spins, asks);
    let (verdict, ended) = beside_a_capture(d, RELAXED, beside)?;
    Ok(format!("{verdict}, end {ended}"))
}

/// Captures a fill of a new block. `free` frees it while the capture is open.
pub fn graph_without_its_block(
    d: &Driver,
    captured: Stream,
    bytes: usize,
    free: impl FnOnce(u64) -> Outcome,
) -> Outcome<u64> {
    d.begin_capture(captured, RELAXED)?;
    let named = d.alloc(bytes)?;
    fill(d, captured, named, BYTES, 3, 0)?;
    free(named)?;
    d.end_capture(captured)
}
