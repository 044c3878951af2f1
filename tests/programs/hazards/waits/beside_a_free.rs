//! [10] Calls that the driver itself serves while another thread's free still waits, and calls that
//! block until that free returns.

use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Outcome, RELAXED, Stream, THREAD_LOCAL};

use crate::memory::scarce::physical_memory;
use crate::memory::shortage::beside_a_capture;
use crate::order::teardown::texture;
use crate::tools::*;
use crate::visible::results::page_of_host;

pub const ALL: &[Hazard] = &[
    hazard!(Always, physical_memory_beside_a_free_that_waits, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, pool_memory_beside_a_free_that_waits, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, pool_memory_beside_a_free_that_seems_over),
    hazard!(Always, memory_info_beside_a_free_that_waits, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, memory_info_beside_the_last_call_of_a_thread),
    hazard!(Always, stream_memory_beside_a_free_that_waits, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, teardowns_beside_a_free_that_waits),
    hazard!(Always, memory_beside_the_end_of_an_array, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, end_of_managed_memory_beside_a_kernel_of_another_context),
    hazard!(Always, memory_beside_the_end_of_managed_memory, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, memory_beside_the_end_of_a_registration, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, memory_beside_the_end_of_an_array_and_a_capture, machine = "SIM_MEMORY_MB=64"),
    hazard!(
        Always,
        memory_beside_the_end_of_managed_memory_and_a_capture,
        machine = "SIM_MEMORY_MB=64"
    ),
    hazard!(
        Always,
        memory_beside_the_end_of_a_registration_and_a_capture,
        machine = "SIM_MEMORY_MB=64"
    ),
    hazard!(Always, memory_beside_an_end_from_another_context, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, memory_beside_an_end_in_another_context, machine = "SIM_MEMORY_MB=64"),
    hazard!(
        Always,
        request_beside_a_long_free,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuEventSynchronize@1=3000"
    ),
    hazard!(
        Always,
        array_beside_a_long_free,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuEventSynchronize@1=3000"
    ),
    hazard!(
        Always,
        array_beside_memory_on_its_way,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuStreamSynchronize@1=3000"
    ),
    hazard!(
        Always,
        stream_memory_beside_memory_on_its_way,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuStreamSynchronize@1=500"
    ),
    hazard!(
        Always,
        request_in_a_capture_beside_a_long_free,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuEventSynchronize@1=500"
    ),
    hazard!(Always, request_in_a_capture_that_lets_go, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, request_in_a_capture_that_another_ends, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, memory_freed_before_anothers_free, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, stream_memory_beside_a_request_that_stands_still, machine = "SIM_MEMORY_MB=64"),
];

const MIB: usize = 1 << 20;

/// Runs `body` while another thread's free waits for a kernel that ends only with `body`.
pub fn beside_a_free_that_waits(
    d: &Driver,
    (stream, flag): (Stream, u64),
    body: impl FnOnce() -> Outcome,
) -> Verdict {
    let unrelated = d.alloc(SMALL)?;
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    beside_a_free_of(d, unrelated, flag, body)
}

/// Runs `body` while another thread is inside the free of `unrelated`. A kernel spins on `flag`.
fn beside_a_free_of(
    d: &Driver,
    unrelated: u64,
    flag: u64,
    body: impl FnOnce() -> Outcome,
) -> Verdict {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || {
            d.free(unrelated)?;
            // In a mode whose free does not wait, the thread is kept alive as well.
            while !done.load(Ordering::SeqCst) {
                sleep_ms(1);
            }
            Ok(())
        });
        sleep_ms(20);
        let outcome = body();
        d.set_flag(flag, 1);
        done.store(true, Ordering::SeqCst);
        freeing.join().expect("no program panics")?;
        Ok(format!("code {}", code(outcome)))
    })
}

/// Runs `body` in the same way, with 40 MiB free in the cache.
fn room_beside_a_free_that_waits(d: &Driver, body: impl FnOnce() -> Outcome) -> Verdict {
    let spins = (d.stream()?, d.pinned(64)?);
    d.free(d.alloc(40 * MIB)?)?;
    beside_a_free_that_waits(d, spins, body)
}

/// The driver serves this request although the free holds the context.
fn physical_memory_beside_a_free_that_waits(d: &Driver) -> Verdict {
    room_beside_a_free_that_waits(d, || physical_memory(d, 40 * MIB))
}

/// The request comes from a pool, and two streams have work.
fn pool_memory_beside_a_free_that_waits(d: &Driver) -> Verdict {
    let (other, block) = (d.stream()?, d.alloc(SMALL)?);
    fill(d, other, block, SMALL, 1, 0)?;
    room_beside_a_free_that_waits(d, || d.alloc_async(50 * MIB, other).map(drop))
}

/// Nothing shows that the host ends the kernel. So the free is a barrier in mode `ordered`, after
/// which the library's own streams come.
fn pool_memory_beside_a_free_that_seems_over(d: &Driver) -> Verdict {
    let (a, b, flag, table) = (d.stream()?, d.stream()?, d.pinned(64)?, d.alloc(SMALL)?);
    let unrelated = d.alloc(SMALL)?;
    d.set_flag(flag, 0);
    d.write_words(table, &[flag])?;
    // The work for which the copy made the free wait is complete.
    d.free(d.alloc(SMALL)?)?;
    d.launch("indirect_spin", a, &[table, 1])?;
    let mut block = 0;
    let beside = || {
        block = d.alloc_async(BYTES, b)?;
        Ok(())
    };
    let verdict = beside_a_free_of(d, unrelated, flag, beside)?;
    fill(d, b, block, BYTES, 2, 0)?;
    let good = holds(d, block, BYTES, 2)?;
    Ok(format!("{verdict}, right: {good}"))
}

fn memory_info_beside_a_free_that_waits(d: &Driver) -> Verdict {
    room_beside_a_free_that_waits(d, || d.memory_info().map(drop))
}

/// On the plain driver the thread cannot end before its free returns.
fn memory_info_beside_the_last_call_of_a_thread(d: &Driver) -> Verdict {
    let (stream, flag, unrelated) = (d.stream()?, d.pinned(64)?, d.alloc(SMALL)?);
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || d.free(unrelated));
        sleep_ms(50);
        let asked = d.memory_info().map(drop);
        d.set_flag(flag, 1);
        freeing.join().expect("no program panics")?;
        Ok(format!("code {}", code(asked)))
    })
}

/// Memory that the kernel's stream has freed is not available before the kernel ends, even though a
/// free waits for it.
fn stream_memory_beside_a_free_that_waits(d: &Driver) -> Verdict {
    let (stream, before, flag) = (d.stream()?, d.stream()?, d.pinned(64)?);
    let block = d.alloc_async(40 * MIB, stream)?;
    // Submitted before the stream that spins, so that the block is already free when the kernel
    // begins.
    fill(d, before, d.alloc(SMALL)?, SMALL, 1, 0)?;
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    fill(d, stream, block, 40 * MIB, 1, 0)?;
    d.free_async(block, stream)?;
    beside_a_free_that_waits(d, (before, flag), || physical_memory(d, 40 * MIB))
}

/// No work uses the destroyed objects, and none of these calls waits for the free, which has not
/// returned.
fn teardowns_beside_a_free_that_waits(d: &Driver) -> Verdict {
    let (spins, other) = ((d.stream()?, d.pinned(64)?), d.stream()?);
    let (mut memory, properties) = (0, [1_u32, 0, 1, 0, 0, 0, 0, 0]);
    call!(d, cuMemCreate(&mut memory, 2 * MIB, properties.as_ptr().cast(), 0))?;
    let (mut pool, mut pooled, mut properties) = (0, 0, [0_u32; 22]);
    properties[..3].copy_from_slice(&[1, 0, 1]);
    call!(d, cuMemPoolCreate(&mut pool, properties.as_ptr().cast()))?;
    call!(d, cuMemAllocFromPoolAsync(&mut pooled, SMALL, pool, other))?;
    let texture = texture(d, d.alloc(SMALL)?)?;
    d.synchronize()?;
    beside_a_free_that_waits(d, spins, || {
        call!(d, cuMemRelease(memory))?;
        call!(d, cuTexObjectDestroy(texture))?;
        d.free(pooled)
    })
}

/// Takes memory that the program has freed before, while another thread is inside a call that
/// waits in the driver for a kernel.
fn memory_beside(d: &Driver, end: impl FnOnce() -> Outcome + Send) -> Verdict {
    let (stream, other, flag) = (d.stream()?, d.stream()?, d.pinned(64)?);
    d.free(d.alloc(40 * MIB)?)?;
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    std::thread::scope(|scope| {
        let ending = spawn(scope, d, end);
        sleep_ms(20);
        let codes =
            [physical_memory(d, 40 * MIB), d.alloc_async(8 * MIB, other).map(drop)].map(code);
        d.set_flag(flag, 1);
        ending.join().expect("no program panics")?;
        Ok(format!("codes {codes:?}"))
    })
}

fn memory_beside_the_end_of_an_array(d: &Driver) -> Verdict {
    // CUDA_ARRAY_DESCRIPTOR: width, height, format (unsigned bytes) and channels.
    let (description, mut array) = ([4096_usize, 1, 1 << 32 | 1], 0);
    call!(d, cuArrayCreate(&mut array, description.as_ptr().cast()))?;
    memory_beside(d, || call!(d, cuArrayDestroy(array)))
}

fn memory_beside_the_end_of_an_array_and_a_capture(d: &Driver) -> Verdict {
    beside_a_capture_only(d, memory_beside_the_end_of_an_array)
}

fn memory_beside_the_end_of_managed_memory_and_a_capture(d: &Driver) -> Verdict {
    beside_a_capture_only(d, memory_beside_the_end_of_managed_memory)
}

fn memory_beside_the_end_of_a_registration_and_a_capture(d: &Driver) -> Verdict {
    beside_a_capture_only(d, memory_beside_the_end_of_a_registration)
}

/// The same while a stream captures.
fn beside_a_capture_only(d: &Driver, body: fn(&Driver) -> Verdict) -> Verdict {
    let (verdict, ended) = beside_a_capture(d, THREAD_LOCAL, || body(d))?;
    Ok(format!("{verdict}, end {ended}"))
}

fn memory_beside_the_end_of_managed_memory(d: &Driver) -> Verdict {
    let mut managed = 0;
    call!(d, cuMemAllocManaged(&mut managed, SMALL, 1))?;
    memory_beside(d, || d.free(managed))
}

/// The driver waits in the context of the memory, which is not the thread's current one.
fn memory_beside_an_end_from_another_context(d: &Driver) -> Verdict {
    let (own, mut managed) = (d.context(), 0);
    call!(d, cuMemAllocManaged(&mut managed, SMALL, 1))?;
    let other = d.create_context(0)?;
    d.set_context(own)?;
    memory_beside(d, || {
        d.set_context(other)?;
        d.free(managed)
    })
}

/// The end of pinned memory waits for every context. No free of this one has waited in the driver
/// before.
fn memory_beside_an_end_in_another_context(d: &Driver) -> Verdict {
    let (other, pinned) = (d.context(), d.pinned(SMALL)?);
    d.create_context(0)?;
    memory_beside(d, || {
        d.set_context(other)?;
        call!(d, cuMemFreeHost(pinned))
    })
}

/// The free waits for the work of the memory's context only.
fn end_of_managed_memory_beside_a_kernel_of_another_context(d: &Driver) -> Verdict {
    let (mut managed, flag) = (0, d.pinned(64)?);
    call!(d, cuMemAllocManaged(&mut managed, SMALL, 1))?;
    d.create_context(0)?;
    let stream = d.stream()?;
    d.launch("spin", stream, &[flag, 1])?;
    let freed = d.free(managed);
    d.set_flag(flag, 1);
    d.synchronize()?;
    Ok(format!("code {}", code(freed)))
}

fn memory_beside_the_end_of_a_registration(d: &Driver) -> Verdict {
    let page = page_of_host();
    call!(d, cuMemHostRegister(page, 4096, 0))?;
    memory_beside(d, || call!(d, cuMemHostUnregister(page)))
}

/// Makes `request` while another thread frees 40 of 64 MiB after a copy that the host could
/// observe. On the plain driver the request blocks until that free returns.
fn beside_a_long_free(d: &Driver, request: impl FnOnce() -> Outcome) -> Verdict {
    let (stream, block, pinned) = (d.stream()?, d.alloc(40 * MIB)?, d.pinned(SMALL)?);
    fill(d, stream, block, SMALL, 1, LATE)?;
    d.copy(pinned, block, SMALL, stream)?;
    std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || d.free(block));
        sleep_ms(100);
        let code = code(request());
        freeing.join().expect("no program panics")?;
        Ok(format!("code {code}"))
    })
}

fn request_beside_a_long_free(d: &Driver) -> Verdict {
    beside_a_long_free(d, || d.alloc(40 * MIB).map(drop))
}

/// A request blocks in a capture of mode relaxed, too.
fn request_in_a_capture_beside_a_long_free(d: &Driver) -> Verdict {
    let captures = d.stream()?;
    beside_a_long_free(d, || {
        d.begin_capture(captures, RELAXED)?;
        let asked = d.alloc(40 * MIB);
        d.end_capture(captures)?;
        asked.map(drop)
    })
}

/// One thread blocks in a request for its capture, after a free, and asks for more memory than
/// there will be. Another thread ends that capture before it ends the work for which the free
/// waits.
fn request_in_a_capture_that_lets_go(d: &Driver) -> Verdict {
    request_in_a_capture_that_ends(d, 36 * MIB)
}

/// The same for a request that the driver serves, after the free.
fn request_in_a_capture_that_another_ends(d: &Driver) -> Verdict {
    request_in_a_capture_that_ends(d, 12 * MIB)
}

fn request_in_a_capture_that_ends(d: &Driver, bytes: usize) -> Verdict {
    let (captures, spins, flag) = (d.stream()?, d.stream()?, d.pinned(64)?);
    let (_held, freed) = (d.alloc(30 * MIB)?, d.alloc(20 * MIB)?);
    d.set_flag(flag, 0);
    d.launch("spin", spins, &[flag, 1])?;
    d.begin_capture(captures, RELAXED)?;
    let asked = std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || d.free(freed));
        sleep_ms(50);
        let working = spawn(scope, d, || -> Outcome {
            sleep_ms(50);
            d.end_capture(captures)?;
            d.set_flag(flag, 1);
            Ok(())
        });
        let asked = code(d.alloc(bytes));
        working.join().expect("no program panics")?;
        freeing.join().expect("no program panics").map(|()| asked)
    })?;
    Ok(format!("code {asked}"))
}

fn array_beside_a_long_free(d: &Driver) -> Verdict {
    beside_a_long_free(d, || array(d, 40))
}

/// Creates an array of this many MiB.
fn array(d: &Driver, mebibytes: u64) -> Outcome {
    // Width, height, and an unsigned byte in each of one channel.
    let (description, mut array) = ([1 << 20, mebibytes, 1 | 1 << 32], 0);
    call!(d, cuArrayCreate(&mut array, description.as_ptr().cast()))
}

/// One thread releases memory for a request that none of its segments can serve, and the release
/// takes long.
fn array_beside_memory_on_its_way(d: &Driver) -> Verdict {
    beside_memory_on_its_way(d, || array(d, 30))
}

/// The driver itself does not block this request, and finds the memory that was freed before.
fn stream_memory_beside_memory_on_its_way(d: &Driver) -> Verdict {
    let other = d.stream()?;
    beside_memory_on_its_way(d, || d.alloc_async(30 * MIB, other).map(drop))
}

fn beside_memory_on_its_way(d: &Driver, request: impl FnOnce() -> Outcome) -> Verdict {
    let (stream, pieces) = (d.stream()?, [d.alloc(20 * MIB)?, d.alloc(20 * MIB)?]);
    for piece in pieces {
        fill(d, stream, piece, SMALL, 1, LATE)?;
    }
    pieces.into_iter().try_for_each(|piece| d.free(piece))?;
    std::thread::scope(|scope| {
        let asking = spawn(scope, d, || d.alloc(25 * MIB));
        sleep_ms(100);
        let code = code(request());
        asking.join().expect("no program panics")?;
        Ok(format!("code {code}"))
    })
}

/// The driver itself serves such a request at once. The library must not queue it after the blocked
/// request, whose free waits for the kernel that only this thread ends.
fn stream_memory_beside_a_request_that_stands_still(d: &Driver) -> Verdict {
    let (stream, other, flag) = (d.stream()?, d.stream()?, d.pinned(64)?);
    let block = d.alloc(40 * MIB)?;
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || d.free(block));
        sleep_ms(50);
        let asking = spawn(scope, d, || d.alloc(40 * MIB));
        sleep_ms(50);
        let asked = code(d.alloc_async(10 * MIB, other));
        d.set_flag(flag, 1);
        freeing.join().expect("no program panics")?;
        asking.join().expect("no program panics")?;
        Ok(format!("code {asked}"))
    })
}

/// The requested memory was freed long before the other thread's free, which on the plain driver
/// has not returned.
fn memory_freed_before_anothers_free(d: &Driver) -> Verdict {
    let (stream, unrelated) = (d.stream()?, d.alloc(SMALL)?);
    d.free(d.alloc(40 * MIB)?)?;
    std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || {
            d.launch("delay", stream, &[LATE])?;
            d.free(unrelated)?;
            // The barrier of that thread may be pending for as long as the thread lives.
            sleep_ms(100);
            Ok(())
        });
        sleep_ms(50);
        let asked = physical_memory(d, 40 * MIB);
        freeing.join().expect("no program panics")?;
        Ok(format!("code {}", code(asked)))
    })
}
