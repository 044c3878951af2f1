//! [76] [77] [78] Calls made while a context ends, while a reference to one is released, and while
//! the driver refuses to end one.

use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Outcome};

use crate::memory::scarce::{beside_references_that_are_given_up, physical_memory};
use crate::order::teardown::{PAGE, mapped_page, unmap_beside_references};
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Full, unmap_beside_the_end_of_a_context),
    hazard!(Full, first_work_beside_the_end_of_a_context),
    hazard!(Always, room_beside_the_end_of_a_context, machine = "SIM_MEMORY_MB=64"),
    hazard!(Full, unmap_beside_the_end_of_the_primary_context),
    hazard!(
        Full,
        unmap_beside_a_query_and_a_detach,
        machine = "SIM_PAUSE_MS=cuEventSynchronize@1=1500"
    ),
    hazard!(
        Full,
        query_beside_a_query_and_a_detach,
        machine = "SIM_PAUSE_MS=cuEventSynchronize@1=1500"
    ),
    hazard!(
        Always,
        room_beside_a_slow_detach,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuCtxDetach@*=1500"
    ),
    hazard!(
        Always,
        room_beside_a_slow_release,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuDevicePrimaryCtxRelease@*=1500,cuDevicePrimaryCtxRelease_v2@*=1500"
    ),
    hazard!(
        Always,
        room_beside_a_detach_behind_an_unknown_table,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuCtxDetach@*=150"
    ),
    hazard!(Always, last_references_beside_a_kernel),
    hazard!(Always, memory_beside_references_behind_an_unknown_table, machine = "SIM_MEMORY_MB=16"),
    hazard!(Full, unmap_beside_references_behind_an_unknown_table),
    hazard!(Always, spin_and_destroy_the_primary_context),
    hazard!(Always, destroy_the_primary_context_beside_frees),
    hazard!(Always, destroy_that_is_refused_beside_frees),
];

const MIB: usize = 1 << 20;

/// Runs `body`, with the previous context current, while another thread ends this one through
/// `end`. The last kernel of this context spins until `body` is done. Before that kernel, `work`
/// runs in the context, and something is freed after it.
fn beside_the_end<T>(
    d: &Driver,
    current: u64,
    work: impl FnOnce(u64) -> Outcome,
    end: impl FnOnce() -> Outcome + Send,
    body: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    let (stream, flag, unrelated) = (d.stream()?, d.pinned(64)?, d.alloc(SMALL)?);
    d.set_flag(flag, 0);
    work(stream)?;
    d.free(unrelated)?;
    d.launch("spin", stream, &[flag, 1])?;
    std::thread::scope(|scope| {
        let ending = spawn(scope, d, end);
        sleep_ms(50);
        let done = d.set_context(current).and_then(|()| body());
        d.set_flag(flag, 1);
        ending.join().expect("no program panics")?;
        done
    })
}

/// Runs `body` while another thread destroys a context that the program has made.
fn beside_the_end_of_a_context<T>(
    d: &Driver,
    work: impl FnOnce(u64) -> Outcome,
    body: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    let (first, ends) = (d.context(), d.create_context(0)?);
    beside_the_end(d, first, work, || call!(d, cuCtxDestroy(ends)), body)
}

fn unmapped(d: &Driver, (address, memory): (u64, u64)) -> Outcome {
    call!(d, cuMemUnmap(address, PAGE))?;
    call!(d, cuMemRelease(memory))?;
    call!(d, cuMemAddressFree(address, PAGE))
}

/// The free orders the unmap after the kernel that uses the mapping; nothing else delays the unmap.
fn unmap_beside_the_end_of_a_context(d: &Driver) -> Verdict {
    let page = mapped_page(d)?;
    let work = |stream| fill(d, stream, page.0, PAGE, 1, LATE);
    beside_the_end_of_a_context(d, work, || unmapped(d, page))?;
    Ok("ok".into())
}

/// The primary context ends with its last reference.
fn unmap_beside_the_end_of_the_primary_context(d: &Driver) -> Verdict {
    let (primary, other) = (d.context(), d.create_context(0)?);
    d.set_context(primary)?;
    let page = mapped_page(d)?;
    let work = |stream| fill(d, stream, page.0, PAGE, 1, LATE);
    let end = || call!(d, cuDevicePrimaryCtxRelease(0));
    beside_the_end(d, other, work, end, || unmapped(d, page))?;
    Ok("ok".into())
}

/// Memory that another context gets for its very first work is ordered after the free.
fn first_work_beside_the_end_of_a_context(d: &Driver) -> Verdict {
    let (page, copied) = (mapped_page(d)?, d.alloc(PAGE)?);
    let work = |stream| fill(d, stream, page.0, PAGE, 7, LATE);
    let good = beside_the_end_of_a_context(d, work, || {
        // The stream is made here as well: otherwise it could get work from elsewhere.
        let stream = d.stream()?;
        copy(d, stream, copied, page.0, PAGE, 0)?;
        d.synchronize_stream(stream)?;
        Ok(d.read_words(copied, PAGE / 8)?.iter().all(|word| *word == 7))
    })?;
    ok_if(good, "the copy ran before the kernel")
}

/// Memory that was freed in the context is available to the device.
fn room_beside_the_end_of_a_context(d: &Driver) -> Verdict {
    let work = |_| d.free(d.alloc(40 * MIB)?);
    let (told, asked) = beside_the_end_of_a_context(d, work, || {
        let (told, _) = d.memory_info()?;
        Ok((told, code(physical_memory(d, 40 * MIB))))
    })?;
    Ok(format!("told {}, asked {asked}", told >= 40 * MIB))
}

/// Runs `body` while one thread is in a query, which waits for its free, and another thread
/// releases one of two references. `body` knows of the free.
fn beside_a_query_and_a_detach<T>(
    d: &Driver,
    page: u64,
    body: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    let (context, mut same) = (d.create_context(0)?, 0);
    call!(d, cuCtxAttach(&mut same, 0))?;
    let (stream, event, unrelated) = (d.stream()?, d.event()?, d.alloc(SMALL)?);
    let freed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asks = spawn(scope, d, || {
            fill(d, stream, page, PAGE / 2, 1, LATE)?;
            d.record(event, stream)?;
            d.free(unrelated)?;
            freed.store(true, Ordering::SeqCst);
            d.query_event(event)
        });
        while !freed.load(Ordering::SeqCst) && !asks.is_finished() {
            sleep_ms(1);
        }
        sleep_ms(50);
        let detaches = spawn(scope, d, || call!(d, cuCtxDetach(context)));
        sleep_ms(50);
        let done = body();
        asks.join().expect("no program panics")?;
        detaches.join().expect("no program panics")?;
        done
    })
}

fn unmap_beside_a_query_and_a_detach(d: &Driver) -> Verdict {
    let page = mapped_page(d)?;
    beside_a_query_and_a_detach(d, page.0, || unmapped(d, page))?;
    Ok("ok".into())
}

/// The query runs once, after a free of its own thread.
fn query_beside_a_query_and_a_detach(d: &Driver) -> Verdict {
    let page = mapped_page(d)?;
    let answer = beside_a_query_and_a_detach(d, page.0, || {
        let (stream, event, unrelated) = (d.stream()?, d.event()?, d.alloc(SMALL)?);
        fill(d, stream, page.0 + PAGE as u64 / 2, SMALL, 2, LATE)?;
        d.record(event, stream)?;
        d.free(unrelated)?;
        Ok(code(d.query_event(event)))
    })?;
    Ok(format!("code {answer}"))
}

/// Two threads release the last two references. The call that is not the last one waits for no
/// work, and the kernel ends only after it.
fn last_references_beside_a_kernel(d: &Driver) -> Verdict {
    let (first, flag) = (d.context(), d.pinned(64)?);
    let (context, mut same) = (d.create_context(0)?, 0);
    call!(d, cuCtxAttach(&mut same, 0))?;
    d.free(d.alloc(SMALL)?)?;
    d.set_flag(flag, 0);
    d.launch("spin", d.stream()?, &[flag, 1])?;
    d.set_context(first)?;
    let release = || -> Outcome {
        call!(d, cuCtxDetach(context))?;
        d.set_flag(flag, 1);
        Ok(())
    };
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| spawn(scope, d, release));
        both.into_iter().try_for_each(|one| one.join().expect("no program panics"))
    })?;
    Ok("ok".into())
}

/// The driver may take any time to release a reference.
fn room_beside_a_slow_detach(d: &Driver) -> Verdict {
    let (context, mut same) = (d.create_context(0)?, 0);
    call!(d, cuCtxAttach(&mut same, 0))?;
    room_beside(d, || call!(d, cuCtxDetach(context)))
}

fn room_beside_a_slow_release(d: &Driver) -> Verdict {
    call!(d, cuDevicePrimaryCtxRetain(&mut 0, 0))?;
    room_beside(d, || call!(d, cuDevicePrimaryCtxRelease(0)))
}

fn room_beside(d: &Driver, gives_up: impl FnOnce() -> Outcome + Send) -> Verdict {
    d.free(d.alloc(40 * MIB)?)?;
    std::thread::scope(|scope| {
        let giving_up = spawn(scope, d, gives_up);
        sleep_ms(50);
        let (told, _) = d.memory_info()?;
        let asked = code(physical_memory(d, 40 * MIB));
        giving_up.join().expect("no program panics")?;
        Ok(format!("told {}, asked {asked}", told >= 40 * MIB))
    })
}

/// Makes calls possible that bypass the library, including calls that take and release references.
pub fn behind_an_unknown_table(d: &Driver) {
    const UNKNOWN: [u8; 16] = [9; 16];
    // No driver knows this table.
    let _ = call!(d, cuGetExportTable(&mut 0, UNKNOWN.as_ptr().cast()));
}

/// The library cannot know whether the context ends; a moment later it is in use again.
fn room_beside_a_detach_behind_an_unknown_table(d: &Driver) -> Verdict {
    behind_an_unknown_table(d);
    room_beside_a_slow_detach(d)
}

fn memory_beside_references_behind_an_unknown_table(d: &Driver) -> Verdict {
    behind_an_unknown_table(d);
    beside_references_that_are_given_up(d)
}

fn unmap_beside_references_behind_an_unknown_table(d: &Driver) -> Verdict {
    behind_an_unknown_table(d);
    unmap_beside_references(d)
}

/// The program cannot destroy a primary context, and the driver refuses without a wait.
fn spin_and_destroy_the_primary_context(d: &Driver) -> Verdict {
    let (stream, flag) = (d.stream()?, d.pinned(64)?);
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    let refused = code(call!(d, cuCtxDestroy(d.context())));
    d.set_flag(flag, 1);
    d.synchronize()?;
    Ok(format!("code {refused}"))
}

/// Some libraries make this call in their clean-up, and the program continues.
fn destroy_the_primary_context_beside_frees(d: &Driver) -> Verdict {
    destroyed_beside_frees(d, d.context())
}

/// The driver refuses to destroy a context that could be destroyed.
fn destroy_that_is_refused_beside_frees(d: &Driver) -> Verdict {
    let context = d.create_context(0)?;
    d.fail("cuCtxDestroy@*=1,cuCtxDestroy_v2@*=1");
    let verdict = destroyed_beside_frees(d, context);
    d.fail("");
    verdict
}

fn destroyed_beside_frees(d: &Driver, context: u64) -> Verdict {
    let (done, kept) = (AtomicBool::new(false), d.alloc(BYTES)?);
    let frees = |seed: usize| {
        let mut failed = 0;
        while !done.load(Ordering::SeqCst) {
            let blocks: Vec<_> = (1..=8).map(|n| d.alloc((n + seed) * SMALL)).collect();
            let freed = blocks.into_iter().map(|block| block.and_then(|block| d.free(block)));
            failed += freed.filter(Outcome::is_err).count();
        }
        Ok(failed)
    };
    std::thread::scope(|scope| {
        let threads = [1, 20, 300].map(|seed| spawn(scope, d, move || frees(seed)));
        let refused: Vec<_> = (0..60)
            .map(|_| {
                std::thread::sleep(std::time::Duration::from_micros(300));
                code(call!(d, cuCtxDestroy(context)))
            })
            .collect();
        done.store(true, Ordering::SeqCst);
        let failed = threads.map(|thread| thread.join().expect("no program panics"));
        let failed: usize = failed.into_iter().sum::<Outcome<usize>>()?;
        let all_refused = refused.iter().all(|code| *code != 0);
        d.free(kept)?;
        ok_if(all_refused && failed == 0, &format!("{failed} calls failed, {refused:?}"))
    })
}
