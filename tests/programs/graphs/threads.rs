//! Captures of several threads, and captures whose context is reset or whose process forks.

use cachealloc_tests::driver::{Driver, GLOBAL, Outcome, PER_THREAD, Stream, THREAD_LOCAL, check};

use crate::{BYTES, LARGE, LATE, Verdict, code, fill, holds, joins};

const ROUNDS: u64 = 30;

/// Each thread captures on its own default stream, all at once, while others free.
pub fn default_streams(d: &Driver, mode: u32) -> Verdict {
    in_threads(d, |number| match number {
        0 => ordinary(d),
        _ => (0..ROUNDS).try_for_each(|round| replayed(d, PER_THREAD, mode, number * 1000 + round)),
    })
}

/// A global capture of one thread beside thread-local ones of others.
pub fn modes_beside_each_other(d: &Driver, _: u32) -> Verdict {
    in_threads(d, |number| {
        let stream = d.stream()?;
        let mode = if number == 0 { GLOBAL } else { THREAD_LOCAL };
        // Otherwise the calls outside of captures would end the global capture (measured).
        d.exchange_capture_mode(mode)?;
        (0..ROUNDS).try_for_each(|round| replayed(d, stream, mode, number * 1000 + round))
    })
}

fn in_threads(d: &Driver, work: impl Fn(u64) -> Outcome + Sync) -> Verdict {
    let (context, work) = (d.context(), &work);
    let ended: Outcome = std::thread::scope(|scope| {
        let start =
            |number| scope.spawn(move || d.set_context(context).and_then(|()| work(number)));
        let threads: Vec<_> = (0..3).map(start).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        ended.fold(Ok(()), Result::and)
    });
    Ok(ended.map_or_else(|code| format!("FAIL, error {code}"), |()| "ok".into()))
}

fn ordinary(d: &Driver) -> Outcome {
    let stream = d.stream()?;
    for value in 0..ROUNDS {
        let block = d.alloc(BYTES)?;
        fill(d, stream, block, value)?;
        d.free(block)?;
    }
    Ok(())
}

/// Uses two temporaries, one after the other, and returns the last one's contents after each
/// launch.
fn replayed(d: &Driver, stream: Stream, mode: u32, value: u64) -> Outcome {
    d.begin_capture(stream, mode)?;
    let first = d.alloc(BYTES)?;
    fill(d, stream, first, value)?;
    d.free(first)?;
    let last = d.alloc(BYTES)?;
    fill(d, stream, last, value)?;
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    for _ in 0..2 {
        d.launch_graph(executable, stream)?;
        // SAFETY: the stream belongs to this thread.
        check(unsafe { (d.functions.cuStreamSynchronize)(stream) })?;
    }
    d.destroy_executable(executable)?;
    d.destroy_graph(graph)?;
    d.free(last)
}

/// The context is reset during a capture; the next context works like a new one.
pub fn reset(d: &Driver, mode: u32) -> Verdict {
    for _ in 0..3 {
        let stream = d.stream()?;
        d.begin_capture(stream, mode)?;
        let inside = d.alloc(LARGE)?;
        fill(d, stream, inside, 1)?;
        d.free(inside)?;
        // SAFETY: no arguments but a device.
        check(unsafe { (d.functions.cuDevicePrimaryCtxReset)(0) })?;
        d.use_device(0)?;
        let (stream, outside) = (d.stream()?, d.alloc(LARGE)?);
        fill(d, stream, outside, 2)?;
        if !holds(d, outside, 2)? {
            return Ok("FAIL, wrong contents".into());
        }
        replayed(d, stream, mode, 3)?;
        d.free(outside)?;
    }
    Ok("ok".into())
}

/// The process forks in a capture: the child may end in any way, and the parent continues.
pub fn forks(d: &Driver, mode: u32) -> Verdict {
    let stream = d.stream()?;
    d.begin_capture(stream, mode)?;
    let first = d.alloc(LARGE)?;
    fill(d, stream, first, 1)?;
    // SAFETY: the process has one thread, and the child ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        code(d.alloc(LARGE));
        code(d.free(first));
        std::process::exit(7);
    }
    let mut status = 0;
    // SAFETY: the process is a child of this one, and `status` is valid for writes.
    unsafe { libc::waitpid(child, &mut status, 0) };
    d.free(first)?;
    let second = d.alloc(LARGE)?;
    fill(d, stream, second, 2)?;
    let executable = d.instantiate(d.end_capture(stream)?)?;
    d.launch_graph(executable, stream)?;
    let good = holds(d, second, 2)?;
    Ok(format!("child {}, right: {good}", status >> 8))
}

/// Another thread begins and ends a capture on its own default stream, which has the same handle.
pub fn another_default_stream(d: &Driver, mode: u32) -> Verdict {
    let (context, other) = (d.context(), d.stream()?);
    d.begin_capture(PER_THREAD, mode)?;
    let elsewhere = || {
        d.set_context(context)?;
        d.begin_capture(PER_THREAD, mode)?;
        let block = d.alloc(BYTES)?;
        fill(d, PER_THREAD, block, 1)?;
        d.end_capture(PER_THREAD).map(drop)
    };
    std::thread::scope(|scope| scope.spawn(elsewhere).join().expect("it does not panic"))?;
    let inside = d.alloc(LARGE)?;
    fill(d, PER_THREAD, inside, 2)?;
    d.free(inside)?;
    let executable = d.instantiate(d.end_capture(PER_THREAD)?)?;
    let outside = d.alloc(LARGE)?;
    fill(d, other, outside, 7)?;
    d.synchronize()?;
    d.launch_graph(executable, other)?;
    let good = holds(d, outside, 7)?;
    Ok(format!("own memory: {}, right: {good}", inside != outside))
}

/// A stream that joined is destroyed during the capture.
pub fn side_stream_goes(d: &Driver, mode: u32) -> Verdict {
    let (stream, side) = (d.stream()?, d.stream()?);
    d.begin_capture(stream, mode)?;
    joins(d, side, stream)?;
    let first = d.alloc(LARGE)?;
    d.launch("late_fill", side, &[first, BYTES as u64, 1, LATE])?;
    joins(d, stream, side)?;
    d.destroy_stream(side)?;
    d.free(first)?;
    let second = d.alloc(LARGE)?;
    fill(d, stream, second, 2)?;
    let executable = d.instantiate(d.end_capture(stream)?)?;
    d.launch_graph(executable, stream)?;
    let good = holds(d, second, 2)?;
    Ok(format!("again: {}, right: {good}", first == second))
}
