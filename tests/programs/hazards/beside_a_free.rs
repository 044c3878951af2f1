//! [10] Calls that natively go on while another thread's free still waits.

use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Outcome, Stream};

use crate::teardown::texture;
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, physical_memory_beside_a_free_that_waits, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, pool_memory_beside_a_free_that_waits, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, memory_info_beside_a_free_that_waits, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, stream_memory_beside_a_free_that_waits, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, teardowns_beside_a_free_that_waits),
];

const MIB: usize = 1 << 20;

/// Runs `body` while another thread's free waits for a kernel that only the end of `body` will end.
fn beside_a_free_that_waits(
    d: &Driver,
    (stream, flag): (Stream, u64),
    body: impl FnOnce() -> Outcome,
) -> Verdict {
    let (unrelated, done) = (d.alloc(SMALL)?, AtomicBool::new(false));
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || {
            d.free(unrelated)?;
            // In a mode whose free does not wait the thread lives on all the same.
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

/// With 40 MiB of cache that are free.
fn room_beside_a_free_that_waits(d: &Driver, body: impl FnOnce() -> Outcome) -> Verdict {
    let spins = (d.stream()?, d.pinned(64)?);
    d.free(d.alloc(40 * MIB)?)?;
    beside_a_free_that_waits(d, spins, body)
}

fn physical_memory(d: &Driver) -> Outcome {
    let (mut memory, properties) = (0, [1_u32, 0, 1, 0, 0, 0, 0, 0]);
    call!(d, cuMemCreate(&mut memory, 40 * MIB, properties.as_ptr().cast(), 0))
}

/// The driver serves it though the free holds the context.
fn physical_memory_beside_a_free_that_waits(d: &Driver) -> Verdict {
    room_beside_a_free_that_waits(d, || physical_memory(d))
}

/// As above, with work on two streams.
fn pool_memory_beside_a_free_that_waits(d: &Driver) -> Verdict {
    let (other, block) = (d.stream()?, d.alloc(SMALL)?);
    fill(d, other, block, SMALL, 1, 0)?;
    room_beside_a_free_that_waits(d, || d.alloc_async(50 * MIB, other).map(drop))
}

fn memory_info_beside_a_free_that_waits(d: &Driver) -> Verdict {
    room_beside_a_free_that_waits(d, || d.memory_info().map(drop))
}

/// What the kernel's stream has freed is not there before the kernel is over, though a free waits for that.
fn stream_memory_beside_a_free_that_waits(d: &Driver) -> Verdict {
    let (stream, before, flag) = (d.stream()?, d.stream()?, d.pinned(64)?);
    let block = d.alloc_async(40 * MIB, stream)?;
    // Before the stream that spins, so that the block is freed when that begins.
    fill(d, before, d.alloc(SMALL)?, SMALL, 1, 0)?;
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    fill(d, stream, block, 40 * MIB, 1, 0)?;
    d.free_async(block, stream)?;
    beside_a_free_that_waits(d, (before, flag), || physical_memory(d))
}

/// What ends is used by no work, and none of these calls waits for the free, which has not returned.
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
