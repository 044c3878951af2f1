//! [9] Programs that hang where a wait is unbounded. A thread makes a query before it ends the work
//! for which another thread's call waits. On the plain driver that call has not returned.
//! `tests/it/ordering/bounds.rs` runs these programs without the bounds.

use cachealloc_tests::driver::{Driver, Outcome, Stream};

use crate::contexts::ends::behind_an_unknown_table;
use crate::memory::of_graphs::graph_without_its_block;
use crate::memory::scarce::physical_memory;
use crate::tools::*;
use crate::waits::deadlock::device_flag;

pub const ALL: &[Hazard] = &[
    hazard!(Full, query_beside_work_without_end),
    hazard!(Always, request_before_an_end_is_let_go, machine = "SIM_MEMORY_MB=64"),
    hazard!(
        Always,
        stream_memory_beside_work_without_end,
        machine = "SIM_MEMORY_MB=64 SIM_DEADLOCK_MS=20000"
    ),
    hazard!(
        Always,
        stream_memory_beside_frees_without_end,
        machine = "SIM_MEMORY_MB=64 SIM_DEADLOCK_MS=20000"
    ),
    hazard!(
        Always,
        stream_memory_behind_a_graph_beside_frees_without_end,
        machine = "SIM_MEMORY_MB=64 SIM_DEADLOCK_MS=20000"
    ),
    hazard!(
        Always,
        stream_memory_beside_pieces_without_end,
        machine = "SIM_MEMORY_MB=64 SIM_DEADLOCK_MS=20000"
    ),
    hazard!(
        Always,
        stream_memory_beside_pieces_freed_meanwhile,
        machine = "SIM_MEMORY_MB=64 SIM_DEADLOCK_MS=20000 SIM_PAUSE_MS=cuEventQuery@2=600"
    ),
];

const MIB: usize = 1 << 20;

/// Runs `body` while `call` in another thread waits for a kernel that never ends, and then ends the
/// process, and with it everything else.
fn beside_work_without_end(
    d: &Driver,
    name: &str,
    spins: Stream,
    call: impl FnOnce() -> Outcome + Send,
    body: impl FnOnce() -> Outcome,
) -> Verdict {
    let flag = device_flag(d)?;
    d.synchronize()?;
    d.launch("spin", spins, &[flag, 1])?;
    std::thread::scope(|scope| {
        spawn(scope, d, || -> Outcome {
            call()?;
            // If the call does not wait, the thread is kept alive as well.
            loop {
                sleep_ms(1000);
            }
        });
        sleep_ms(50);
        println!("{name}: code {}", code(body()));
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) }
    })
}

/// A query cannot know whether the other thread's free has returned.
fn query_beside_work_without_end(d: &Driver) -> Verdict {
    let (spins, idle, event) = (d.stream()?, d.stream()?, d.event()?);
    let unrelated = d.alloc(SMALL)?;
    d.record(event, idle)?;
    let name = "query_beside_work_without_end";
    beside_work_without_end(d, name, spins, || d.free(unrelated), || d.query_event(event))
}

/// The other thread releases memory to the driver, which waits for the kernel; on the plain driver
/// its free waits.
fn stream_memory_beside_work_without_end(d: &Driver) -> Verdict {
    let name = "stream_memory_beside_work_without_end";
    stream_memory_beside_frees(d, name, || d.alloc(25 * MIB).map(drop))
}

/// The request itself would release the memory to the driver.
fn stream_memory_beside_frees_without_end(d: &Driver) -> Verdict {
    stream_memory_beside_frees(d, "stream_memory_beside_frees_without_end", || Ok(()))
}

/// A graph has just ended, and another one keeps memory, so the request waits for what the driver
/// reports of graphs as well.
fn stream_memory_behind_a_graph_beside_frees_without_end(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    let ends = graph_without_its_block(d, stream, MIB, |block| d.free(block))?;
    let _stays = graph_without_its_block(d, stream, MIB, |block| d.free(block))?;
    d.destroy_graph(ends)?;
    let name = "stream_memory_behind_a_graph_beside_frees_without_end";
    stream_memory_beside_frees(d, name, || Ok(()))
}

/// The same for memory in pieces, which the library may have mapped next to others.
fn stream_memory_beside_pieces_without_end(d: &Driver) -> Verdict {
    stream_memory_beside_pieces(d, "stream_memory_beside_pieces_without_end", 0)
}

/// The request asks which frees are over, and the pieces are freed meanwhile.
fn stream_memory_beside_pieces_freed_meanwhile(d: &Driver) -> Verdict {
    let unrelated = d.alloc(SMALL)?;
    d.launch("delay", d.stream()?, &[LATE])?;
    d.free(unrelated)?;
    stream_memory_beside_pieces(d, "stream_memory_beside_pieces_freed_meanwhile", 200)
}

fn stream_memory_beside_pieces(d: &Driver, name: &str, freed_after_ms: u64) -> Verdict {
    let (spins, other) = (d.stream()?, d.stream()?);
    let (first, _between) = (d.alloc(20 * MIB)?, d.alloc(4 * MIB)?);
    let pieces = [first, d.alloc(20 * MIB)?];
    let frees = || {
        sleep_ms(freed_after_ms);
        pieces.into_iter().try_for_each(|piece| d.free(piece))
    };
    beside_work_without_end(d, name, spins, frees, || d.alloc_async(36 * MIB, other).map(drop))
}

fn stream_memory_beside_frees(
    d: &Driver,
    name: &str,
    then: impl FnOnce() -> Outcome + Send,
) -> Verdict {
    let (spins, other) = (d.stream()?, d.stream()?);
    let pieces = [d.alloc(20 * MIB)?, d.alloc(20 * MIB)?];
    let frees = || pieces.into_iter().try_for_each(|piece| d.free(piece)).and_then(|()| then());
    beside_work_without_end(d, name, spins, frees, || d.alloc_async(30 * MIB, other).map(drop))
}

/// The library cannot know whether a call ends the context. The request exceeds the available
/// memory.
fn request_before_an_end_is_let_go(d: &Driver) -> Verdict {
    behind_an_unknown_table(d);
    let (first, ends) = (d.context(), d.create_context(0)?);
    d.free(d.alloc(20 * MIB)?)?;
    let (spins, flag) = (d.stream()?, d.pinned(64)?);
    d.set_flag(flag, 0);
    d.launch("spin", spins, &[flag, 1])?;
    std::thread::scope(|scope| {
        let ending = spawn(scope, d, || call!(d, cuCtxDetach(ends)));
        sleep_ms(50);
        let asked = d.set_context(first).and_then(|()| physical_memory(d, 100 * MIB));
        d.set_flag(flag, 1);
        ending.join().expect("no program panics")?;
        Ok(format!("code {}", code(asked)))
    })
}
