//! [22] Memory that another thread is about to release.

use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Outcome, RELAXED};

use crate::contexts::ends::behind_an_unknown_table;
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, another_thread_is_freeing_it, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, another_thread_is_freeing_it_beside_a_capture, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, beside_references_that_are_given_up, machine = "SIM_MEMORY_MB=16"),
    hazard!(Always, beside_users_that_detach, machine = "SIM_MEMORY_MB=16"),
    hazard!(
        Always,
        beside_users_that_detach_slowly,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuCtxDetach@*=60"
    ),
    hazard!(Always, pinned_memory_freed_beside_references),
    hazard!(Always, memory_moves_beside_references, machine = "SIM_MEMORY_MB=32"),
    hazard!(
        Always,
        two_threads_share_a_barrier,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuCtxWaitEvent@*=30,cuEventSynchronize@3=150"
    ),
    hazard!(
        Always,
        idle_memory_whose_release_is_refused,
        machine = "SIM_MEMORY_MB=120 CACHEALLOC_PASS_MS=5 SIM_FAIL=cuMemFreeAsync@1=2"
    ),
    hazard!(
        Always,
        idle_memory_that_is_offered_again,
        machine = "SIM_MEMORY_MB=120 CACHEALLOC_PASS_MS=5 SIM_FAIL=cuMemFreeAsync@1=2 SIM_PAUSE_MS=cuMemFreeAsync@3=1000"
    ),
    hazard!(
        Always,
        idle_memory_whose_release_is_interrupted,
        machine = "SIM_MEMORY_MB=120 CACHEALLOC_PASS_MS=5 SIM_PAUSE_MS=cuMemFreeAsync@1=200"
    ),
];

const MIB: usize = 1 << 20;
/// Takes a separate segment, and most of a small device. Filling a block takes time in proportion
/// to its size.
const LARGE: usize = 10 * MIB;
/// Enough passes of the library for idle memory to be released.
const IDLE_MS: u64 = 500;

/// The free waits for a kernel, and on the plain driver holds the context meanwhile: a request
/// blocks until the free returns, and finds the freed memory.
fn another_thread_is_freeing_it(d: &Driver) -> Verdict {
    let block = d.alloc(40 * MIB)?;
    freed_by_another_thread(d, block)
}

/// Another thread is freeing the memory in a situation where a free must wait in every mode.
fn another_thread_is_freeing_it_beside_a_capture(d: &Driver) -> Verdict {
    let (block, captured) = (d.alloc(40 * MIB)?, d.stream()?);
    d.begin_capture(captured, RELAXED)?;
    let verdict = freed_by_another_thread(d, block)?;
    let ended = code(d.end_capture(captured));
    Ok(format!("{verdict}, end {ended}"))
}

fn freed_by_another_thread(d: &Driver, block: u64) -> Verdict {
    let (stream, flag) = (d.stream()?, d.pinned(64)?);
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || d.free(block));
        sleep_ms(20);
        let asking = spawn(scope, d, || d.alloc(40 * MIB));
        sleep_ms(40);
        d.set_flag(flag, 1);
        let freed = code(freeing.join().expect("no program panics"));
        let asked = code(asking.join().expect("no program panics"));
        Ok(format!("freed {freed}, asked {asked}"))
    })
}

/// Three threads free. While the first makes its barrier, the others wait for the lock, and one of
/// them makes a barrier for both. Meanwhile a second context appears, so both frees must wait. A
/// request that finds no memory waits for both.
fn two_threads_share_a_barrier(d: &Driver) -> Verdict {
    let blocks = [d.alloc(12 * MIB)?, d.alloc(16 * MIB)?, d.alloc(16 * MIB)?];
    let (first, streams) = (d.context(), [d.stream()?, d.stream()?]);
    // After work on two streams no barrier defers its wait.
    for stream in streams {
        d.launch("delay", stream, &[1])?;
    }
    std::thread::scope(|scope| {
        let free = |block: u64| spawn(scope, d, move || d.free(block));
        let mut frees = vec![free(blocks[0])];
        sleep_ms(10);
        frees.extend([free(blocks[1]), free(blocks[2])]);
        sleep_ms(35);
        d.create_context(0)?;
        d.launch("delay", d.stream()?, &[1])?;
        d.set_context(first)?;
        sleep_ms(35);
        let asked = code(d.alloc(50 * MIB));
        let freed = frees.into_iter().map(|free| code(free.join().expect("no program panics")));
        let freed: Vec<i32> = freed.collect();
        Ok(format!("freed {freed:?}, asked {asked}"))
    })
}

/// The library releases idle memory by itself. If the driver refuses to take it, a later request
/// finds it all the same.
fn idle_memory_whose_release_is_refused(d: &Driver) -> Verdict {
    request_after_idle(d, || sleep_ms(IDLE_MS))
}

/// The driver refuses idle memory, and takes long when it is offered again: a request waits for it.
fn idle_memory_that_is_offered_again(d: &Driver) -> Verdict {
    request_after_idle(d, || sleep_ms(IDLE_MS))
}

/// While the library releases idle memory, another thread takes references to the context and
/// releases them. The library cannot know whether one of them is the last.
fn idle_memory_whose_release_is_interrupted(d: &Driver) -> Verdict {
    behind_an_unknown_table(d);
    request_after_idle(d, || {
        let _ = beside_references(d, || {
            sleep_ms(IDLE_MS);
            Ok(())
        });
        sleep_ms(IDLE_MS);
    })
}

/// Requests most of the device after most of it was freed.
fn request_after_idle(d: &Driver, idle: impl FnOnce()) -> Verdict {
    let blocks = [d.alloc(40 * MIB)?, d.alloc(40 * MIB)?];
    blocks.into_iter().try_for_each(|block| d.free(block))?;
    idle();
    Ok(format!("code {}", code(d.alloc(100 * MIB))))
}

/// Runs `body` while another thread takes references to the primary context and releases them, as
/// libraries do.
pub fn beside_references<T>(d: &Driver, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let reference = || -> Outcome {
        let mut context = 0;
        call!(d, cuDevicePrimaryCtxRetain(&mut context, 0))?;
        call!(d, cuDevicePrimaryCtxRelease(0))
    };
    beside(d, reference, body)
}

/// Runs `body` while another thread repeats a call in the same context.
pub fn beside<T>(
    d: &Driver,
    other: impl Fn() -> Outcome + Sync,
    body: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    let done = AtomicBool::new(false);
    let references = || -> Outcome {
        while !done.load(Ordering::SeqCst) {
            other()?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let referring = spawn(scope, d, references);
        let done_so = body();
        done.store(true, Ordering::SeqCst);
        referring.join().expect("no program panics")?;
        done_so
    })
}

pub fn beside_references_that_are_given_up(d: &Driver) -> Verdict {
    let all = || (0..300).map(|_| other_memory(d, LARGE)).sum::<Outcome<usize>>();
    ok_if(beside_references(d, all)? == 0, "memory in the cache was not found")
}

/// Other threads attach to a context that the program has made, and detach from it.
fn beside_users_that_detach(d: &Driver) -> Verdict {
    d.create_context(0)?;
    let all = || (0..300).map(|_| other_memory(d, LARGE)).sum::<Outcome<usize>>();
    ok_if(beside_users(d, all)? == 0, "memory in the cache was not found")
}

/// The driver takes long to detach.
fn beside_users_that_detach_slowly(d: &Driver) -> Verdict {
    d.create_context(0)?;
    d.free(d.alloc(40 * MIB)?)?;
    let asked = || {
        sleep_ms(10);
        physical_memory(d, 40 * MIB)
    };
    Ok(format!("asked {}", code(beside_users(d, asked))))
}

fn beside_users<T>(d: &Driver, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let user = || -> Outcome {
        let mut context = 0;
        call!(d, cuCtxAttach(&mut context, 0))?;
        call!(d, cuCtxDetach(context))
    };
    beside(d, user, body)
}

/// Freed pinned memory is unknown from then on, and is handed out again.
fn pinned_memory_freed_beside_references(d: &Driver) -> Verdict {
    let known = beside_references(d, || {
        let mut known = 0;
        for _ in 0..400 {
            let pinned = d.pinned(SMALL)?;
            d.free_pinned(pinned)?;
            let mut flags = 0;
            known += usize::from(call!(d, cuMemHostGetFlags(&mut flags, pinned)).is_ok());
        }
        Ok(known)
    })?;
    ok_if(known == 0, &format!("freed memory was still known {known} times"))
}

/// With expandable segments, memory that a kernel still writes to is needed at another address.
fn memory_moves_beside_references(d: &Driver) -> Verdict {
    let (stream, other) = (d.stream()?, d.stream()?);
    let round = |_| {
        other_memory(d, 26 * MIB)?;
        let (late, between) = (d.alloc(14 * MIB)?, d.alloc(4 * MIB)?);
        fill(d, stream, late, SMALL, 1, LATE)?;
        d.free(late)?;
        // The other thread may be at any point.
        std::thread::sleep(std::time::Duration::from_micros(100));
        let moved = d.alloc(20 * MIB)?;
        fill(d, other, moved, SMALL, 2, 0)?;
        d.free(moved)?;
        d.free(between)?;
        d.synchronize()
    };
    beside_references(d, || (0..50).try_for_each(round))?;
    Ok("ok".into())
}

/// Checks whether freed memory is missing: absent from the reported amount, or unavailable for
/// physical memory.
fn other_memory(d: &Driver, bytes: usize) -> Outcome<usize> {
    d.free(d.alloc(bytes)?)?;
    let (free, _) = d.memory_info()?;
    let missing = physical_memory(d, bytes).is_err();
    Ok(usize::from(free < bytes || missing))
}

/// Allocates physical memory, and releases it.
pub fn physical_memory(d: &Driver, bytes: usize) -> Outcome {
    let mut properties = [0_u32; 22];
    (properties[0], properties[2]) = (1, 1);
    let mut memory = 0;
    call!(d, cuMemCreate(&mut memory, bytes, properties.as_ptr().cast(), 0))?;
    call!(d, cuMemRelease(memory))
}
