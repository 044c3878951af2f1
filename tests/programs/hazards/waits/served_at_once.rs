//! [10] Requests that the driver serves at once, although another thread's free waits in the driver
//! itself, or although the library's own release or mapping takes long.

use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Outcome, Stream, THREAD_LOCAL};

use crate::memory::scarce::physical_memory;
use crate::memory::shortage::beside_a_capture;
use crate::tools::*;
use crate::waits::beside_a_free::beside_a_free_that_waits;

pub const ALL: &[Hazard] = &[
    hazard!(Always, physical_memory_beside_a_free_and_a_capture, machine = "SIM_MEMORY_MB=72"),
    hazard!(Always, pool_memory_beside_a_free_and_a_capture, machine = "SIM_MEMORY_MB=72"),
    hazard!(
        Always,
        physical_memory_beside_a_free_of_an_old_driver,
        machine = "SIM_MEMORY_MB=72 SIM_DRIVER_VERSION=12040"
    ),
    hazard!(
        Always,
        pool_memory_beside_a_free_of_an_old_driver,
        machine = "SIM_MEMORY_MB=72 SIM_DRIVER_VERSION=12040"
    ),
    hazard!(
        Always,
        physical_memory_beside_a_long_release,
        machine = "SIM_MEMORY_MB=74 SIM_PAUSE_MS=cuMemFreeAsync@1=300"
    ),
    hazard!(
        Always,
        stream_memory_beside_a_long_mapping,
        machine = "SIM_MEMORY_MB=72 SIM_PAUSE_MS=cuMemSetAccess@3=350"
    ),
];

const MIB: usize = 1 << 20;

/// Runs `body` while another thread's free waits for a kernel that ends only with `body`. Because
/// something captures, the library's free waits in the driver as well. 40 MiB were freed before.
fn beside_a_free_and_a_capture(d: &Driver, body: impl FnOnce() -> Outcome + Send) -> Verdict {
    let spins = (d.stream()?, d.pinned(64)?);
    d.free(d.alloc(40 * MIB)?)?;
    let beside = || beside_a_free_that_waits(d, spins, body);
    let (verdict, ended) = beside_a_capture(d, THREAD_LOCAL, beside)?;
    Ok(format!("{verdict}, end {ended}"))
}

/// On the plain driver this request takes the memory freed before, and does not block.
fn physical_memory_beside_a_free_and_a_capture(d: &Driver) -> Verdict {
    beside_a_free_and_a_capture(d, || physical_memory(d, 40 * MIB))
}

fn pool_memory_beside_a_free_and_a_capture(d: &Driver) -> Verdict {
    let other = d.stream()?;
    beside_a_free_and_a_capture(d, || d.alloc_async(50 * MIB, other).map(drop))
}

/// Runs `body` in the same way, without a capture. Before CUDA 12.5 the driver lacks functions that
/// the library's barrier needs, so each of its frees waits in the driver.
fn beside_a_free_of_an_old_driver(d: &Driver, body: impl FnOnce() -> Outcome) -> Verdict {
    let spins = (d.stream()?, d.pinned(64)?);
    d.free(d.alloc(40 * MIB)?)?;
    beside_a_free_that_waits(d, spins, body)
}

fn physical_memory_beside_a_free_of_an_old_driver(d: &Driver) -> Verdict {
    beside_a_free_of_an_old_driver(d, || physical_memory(d, 40 * MIB))
}

fn pool_memory_beside_a_free_of_an_old_driver(d: &Driver) -> Verdict {
    let other = d.stream()?;
    beside_a_free_of_an_old_driver(d, || d.alloc_async(50 * MIB, other).map(drop))
}

/// A kernel that ends with the flag. No argument shows the flag's address.
struct Spin {
    stream: Stream,
    flag: u64,
    table: u64,
    done: AtomicBool,
}

impl Spin {
    fn new(d: &Driver) -> Outcome<Spin> {
        let (stream, flag, table) = (d.stream()?, d.pinned(64)?, d.alloc(SMALL)?);
        d.set_flag(flag, 0);
        d.write_words(table, &[flag])?;
        Ok(Spin { stream, flag, table, done: AtomicBool::new(false) })
    }

    /// Frees a block while the kernel runs. The thread outlives the kernel.
    fn free(&self, d: &Driver, block: u64) -> Outcome {
        d.launch("indirect_spin", self.stream, &[self.table, 1])?;
        d.free(block)?;
        while !self.done.load(Ordering::SeqCst) {
            sleep_ms(1);
        }
        Ok(())
    }

    fn end(&self, d: &Driver) {
        d.set_flag(self.flag, 1);
        self.done.store(true, Ordering::SeqCst);
    }
}

/// Requests this many MiB in rows of 1 MiB.
fn pitched(d: &Driver, rows: usize) -> Outcome {
    let (mut block, mut pitch) = (0, 0);
    call!(d, cuMemAllocPitch(&mut block, &mut pitch, MIB, rows, 4))
}

/// The request takes memory that was freed before, whose release takes long. Meanwhile another
/// thread frees, and a third one requests memory. The driver itself would have served the first
/// request before that free, which waits for a kernel that only the first thread ends.
fn physical_memory_beside_a_long_release(d: &Driver) -> Verdict {
    let (spin, freed) = (Spin::new(d)?, d.alloc(20 * MIB)?);
    d.free(d.alloc(40 * MIB)?)?;
    std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || {
            sleep_ms(100);
            spin.free(d, freed)
        });
        let asking = spawn(scope, d, || {
            sleep_ms(200);
            pitched(d, 25)
        });
        let asked = code(physical_memory(d, 20 * MIB));
        spin.end(d);
        freeing.join().expect("no program panics")?;
        let pitched = code(asking.join().expect("no program panics"));
        Ok(format!("codes {asked}, {pitched}"))
    })
}

/// With expandable segments: one thread's request maps memory, which takes long, a second thread
/// requests more than there is, and a third one frees. The driver itself serves a stream-ordered
/// request of a fourth thread, which only then ends the kernel for which the free waits.
fn stream_memory_beside_a_long_mapping(d: &Driver) -> Verdict {
    let (spin, other, freed) = (Spin::new(d)?, d.stream()?, d.alloc(20 * MIB)?);
    std::thread::scope(|scope| {
        let mapping = spawn(scope, d, || d.alloc(20 * MIB));
        sleep_ms(100);
        // Whether it is served depends on whether it waits for the free.
        let asking = spawn(scope, d, || pitched(d, 40));
        sleep_ms(100);
        let freeing = spawn(scope, d, || spin.free(d, freed));
        sleep_ms(400);
        let asked = code(d.alloc_async(24 * MIB, other));
        spin.end(d);
        freeing.join().expect("no program panics")?;
        let mapped = code(mapping.join().expect("no program panics"));
        let _ = asking.join().expect("no program panics");
        Ok(format!("codes {mapped}, {asked}"))
    })
}
