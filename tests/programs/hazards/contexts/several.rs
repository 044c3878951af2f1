//! [8] [13] [27] [30] [80] A second context, observers past the barrier, and contexts that end.

use cachealloc_tests::driver::{Driver, LEGACY, Outcome};
use cachealloc_tests::functions::IpcHandle;

use crate::answers::refused::{DEVICE, properties};
use crate::order::teardown::texture;
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, wait_for_another_context, machine = "SIM_DEVICES=2"),
    hazard!(Always, peer_copy_into_reused_memory, machine = "SIM_DEVICES=2"),
    hazard!(Always, peer_kernel_in_reused_memory, machine = "SIM_DEVICES=2"),
    hazard!(Always, foreign_stream_in_reused_memory),
    hazard!(Always, foreign_stream_of_a_peer_in_reused_memory, machine = "SIM_DEVICES=2"),
    hazard!(Full, second_context_looks_at_data, machine = "SIM_DEVICES=2"),
    hazard!(Full, export_behind_a_barrier),
    hazard!(Full, peer_access_behind_a_barrier, machine = "SIM_DEVICES=2"),
    hazard!(Always, free_of_another_contexts_block, machine = "SIM_DEVICES=2"),
    hazard!(
        Always,
        memory_that_another_device_has_cached,
        machine = "SIM_DEVICES=2 SIM_MEMORY_MB=256"
    ),
    hazard!(Always, destroy_context),
    hazard!(Always, destroy_context_that_came_second),
    hazard!(Always, reset_device),
    hazard!(Full, destroy_texture_after_a_failed_end),
    hazard!(Always, foreign_memory_after_a_contexts_end),
    hazard!(Always, foreign_memory_after_the_last_detach),
    hazard!(Always, free_behind_a_wait_for_a_green_context),
    hazard!(Always, request_beside_a_free_of_another_context, machine = "SIM_MEMORY_MB=64"),
];

const MIXED: &str = "the old kernel wrote into the new block";

/// [8] [26] The wait submits nothing, but the work that it waits for then precedes the free.
fn wait_for_another_context(d: &Driver) -> Verdict {
    let (first, a, b, c) = (d.context(), d.stream()?, d.stream()?, d.stream()?);
    let block = d.alloc(BYTES)?;
    let unrelated = d.alloc(SMALL)?;
    d.launch("delay", a, &[1])?;
    d.use_device(1)?;
    call!(d, cuCtxEnablePeerAccess(first, 0))?;
    let (there, written) = (d.stream()?, d.event()?);
    fill(d, there, block, BYTES, 1, LATE)?;
    d.record(written, there)?;
    d.set_context(first)?;
    d.free(unrelated)?;
    d.stream_waits(b, written)?;
    d.free(block)?;
    let again = d.alloc(BYTES)?;
    fill(d, c, again, BYTES, 2, 0)?;
    ok_if(holds(d, again, BYTES, 2)?, MIXED)
}

/// [80] Calls with a location, a pool or a stream of another device than the current one.
fn memory_that_another_device_has_cached(d: &Driver) -> Verdict {
    const MOST: usize = 200 << 20;
    let (first, second) = (d.context(), d.use_device(1)?);
    let there = d.stream()?;
    let in_the_cache = || -> Outcome {
        d.set_context(second)?;
        d.free(d.alloc(MOST)?)?;
        d.set_context(first)
    };
    let on_second = properties(DEVICE, 1);
    let (mut memory, mut pool, mut block) = (0, 0, 0);
    call!(d, cuMemPoolCreate(&mut pool, on_second.as_ptr().cast()))?;
    in_the_cache()?;
    call!(d, cuMemCreate(&mut memory, MOST, on_second.as_ptr().cast(), 0))?;
    call!(d, cuMemRelease(memory))?;
    in_the_cache()?;
    call!(d, cuMemAllocFromPoolAsync(&mut block, MOST, pool, there))?;
    d.free_async(block, there)?;
    d.synchronize_stream(there)?;
    in_the_cache()?;
    d.alloc_async(MOST, there)?;
    Ok("ok".into())
}

/// [27] Copying into another device's memory needs no peer access.
fn peer_copy_into_reused_memory(d: &Driver) -> Verdict {
    let (first, a, p) = (d.context(), d.stream()?, d.alloc(BYTES)?);
    fill(d, a, p, BYTES, 1, LATE)?;
    d.free(p)?;
    let q = d.alloc(BYTES)?;
    let second = d.use_device(1)?;
    let (b, source) = (d.stream()?, d.alloc(BYTES)?);
    fill(d, b, source, BYTES, 2, 0)?;
    call!(d, cuMemcpyPeerAsync(q, first, source, second, BYTES, b))?;
    d.synchronize()?;
    d.set_context(first)?;
    ok_if(holds(d, q, BYTES, 2)?, MIXED)
}

/// The second context was known before the free.
fn peer_kernel_in_reused_memory(d: &Driver) -> Verdict {
    let first = d.context();
    let second = d.use_device(1)?;
    call!(d, cuCtxEnablePeerAccess(first, 0))?;
    let b = d.stream()?;
    d.launch("delay", b, &[1])?;
    d.set_context(first)?;
    let (a, p) = (d.stream()?, d.alloc(BYTES)?);
    fill(d, a, p, BYTES, 1, LATE)?;
    d.free(p)?;
    let q = d.alloc(BYTES)?;
    d.set_context(second)?;
    fill(d, b, q, BYTES, 2, 0)?;
    d.synchronize()?;
    d.set_context(first)?;
    ok_if(holds(d, q, BYTES, 2)?, MIXED)
}

/// [27] A stream works in its own context, whichever context is current.
fn foreign_stream_in_reused_memory(d: &Driver) -> Verdict {
    let first = d.context();
    d.create_context(0)?;
    copy_on_a_foreign_stream(d, first)
}

fn foreign_stream_of_a_peer_in_reused_memory(d: &Driver) -> Verdict {
    let first = d.context();
    d.use_device(1)?;
    copy_on_a_foreign_stream(d, first)
}

/// The copy into the block is the only work that the second context ever has.
fn copy_on_a_foreign_stream(d: &Driver, first: u64) -> Verdict {
    let (foreign, source) = (d.stream()?, d.pinned(8)?);
    d.host_write(source, 2);
    d.set_context(first)?;
    let (a, p) = (d.stream()?, d.alloc(BYTES)?);
    fill(d, a, p, BYTES, 1, LATE)?;
    d.free(p)?;
    let q = d.alloc(BYTES)?;
    d.copy(q, source, 8, foreign)?;
    d.synchronize_stream(foreign)?;
    ok_if(holds(d, q, 8, 2)?, MIXED)
}

/// [30] The first work of a second context arrives while a barrier is pending.
fn second_context_looks_at_data(d: &Driver) -> Verdict {
    let (first, a) = (d.context(), d.stream()?);
    let (data, unrelated) = (d.alloc(BYTES)?, d.alloc(SMALL)?);
    fill(d, a, data, BYTES, 1, LATE)?;
    d.free(unrelated)?;
    d.use_device(1)?;
    let (b, result) = (d.stream()?, d.alloc(BYTES)?);
    d.copy(result, data, BYTES, b)?;
    let good = holds(d, result, BYTES, 1)?;
    d.set_context(first)?;
    d.synchronize()?;
    ok_if(good, "the second context read too early")
}

/// [30] The process that opens the handle may read the memory at once.
fn export_behind_a_barrier(d: &Driver) -> Verdict {
    const WHOLE_SEGMENT: usize = 12 << 20;
    let (a, p) = (d.stream()?, d.alloc(WHOLE_SEGMENT)?);
    fill(d, a, p, SMALL, 1, LATE)?;
    d.free(p)?;
    let q = d.alloc(WHOLE_SEGMENT)?;
    let mut handle = IpcHandle::default();
    call!(d, cuIpcGetMemHandle(&mut handle, q))?;
    ok_if(is_late(d), "a process could read while the old kernel wrote")
}

fn peer_access_behind_a_barrier(d: &Driver) -> Verdict {
    let (a, data, unrelated) = (d.stream()?, d.alloc(BYTES)?, d.alloc(SMALL)?);
    let first = d.context();
    let second = d.use_device(1)?;
    d.set_context(first)?;
    fill(d, a, data, SMALL, 1, LATE)?;
    d.free(unrelated)?;
    call!(d, cuCtxEnablePeerAccess(second, 0))?;
    ok_if(is_late(d), "a peer could read while the old kernel wrote")
}

fn is_late(d: &Driver) -> bool {
    d.virtual_ns().is_none_or(|now| now >= LATE)
}

/// The free waits for the block's context, whichever context is current.
fn free_of_another_contexts_block(d: &Driver) -> Verdict {
    let first = d.context();
    let (a, b) = (d.stream()?, d.stream()?);
    for round in 0..4 {
        let p = d.alloc(BYTES)?;
        fill(d, a, p, BYTES, 1, LATE / 4)?;
        d.use_device(1)?;
        d.free(p)?;
        let other = d.alloc(SMALL)?;
        if round > 1 {
            fill(d, LEGACY, other, SMALL, 3, 1)?;
        }
        d.set_context(first)?;
        d.free(other)?;
        let q = d.alloc(BYTES)?;
        fill(d, b, q, BYTES, 2, 0)?;
        if !holds(d, q, BYTES, 2)? {
            return Ok(format!("FAIL, {MIXED}"));
        }
        d.free(q)?;
    }
    Ok("ok".into())
}

/// [13] The context has live blocks, cached blocks and a pending barrier; the driver reuses its
/// handle.
fn destroy_context(d: &Driver) -> Verdict {
    let primary = d.context();
    rounds_of_contexts(d, primary)
}

/// The context is destroyed while another context has work.
fn destroy_context_that_came_second(d: &Driver) -> Verdict {
    let (primary, stream, block) = (d.context(), d.stream()?, d.alloc(SMALL)?);
    fill(d, stream, block, SMALL, 1, LATE)?;
    rounds_of_contexts(d, primary)
}

fn rounds_of_contexts(d: &Driver, primary: u64) -> Verdict {
    for round in 0..4 {
        let other = d.create_context(0)?;
        let kept = context_with_everything(d, round)?;
        call!(d, cuCtxDestroy(other))?;
        d.set_context(primary)?;
        if d.free(kept).is_ok() {
            return Ok("FAIL, a block outlived its context".into());
        }
        let (stream, block) = (d.stream()?, d.alloc(BYTES)?);
        fill(d, stream, block, BYTES, round, 0)?;
        if !holds(d, block, BYTES, round)? {
            return Ok("FAIL, wrong contents after a context's end".into());
        }
        d.free(block)?;
    }
    Ok("ok".into())
}

/// Leaves a live block, a cached block, a block that waits for a stream, and a barrier in flight in
/// a context.
fn context_with_everything(d: &Driver, value: u64) -> Outcome<u64> {
    let (a, b) = (d.stream()?, d.stream()?);
    let (kept, freed, ordered) = (d.alloc(BYTES)?, d.alloc(BYTES)?, d.alloc(BYTES)?);
    fill(d, a, freed, BYTES, value, LATE)?;
    fill(d, b, ordered, BYTES, value, LATE)?;
    d.free(freed)?;
    d.free_async(ordered, b)?;
    Ok(kept)
}

fn reset_device(d: &Driver) -> Verdict {
    for round in 0..3 {
        context_with_everything(d, round)?;
        call!(d, cuDevicePrimaryCtxReset(0))?;
        d.use_device(0)?;
        let (stream, block) = (d.stream()?, d.alloc(BYTES)?);
        d.memset(block, 1, BYTES, stream)?;
        if !holds(d, block, BYTES, 0x0101_0101_0101_0101)? {
            return Ok("FAIL, wrong contents after a device reset".into());
        }
        d.free(block)?;
    }
    Ok("ok".into())
}

/// The program cannot destroy the primary context: the deferred wait of a free remains deferred.
fn destroy_texture_after_a_failed_end(d: &Driver) -> Verdict {
    let (stream, words, unrelated) = (d.stream()?, d.alloc(SMALL)?, d.alloc(SMALL)?);
    let texture = texture(d, words)?;
    d.launch("delay", stream, &[LATE])?;
    d.free(unrelated)?;
    let ended = code(call!(d, cuCtxDestroy(d.context())));
    call!(d, cuTexObjectDestroy(texture))?;
    ok_if(ended != 0 && is_late(d), "the texture was destroyed while a kernel ran")
}

/// The driver hands the addresses out again for memory that the library does not manage.
fn foreign_memory_after_a_contexts_end(d: &Driver) -> Verdict {
    foreign_memory_after(d, |other| call!(d, cuCtxDestroy(other)))
}

/// The context ends with the last of its references.
fn foreign_memory_after_the_last_detach(d: &Driver) -> Verdict {
    foreign_memory_after(d, |other| {
        call!(d, cuCtxAttach(&mut 0, 0))?;
        call!(d, cuCtxDetach(other))?;
        call!(d, cuCtxDetach(other))
    })
}

/// Results of freeing memory that the library does not manage, after a context has ended.
fn foreign_memory_after(d: &Driver, end: impl Fn(u64) -> Outcome) -> Verdict {
    let primary = d.context();
    let other = d.create_context(0)?;
    for block in [d.alloc(12 << 20)?, d.alloc(BYTES)?, d.alloc(SMALL)?] {
        d.free(block)?;
    }
    d.alloc(33 << 20)?;
    end(other)?;
    d.set_context(primary)?;
    let mut codes = Vec::new();
    for bytes in [12 << 20, 33 << 20, 2 << 20, 20 << 20, SMALL] {
        let (mut pitched, mut pitch) = (0, 0);
        call!(d, cuMemAllocPitch(&mut pitched, &mut pitch, bytes, 1, 4))?;
        d.memset(pitched, 1, bytes, LEGACY)?;
        codes.push(code(d.free(pitched)));
    }
    Ok(format!("codes {codes:?}"))
}

/// [44] The wait covers the green context's own work. The block, made while the green context was
/// current, is used by work of the primary context. On a GPU the program would have to name a part
/// of the device.
fn free_behind_a_wait_for_a_green_context(d: &Driver) -> Verdict {
    let (first, a, b) = (d.context(), d.stream()?, d.stream()?);
    let (mut part, mut green) = (0, 0);
    call!(d, cuGreenCtxCreate(&mut part, 0, 0, 1))?;
    call!(d, cuCtxFromGreenCtx(&mut green, part))?;
    d.set_context(green)?;
    let p = d.alloc(BYTES)?;
    d.set_context(first)?;
    fill(d, a, p, BYTES, 1, LATE)?;
    d.set_context(green)?;
    d.synchronize()?;
    d.free(p)?;
    let q = d.alloc(BYTES)?;
    d.set_context(first)?;
    fill(d, b, q, BYTES, 2, 0)?;
    let good = holds(d, q, BYTES, 2)?;
    d.free(q)?;
    ok_if(good, MIXED)
}

/// [87] The free waits in the driver for a kernel of the memory's context, and holds that one. In
/// another context the request is served at once, by memory that was freed long before.
fn request_beside_a_free_of_another_context(d: &Driver) -> Verdict {
    const MIB: usize = 1 << 20;
    let (stream, flag, cached, mut managed) = (d.stream()?, d.pinned(64)?, d.alloc(40 * MIB)?, 0);
    call!(d, cuMemAllocManaged(&mut managed, MIB, 1))?;
    d.free(cached)?;
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    d.create_context(0)?;
    let requested = std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || d.free(managed));
        sleep_ms(100);
        let requested = code(d.alloc(40 * MIB));
        d.set_flag(flag, 1);
        freeing.join().expect("no program panics").map(|()| requested)
    })?;
    Ok(format!("code {requested}"))
}
