//! [37] [38] [47] Memory that would be free on the plain driver serves every request: of any kind,
//! by any thread, during any capture.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Outcome, RELAXED, Stream, THREAD_LOCAL};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, stream_frees_beside_a_capture, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, plain_frees_of_async_blocks_beside_a_capture, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, stream_frees_in_a_relaxed_capture, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, async_block_freed_while_another_stream_is_busy, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, async_block_never_used_freed_plainly, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, async_block_of_two_frees_freed_plainly, machine = "SIM_MEMORY_MB=512"),
    hazard!(Always, another_stream_takes_what_one_has_freed, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, another_stream_takes_two_neighbours, machine = "SIM_MEMORY_MB=512"),
    hazard!(Always, other_kinds_beside_a_capture, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, four_threads_share_what_the_cache_has, machine = "SIM_MEMORY_MB=128"),
    hazard!(Always, pairs_beside_requests_that_fail, machine = "SIM_MEMORY_MB=128"),
    hazard!(Always, pairs_beside_other_kinds_that_fail, machine = "SIM_MEMORY_MB=128"),
    hazard!(Always, relaxed_capture_and_anothers_cache, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, another_stream_is_served_at_once, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, another_stream_takes_six_pieces, machine = "SIM_MEMORY_MB=128"),
    hazard!(Always, relaxed_capture_and_what_is_mapped, machine = "SIM_MEMORY_MB=64"),
];

const MIB: usize = 1 << 20;
const MIXED: &str = "the old kernel wrote into the new block";

/// A stream on which work runs until `stop`.
struct Busy<'a> {
    d: &'a Driver,
    flag: u64,
}

impl<'a> Busy<'a> {
    fn new(d: &'a Driver) -> Outcome<Busy<'a>> {
        let (flag, stream) = (d.pinned(64)?, d.stream()?);
        d.host_write(flag, 0);
        d.launch("spin", stream, &[flag, 1])?;
        Ok(Busy { d, flag })
    }

    fn stop(self) -> Outcome {
        self.d.set_flag(self.flag, 1);
        self.d.synchronize()
    }
}

pub fn beside_a_capture<T: Send>(
    d: &Driver,
    mode: u32,
    body: impl FnOnce() -> Outcome<T> + Send,
) -> Outcome<(T, i32)> {
    let captured = d.stream()?;
    d.begin_capture(captured, mode)?;
    let served = in_thread(d, body);
    let ended = code(d.end_capture(captured));
    Ok((served?, ended))
}

fn stream_frees_beside_a_capture(d: &Driver) -> Verdict {
    let rounds = |mode| {
        beside_a_capture(d, mode, || {
            let stream = d.stream()?;
            for round in 0..20 {
                let block = d.alloc_async(7 * MIB, stream)?;
                fill(d, stream, block, SMALL, round, 1000)?;
                d.free_async(block, stream)?;
            }
            d.synchronize_stream(stream)?;
            let plain = d.alloc(50 * MIB)?;
            d.free_async(plain, stream)?;
            d.synchronize_stream(stream)?;
            d.alloc(50 * MIB).and_then(|block| d.free(block))
        })
    };
    let ended = [rounds(THREAD_LOCAL)?.1, rounds(RELAXED)?.1];
    // Memory freed before waits for no later work.
    let busy = Busy::new(d)?;
    let later = code(d.alloc_async(50 * MIB, d.stream()?));
    busy.stop()?;
    ok_if(ended == [0, 0] && later == 0, &format!("ended {ended:?}, later {later}"))
}

/// The frees use `cuMemFree`, which waits for nothing: all work with the blocks is complete.
fn plain_frees_of_async_blocks_beside_a_capture(d: &Driver) -> Verdict {
    let ((), ended) = beside_a_capture(d, THREAD_LOCAL, || {
        let stream = d.stream()?;
        for round in 0..20 {
            let block = d.alloc_async(7 * MIB, stream)?;
            fill(d, stream, block, SMALL, round, 1000)?;
            d.synchronize_stream(stream)?;
            d.free(block)?;
        }
        Ok(())
    })?;
    let busy = Busy::new(d)?;
    let later = code(d.alloc_async(50 * MIB, d.stream()?));
    busy.stop()?;
    ok_if(ended == 0 && later == 0, &format!("ended {ended}, later {later}"))
}

/// The capturing thread frees on a stream that does not capture.
fn stream_frees_in_a_relaxed_capture(d: &Driver) -> Verdict {
    let (captured, stream) = (d.stream()?, d.stream()?);
    d.begin_capture(captured, RELAXED)?;
    for round in 0..20 {
        let block = d.alloc_async(7 * MIB, stream)?;
        fill(d, stream, block, SMALL, round, 1000)?;
        d.free_async(block, stream)?;
    }
    d.end_capture(captured)?;
    Ok("ok".into())
}

fn async_block_freed_while_another_stream_is_busy(d: &Driver) -> Verdict {
    let (stream, busy) = (d.stream()?, Busy::new(d)?);
    let mut codes = Vec::new();
    for round in 0..4 {
        let block = d.alloc_async(40 * MIB, stream)?;
        fill(d, stream, block, SMALL, round, 1000)?;
        d.synchronize_stream(stream)?;
        d.free(block)?;
        // Requests of every other kind are served as well.
        codes.push(code(d.alloc(40 * MIB).and_then(|block| d.free_async(block, stream))));
        d.synchronize_stream(stream)?;
        let mut memory = 0;
        let properties = [1_u32, 0, 1, 0, 0, 0, 0, 0];
        let of_virtual =
            call!(d, cuMemCreate(&mut memory, 40 * MIB, properties.as_ptr().cast(), 0));
        codes.push(code(of_virtual.and_then(|()| call!(d, cuMemRelease(memory)))));
    }
    busy.stop()?;
    Ok(format!("codes {codes:?}"))
}

/// The work before the second allocation still runs: no other stream may get the block earlier.
fn async_block_never_used_freed_plainly(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let p = d.alloc_async(40 * MIB, a)?;
    fill(d, a, p, 40 * MIB, 1, LATE)?;
    d.free_async(p, a)?;
    let p = d.alloc_async(40 * MIB, a)?;
    d.free(p)?;
    let q = d.alloc_async(40 * MIB, b)?;
    fill(d, b, q, 40 * MIB, 2, 0)?;
    ok_if(holds(d, q, 40 * MIB, 2)?, MIXED)
}

/// The block consists of memory that two frees on its stream left: it is ordered after the later
/// one.
fn async_block_of_two_frees_freed_plainly(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let whole = d.alloc_async(56 * MIB, a)?;
    d.free_async(whole, a)?;
    let pair = [d.alloc_async(28 * MIB, a)?, d.alloc_async(28 * MIB, a)?];
    d.alloc(448 * MIB)?;
    d.synchronize()?;
    fill(d, a, pair[0], 28 * MIB, 1, 1000)?;
    d.free_async(pair[0], a)?;
    fill(d, a, pair[1], 28 * MIB, 1, LATE)?;
    d.free_async(pair[1], a)?;
    let p = d.alloc_async(56 * MIB, a)?;
    d.free(p)?;
    let q = d.alloc_async(56 * MIB, b)?;
    fill(d, b, q, 56 * MIB, 2, 0)?;
    ok_if(holds(d, q, 56 * MIB, 2)?, MIXED)
}

/// The driver orders the new owner after the free of the old one.
fn another_stream_takes_what_one_has_freed(d: &Driver) -> Verdict {
    let (a, b, freed) = (d.stream()?, d.stream()?, d.event()?);
    for round in 0..6 {
        let (a, b) = if round % 2 == 0 { (a, b) } else { (b, a) };
        let p = d.alloc_async(40 * MIB, a)?;
        fill(d, a, p, 40 * MIB, 1, LATE)?;
        d.free_async(p, a)?;
        if round > 3 {
            d.record(freed, a)?;
            d.stream_waits(b, freed)?;
        }
        let q = d.alloc_async(40 * MIB, b)?;
        fill(d, b, q, 40 * MIB, 2, LATE / 2)?;
        if round % 2 == 1 && !holds(d, q, 40 * MIB, 2)? {
            return Ok(format!("FAIL, {MIXED}"));
        }
        d.free_async(q, b)?;
    }
    d.synchronize()?;
    Ok("ok".into())
}

/// One block consists of memory that two streams have freed. On a smaller device each stream would
/// have its own segment.
fn another_stream_takes_two_neighbours(d: &Driver) -> Verdict {
    let (a, b, c) = (d.stream()?, d.stream()?, d.stream()?);
    let whole = d.alloc_async(56 * MIB, a)?;
    d.free_async(whole, a)?;
    let pair = [d.alloc_async(28 * MIB, a)?, d.alloc_async(28 * MIB, a)?];
    d.alloc(448 * MIB)?;
    d.synchronize()?;
    fill(d, a, pair[0], 28 * MIB, 1, LATE)?;
    d.free_async(pair[0], a)?;
    fill(d, b, pair[1], 28 * MIB, 1, LATE)?;
    d.free_async(pair[1], b)?;
    let both = d.alloc_async(52 * MIB, c)?;
    fill(d, c, both, 52 * MIB, 2, 0)?;
    ok_if(holds(d, both, 52 * MIB, 2)?, MIXED)
}

/// No call may wait: only the program's next action ends the kernel.
fn another_stream_is_served_at_once(d: &Driver) -> Verdict {
    let (a, b, flag) = (d.stream()?, d.stream()?, d.pinned(64)?);
    let p = d.alloc_async(40 * MIB, a)?;
    d.host_write(flag, 0);
    d.launch("spin", a, &[flag, 1])?;
    d.free_async(p, a)?;
    // Requests that fail meanwhile must make no difference.
    let refused = code(d.alloc(50 * MIB));
    let q = d.alloc_async(40 * MIB, b);
    d.set_flag(flag, 1);
    let q = q?;
    fill(d, b, q, 40 * MIB, 2, 0)?;
    ok_if(holds(d, q, 40 * MIB, 2)? && refused == 2, MIXED)
}

/// One block consists of memory at several separate addresses.
fn another_stream_takes_six_pieces(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let pieces: Vec<u64> = (0..6).map(|_| d.alloc_async(20 * MIB, a)).collect::<Outcome<_>>()?;
    for piece in &pieces {
        fill(d, a, *piece, 20 * MIB, 1, LATE / 2)?;
    }
    pieces.into_iter().try_for_each(|piece| d.free_async(piece, a))?;
    let all = d.alloc_async(110 * MIB, b)?;
    fill(d, b, all, 110 * MIB, 2, 0)?;
    ok_if(holds(d, all, 110 * MIB, 2)?, MIXED)
}

/// Memory that is unmapped from its addresses for a request must be available to that request.
fn relaxed_capture_and_what_is_mapped(d: &Driver) -> Verdict {
    let (captured, blocks) = (d.stream()?, [d.alloc(30 * MIB)?, d.alloc(22 * MIB)?]);
    blocks.into_iter().try_for_each(|block| d.free(block))?;
    d.begin_capture(captured, RELAXED)?;
    let asked = d.alloc(50 * MIB);
    d.end_capture(captured)?;
    d.free(asked?)?;
    Ok("ok".into())
}

/// Requests 40 MiB of each kind; the cache has as much free.
fn of_other_kinds(d: &Driver, stream: Stream, refills: bool) -> Outcome<Vec<i32>> {
    let fill_cache = || d.alloc(50 * MIB).and_then(|block| d.free(block));
    let refill = || if refills { fill_cache() } else { Ok(()) };
    let (mut pitched, mut pitch, mut memory, mut managed, mut pool, mut pooled) =
        (0, 0, 0, 0, 0, 0);
    let mut properties = [0_u32; 22];
    (properties[0], properties[2]) = (1, 1);
    let mut codes = Vec::new();
    refill()?;
    codes.push(code(call!(d, cuMemAllocPitch(&mut pitched, &mut pitch, MIB, 40, 4))));
    d.free(pitched)?;
    refill()?;
    codes.push(code(call!(d, cuMemCreate(&mut memory, 40 * MIB, properties.as_ptr().cast(), 0))));
    if memory != 0 {
        call!(d, cuMemRelease(memory))?;
    }
    refill()?;
    codes.push(code(call!(d, cuMemAllocManaged(&mut managed, 40 * MIB, 1))));
    d.free(managed)?;
    refill()?;
    call!(d, cuMemPoolCreate(&mut pool, properties.as_ptr().cast()))?;
    codes.push(code(call!(d, cuMemAllocFromPoolAsync(&mut pooled, 40 * MIB, pool, stream))));
    if pooled != 0 {
        d.free_async(pooled, stream)?;
    }
    d.synchronize_stream(stream)?;
    Ok(codes)
}

fn other_kinds_beside_a_capture(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    let (beside, ended) = beside_a_capture(d, THREAD_LOCAL, || of_other_kinds(d, stream, true))?;
    let cached = d.alloc(50 * MIB)?;
    d.free(cached)?;
    let captured = d.stream()?;
    d.begin_capture(captured, RELAXED)?;
    let within = of_other_kinds(d, stream, false);
    let also_ended = code(d.end_capture(captured));
    Ok(format!("beside {beside:?} {ended}, within {:?} {also_ended}", within?))
}

/// The cache holds more than half of the device; each thread requests a seventh, again and again.
fn four_threads_share_what_the_cache_has(d: &Driver) -> Verdict {
    let properties = [1_u32, 0, 1, 0, 0, 0, 0, 0];
    let (start, mut refused) = (Barrier::new(4), 0);
    for _ in 0..25 {
        let blocks: Vec<u64> = (0..4).map(|_| d.alloc(19 * MIB)).collect::<Outcome<_>>()?;
        blocks.into_iter().try_for_each(|block| d.free(block))?;
        let work = || {
            start.wait();
            let mut memory = 0;
            let code =
                code(call!(d, cuMemCreate(&mut memory, 18 * MIB, properties.as_ptr().cast(), 0)));
            start.wait();
            if code == 0 {
                call!(d, cuMemRelease(memory))?;
            }
            Ok(i32::from(code != 0))
        };
        refused += std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| spawn(scope, d, work));
            let ended = threads.map(|thread| thread.join().expect("no program panics"));
            ended.into_iter().sum::<Outcome<i32>>()
        })?;
    }
    Ok(format!("{refused} refused"))
}

fn pairs_beside(d: &Driver, fails: impl Fn() -> i32 + Sync) -> Verdict {
    let (done, kept) = (AtomicBool::new(false), d.alloc(40 * MIB)?);
    let (failed, refused) = std::thread::scope(|scope| {
        let thread = spawn(scope, d, || {
            let mut served = 0;
            while !done.load(Ordering::Relaxed) {
                served += i32::from(fails() == 0);
            }
            Ok(served)
        });
        let end = SetAtEnd(&done);
        let mut refused = 0;
        for _ in 0..300 {
            match d.alloc(64 * MIB) {
                Ok(block) => d.free(block)?,
                Err(_) => refused += 1,
            }
        }
        drop(end);
        Outcome::Ok((thread.join().expect("no program panics")?, refused))
    })?;
    d.free(kept)?;
    Ok(format!("{failed} impossible requests were served, {refused} refused"))
}

/// One thread's requests cannot be served; another thread's requests always can.
fn pairs_beside_requests_that_fail(d: &Driver) -> Verdict {
    pairs_beside(d, || code(d.alloc(100 * MIB)))
}

fn pairs_beside_other_kinds_that_fail(d: &Driver) -> Verdict {
    let properties = [1_u32, 0, 1, 0, 0, 0, 0, 0];
    pairs_beside(d, || {
        let mut memory = 0;
        code(call!(d, cuMemCreate(&mut memory, 100 * MIB, properties.as_ptr().cast(), 0)))
    })
}

fn relaxed_capture_and_anothers_cache(d: &Driver) -> Verdict {
    let first = d.context();
    let other = d.create_context(0)?;
    d.set_context(other)?;
    let cached = d.alloc(40 * MIB)?;
    d.free(cached)?;
    d.set_context(first)?;
    let captured = d.stream()?;
    d.begin_capture(captured, RELAXED)?;
    let asked = d.alloc(40 * MIB);
    d.end_capture(captured)?;
    let asked = asked?;
    fill(d, d.stream()?, asked, SMALL, 3, 0)?;
    let good = holds(d, asked, SMALL, 3)?;
    d.free(asked)?;
    ok_if(good, "wrong contents")
}
