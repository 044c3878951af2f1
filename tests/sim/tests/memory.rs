//! Sizes, limits and contents of memory, and the calls that answer about it.

mod common;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

use common::*;

const MIB: usize = 1 << 20;

#[test]
fn sizes_and_places_are_as_measured() {
    let outcome = child("sizes_and_places_are_as_measured", &[], |d| {
        let (before, _) = d.memory_info().unwrap();
        let all: Vec<u64> = (0..10_000).map(|_| d.alloc(1).unwrap()).collect();
        assert_eq!(all[1] - all[0], 512);
        assert_eq!(before - d.memory_info().unwrap().0, 4 * MIB);
        assert_eq!(d.address_range(all[7]).unwrap(), (all[7], 1));
        all.into_iter().for_each(|p| d.free(p).unwrap());
        assert_eq!(d.memory_info().unwrap().0, before);
        let big = d.alloc(2 * MIB + 1).unwrap();
        assert_eq!(big % (2 * MIB as u64), 0);
        assert_eq!(before - d.memory_info().unwrap().0, 4 * MIB);
        assert_eq!(d.address_range(big + 5).unwrap(), (big, 2 * MIB + 1));
        d.free(big).unwrap();
    });
    outcome.clean();
}

#[test]
fn wrong_frees_and_odd_sizes() {
    let outcome = child("wrong_frees_and_odd_sizes", &[], |d| {
        let p = d.alloc(4096).unwrap();
        assert_eq!(d.free(p + 512), Err(1));
        assert_eq!(d.free(0x1234), Err(1));
        assert_eq!(d.free(0), Ok(()));
        assert_eq!(d.free(p), Ok(()));
        assert_eq!(d.free(p), Err(1));
        assert_eq!(d.alloc(0), Err(1));
        assert_eq!(d.alloc(1 << 60), Err(2));
        assert_eq!(d.address_range(p), Err(500));
    });
    outcome.clean();
}

/// A process has a few thousand descriptors at most, and a program many handles.
#[test]
fn physical_memory_takes_one_descriptor() {
    const PAGE: usize = 2 * MIB;
    let machine = [("SIM_MEMORY_MB", "8192")];
    let outcome = child("physical_memory_takes_one_descriptor", &machine, |d| {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        // Pinned, on device 0.
        let properties = [1_u32, 0, 1, 0, 0, 0, 0, 0];
        let before = descriptors();
        let create = || {
            let mut handle = 0;
            // SAFETY: both places outlive the call.
            let code = unsafe {
                (d.functions.cuMemCreate)(&mut handle, PAGE, properties.as_ptr().cast(), 0)
            };
            assert_eq!(code, 0);
            handle
        };
        let handles: Vec<u64> = (0..2000).map(|_| create()).collect();
        assert!(descriptors() <= before + 1);
        for handle in handles {
            // SAFETY: a handle of above.
            assert_eq!(unsafe { (d.functions.cuMemRelease)(handle) }, 0);
        }
    });
    outcome.clean();
}

#[test]
fn memory_runs_out_and_comes_back() {
    let outcome = child("memory_runs_out_and_comes_back", &[("SIM_MEMORY_MB", "64")], |d| {
        let mut held = Vec::new();
        let code = loop {
            match d.alloc(8 * MIB) {
                Ok(p) => held.push(p),
                Err(code) => break code,
            }
        };
        assert_eq!((code, held.len()), (2, 7));
        d.free(held.pop().unwrap()).unwrap();
        assert!(d.alloc(8 * MIB).is_ok());
    });
    outcome.ran();
    assert!(outcome.report.contains("leak "), "{}", outcome.report);
}

#[test]
fn big_memory_reads_zero_and_small_keeps_its_bytes() {
    let outcome = child("big_memory_reads_zero_and_small_keeps_its_bytes", &[], |d| {
        for (bytes, kept) in [(4 * MIB, 0), (4096, 9)] {
            let p = d.alloc(bytes).unwrap();
            d.write_words(p, &[9]).unwrap();
            d.free(p).unwrap();
            assert_eq!(d.alloc(bytes).unwrap(), p);
            assert_eq!(d.read_words(p, 1).unwrap()[0], kept);
            d.free(p).unwrap();
        }
    });
    outcome.clean();
}

#[test]
fn the_other_free_of_each_kind_works() {
    let outcome = child("the_other_free_of_each_kind_works", &[], |d| {
        let s = d.stream().unwrap();
        let (free, _) = d.memory_info().unwrap();
        let plain = d.alloc(8 * MIB).unwrap();
        d.free_async(plain, s).unwrap();
        assert_eq!(d.free_async(plain, s), Err(1));
        let pooled = d.alloc_async(8 * MIB, s).unwrap();
        d.launch("spin", d.stream().unwrap(), &[d.pinned(8).unwrap(), 0]).unwrap();
        d.free(pooled).unwrap();
        assert_eq!(d.free(pooled), Err(1));
        d.synchronize().unwrap();
        assert_eq!(d.memory_info().unwrap().0, free);
    });
    outcome.clean();
}

#[test]
fn a_free_of_pool_memory_does_not_wait() {
    let outcome = child("a_free_of_pool_memory_does_not_wait", &[], |d| {
        let (a, b, flag) = (d.stream().unwrap(), d.stream().unwrap(), d.pinned(8).unwrap());
        let p = d.alloc_async(MIB, a).unwrap();
        d.launch("spin", a, &[flag, 1]).unwrap();
        d.free(p).unwrap();
        d.launch("set", b, &[flag, 1]).unwrap();
        d.synchronize().unwrap();
    });
    outcome.clean();
}

#[test]
fn memory_a_stream_does_not_need_stays_in_the_pool() {
    let name = "memory_a_stream_does_not_need_stays_in_the_pool";
    let outcome = child(name, &[("SIM_MEMORY_MB", "64")], |d| {
        let (a, b, flag) = (d.stream().unwrap(), d.stream().unwrap(), d.pinned(8).unwrap());
        let blocks = [d.alloc_async(24 * MIB, a).unwrap(), d.alloc_async(24 * MIB, a).unwrap()];
        d.launch("spin", a, &[flag, 1]).unwrap();
        blocks.iter().for_each(|block| d.free_async(*block, a).unwrap());
        let behind = d.alloc_async(32 * MIB, b).unwrap();
        assert_eq!(d.alloc(20 * MIB), Err(2));
        let rest = d.alloc_async(16 * MIB, b).unwrap();
        d.set_flag(flag, 1);
        [behind, rest].into_iter().for_each(|block| d.free_async(block, b).unwrap());
        d.synchronize().unwrap();
    });
    outcome.clean();
}

/// A program must not rely on the driver making a request wait for memory that another stream has
/// freed.
#[test]
fn pool_request_dependencies_order_nothing_else() {
    let name = "pool_request_dependencies_order_nothing_else";
    let outcome = child(name, &[("SIM_MEMORY_MB", "64")], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let shared = d.alloc(4096).unwrap();
        for over in [false, true] {
            let block = d.alloc_async(40 * MIB, a).unwrap();
            d.launch("fill", a, &[shared, 64, 1, MS]).unwrap();
            d.free_async(block, a).unwrap();
            if over {
                d.launch("delay", b, &[2 * MS]).unwrap();
                d.synchronize_stream(b).unwrap();
            }
            let block = d.alloc_async(40 * MIB, b).unwrap();
            d.synchronize_stream(b).unwrap();
            d.query_stream(a).unwrap();
            assert_eq!(d.answered_by_chance(), Some(true));
            d.free_async(block, b).unwrap();
            d.synchronize().unwrap();
        }
        // The program must not rely on whether the legacy stream stops a request, either.
        let c = d.blocking_stream().unwrap();
        let block = d.alloc_async(8 * MIB, c).unwrap();
        d.free_async(block, c).unwrap();
        d.launch("delay", LEGACY, &[MS]).unwrap();
        let block = d.alloc_async(8 * MIB, c).unwrap();
        d.synchronize_stream(c).unwrap();
        d.query_stream(LEGACY).unwrap();
        assert_eq!(d.answered_by_chance(), Some(true));
        d.free_async(block, c).unwrap();
        let block = d.alloc_async(40 * MIB, a).unwrap();
        d.launch("fill", a, &[shared, 64, 1, MS]).unwrap();
        d.free_async(block, a).unwrap();
        let _ = d.alloc_async(40 * MIB, b).unwrap();
        d.launch("fill", b, &[shared, 64, 2, 0]).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: race: fill#");
}

/// Whether a call by another thread stands still while a free waits.
fn stands_still(d: &Driver, step: fn(&Driver, u64, u64)) -> bool {
    let (busy, other) = (d.stream().unwrap(), d.stream().unwrap());
    let (flag, p, q) = (d.pinned(8).unwrap(), d.alloc(MIB).unwrap(), d.alloc(MIB).unwrap());
    let context = d.context();
    d.kernel("delay").unwrap();
    d.launch("spin", busy, &[flag, 1]).unwrap();
    let done = AtomicBool::new(false);
    let mut still = false;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            d.set_context(context).unwrap();
            d.free(p).unwrap();
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        scope.spawn(|| {
            d.set_context(context).unwrap();
            step(d, other, q);
            done.store(true, SeqCst);
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        still = !done.load(SeqCst);
        d.set_flag(flag, 1);
    });
    assert!(done.load(SeqCst));
    still
}

#[test]
fn a_free_waits_and_holds_the_context() {
    let outcome = child("a_free_waits_and_holds_the_context", &[], |d| {
        static EVENT: AtomicU64 = AtomicU64::new(0);
        EVENT.store(d.event().unwrap(), SeqCst);
        assert!(stands_still(d, |d, stream, _| d.launch("delay", stream, &[1]).unwrap()));
        assert!(stands_still(d, |d, _, _| {
            let _ = d.alloc(4096).unwrap();
        }));
        assert!(stands_still(d, |d, _, _| {
            let _ = d.pinned(4096).unwrap();
        }));
        assert!(stands_still(d, |d, _, block| d.free(block).unwrap()));
        assert!(stands_still(d, |d, _, _| {
            let _ = d.stream().unwrap();
        }));
        assert!(stands_still(d, |d, _, _| {
            let _ = d.event().unwrap();
        }));
        assert!(stands_still(d, |d, stream, _| d.record(EVENT.load(SeqCst), stream).unwrap()));
        assert!(stands_still(d, |d, _, _| d.barrier(EVENT.load(SeqCst)).unwrap()));
        assert!(!stands_still(d, |d, _, _| d.context_waits(EVENT.load(SeqCst)).unwrap()));
        assert!(!stands_still(d, |d, stream, _| {
            d.stream_waits(stream, EVENT.load(SeqCst)).unwrap();
        }));
        assert!(stands_still(d, |d, _, _| d.destroy_event(EVENT.load(SeqCst)).unwrap()));
        assert!(!stands_still(d, |d, stream, _| {
            let _ = d.query_stream(stream);
        }));
        assert!(!stands_still(d, |d, _, _| {
            let _ = d.memory_info().unwrap();
        }));
        assert!(!stands_still(d, |d, stream, _| {
            let _ = d.alloc_async(4096, stream).unwrap();
        }));
        assert!(!stands_still(d, |d, stream, block| d.free_async(block, stream).unwrap()));
    });
    outcome.ran();
}

#[test]
fn the_cost_of_calls_is_virtual() {
    let outcome = child("the_cost_of_calls_is_virtual", &[], |d| {
        let start = d.virtual_ns().unwrap();
        let p = d.alloc(4 * MIB).unwrap();
        d.free(p).unwrap();
        let large = d.virtual_ns().unwrap() - start;
        let p = d.alloc(4096).unwrap();
        d.free(p).unwrap();
        let small = d.virtual_ns().unwrap() - start - large;
        assert!((80_000..81_000).contains(&large), "{large}");
        assert!((4_000..5_000).contains(&small), "{small}");
    });
    outcome.clean();
}

#[test]
fn memory_freed_in_order_returns_at_a_synchronization() {
    let name = "memory_freed_in_order_returns_at_a_synchronization";
    let outcome = child(name, &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let before = d.memory_info().unwrap().0;
        let lost = || before - d.memory_info().unwrap().0;
        for way in 0..2 {
            let block = d.alloc(64 * MIB).unwrap();
            d.free_async(block, a).unwrap();
            while d.query_stream(a) == Err(600) {}
            d.synchronize_stream(b).unwrap();
            assert_eq!(lost(), 64 * MIB, "nobody synchronised with it");
            if way == 0 { d.synchronize_stream(a) } else { d.synchronize() }.unwrap();
            assert_eq!(lost(), 0);
        }
        let block = d.alloc(64 * MIB).unwrap();
        let event = d.event().unwrap();
        d.free_async(block, a).unwrap();
        d.record(event, a).unwrap();
        while d.query_event(event) == Err(600) {}
        assert_eq!(lost(), 64 * MIB);
        d.synchronize_event(event).unwrap();
        assert_eq!(lost(), 0);
    });
    outcome.clean();
}
