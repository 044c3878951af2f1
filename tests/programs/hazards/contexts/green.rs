//! [68] [69] [70] [73] Green contexts: parts of a device that have their own streams and use the
//! memory of the primary context. On a GPU the program would have to name a part of the device.

use cachealloc_tests::driver::{Driver, Outcome, RELAXED};

use crate::memory::stream_ordered::read_in_order;
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, wait_for_a_stream_of_a_waiting_green_context),
    hazard!(Always, memory_where_a_green_context_was, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, room_behind_a_green_context, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, requests_on_a_stream_without_its_green_context),
    hazard!(Always, capture_of_a_green_context, machine = "SIM_MEMORY_MB=64"),
];

const MIB: usize = 1 << 20;

fn green(d: &Driver) -> Outcome<u64> {
    let mut green = 0;
    call!(d, cuGreenCtxCreate(&mut green, 0, 0, 1))?;
    Ok(green)
}

/// Like `wait_for_a_stream_of_a_waiting_context`, with a green context.
fn wait_for_a_stream_of_a_waiting_green_context(d: &Driver) -> Verdict {
    let (reader, done, green, mut stream) = (d.stream()?, d.event()?, green(d)?, 0);
    call!(d, cuGreenCtxStreamCreate(&mut stream, green, 1, 0))?;
    let green_waits = || {
        d.record(done, reader)?;
        call!(d, cuGreenCtxWaitEvent(green, done))
    };
    let read = read_in_order(d, reader, stream, green_waits, || d.synchronize_stream(stream))?;
    ok_if(read, "the copy saw what the host wrote later")
}

/// Creates a green context that holds the only reference to the primary context.
fn last_reference(d: &Driver) -> Outcome<u64> {
    let (green, mut context) = (green(d)?, 0);
    call!(d, cuCtxFromGreenCtx(&mut context, green))?;
    d.set_context(context)?;
    call!(d, cuDevicePrimaryCtxRelease(0))?;
    Ok(green)
}

/// [69] The primary context ends with the green one, and the driver reuses its addresses. A request
/// that finds too little memory must not release what the program had freed there before.
fn memory_where_a_green_context_was(d: &Driver) -> Verdict {
    let green = last_reference(d)?;
    d.free(d.alloc(40 * MIB)?)?;
    d.set_context(0)?;
    call!(d, cuGreenCtxDestroy(green))?;
    d.use_device(0)?;
    let (stream, mut pool, mut pooled) = (d.stream()?, 0, 0);
    // CUmemPoolProps: pinned to its place, no handles, the first device.
    let mut properties = [0_u32; 22];
    properties[..3].copy_from_slice(&[1, 0, 1]);
    call!(d, cuMemPoolCreate(&mut pool, properties.as_ptr().cast()))?;
    call!(d, cuMemAllocFromPoolAsync(&mut pooled, 40 * MIB, pool, stream))?;
    fill(d, stream, pooled, 40 * MIB, 1, 0)?;
    let is_known = d.address_range(pooled) == Ok((pooled, 40 * MIB));
    let refused = code(d.alloc(60 * MIB));
    let holds = holds(d, pooled, 40 * MIB, 1)?;
    let freed = code(d.free_async(pooled, stream));
    Ok(format!("known: {is_known}, holds: {holds}, refused {refused}, freed {freed}"))
}

/// [70] Memory freed while a green context is current is available to all once that context has
/// ended, even if more was released to the driver in between.
fn room_behind_a_green_context(d: &Driver) -> Verdict {
    let (primary, green, mut context) = (d.context(), green(d)?, 0);
    call!(d, cuCtxFromGreenCtx(&mut context, green))?;
    d.set_context(context)?;
    // The second block fits only where the first one was.
    for bytes in [40 * MIB, 45 * MIB] {
        d.free(d.alloc(bytes)?)?;
    }
    d.set_context(primary)?;
    call!(d, cuGreenCtxDestroy(green))?;
    let asked = code(d.alloc(50 * MIB));
    Ok(format!("asked {asked}"))
}

/// [73] The stream exists until it is destroyed, and cannot be used.
fn requests_on_a_stream_without_its_green_context(d: &Driver) -> Verdict {
    let (green, mut stream) = (green(d)?, 0);
    call!(d, cuGreenCtxStreamCreate(&mut stream, green, 1, 0))?;
    let blocks = [d.alloc_async(BYTES, stream)?, d.alloc_async(BYTES, stream)?];
    d.free_async(blocks[0], stream)?;
    call!(d, cuGreenCtxDestroy(green))?;
    let codes = [code(d.free_async(blocks[1], stream)), code(d.alloc_async(BYTES, stream))];
    Ok(format!("freed {}, asked {}", codes[0], codes[1]))
}

/// [73] The capture ends with the green context, and its memory was freed before.
fn capture_of_a_green_context(d: &Driver) -> Verdict {
    let (green, mut stream) = (green(d)?, 0);
    call!(d, cuGreenCtxStreamCreate(&mut stream, green, 1, 0))?;
    d.begin_capture(stream, RELAXED)?;
    let block = d.alloc(40 * MIB)?;
    call!(d, cuMemsetD8Async(block, 1, SMALL, stream))?;
    d.free(block)?;
    call!(d, cuGreenCtxDestroy(green))?;
    let (asked, waited) = (code(d.alloc(50 * MIB)), code(d.synchronize_stream(stream)));
    let destroyed = code(call!(d, cuStreamDestroy(stream)));
    Ok(format!("asked {asked}, waited {waited}, destroyed {destroyed}"))
}
