//! [68] [69] [70] [73] Green contexts: parts of a device with streams of their own, and the memory
//! of the primary context. On a GPU a part of the device would have to be named.

use cachealloc_tests::driver::{Driver, Outcome, RELAXED};

use crate::stream_ordered::read_in_order;
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

/// As `wait_for_a_stream_of_a_waiting_context`.
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

/// A green context that alone holds the primary one.
fn last_reference(d: &Driver) -> Outcome<u64> {
    let (green, mut context) = (green(d)?, 0);
    call!(d, cuCtxFromGreenCtx(&mut context, green))?;
    d.set_context(context)?;
    call!(d, cuDevicePrimaryCtxRelease(0))?;
    Ok(green)
}

/// [69] The primary context ends with the green one, and the driver serves its addresses again. A
/// request that finds too little must not take back what the program had freed there before.
fn memory_where_a_green_context_was(d: &Driver) -> Verdict {
    let green = last_reference(d)?;
    d.free(d.alloc(40 * MIB)?)?;
    d.set_context(0)?;
    call!(d, cuGreenCtxDestroy(green))?;
    d.use_device(0)?;
    let (stream, mut pool, mut pooled) = (d.stream()?, 0, 0);
    // CUmemPoolProps: pinned to its place, no handles, a device, the first one.
    let mut properties = [0_u32; 22];
    properties[..3].copy_from_slice(&[1, 0, 1]);
    call!(d, cuMemPoolCreate(&mut pool, properties.as_ptr().cast()))?;
    call!(d, cuMemAllocFromPoolAsync(&mut pooled, 40 * MIB, pool, stream))?;
    fill(d, stream, pooled, 40 * MIB, 1, 0)?;
    let is_known = d.address_range(pooled) == Ok((pooled, 40 * MIB));
    let refused = code(d.alloc(60 * MIB));
    let holds = holds(d, pooled, 40 * MIB, 1)?;
    let freed = code(d.free_async(pooled, stream));
    Ok(format!("it is known: {is_known}, holds: {holds}, refused {refused}, freed {freed}"))
}

/// [70] What was freed with a green context current is there for all when that is gone, also if
/// more went back to the driver while it was there.
fn room_behind_a_green_context(d: &Driver) -> Verdict {
    let (primary, green, mut context) = (d.context(), green(d)?, 0);
    call!(d, cuCtxFromGreenCtx(&mut context, green))?;
    d.set_context(context)?;
    // The second one has room only where the first one was.
    for bytes in [40 * MIB, 45 * MIB] {
        d.free(d.alloc(bytes)?)?;
    }
    d.set_context(primary)?;
    call!(d, cuGreenCtxDestroy(green))?;
    let asked = code(d.alloc(50 * MIB));
    Ok(format!("asked {asked}"))
}

/// [73] The stream is there until it is destroyed, and is good for nothing.
fn requests_on_a_stream_without_its_green_context(d: &Driver) -> Verdict {
    let (green, mut stream) = (green(d)?, 0);
    call!(d, cuGreenCtxStreamCreate(&mut stream, green, 1, 0))?;
    let blocks = [d.alloc_async(BYTES, stream)?, d.alloc_async(BYTES, stream)?];
    d.free_async(blocks[0], stream)?;
    call!(d, cuGreenCtxDestroy(green))?;
    let codes = [code(d.free_async(blocks[1], stream)), code(d.alloc_async(BYTES, stream))];
    Ok(format!("freed {}, asked {}", codes[0], codes[1]))
}

/// [73] The capture is over with the green context, and its memory was free before.
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
