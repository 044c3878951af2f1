//! [7] [10] [31] Stream-ordered memory, alone and mixed with ordinary allocations and frees.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use cachealloc_tests::driver::{Driver, LEGACY, Outcome, RELAXED, Stream};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, filled_block_changes_hands),
    hazard!(Always, programmatic_launch_after_async_reuse, ours),
    hazard!(Always, reuse_on_the_same_stream),
    hazard!(Always, reuse_on_a_stream_that_is_not_in_order),
    hazard!(Always, merged_neighbours),
    hazard!(Always, neighbours_of_one_stream),
    hazard!(Always, tags_made_during_a_barrier),
    hazard!(Always, remainder_of_a_split),
    hazard!(Always, crossed_frees),
    hazard!(Always, frees_on_two_streams_in_turn),
    hazard!(Always, block_recorded_on_another_stream, ours),
    hazard!(Always, freed_on_a_stream_then_taken_by_malloc),
    hazard!(Always, freed_on_a_stream_of_another_context),
    hazard!(Always, events_of_many_rounds_on_one_stream),
    hazard!(Always, async_block_freed_plainly),
    hazard!(Always, async_block_freed_plainly_while_used_elsewhere),
    hazard!(Always, wait_for_a_stream_behind_a_free),
    hazard!(Always, wait_for_a_stream_behind_a_free_beside_a_capture),
    hazard!(Always, wait_for_a_stream_behind_a_free_without_an_event),
    hazard!(Always, query_behind_a_free_on_a_default_stream),
    hazard!(Always, wait_for_a_stream_of_a_waiting_context),
    hazard!(Always, room_is_made_behind_tags, machine = "SIM_MEMORY_MB=128"),
    hazard!(Always, room_comes_back_from_behind_tags, machine = "SIM_MEMORY_MB=128"),
];

const MIB: usize = 1 << 20;
const MIXED: &str = "the old kernel wrote into the new block";

/// [7] On the plain driver the dependent kernel does start early, and writes into a block still in
/// use; the library promises to prevent this.
fn programmatic_launch_after_async_reuse(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    let first = d.alloc_async(BYTES, stream)?;
    fill(d, stream, first, BYTES, 1, LATE)?;
    d.free_async(first, stream)?;
    let second = d.alloc_async(BYTES, stream)?;
    d.launch_early("late_fill", stream, &[second, BYTES as u64, 2, 0])?;
    ok_if(holds(d, second, BYTES, 2)?, MIXED)
}

fn reuse_on_the_same_stream(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    for round in 0..20 {
        let block = d.alloc_async(BYTES, stream)?;
        fill(d, stream, block, BYTES, round, LATE / 20)?;
        d.free_async(block, stream)?;
    }
    d.synchronize()?;
    Ok("ok".into())
}

fn reuse_on_a_stream_that_is_not_in_order(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    for round in 0..8 {
        let p = d.alloc_async(BYTES, a)?;
        fill(d, a, p, BYTES, round, LATE / 4)?;
        d.free_async(p, a)?;
        let q = d.alloc_async(BYTES, b)?;
        fill(d, b, q, BYTES, round + 100, 0)?;
        if round % 2 == 1 && !holds(d, q, BYTES, round + 100)? {
            return Ok(format!("FAIL, {MIXED}"));
        }
        d.free_async(q, b)?;
    }
    Ok("ok".into())
}

/// [31] Two adjacent blocks are freed on two streams; a request that gets both must wait for both
/// streams.
fn merged_neighbours(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    for round in 0..4 {
        let pair = pair_that_fills_a_segment(d, a)?;
        let (slow, quick) = (pair[round % 2], pair[1 - round % 2]);
        fill(d, a, slow, SMALL, 1, LATE)?;
        d.free_async(slow, a)?;
        fill(d, b, quick, SMALL, 1, 0)?;
        d.free_async(quick, b)?;
        let both = d.alloc_async(2 * HALF, b)?;
        fill(d, b, both, 2 * HALF, 2, 0)?;
        if !holds(d, both, 2 * HALF, 2)? {
            return Ok(format!("FAIL, {MIXED}"));
        }
        d.free_async(both, b)?;
    }
    Ok("ok".into())
}

/// Without the library this is a race: the free is ordered only on its own stream. The program
/// reports its use of the other stream to the library.
fn block_recorded_on_another_stream(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let block = d.alloc_async(BYTES, a)?;
    d.synchronize()?;
    fill(d, b, block, BYTES, 1, LATE)?;
    // SAFETY: the pointer is null, or the function of the library's header, which takes an address
    // and a stream.
    let said = unsafe {
        let name = c"cachealloc_record_stream".as_ptr();
        let found = libc::dlsym(libc::RTLD_DEFAULT, name);
        type RecordStream = extern "C" fn(u64, Stream) -> i32;
        let function = std::mem::transmute::<*mut libc::c_void, Option<RecordStream>>(found);
        function.map(|record_stream| record_stream(block, b))
    };
    d.free_async(block, a)?;
    let next = d.alloc_async(BYTES, a)?;
    fill(d, a, next, BYTES, 2, 0)?;
    ok_if(said == Some(0) && holds(d, next, BYTES, 2)?, MIXED)
}

/// [64] A free on a blocking stream is ordered after the legacy stream's work; so is a wait for the
/// stream.
fn wait_for_a_stream_behind_a_free(d: &Driver) -> Verdict {
    let mut stream = 0;
    call!(d, cuStreamCreate(&mut stream, 0))?;
    // The legacy stream gets more work after the first free, too.
    for round in 0..3 {
        let wait = || call!(d, cuStreamSynchronize(stream));
        if !read_by_the_legacy_stream_before(d, stream, wait)? {
            return Ok(format!("FAIL, the copy of round {round} saw what the host wrote later"));
        }
    }
    Ok("ok".into())
}

/// [64] An open capture uses the freed memory.
fn wait_for_a_stream_behind_a_free_beside_a_capture(d: &Driver) -> Verdict {
    let (capturing, mut stream) = (d.stream()?, 0);
    call!(d, cuStreamCreate(&mut stream, 0))?;
    let (word, copied) = (d.pinned(4096)?, d.alloc(4096)?);
    d.host_write(word, 1);
    d.synchronize()?;
    d.begin_capture(capturing, RELAXED)?;
    let freed = d.alloc(BYTES)?;
    d.memset(freed, 1, BYTES, capturing)?;
    copy(d, LEGACY, copied, word, 8, LATE)?;
    d.free_async(freed, stream)?;
    call!(d, cuStreamSynchronize(stream))?;
    d.host_write(word, 2);
    d.end_capture(capturing)?;
    ok_if(holds(d, copied, 8, 1)?, "the copy saw what the host wrote later")
}

/// [64] The driver has no event left.
fn wait_for_a_stream_behind_a_free_without_an_event(d: &Driver) -> Verdict {
    let mut stream = 0;
    call!(d, cuStreamCreate(&mut stream, 0))?;
    d.fail("cuEventCreate@*=2");
    let wait = || call!(d, cuStreamSynchronize(stream));
    ok_if(
        read_by_the_legacy_stream_before(d, stream, wait)?,
        "the copy saw what the host wrote later",
    )
}

/// [64] A query of the default stream of a thread reports that the work is complete.
fn query_behind_a_free_on_a_default_stream(d: &Driver) -> Verdict {
    const PER_THREAD: Stream = 2;
    let wait = || loop {
        match call!(d, cuStreamQuery(PER_THREAD)) {
            Err(NOT_READY) => {}
            done => return done,
        }
    };
    ok_if(
        read_by_the_legacy_stream_before(d, PER_THREAD, wait)?,
        "the copy saw what the host wrote later",
    )
}

const NOT_READY: i32 = 600;

/// [65] The free follows a wait submitted to its context: waiting for the stream includes what that
/// context waits for.
fn wait_for_a_stream_of_a_waiting_context(d: &Driver) -> Verdict {
    let (reader, done) = (d.stream()?, d.event()?);
    for (name, flags) in [("non-blocking", 1), ("blocking", 0)] {
        let mut stream = 0;
        call!(d, cuStreamCreate(&mut stream, flags))?;
        let context_waits = || {
            d.record(done, reader)?;
            call!(d, cuCtxWaitEvent(d.context(), done))
        };
        let wait = || d.synchronize_stream(stream);
        if !read_in_order(d, reader, stream, context_waits, wait)? {
            return Ok(format!(
                "FAIL, after a {name} stream the copy saw what the host wrote later"
            ));
        }
    }
    Ok("ok".into())
}

fn read_by_the_legacy_stream_before(
    d: &Driver,
    stream: Stream,
    wait: impl Fn() -> Outcome,
) -> Outcome<bool> {
    read_in_order(d, LEGACY, stream, || Ok(()), wait)
}

/// Checks that a copy of pinned memory on `reader` reads the data present before the host writes
/// more. The host writes after a free on `stream` and after `wait`.
pub fn read_in_order(
    d: &Driver,
    reader: Stream,
    stream: Stream,
    before_free: impl Fn() -> Outcome,
    wait: impl Fn() -> Outcome,
) -> Outcome<bool> {
    let (word, copied) = (d.pinned(4096)?, d.alloc(4096)?);
    let freed = d.alloc_async(BYTES, stream)?;
    d.host_write(word, 1);
    d.synchronize()?;
    copy(d, reader, copied, word, 8, LATE)?;
    before_free()?;
    d.free_async(freed, stream)?;
    wait()?;
    d.host_write(word, 2);
    let read = holds(d, copied, 8, 1)?;
    d.free(copied)?;
    d.free_pinned(word)?;
    Ok(read)
}

/// Two adjacent blocks are freed on one stream; both are free when the later one is.
fn neighbours_of_one_stream(d: &Driver) -> Verdict {
    let (a, b, first_done) = (d.stream()?, d.stream()?, d.event()?);
    for round in 0..4 {
        let pair = pair_that_fills_a_segment(d, a)?;
        let (sooner, later) = (pair[round % 2], pair[1 - round % 2]);
        fill(d, a, sooner, SMALL, 1, 1000)?;
        d.free_async(sooner, a)?;
        d.record(first_done, a)?;
        fill(d, a, later, SMALL, 1, LATE)?;
        d.free_async(later, a)?;
        d.synchronize_event(first_done)?;
        let both = d.alloc_async(2 * HALF, b)?;
        fill(d, b, both, 2 * HALF, 2, 0)?;
        if !holds(d, both, 2 * HALF, 2)? {
            return Ok(format!("FAIL, {MIXED}"));
        }
        d.free_async(both, b)?;
    }
    Ok("ok".into())
}

/// A block too large for a segment of common size gets its own segment.
const HALF: usize = 12 << 20;

fn pair_that_fills_a_segment(d: &Driver, stream: Stream) -> Outcome<[u64; 2]> {
    let whole = d.alloc_async(2 * HALF, stream)?;
    d.free_async(whole, stream)?;
    let pair = [d.alloc_async(HALF, stream)?, d.alloc_async(HALF, stream)?];
    d.synchronize()?;
    Ok(pair)
}

/// One thread's frees make barriers while another thread frees on its stream: a barrier does not
/// cover work submitted after it.
fn tags_made_during_a_barrier(d: &Driver) -> Verdict {
    let done = AtomicBool::new(false);
    let barriers = || {
        let stream = d.stream()?;
        while !done.load(Ordering::Relaxed) {
            let block = d.alloc(SMALL)?;
            d.launch("delay", stream, &[1])?;
            d.free(block)?;
            sleep(Duration::from_micros(500));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let barriers = spawn(scope, d, barriers);
        let end = SetAtEnd(&done);
        let (a, b) = (d.stream()?, d.stream()?);
        for round in 0..100 {
            let (before, p) = (d.alloc_async(SMALL, a)?, d.alloc_async(HALF, a)?);
            d.launch("delay", a, &[LATE / 10])?;
            d.free_async(before, a)?;
            sleep(Duration::from_micros(100));
            fill(d, a, p, SMALL, round, LATE / 10)?;
            d.free_async(p, a)?;
            sleep(Duration::from_micros(200));
            let q = d.alloc(HALF)?;
            fill(d, b, q, SMALL, round, 0)?;
            d.synchronize()?;
            d.free_async(q, b)?;
        }
        drop(end);
        barriers.join().expect("no program panics")
    })?;
    d.synchronize()?;
    ok_if(d.races().is_none_or(|races| races == 0), MIXED)
}

/// A large block is freed on one stream; that stream takes a part of it, and another stream takes
/// the rest.
fn remainder_of_a_split(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    for round in 0..4 {
        let large = d.alloc_async(3 * BYTES, a)?;
        fill(d, a, large, 3 * BYTES, 1, LATE / 3)?;
        d.free_async(large, a)?;
        let part = d.alloc_async(BYTES, a)?;
        let rest = if round % 2 == 0 { d.alloc_async(BYTES, b)? } else { d.alloc(BYTES)? };
        fill(d, b, rest, BYTES, 2, 0)?;
        if !holds(d, rest, BYTES, 2)? {
            return Ok(format!("FAIL, {MIXED}"));
        }
        d.free_async(part, a)?;
        d.free_async(rest, b)?;
        d.synchronize()?;
    }
    Ok("ok".into())
}

fn crossed_frees(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    for _ in 0..8 {
        let plain = d.alloc(BYTES)?;
        fill(d, a, plain, BYTES, 1, LATE / 3)?;
        d.free_async(plain, a)?;
        let again = d.alloc(BYTES)?;
        fill(d, b, again, BYTES, 2, 0)?;
        let mut good = holds(d, again, BYTES, 2)?;
        d.free(again)?;
        let ordered = d.alloc_async(BYTES, a)?;
        fill(d, a, ordered, BYTES, 1, LATE / 3)?;
        d.synchronize_stream(a)?;
        d.free(ordered)?;
        let again = d.alloc(BYTES)?;
        fill(d, b, again, BYTES, 3, 0)?;
        good &= holds(d, again, BYTES, 3)?;
        d.free(again)?;
        if !good {
            return Ok(format!("FAIL, {MIXED}"));
        }
    }
    Ok("ok".into())
}

/// The work of one stream is complete before and after a free on the other stream, whose work is
/// not.
fn frees_on_two_streams_in_turn(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let late = d.alloc_async(BYTES, b)?;
    let freed = |block: u64, bytes: usize, stream: Stream, delay: u64| {
        fill(d, stream, block, bytes, 1, delay)?;
        d.free_async(block, stream)
    };
    for (stream, delay) in [(a, 0), (a, 0), (b, LATE), (a, 0)] {
        match stream == b {
            true => freed(late, BYTES, b, delay)?,
            false => freed(d.alloc_async(SMALL, a)?, SMALL, a, delay)?,
        }
    }
    d.synchronize_stream(a)?;
    // This call queries which events are complete.
    d.memory_info()?;
    let again = d.alloc(BYTES)?;
    fill(d, a, again, BYTES, 2, 0)?;
    ok_if(holds(d, again, BYTES, 2)?, MIXED)
}

fn freed_on_a_stream_then_taken_by_malloc(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let p = d.alloc(SMALL)?;
    fill(d, a, p, SMALL, 1, LATE)?;
    d.free_async(p, a)?;
    let q = d.alloc(SMALL)?;
    fill(d, b, q, SMALL, 2, 0)?;
    ok_if(holds(d, q, SMALL, 2)?, MIXED)
}

/// The block belongs to one context; its last work and its free are on a stream of another context.
fn freed_on_a_stream_of_another_context(d: &Driver) -> Verdict {
    let (first, a) = (d.context(), d.stream()?);
    let second = d.create_context(0)?;
    let b = d.stream()?;
    for round in 0..4 {
        d.set_context(first)?;
        let p = d.alloc(BYTES)?;
        d.set_context(second)?;
        d.launch("delay", b, &[LATE / 4])?;
        d.memset(p, 1, BYTES, b)?;
        let current = [first, second][round % 2];
        d.set_context(current)?;
        let freed = code(d.free_async(p, b));
        d.set_context(first)?;
        let q = if round < 2 { d.alloc(BYTES)? } else { d.alloc_async(BYTES, a)? };
        d.memset(q, 2, BYTES, a)?;
        d.synchronize_stream(b)?;
        if freed != 0 || !holds(d, q, BYTES, 0x0202_0202_0202_0202)? {
            return Ok(format!("FAIL, the free answered {freed}, or {MIXED}"));
        }
        d.free_async(q, a)?;
    }
    Ok("ok".into())
}

/// Each free needs an event, and may reuse one that an earlier free no longer needs.
fn events_of_many_rounds_on_one_stream(d: &Driver) -> Verdict {
    const ROUNDS: usize = 10_000;
    let stream = d.stream()?;
    for round in 0..ROUNDS {
        let block = d.alloc_async(1000, stream)?;
        d.memset(block, 0, 1000, stream)?;
        d.free_async(block, stream)?;
        if round % 1000 == 999 {
            d.synchronize_stream(stream)?;
        }
    }
    let events = d.calls("cuEventCreate").unwrap_or(0);
    ok_if(events < ROUNDS as u64 / 20, &format!("{events} events were made"))
}

fn async_block_freed_plainly(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let p = d.alloc_async(BYTES, a)?;
    fill(d, a, p, BYTES, 1, LATE)?;
    d.free(p)?;
    let q = d.alloc(BYTES)?;
    fill(d, b, q, BYTES, 2, 0)?;
    ok_if(holds(d, q, BYTES, 2)?, MIXED)
}

/// `cuMemFree` of such a block is ordered after every stream of the context, not after one.
fn async_block_freed_plainly_while_used_elsewhere(d: &Driver) -> Verdict {
    let (a, b, ready) = (d.stream()?, d.stream()?, d.event()?);
    let p = d.alloc_async(BYTES, a)?;
    d.record(ready, a)?;
    d.stream_waits(b, ready)?;
    fill(d, b, p, BYTES, 1, LATE)?;
    d.free(p)?;
    let q = d.alloc_async(BYTES, a)?;
    fill(d, a, q, BYTES, 2, 0)?;
    ok_if(holds(d, q, BYTES, 2)?, MIXED)
}

/// Memory freed after a stream's work is available when the stream is done.
fn room_comes_back_from_behind_tags(d: &Driver) -> Verdict {
    let a = d.stream()?;
    let (p, room) = (d.alloc_async(40 * MIB, a)?, d.alloc(50 * MIB)?);
    d.free(room)?;
    fill(d, a, p, 40 * MIB, 1, LATE)?;
    d.free_async(p, a)?;
    trim();
    let q = d.alloc(70 * MIB)?;
    d.synchronize_stream(a)?;
    let r = d.alloc(40 * MIB);
    d.free(q)?;
    ok_if(r.is_ok(), "its memory serves no request")
}

/// [10] A segment is released to the driver after the work that still uses its blocks.
fn room_is_made_behind_tags(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let (p, room) = (d.alloc_async(20 * MIB, a)?, d.alloc(50 * MIB)?);
    d.free(room)?;
    fill(d, a, p, 20 * MIB, 1, LATE)?;
    d.free_async(p, a)?;
    trim();
    let q = d.alloc(90 * MIB)?;
    fill(d, b, q, SMALL, 2, 0)?;
    ok_if(holds(d, q, SMALL, 2)?, MIXED)
}

/// [48] The program does nothing with the first block: only the library has submitted work for it.
fn filled_block_changes_hands(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let mut good = true;
    for value in 1..4 {
        let used = d.alloc_async(BYTES, a)?;
        fill(d, a, used, BYTES, 9, 0)?;
        d.free_async(used, a)?;
        d.synchronize()?;
        // The block's work is complete, and the block still belongs to its stream.
        let first = d.alloc_async(BYTES, a)?;
        d.free_async(first, a)?;
        let second = d.alloc_async(BYTES, b)?;
        fill(d, b, second, BYTES, value, 0)?;
        good &= holds(d, second, BYTES, value)?;
        d.free_async(second, b)?;
        d.synchronize()?;
    }
    ok_if(good, "the first block's fill was written to the second one")
}
