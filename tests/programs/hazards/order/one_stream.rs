//! [75] Programs that use one stream at first, and others later.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, LEGACY, Outcome, Stream, THREAD_LOCAL};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, stream_with_the_handle_of_another),
    hazard!(Always, reuse_in_stream_order_under_the_handle_of_another),
    hazard!(Always, wait_for_a_stream_with_the_handle_of_an_ended_context),
    hazard!(Always, frees_on_the_default_stream_of_each_context),
    hazard!(Always, stream_whose_context_is_not_told_once),
    hazard!(Always, several_streams_then_one),
    hazard!(Full, free_orders_a_copy_behind_one_stream),
    hazard!(Always, another_stream_beside_a_detach, machine = "SIM_PAUSE_MS=cuCtxDetach@*=1500"),
    hazard!(
        Always,
        capture_beside_an_end_and_another_stream,
        machine = "SIM_PAUSE_MS=cuEventSynchronize@*=100"
    ),
    hazard!(Always, capture_beside_an_end_and_a_free_that_waits),
    hazard!(Always, fork_while_a_barrier_is_made, machine = "SIM_PAUSE_MS=cuCtxRecordEvent@2=300"),
];

/// The stream that gets the handle again is another one: it is not ordered after the work of the
/// old stream.
fn stream_with_the_handle_of_another(d: &Driver) -> Verdict {
    let mut good = true;
    for value in 2..6 {
        let (a, first) = (d.stream()?, d.alloc(BYTES)?);
        fill(d, a, first, BYTES, 1, LATE)?;
        d.free(first)?;
        d.destroy_stream(a)?;
        let (second, b) = (d.alloc(BYTES)?, under_handle(d, a)?);
        fill(d, b, second, BYTES, value, 0)?;
        good &= holds(d, second, BYTES, value)?;
        d.free(second)?;
    }
    ok_if(good, "the old kernel wrote into the new block")
}

/// The new stream may not reuse memory that the old one freed in its stream order, because its work
/// is not ordered after that of the old stream.
fn reuse_in_stream_order_under_the_handle_of_another(d: &Driver) -> Verdict {
    let mut good = true;
    for value in 2..6 {
        let a = d.stream()?;
        let first = d.alloc_async(BYTES, a)?;
        fill(d, a, first, BYTES, 1, LATE)?;
        d.free_async(first, a)?;
        d.destroy_stream(a)?;
        let b = under_handle(d, a)?;
        let second = d.alloc_async(BYTES, b)?;
        fill(d, b, second, BYTES, value, 0)?;
        good &= holds(d, second, BYTES, value)?;
        d.free_async(second, b)?;
    }
    ok_if(good, "the old kernel wrote into the new block")
}

/// A context's streams end with it. The old stream was ordered after the legacy stream; this does
/// not order the new stream, on which the driver counts a free as work ([64]).
fn wait_for_a_stream_with_the_handle_of_an_ended_context(d: &Driver) -> Verdict {
    let home = d.context();
    let (word, copied, freed) = (d.pinned(4096)?, d.alloc(4096)?, d.alloc(SMALL)?);
    d.host_write(word, 1);
    let ended = d.create_context(0)?;
    let (block, before) = (d.alloc(SMALL)?, blocking_stream(d)?);
    d.set_context(home)?;
    copy(d, LEGACY, copied, word, 8, LATE)?;
    d.set_context(ended)?;
    d.free_async(block, before)?;
    call!(d, cuCtxDestroy(ended))?;
    d.set_context(home)?;
    let mut stream = blocking_stream(d)?;
    for _ in 0..16 {
        if stream != before {
            stream = blocking_stream(d)?;
        }
    }
    d.free_async(freed, stream)?;
    d.synchronize_stream(stream)?;
    d.host_write(word, 2);
    ok_if(holds(d, copied, 8, 1)?, "the copy saw what the host wrote later")
}

/// The same handle means another stream in each context.
fn frees_on_the_default_stream_of_each_context(d: &Driver) -> Verdict {
    let first = d.context();
    let second = d.create_context(0)?;
    let mut blocks = Vec::new();
    for context in [first, second] {
        d.set_context(context)?;
        blocks.push((context, [d.alloc(BYTES)?, d.alloc(BYTES)?]));
        fill(d, LEGACY, d.alloc(BYTES)?, BYTES, 1, LATE)?;
    }
    let mut codes = Vec::new();
    for turn in 0..2 {
        for (context, blocks) in &blocks {
            d.set_context(*context)?;
            codes.push(code(d.free_async(blocks[turn], LEGACY)));
        }
    }
    Ok(format!("freed {codes:?}"))
}

fn blocking_stream(d: &Driver) -> Outcome<Stream> {
    let mut stream = 0;
    call!(d, cuStreamCreate(&mut stream, 0))?;
    Ok(stream)
}

/// A query that the driver fails once is made again.
fn stream_whose_context_is_not_told_once(d: &Driver) -> Verdict {
    let first = d.context();
    d.create_context(0)?;
    let stream = d.stream()?;
    d.set_context(first)?;
    let blocks = [d.alloc(BYTES)?, d.alloc(BYTES)?];
    fill(d, d.stream()?, d.alloc(BYTES)?, BYTES, 1, LATE)?;
    d.fail("cuStreamGetCtx@1=999");
    // Under the library this call meets the failure; without it no call does.
    let _ = d.free_async(blocks[0], stream);
    Ok(format!("freed {}", code(d.free_async(blocks[1], stream))))
}

/// After a barrier the library forgets the streams, and only one of them is used until another one
/// is.
fn several_streams_then_one(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let mut good = true;
    for value in 2..6 {
        let (on_a, on_b) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
        fill(d, b, on_b, SMALL, 1, 0)?;
        fill(d, a, on_a, SMALL, 1, 0)?;
        d.free(on_a)?;
        d.free(on_b)?;
        let first = d.alloc(BYTES)?;
        fill(d, a, first, BYTES, 1, LATE)?;
        d.free(first)?;
        let second = d.alloc(BYTES)?;
        fill(d, b, second, BYTES, value, 0)?;
        good &= holds(d, second, BYTES, value)?;
        d.free(second)?;
    }
    ok_if(good, "the old kernel wrote into the new block")
}

/// Only the free orders a kernel before a copy of what it writes.
fn free_orders_a_copy_behind_one_stream(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let (data, result) = (d.alloc(BYTES)?, d.alloc(BYTES)?);
    for value in 2..6 {
        let temporary = d.alloc(SMALL)?;
        fill(d, a, data, BYTES, value, LATE)?;
        d.free(temporary)?;
        // Nothing was submitted since, so this free makes no barrier.
        let temporary = d.alloc(SMALL)?;
        d.free(temporary)?;
        copy(d, b, result, data, BYTES, 0)?;
        if !holds(d, result, BYTES, value)? {
            return ok_if(false, "the copy ran first");
        }
    }
    ok_if(true, "")
}

/// Another thread releases a reference, which may be the last one.
fn another_stream_beside_a_detach(d: &Driver) -> Verdict {
    let (context, mut same) = (d.create_context(0)?, 0);
    call!(d, cuCtxAttach(&mut same, 0))?;
    let (a, b) = (d.stream()?, d.stream()?);
    let (small, first) = (d.alloc(SMALL)?, d.alloc(BYTES)?);
    d.launch("delay", a, &[1])?;
    let second = std::thread::scope(|scope| -> Outcome<u64> {
        let detaches = spawn(scope, d, || call!(d, cuCtxDetach(context)));
        sleep_ms(50);
        d.launch("delay", b, &[1])?;
        d.free(small)?;
        fill(d, a, first, BYTES, 1, LATE)?;
        d.free(first)?;
        let second = d.alloc(BYTES)?;
        fill(d, b, second, BYTES, 2, 0)?;
        detaches.join().expect("no panic")?;
        Ok(second)
    })?;
    ok_if(holds(d, second, BYTES, 2)?, "the old kernel wrote into the new block")
}

static MAY_END: AtomicBool = AtomicBool::new(false);

/// Waits until the flag is set, or until it is clear that it never will be.
unsafe extern "C" fn until_it_may_end(_: *mut c_void) {
    for _ in 0..2000 {
        if MAY_END.load(Ordering::SeqCst) {
            return;
        }
        sleep_ms(1);
    }
    GAVE_UP.store(true, Ordering::SeqCst);
}

static GAVE_UP: AtomicBool = AtomicBool::new(false);

/// A separate thread begins and ends a capture; after that the waiting call may end.
fn captures_before_the_end(d: &Driver, stream: Stream) -> Outcome {
    let ended = std::thread::scope(|scope| {
        let captures = spawn(scope, d, || {
            d.begin_capture(stream, THREAD_LOCAL)?;
            d.end_capture(stream).map(drop)
        });
        captures.join().expect("no panic")
    });
    MAY_END.store(true, Ordering::SeqCst);
    ended
}

fn in_time(codes: [i32; 3]) -> Verdict {
    let in_time = !GAVE_UP.load(Ordering::SeqCst);
    ok_if(in_time && codes == [0; 3], &format!("in time: {in_time}, codes {codes:?}"))
}

/// [32] Freeing an array waits, and holds the context; so does a launch on another stream.
/// Meanwhile a capture begins.
fn capture_beside_an_end_and_another_stream(d: &Driver) -> Verdict {
    let description = [4096_usize, 1, 1 << 32 | 1];
    let mut array = 0;
    call!(d, cuArrayCreate(&mut array, description.as_ptr().cast()))?;
    let (a, b, captured) = (d.stream()?, d.stream()?, d.stream()?);
    let (data, blocks) = (d.alloc(SMALL)?, [d.alloc(SMALL)?, d.alloc(SMALL)?]);
    let work_and_free = |block| {
        fill(d, a, block, SMALL, 1, LATE)?;
        d.free(block)
    };
    work_and_free(blocks[0])?;
    let codes = std::thread::scope(|scope| -> Outcome<[i32; 3]> {
        let ends = spawn(scope, d, || call!(d, cuArrayDestroy(array)));
        // The other call still waits for the earlier free.
        sleep_ms(40);
        work_and_free(blocks[1])?;
        d.host_function(a, until_it_may_end, std::ptr::null_mut())?;
        sleep_ms(120);
        let launches = spawn(scope, d, || fill(d, b, data, SMALL, 1, 0));
        sleep_ms(40);
        let begun = code(captures_before_the_end(d, captured));
        Ok([begun, code(ends.join().expect("no panic")), code(launches.join().expect("no panic"))])
    })?;
    in_time(codes)
}

/// [32] A capture begins while a free waits for its own barrier, after work on two streams.
fn capture_beside_an_end_and_a_free_that_waits(d: &Driver) -> Verdict {
    let description = [4096_usize, 1, 1 << 32 | 1];
    let mut array = 0;
    call!(d, cuArrayCreate(&mut array, description.as_ptr().cast()))?;
    let (a, b, captured) = (d.stream()?, d.stream()?, d.stream()?);
    let block = d.alloc(SMALL)?;
    fill(d, a, d.alloc(SMALL)?, SMALL, 1, 0)?;
    fill(d, b, d.alloc(SMALL)?, SMALL, 1, 0)?;
    d.host_function(b, until_it_may_end, std::ptr::null_mut())?;
    let codes = std::thread::scope(|scope| -> Outcome<[i32; 3]> {
        let frees = spawn(scope, d, || d.free(block));
        sleep_ms(40);
        let ends = spawn(scope, d, || call!(d, cuArrayDestroy(array)));
        sleep_ms(40);
        let begun = code(captures_before_the_end(d, captured));
        Ok([begun, code(frees.join().expect("no panic")), code(ends.join().expect("no panic"))])
    })?;
    in_time(codes)
}

/// The child's call to the driver fails at once.
fn fork_while_a_barrier_is_made(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let (first, second, event) = (d.alloc(SMALL)?, d.alloc(SMALL)?, d.event()?);
    fill(d, a, first, SMALL, 1, 0)?;
    d.free(first)?;
    let status = std::thread::scope(|scope| -> Outcome<i32> {
        let frees = spawn(scope, d, || {
            fill(d, a, second, SMALL, 1, 0)?;
            d.free(second)
        });
        sleep_ms(100);
        // SAFETY: the child only calls the driver, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the child does no more than that.
            unsafe {
                libc::alarm(4);
                code(d.record(event, b));
                libc::_exit(7);
            }
        }
        let mut status = 0;
        // SAFETY: the process is a child of this one, and `status` is valid for writes.
        unsafe { libc::waitpid(child, &mut status, 0) };
        frees.join().expect("no panic")?;
        Ok(status)
    })?;
    ok_if(status == 7 << 8, &format!("the child ended with {status:#x}"))
}
