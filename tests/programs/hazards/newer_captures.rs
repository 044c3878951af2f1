//! [16] Captures of CUDA 13: into a graph that was captured before, and into a command list of a
//! graphics API. Other threads free meanwhile; the capture must survive.

use std::ffi::c_void;

use cachealloc_tests::driver::{Driver, GLOBAL, Outcome, RELAXED, THREAD_LOCAL, check};

use crate::capture::{Captured, free_during};
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Full, free_during_recapture, machine = "SIM_DRIVER_VERSION=13050"),
    hazard!(Full, free_during_thread_local_recapture, machine = "SIM_DRIVER_VERSION=13050"),
    hazard!(Always, memory_in_a_recapture, machine = "SIM_DRIVER_VERSION=13050 SIM_MEMORY_MB=192"),
    hazard!(Full, free_during_capture_to_graphics, machine = "SIM_DRIVER_VERSION=13050"),
];

/// Captures the same work again, into the same graph.
fn recapture(d: &Driver, stream: u64, mode: u32, graph: u64) -> Outcome {
    let none = std::ptr::null();
    call!(d, cuStreamBeginRecaptureToGraph(stream, mode, graph, none, none))
}

fn free_during_recapture(d: &Driver) -> Verdict {
    free_during_recapture_in(d, RELAXED)
}

fn free_during_thread_local_recapture(d: &Driver) -> Verdict {
    free_during_recapture_in(d, THREAD_LOCAL)
}

fn free_during_recapture_in(d: &Driver, mode: u32) -> Verdict {
    let capture = Captured::new(d, d.stream()?)?;
    d.begin_capture(capture.stream, GLOBAL)?;
    capture.write_first(d)?;
    capture.write_rest(d)?;
    let graph = d.end_capture(capture.stream)?;
    let begin = || {
        recapture(d, capture.stream, mode, graph)?;
        capture.write_first(d)
    };
    free_during(d, begin, || capture.finish(d))
}

/// Both captures allocate. The executable graph of the first keeps its memory, and the graph has
/// that of the second.
fn memory_in_a_recapture(d: &Driver) -> Verdict {
    const LARGE: usize = 50 << 20;
    let (stream, other) = (d.stream()?, d.stream()?);
    let work = |value| -> Outcome<u64> {
        let block = d.alloc(LARGE)?;
        fill(d, stream, block, BYTES, value, LATE / 3)?;
        Ok(block)
    };
    d.begin_capture(stream, RELAXED)?;
    let first = work(3)?;
    let graph = d.end_capture(stream)?;
    let older = d.instantiate(graph)?;
    recapture(d, stream, RELAXED, graph)?;
    let second = work(4)?;
    let newer = d.instantiate(d.end_capture(stream)?)?;
    d.destroy_graph(graph)?;
    d.launch_graph(older, stream)?;
    d.launch_graph(newer, stream)?;
    let both = holds(d, first, BYTES, 3)? && holds(d, second, BYTES, 4)?;
    d.destroy_executable(older)?;
    d.free(first)?;
    let again = d.alloc(LARGE)?;
    fill(d, other, again, BYTES, 5, 0)?;
    d.launch_graph(newer, stream)?;
    let apart = holds(d, again, BYTES, 5)? && holds(d, second, BYTES, 4)?;
    d.destroy_executable(newer)?;
    d.free(second)?;
    d.free(again)?;
    let large = d.alloc(3 * LARGE)?;
    fill(d, other, large, BYTES, 6, 0)?;
    ok_if(both && apart && holds(d, large, BYTES, 6)?, "wrong contents")
}

/// The work of this capture never runs here. Its context is one that shares its device with
/// graphics, and is the only one with work.
fn free_during_capture_to_graphics(d: &Driver) -> Verdict {
    const D3D12_LIST: u64 = 1;
    let list = [D3D12_LIST, (&raw const d) as u64];
    let params: *const [u64; 2] = &list;
    d.set_context(context_beside_graphics(d)?)?;
    let capture = Captured::new(d, d.stream()?)?;
    let begin = || {
        call!(d, cuStreamBeginCaptureToCig(capture.stream, (&raw const params).cast()))?;
        capture.write_first(d)
    };
    let finish = || {
        capture.write_rest(d)?;
        let ended = code(call!(d, cuStreamEndCaptureToCig(capture.stream)));
        ok_if(ended == 0, &format!("the capture died: {ended}"))
    };
    free_during(d, begin, finish)
}

fn context_beside_graphics(d: &Driver) -> Outcome<u64> {
    type Create = unsafe extern "C" fn(*mut u64, *const u64, u32, i32) -> i32;
    let graphics = [1_u64, (&raw const d) as u64];
    let params = [0, 0, (&raw const graphics) as u64];
    let create = d.resolver.symbol("cuCtxCreate_v4").ok_or(500)?;
    let mut context = 0;
    // SAFETY: the driver's function has this signature; the parameters are `CUctxCreateParams`.
    check(unsafe {
        let create = std::mem::transmute::<*mut c_void, Create>(create);
        create(&mut context, params.as_ptr(), 0, 0)
    })?;
    Ok(context)
}
