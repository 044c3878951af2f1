//! [9] [10] [20] [29] [31] No call may wait for work submitted after the free in question.

use std::time::Duration;

use cachealloc_tests::driver::{Driver, LEGACY, Outcome};

use crate::order::teardown::texture;
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, spin_and_malloc_beside_a_lost_context, machine = "SIM_DEVICES=2"),
    hazard!(Always, spin_behind_free),
    hazard!(Always, spin_and_free_async_pointer),
    hazard!(Always, spin_and_malloc_behind_async_free),
    hazard!(Always, spin_and_large_malloc_behind_async_free, machine = "SIM_MEMORY_MB=128"),
    hazard!(Always, spin_and_full_malloc_behind_async_free, machine = "SIM_MEMORY_MB=128"),
    hazard!(Full, spin_and_destroy_texture),
    hazard!(Always, persistent_kernel_and_malloc, machine = "SIM_MEMORY_MB=128"),
    hazard!(Always, persistent_kernel_and_malloc_async, machine = "SIM_MEMORY_MB=128"),
    hazard!(Always, persistent_kernel_and_managed, machine = "SIM_MEMORY_MB=128"),
    hazard!(Always, room_is_collected_while_more_goes_back, machine = "SIM_MEMORY_MB=128"),
    hazard!(Full, query_while_a_free_waits),
    hazard!(Full, query_behind_another_threads_frees),
    hazard!(Always, free_in_another_context),
    hazard!(Always, spin_beside_a_context_that_ends),
    hazard!(Always, spin_before_a_context_that_waits),
    hazard!(Always, spin_and_unused_memory_that_is_short, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, spin_and_no_host_memory),
    hazard!(Always, spin_and_pitched_memory_beyond_a_limit),
    hazard!(Always, collective_over_two_devices, machine = "SIM_DEVICES=2"),
];

const MIB: usize = 1 << 20;

pub fn device_flag(d: &Driver) -> Outcome<u64> {
    let flag = d.alloc(64)?;
    d.write_words(flag, &[0])?;
    Ok(flag)
}

/// [9] The spinning kernel is submitted after the free, and the call that ends it comes later
/// still.
fn spin_behind_free(d: &Driver) -> Verdict {
    let (a, b, flag) = (d.stream()?, d.stream()?, device_flag(d)?);
    let (busy, freed) = (d.alloc(BYTES)?, d.alloc(BYTES)?);
    fill(d, a, busy, BYTES, 1, LATE)?;
    d.free(freed)?;
    d.launch("spin", a, &[flag, 1])?;
    let again = d.alloc(BYTES)?;
    fill(d, b, again, BYTES, 2, 0)?;
    d.launch("set", b, &[flag, 1])?;
    d.synchronize_stream(b)?;
    ok_if(holds(d, again, BYTES, 2)?, "wrong contents")
}

/// [20] On the plain driver this free does not wait, so it may not order streams either.
fn spin_and_free_async_pointer(d: &Driver) -> Verdict {
    let (a, b, flag) = (d.stream()?, d.stream()?, device_flag(d)?);
    let block = d.alloc_async(BYTES, b)?;
    d.synchronize()?;
    d.launch("spin", a, &[flag, 1])?;
    d.free(block)?;
    d.launch("set", b, &[flag, 1])?;
    d.synchronize()?;
    Ok("ok".into())
}

/// [31] A malloc takes memory other than the block that still waits.
fn spin_and_malloc_behind_async_free(d: &Driver) -> Verdict {
    let (a, b, flag) = (d.stream()?, d.stream()?, device_flag(d)?);
    let p = d.alloc_async(BYTES, a)?;
    d.synchronize()?;
    fill(d, a, p, BYTES, 1, LATE)?;
    d.launch("spin", a, &[flag, 1])?;
    d.free_async(p, a)?;
    let q = d.alloc(BYTES)?;
    fill(d, b, q, BYTES, 2, 0)?;
    d.launch("set", b, &[flag, 1])?;
    ok_if(holds(d, q, BYTES, 2)?, "the old kernel wrote into the new block")
}

/// The malloc needs memory to be released on a small card, and enough can be released without the
/// waiting block.
fn spin_and_large_malloc_behind_async_free(d: &Driver) -> Verdict {
    let (a, b, flag) = (d.stream()?, d.stream()?, device_flag(d)?);
    let (p, room) = (d.alloc_async(20 * MIB, a)?, d.alloc(50 * MIB)?);
    d.free(room)?;
    d.synchronize()?;
    d.launch("spin", a, &[flag, 1])?;
    fill(d, a, p, SMALL, 1, LATE)?;
    d.free_async(p, a)?;
    let q = d.alloc(90 * MIB)?;
    fill(d, b, q, SMALL, 2, 0)?;
    d.launch("set", b, &[flag, 1])?;
    ok_if(holds(d, q, SMALL, 2)?, "the old kernel wrote into the new block")
}

/// The malloc cannot be served without the waiting block: the driver itself reports this at once.
fn spin_and_full_malloc_behind_async_free(d: &Driver) -> Verdict {
    let (a, b, flag) = (d.stream()?, d.stream()?, device_flag(d)?);
    let p = d.alloc_async(50 * MIB, a)?;
    d.synchronize()?;
    d.launch("spin", a, &[flag, 1])?;
    d.free_async(p, a)?;
    let refused = code(d.alloc(100 * MIB));
    d.launch("set", b, &[flag, 1])?;
    d.synchronize()?;
    let later = code(d.alloc(100 * MIB));
    Ok(format!("code {refused}, later {later}"))
}

/// [29] The teardown waits for the kernel before the free, not for the kernel after it.
fn spin_and_destroy_texture(d: &Driver) -> Verdict {
    let (a, flag) = (d.stream()?, d.pinned(64)?);
    let (words, unrelated) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
    let texture = texture(d, words)?;
    d.set_flag(flag, 0);
    d.launch("delay", a, &[LATE])?;
    d.free(unrelated)?;
    d.launch("spin", a, &[flag, 1])?;
    call!(d, cuTexObjectDestroy(texture))?;
    let late = d.virtual_ns().is_none_or(|now| now >= LATE);
    d.set_flag(flag, 1);
    d.synchronize()?;
    ok_if(late, "the texture was destroyed while a kernel ran")
}

/// [10] Runs `body` beside a kernel that ends only with `body`; 50 MiB of the cache are free.
fn beside_a_persistent_kernel(d: &Driver, body: impl FnOnce() -> Outcome) -> Verdict {
    let (stream, flag) = (d.stream()?, d.pinned(64)?);
    d.set_flag(flag, 0);
    let cached = d.alloc(50 * MIB)?;
    fill(d, stream, cached, SMALL, 1, LATE)?;
    d.free(cached)?;
    d.launch("spin", stream, &[flag, 1])?;
    let outcome = body();
    d.set_flag(flag, 1);
    d.synchronize()?;
    Ok(format!("code {}", code(outcome)))
}

fn persistent_kernel_and_malloc(d: &Driver) -> Verdict {
    beside_a_persistent_kernel(d, || d.alloc(100 * MIB).map(drop))
}

fn persistent_kernel_and_malloc_async(d: &Driver) -> Verdict {
    let other = d.stream()?;
    beside_a_persistent_kernel(d, || d.alloc_async(100 * MIB, other).map(drop))
}

/// An allocation that the library does not serve itself must find memory, too.
fn persistent_kernel_and_managed(d: &Driver) -> Verdict {
    beside_a_persistent_kernel(d, || {
        let mut managed = 0;
        call!(d, cuMemAllocManaged(&mut managed, 100 * MIB, 1))
    })
}

/// [10] A query reports that a context other than the current one is lost. A malloc that checks
/// whether the current one is lost must not wait for its work.
fn spin_and_malloc_beside_a_lost_context(d: &Driver) -> Verdict {
    let (first, a, b, flag) = (d.context(), d.stream()?, d.stream()?, device_flag(d)?);
    let block = d.alloc(BYTES)?;
    d.free(block)?;
    d.use_device(1)?;
    let there = d.stream()?;
    d.launch("fault", there, &[])?;
    let lost = code(d.synchronize());
    d.set_context(first)?;
    d.launch("spin", a, &[flag, 1])?;
    for _ in 0..3 {
        if code(d.query_stream(there)) != lost {
            return Ok(format!("FAIL, no call returns {lost} for the other context"));
        }
        d.alloc(BYTES)?;
    }
    d.launch("set", b, &[flag, 1])?;
    d.synchronize()?;
    Ok("ok".into())
}

/// [10] One thread finds no memory, and collects the blocks that a stream has finished with.
/// Meanwhile more memory is released after a kernel that the first thread lets end later.
fn room_is_collected_while_more_goes_back(d: &Driver) -> Verdict {
    /// More than the device has.
    const TOO_MUCH: usize = 200 * MIB;
    let (b, flag) = (d.stream()?, d.pinned(64)?);
    for round in 0..60 {
        d.set_flag(flag, 0);
        std::thread::scope(|scope| {
            let other = spawn(scope, d, || {
                std::thread::sleep(Duration::from_micros(round * 37 % 800));
                let p = d.alloc_async(20 * MIB, b)?;
                d.launch("spin", b, &[flag, 1])?;
                d.free_async(p, b)?;
                // The trim also releases memory that the stream still uses, after that use.
                trim();
                Ok(())
            });
            let mut managed = 0;
            while !other.is_finished() {
                let _ = call!(d, cuMemAllocManaged(&mut managed, TOO_MUCH, 1));
            }
            d.set_flag(flag, 1);
            other.join().expect("it does not panic")
        })?;
        d.synchronize()?;
    }
    Ok("ok".into())
}

/// [29] One thread's free waits for a kernel that another thread lets end only after its queries.
fn query_while_a_free_waits(d: &Driver) -> Verdict {
    let (a, b, flag, done) = (d.stream()?, d.stream()?, d.pinned(64)?, d.event()?);
    let unrelated = d.alloc(BYTES)?;
    d.record(done, b)?;
    d.synchronize()?;
    d.set_flag(flag, 0);
    d.launch("spin", a, &[flag, 1])?;
    std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || d.free(unrelated));
        sleep_ms(20);
        let answers = (code(d.query_event(done)), code(d.query_stream(a)));
        d.set_flag(flag, 1);
        freeing.join().expect("no program panics")?;
        Ok(format!("event {}, stream {}", answers.0, answers.1))
    })
}

/// A query waits for the free of its own thread, whatever barriers others have made since.
fn query_behind_another_threads_frees(d: &Driver) -> Verdict {
    let (a, b, c, done) = (d.stream()?, d.stream()?, d.stream()?, d.event()?);
    let (own, flag) = (d.alloc(SMALL)?, device_flag(d)?);
    let others = [(); 6].map(|()| d.alloc(SMALL));
    d.launch("delay", a, &[LATE])?;
    d.record(done, a)?;
    d.free(own)?;
    d.launch("spin", b, &[flag, 1])?;
    d.launch("delay", c, &[10 * LATE])?;
    d.launch("set", c, &[flag, 1])?;
    in_thread(d, || {
        others.into_iter().try_for_each(|block| {
            d.launch("delay", b, &[1])?;
            d.free(block?)
        })
    })?;
    let answer = code(d.query_event(done));
    let soon = d.virtual_ns().is_none_or(|now| now < 10 * LATE);
    // At exit the program only asks whether frees have completed, and the simulated clock stands
    // still while nothing waits.
    d.synchronize()?;
    ok_if(answer == 0 && soon, "the query did not wait for its thread's own free alone")
}

/// [27] A free waits only for its own context.
fn free_in_another_context(d: &Driver) -> Verdict {
    let (primary, stream, flag) = (d.context(), d.stream()?, d.pinned(64)?);
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    let other = d.create_context(0)?;
    d.set_context(other)?;
    let other_stream = d.stream()?;
    let p = d.alloc(BYTES)?;
    fill(d, other_stream, p, BYTES, 1, LATE)?;
    d.free(p)?;
    let q = d.alloc(BYTES)?;
    fill(d, LEGACY, q, BYTES, 2, 0)?;
    let good = holds(d, q, BYTES, 2)?;
    d.set_flag(flag, 1);
    d.set_context(primary)?;
    d.synchronize()?;
    ok_if(good, "wrong contents")
}

/// [27] Each half of a collective waits for the other, and both sides free meanwhile.
fn collective_over_two_devices(d: &Driver) -> Verdict {
    let first = d.context();
    let (one, flag, flag_back) = (d.stream()?, device_flag(d)?, device_flag(d)?);
    let mut freed = vec![d.alloc(SMALL)?];
    let second = d.use_device(1)?;
    call!(d, cuCtxEnablePeerAccess(first, 0))?;
    let other = d.stream()?;
    freed.push(d.alloc(SMALL)?);
    d.launch("delay", other, &[LATE])?;
    d.set_context(first)?;
    d.launch("spin", one, &[flag, 1])?;
    d.launch("set", one, &[flag_back, 1])?;
    d.set_context(second)?;
    d.free(freed[1])?;
    d.launch("set", other, &[flag, 1])?;
    d.launch("spin", other, &[flag_back, 1])?;
    d.set_context(first)?;
    d.free(freed[0])?;
    d.synchronize()?;
    d.set_context(second)?;
    d.synchronize()?;
    Ok("ok".into())
}

/// [10] All later work of the context waits for the kernel. A stream-ordered request does not.
fn spin_before_a_context_that_waits(d: &Driver) -> Verdict {
    let (flag, b) = (context_waits_for_a_flag(d)?, d.stream()?);
    let block = d.alloc_async(BYTES, b)?;
    fill(d, b, block, BYTES, 2, 0)?;
    d.set_flag(flag, 1);
    ok_if(holds(d, block, BYTES, 2)?, "wrong contents")
}

/// [59] Another stream gets the memory, which nothing has used, while the context waits.
fn spin_and_unused_memory_that_is_short(d: &Driver) -> Verdict {
    let (flag, b, c) = (context_waits_for_a_flag(d)?, d.stream()?, d.stream()?);
    let unused = d.alloc_async(40 * MIB, b)?;
    d.free(unused)?;
    let block = d.alloc_async(40 * MIB, c)?;
    fill(d, c, block, 40 * MIB, 2, 0)?;
    d.set_flag(flag, 1);
    ok_if(holds(d, block, 40 * MIB, 2)?, "wrong contents")
}

/// Makes the context wait for a kernel that ends when the returned flag is 1.
fn context_waits_for_a_flag(d: &Driver) -> Outcome<u64> {
    let (stream, flag, done) = (d.stream()?, d.pinned(64)?, d.event()?);
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    d.record(done, stream)?;
    call!(d, cuCtxWaitEvent(d.context(), done))?;
    Ok(flag)
}

/// [63] On the plain driver, pinned memory freed there has left the program: ending the context
/// waits only for that context.
fn spin_beside_a_context_that_ends(d: &Driver) -> Verdict {
    let first = d.context();
    let second = d.create_context(0)?;
    let page = d.pinned(4096)?;
    d.free_pinned(page)?;
    d.set_context(first)?;
    let (stream, flag) = (d.stream()?, d.pinned(64)?);
    d.host_write(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    call!(d, cuCtxDestroy(second))?;
    d.set_flag(flag, 1);
    d.synchronize()?;
    Ok("ok".into())
}

/// [63] A request that the driver refuses waits for no work: the library may release retained host
/// memory only while nothing runs.
fn spin_and_no_host_memory(d: &Driver) -> Verdict {
    const SIZES: std::ops::RangeInclusive<usize> = 1..=3;
    for size in SIZES {
        d.free_pinned(d.pinned(size * 4096)?)?;
    }
    let (stream, flag) = (d.stream()?, d.pinned(64)?);
    d.host_write(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    let _ = d.fail("cuMemHostAlloc@*=2");
    let refused = code(d.pinned(1 << 20));
    let _ = d.fail("");
    d.set_flag(flag, 1);
    d.synchronize()?;
    Ok(format!("code {refused}"))
}

/// [10] The program's memory may be limited to less than this request, whose size only the driver
/// knows: each row takes the driver's pitch. Served or refused, the request waits for no kernel.
fn spin_and_pitched_memory_beyond_a_limit(d: &Driver) -> Verdict {
    const ROWS: usize = 400_000;
    let (stream, flag) = (d.stream()?, d.pinned(64)?);
    let (mut block, mut pitch) = (0, 0);
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    let asked = code(call!(d, cuMemAllocPitch(&mut block, &mut pitch, 4, ROWS, 4)));
    d.set_flag(flag, 1);
    d.synchronize()?;
    ok_if([0, 2].contains(&asked), &format!("code {asked}"))
}
