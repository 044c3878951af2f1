//! [22] Memory that another thread is about to give back.

use cachealloc_tests::driver::{Driver, RELAXED};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, another_thread_is_freeing_it, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, another_thread_is_freeing_it_beside_a_capture, machine = "SIM_MEMORY_MB=64"),
];

const MIB: usize = 1 << 20;

/// The free waits for a kernel, and natively holds the context meanwhile: a request waits its turn, and
/// finds what was freed.
fn another_thread_is_freeing_it(d: &Driver) -> Verdict {
    let block = d.alloc(40 * MIB)?;
    freed_by_another_thread(d, block)
}

/// As above, where no mode can do without a wait in the free.
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
