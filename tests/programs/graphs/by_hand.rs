//! Manual changes that programs make to a graph during its capture.

use std::ffi::c_void;

use cachealloc_tests::driver::{Driver, Outcome, Stream, check};

use crate::{BYTES, LARGE, LATE, Verdict, code, fill, holds, joins};

/// The program adds nodes by hand: after that, the capture reuses no memory.
pub fn edited(d: &Driver, mode: u32) -> Verdict {
    edited_by(d, mode, add_by_hand)
}

/// The same by a node that writes to memory which is on no stream.
pub fn edited_by_memory_operations(d: &Driver, mode: u32) -> Verdict {
    const WRITE: u64 = 2;
    let write = [WRITE, d.pinned(4096)?, 7, 0, 0, 0];
    let params = [d.context(), 1, (&raw const write) as u64, 0];
    edited_by(d, mode, |d, stream| add_node(d, stream, "cuGraphAddBatchMemOpNode", &params))
}

/// The same by nodes for semaphores of other APIs, here for none.
pub fn edited_by_signals(d: &Driver, mode: u32) -> Verdict {
    let add =
        |d: &_, stream| add_node(d, stream, "cuGraphAddExternalSemaphoresSignalNode", &[0; 4]);
    edited_by(d, mode, add)
}

pub fn edited_by_waits(d: &Driver, mode: u32) -> Verdict {
    let add = |d: &_, stream| add_node(d, stream, "cuGraphAddExternalSemaphoresWaitNode", &[0; 4]);
    edited_by(d, mode, add)
}

fn edited_by(d: &Driver, mode: u32, add: impl FnOnce(&Driver, Stream) -> Outcome) -> Verdict {
    let stream = d.stream()?;
    d.begin_capture(stream, mode)?;
    let first = d.alloc(LARGE)?;
    fill(d, stream, first, 1)?;
    add(d, stream)?;
    d.free(first)?;
    let second = d.alloc(LARGE)?;
    fill(d, stream, second, 2)?;
    let ended = code(d.end_capture(stream));
    Ok(format!("again: {}, ended {ended}", first == second))
}

/// The program frees the memory of a recapture after its end: the graph keeps it, as that of the
/// capture before.
pub fn captured_again(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    let capture = |value| -> Outcome<(u64, u64)> {
        let block = d.alloc(LARGE)?;
        fill(d, stream, block, value)?;
        Ok((block, d.end_capture(stream)?))
    };
    d.begin_capture(stream, mode)?;
    let (first, graph) = capture(1)?;
    let (none, begin) = (std::ptr::null(), d.functions.cuStreamBeginRecaptureToGraph);
    // SAFETY: the graph exists, and there is no function to call back.
    check(unsafe { begin(stream, mode, graph, none, none) })?;
    let (second, graph) = capture(2)?;
    let executable = d.instantiate(graph)?;
    d.free(first)?;
    d.free(second)?;
    let others = [d.alloc(LARGE)?, d.alloc(LARGE)?, d.alloc(LARGE)?];
    others.into_iter().try_for_each(|other| fill(d, stream, other, 5))?;
    d.launch_graph(executable, stream)?;
    let mut kept = true;
    for other in others {
        kept &= holds(d, other, 5)?;
    }
    Ok(if kept { "ok" } else { "FAIL, the graph wrote to other memory" }.into())
}

/// Moves the stream back in the capture: its next node follows an earlier node, which precedes all
/// later ones.
pub fn set_back(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    d.begin_capture(stream, mode)?;
    d.launch("delay", stream, &[1])?;
    let before = terminal(d, stream)?.1;
    let first = d.alloc(LARGE)?;
    d.launch("late_fill", stream, &[first, LARGE as u64, 1, LATE])?;
    d.free(first)?;
    let again = d.alloc(LARGE)?;
    let update = d.resolver.symbol("cuStreamUpdateCaptureDependencies").ok_or(500)?;
    // SAFETY: the driver's function has this signature; the list has one element, and 1 sets.
    check(unsafe {
        let update: unsafe extern "C" fn(Stream, *const u64, usize, u32) -> i32 =
            std::mem::transmute::<*mut c_void, _>(update);
        update(stream, &before, 1, 1)
    })?;
    fill(d, stream, again, 2)?;
    let executable = d.instantiate(d.end_capture(stream)?)?;
    for _ in 0..3 {
        d.launch_graph(executable, stream)?;
        if !holds(d, again, 2)? {
            return Ok("FAIL, wrong contents".into());
        }
    }
    Ok(if first == again { "again" } else { "not again" }.into())
}

/// A stream joins past the library, from an event older than the frees: the block that was found
/// free before, and serves no request yet, is not ordered before the stream's work.
pub fn joined_unseen(d: &Driver, mode: u32) -> Verdict {
    joins_unseen(d, mode, |_| Ok(()))
}

/// The same, while another freed block waits.
pub fn joined_unseen_beside_a_free(d: &Driver, mode: u32) -> Verdict {
    joins_unseen(d, mode, |again| d.free(again))
}

fn joins_unseen(d: &Driver, mode: u32, meanwhile: impl FnOnce(u64) -> Outcome) -> Verdict {
    let (stream, late, early) = (d.stream()?, d.stream()?, d.event()?);
    d.begin_capture(stream, mode)?;
    d.record(early, stream)?;
    let freed = [d.alloc(LARGE)?, d.alloc(LARGE)?];
    for block in freed {
        d.launch("late_fill", stream, &[block, BYTES as u64, 1, LATE])?;
    }
    freed.into_iter().try_for_each(|block| d.free(block))?;
    let again = d.alloc(LARGE)?;
    fill(d, stream, again, 2)?;
    meanwhile(again)?;
    waits_unseen(d, late, early)?;
    let last = d.alloc(LARGE)?;
    fill(d, late, last, 3)?;
    joins(d, stream, late)?;
    let executable = d.instantiate(d.end_capture(stream)?)?;
    d.launch_graph(executable, stream)?;
    let good = holds(d, last, 3)?;
    Ok(if good { "ok" } else { "FAIL, wrong contents" }.into())
}

/// Lets a stream wait through a table of the simulated driver, whose functions bypass every hook.
fn waits_unseen(d: &Driver, stream: Stream, event: u64) -> Outcome {
    const TABLE: [u8; 16] = [10; 16];
    let mut table: u64 = 0;
    // SAFETY: the table's second word is `cuStreamWaitEvent`, which takes these arguments.
    check(unsafe {
        check((d.functions.cuGetExportTable)(&mut table, TABLE.as_ptr().cast()))?;
        let entries = table as *const unsafe extern "C" fn(Stream, u64, u32) -> i32;
        (*entries.add(1))(stream, event, 0)
    })
}

/// Adds a node that is on no stream.
pub fn add_by_hand(d: &Driver, stream: Stream) -> Outcome {
    let (graph, mut node) = (terminal(d, stream)?.0, 0);
    // SAFETY: the dependency list is empty, and `node` is valid for writes.
    check(unsafe { (d.functions.cuGraphAddEmptyNode)(&mut node, graph, std::ptr::null(), 0) })
}

/// Adds a node of some kind, with these parameters.
fn add_node(d: &Driver, stream: Stream, symbol: &str, params: &[u64; 4]) -> Outcome {
    type Add = unsafe extern "C" fn(*mut u64, u64, *const u64, usize, *const u64) -> i32;
    let (graph, mut node) = (terminal(d, stream)?.0, 0);
    let add = d.resolver.symbol(symbol).ok_or(500)?;
    // SAFETY: these functions have this signature, and parameters of at most four words.
    check(unsafe {
        let add = std::mem::transmute::<*mut c_void, Add>(add);
        add(&mut node, graph, std::ptr::null(), 0, params.as_ptr())
    })
}

/// Returns the graph of a capture, and the last node that precedes the stream's next node.
fn terminal(d: &Driver, stream: Stream) -> Outcome<(u64, u64)> {
    let (mut status, mut id, mut graph, mut count) = (0, 0, 0, 0);
    let mut nodes = std::ptr::null();
    let info = d.functions.cuStreamGetCaptureInfo;
    // SAFETY: all pointers are valid for writes.
    check(unsafe { info(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count) })?;
    // SAFETY: the driver returned a list of `count` nodes.
    let last = if count == 0 { 0 } else { unsafe { *nodes.add(count - 1) } };
    Ok((graph, last))
}
