//! [83] Memory that is on its way to the driver while another thread requests it, and memory of a
//! context that ends meanwhile.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use cachealloc_tests::driver::{Driver, Outcome, RELAXED};

use crate::answers::refused::{DEVICE, properties};
use crate::memory::scarce::physical_memory;
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(
        Always,
        requests_beside_memory_that_is_collected,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuStreamSynchronize@1=300 CACHEALLOC_BOUND=MEMORY_ON_ITS_WAY:0"
    ),
    hazard!(
        Always,
        pool_memory_beside_a_release_on_another_device,
        machine = "SIM_DEVICES=2 SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuStreamSynchronize@1=300"
    ),
    hazard!(
        Always,
        room_where_a_context_ends,
        machine = "SIM_MEMORY_MB=64 SIM_PAUSE_MS=cuMemUnmap@*=20"
    ),
    hazard!(
        Always,
        thread_ends_beside_the_end_of_its_context,
        machine = "SIM_PAUSE_MS=cuDevicePrimaryCtxGetState@1=300"
    ),
    hazard!(
        Always,
        query_beside_the_last_call_of_a_thread,
        machine = "CACHEALLOC_BOUND=FREES_OF_OTHERS:50"
    ),
    hazard!(
        Full,
        query_behind_a_free_in_the_last_destructor,
        machine = "CACHEALLOC_BOUND=FREES_OF_OTHERS:0"
    ),
    hazard!(Always, physical_memory_in_a_host_function, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, free_in_a_host_function_beside_a_capture),
    hazard!(Always, pinned_memory_where_another_leaves),
];

const MIB: usize = 1 << 20;

/// Memory was freed on a stream of the library, for a request that did not wait for it. Then one
/// request collects it, which takes long, and another one needs it too.
fn requests_beside_memory_that_is_collected(d: &Driver) -> Verdict {
    let (stream, flag, table) = (d.stream()?, d.pinned(64)?, d.alloc(SMALL)?);
    let (block, freed) = (d.alloc(40 * MIB)?, AtomicBool::new(false));
    d.set_flag(flag, 0);
    d.write_words(table, &[flag])?;
    // Nothing shows that the host ends this kernel.
    d.launch("indirect_spin", stream, &[table, 1])?;
    std::thread::scope(|scope| {
        let frees = spawn(scope, d, || {
            d.free(block)?;
            freed.store(true, Ordering::SeqCst);
            Ok(())
        });
        sleep_ms(100);
        let beside = code(physical_memory(d, 40 * MIB));
        d.set_flag(flag, 1);
        while !freed.load(Ordering::SeqCst) {
            sleep_ms(1);
        }
        sleep_ms(100);
        let first = spawn(scope, d, || Ok(code(d.alloc(20 * MIB))));
        sleep_ms(40);
        let second = code(d.alloc(20 * MIB));
        let first = first.join().expect("no program panics")?;
        frees.join().expect("no program panics")?;
        Ok(format!("beside {beside}, then {first}, {second}"))
    })
}

/// One device is current, and the pool is another one's, where a third thread's request releases
/// memory.
fn pool_memory_beside_a_release_on_another_device(d: &Driver) -> Verdict {
    let (first, second) = (d.context(), d.use_device(1)?);
    let (there, mut pool, mut block) = (d.stream()?, 0, 0);
    call!(d, cuMemPoolCreate(&mut pool, properties(DEVICE, 1).as_ptr().cast()))?;
    d.free(d.alloc(40 * MIB)?)?;
    std::thread::scope(|scope| {
        let asks = spawn(scope, d, || Ok(code(d.alloc(24 * MIB))));
        d.set_context(first)?;
        d.alloc(SMALL)?;
        sleep_ms(50);
        let from_pool = code(call!(d, cuMemAllocFromPoolAsync(&mut block, 30 * MIB, pool, there)));
        d.set_context(second)?;
        Ok(format!("codes {from_pool}, {}", asks.join().expect("no program panics")?))
    })
}

/// Another thread ends a context whose cache has most of the memory.
fn room_where_a_context_ends(d: &Driver) -> Verdict {
    let first = d.context();
    d.alloc(SMALL)?;
    let second = d.create_context(0)?;
    d.free(d.alloc(40 * MIB)?)?;
    d.set_context(first)?;
    std::thread::scope(|scope| {
        let ends = spawn(scope, d, || call!(d, cuCtxDestroy(second)));
        sleep_ms(30);
        let asked = code(d.alloc(40 * MIB));
        ends.join().expect("no program panics")?;
        Ok(format!("code {asked}"))
    })
}

/// A thread has freed in a context that another one ends, and ends when the driver has given the
/// addresses to a third one.
fn thread_ends_beside_the_end_of_its_context(d: &Driver) -> Verdict {
    let primary = d.context();
    let second = d.create_context(0)?;
    d.set_context(primary)?;
    let (freed, may_end) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let works = spawn(scope, d, || {
            for _ in 0..100 {
                let blocks = [d.alloc(4096)?, d.alloc(4096)?];
                blocks.into_iter().try_for_each(|block| d.free(block))?;
            }
            freed.store(true, Ordering::SeqCst);
            while !may_end.load(Ordering::SeqCst) {
                sleep_ms(1);
            }
            Ok(())
        });
        while !freed.load(Ordering::SeqCst) {
            sleep_ms(1);
        }
        d.set_context(second)?;
        let ends = spawn(scope, d, || call!(d, cuDevicePrimaryCtxRelease(0)));
        sleep_ms(100);
        let blocks = [d.alloc(4096)?, d.alloc(4096)?];
        may_end.store(true, Ordering::SeqCst);
        works.join().expect("no program panics")?;
        ends.join().expect("no program panics")?;
        Ok(format!("codes {:?}", blocks.map(|block| code(d.free(block)))))
    })
}

/// On the plain driver the thread cannot end before its free returns, so nobody knows of that.
fn query_beside_the_last_call_of_a_thread(d: &Driver) -> Verdict {
    let (stream, flag, table) = (d.stream()?, d.pinned(64)?, d.alloc(SMALL)?);
    let (unrelated, event) = (d.alloc(SMALL)?, d.event()?);
    d.set_flag(flag, 0);
    d.write_words(table, &[flag])?;
    d.launch("indirect_spin", stream, &[table, 1])?;
    d.record(event, stream)?;
    std::thread::scope(|scope| {
        let frees = spawn(scope, d, || d.free(unrelated));
        sleep_ms(50);
        let beside = code(call!(d, cuEventQuery(event)));
        d.set_flag(flag, 1);
        frees.join().expect("no program panics")?;
        Ok(format!("codes {beside}, {}", code(call!(d, cuEventQuery(event)))))
    })
}

/// One thread's pinned memory goes back to the driver, and another thread gets its address in a
/// request of a size that the library does not keep.
fn pinned_memory_where_another_leaves(d: &Driver) -> Verdict {
    const KIB: usize = 1 << 10;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cycles = spawn(scope, d, || {
            for round in (0..8).cycle() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                d.free_pinned(d.pinned((2500 + round) * KIB)?)?;
            }
            Ok(())
        });
        let refused = |_: &u32| -> bool {
            let freed = d.pinned(3500 * KIB).and_then(|pinned| d.free_pinned(pinned));
            freed.is_err()
        };
        let refused_count = (0..200).filter(refused).count();
        over.store(true, Ordering::SeqCst);
        cycles.join().expect("no program panics")?;
        Ok(format!("refused {refused_count}"))
    })
}

static LAST_DRIVER: AtomicU64 = AtomicU64::new(0);
static KEY: AtomicU32 = AtomicU32::new(0);

/// Sets the key again in the first rounds of the thread's destructors, and frees in the last one.
unsafe extern "C" fn free_in_the_last_round(round: *mut c_void) {
    /// PTHREAD_DESTRUCTOR_ITERATIONS of glibc.
    const ROUNDS: usize = 4;
    if (round as usize) < ROUNDS {
        // SAFETY: the key exists.
        unsafe {
            libc::pthread_setspecific(
                KEY.load(Ordering::SeqCst),
                std::ptr::without_provenance(round as usize + 1),
            )
        };
        return;
    }
    // SAFETY: the driver outlives the thread.
    let driver = unsafe { &*(LAST_DRIVER.load(Ordering::SeqCst) as *const Driver) };
    let _ = driver.free(BLOCK.load(Ordering::SeqCst));
}

/// A thread frees where the library no longer notices its end.
fn query_behind_a_free_in_the_last_destructor(d: &Driver) -> Verdict {
    let (stream, event, work) = (d.stream()?, d.event()?, d.alloc(SMALL)?);
    let mut key = 0;
    // SAFETY: the function takes the value that `pthread_setspecific` has set.
    unsafe { libc::pthread_key_create(&mut key, Some(free_in_the_last_round)) };
    KEY.store(key, Ordering::SeqCst);
    LAST_DRIVER.store(std::ptr::from_ref(d) as u64, Ordering::SeqCst);
    in_thread(d, || {
        BLOCK.store(d.alloc(SMALL)?, Ordering::SeqCst);
        fill(d, stream, work, SMALL, 1, LATE)?;
        d.record(event, stream)?;
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
        Ok(())
    })?;
    // A scope waits for the closure of its thread only.
    sleep_ms(100);
    Ok(format!("code {}", code(call!(d, cuEventQuery(event)))))
}

static BLOCK: AtomicU64 = AtomicU64::new(0);
static CODE: AtomicI32 = AtomicI32::new(-1);

/// Runs `body` in a host function, and returns its code.
fn in_host_function(d: &Driver, body: unsafe extern "C" fn(*mut c_void)) -> Outcome<i32> {
    let stream = d.stream()?;
    d.host_function(stream, body, std::ptr::from_ref(d).cast_mut().cast())?;
    d.synchronize_stream(stream)?;
    Ok(CODE.load(Ordering::SeqCst))
}

/// The driver refuses the request, and the library has no room under a limit. Nothing is released
/// for it, and a later request is served.
fn physical_memory_in_a_host_function(d: &Driver) -> Verdict {
    unsafe extern "C" fn request(driver: *mut c_void) {
        // SAFETY: the driver outlives the wait for the stream.
        let driver = unsafe { &*driver.cast::<Driver>() };
        CODE.store(code(physical_memory(driver, 20 * MIB)), Ordering::SeqCst);
    }
    d.free(d.alloc(40 * MIB)?)?;
    let refused = in_host_function(d, request)?;
    Ok(format!("codes {refused}, {}", code(d.alloc(40 * MIB))))
}

/// Stream-ordered memory is freed in a host function while a stream captures. The driver refuses
/// that, and the memory stays the program's.
fn free_in_a_host_function_beside_a_capture(d: &Driver) -> Verdict {
    unsafe extern "C" fn free(driver: *mut c_void) {
        // SAFETY: the driver outlives the wait for the stream.
        let driver = unsafe { &*driver.cast::<Driver>() };
        CODE.store(code(driver.free(BLOCK.load(Ordering::SeqCst))), Ordering::SeqCst);
    }
    let (stream, captures) = (d.stream()?, d.stream()?);
    let block = d.alloc_async(4096, stream)?;
    d.synchronize()?;
    BLOCK.store(block, Ordering::SeqCst);
    d.begin_capture(captures, RELAXED)?;
    let refused = in_host_function(d, free)?;
    d.end_capture(captures)?;
    Ok(format!("codes {refused}, {}", code(d.free(block))))
}
