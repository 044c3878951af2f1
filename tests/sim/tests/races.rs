//! Races with the host, with freed memory, and with nothing at all.

mod common;
use common::*;

const N: u64 = 1 << 16;

#[test]
fn the_host_reads_pinned_memory_too_early() {
    let outcome = child("the_host_reads_pinned_memory_too_early", &[], |d| {
        let (s, p) = (d.stream().unwrap(), d.pinned(64).unwrap());
        d.launch("fill", s, &[p, 64, 1, MS]).unwrap();
        assert_eq!(d.host_read(p), 0);
    });
    outcome.reports("sim: race: host read / fill");
}

#[test]
fn the_host_refills_what_is_still_copied() {
    let outcome = child("the_host_refills_what_is_still_copied", &[], |d| {
        let (s, p) = (d.stream().unwrap(), d.pinned(64).unwrap());
        let x = d.alloc(64).unwrap();
        d.launch("delay", s, &[MS]).unwrap();
        d.host_write(p, 1);
        d.copy(x, p, 64, s).unwrap();
        d.host_write(p, 2);
        d.synchronize().unwrap();
        assert_eq!(d.read_words(x, 1).unwrap()[0], 2);
    });
    outcome.reports("sim: race: host write / memcpy");
}

#[test]
fn a_native_free_makes_pinned_results_visible() {
    let outcome = child("a_native_free_makes_pinned_results_visible", &[], |d| {
        let (s, p, t) = (d.stream().unwrap(), d.pinned(64).unwrap(), d.alloc(512).unwrap());
        d.launch("fill", s, &[p, 64, 1, MS]).unwrap();
        d.free(t).unwrap();
        assert_eq!(d.host_read(p), 1);
    });
    outcome.clean();
}

#[test]
fn an_address_hides_in_copied_data() {
    let outcome = child("an_address_hides_in_copied_data", &[], |d| {
        let (s, p, target) = (d.stream().unwrap(), d.pinned(64).unwrap(), d.alloc(24).unwrap());
        d.write_words(target, &[p, 64, 3]).unwrap();
        d.launch("indirect_fill", s, &[target, MS]).unwrap();
        d.synchronize().unwrap();
        assert_eq!(d.host_read(p + 56), 3);
    });
    outcome.clean();
}

/// The driver assumes that all work on stream-ordered memory has ended when `cuMemFree` frees it.
#[test]
fn pool_memory_is_freed_before_its_work_has_begun() {
    let test = "pool_memory_is_freed_before_its_work_has_begun";
    let outcome = child(test, &[("SIM_FREES_JUDGED", "1")], |d| {
        let s = d.stream().unwrap();
        let x = d.alloc_async(N as usize, s).unwrap();
        d.launch("delay", s, &[MS]).unwrap();
        d.launch("fill", s, &[x, N, 1, MS]).unwrap();
        d.free(x).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: race: fill");
}

#[test]
fn recycled_pool_memory_is_freed_before_its_request() {
    let outcome = child("recycled_pool_memory_is_freed_before_its_request", &[], |d| {
        let (s, t) = (d.blocking_stream().unwrap(), d.stream().unwrap());
        let x = d.alloc_async(N as usize, s).unwrap();
        d.free_async(x, s).unwrap();
        d.launch("delay", LEGACY, &[MS]).unwrap();
        let y = d.alloc_async(N as usize, s).unwrap();
        assert_eq!(x, y);
        d.free_async(y, t).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: race: request#");
}

#[test]
fn pool_memory_is_freed_after_a_wait() {
    let test = "pool_memory_is_freed_after_a_wait";
    let outcome = child(test, &[("SIM_FREES_JUDGED", "1")], |d| {
        let s = d.stream().unwrap();
        let x = d.alloc_async(N as usize, s).unwrap();
        d.launch("fill", s, &[x, N, 1, MS]).unwrap();
        d.synchronize_stream(s).unwrap();
        d.free(x).unwrap();
        d.synchronize().unwrap();
    });
    outcome.clean();
}

#[test]
fn memory_is_used_after_its_free() {
    let outcome = child("memory_is_used_after_its_free", &[], |d| {
        let (s, x) = (d.stream().unwrap(), d.alloc(N as usize).unwrap());
        d.free(x).unwrap();
        d.launch("fill", s, &[x, N, 1, 0]).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: use after free: fill");
}

const PAGE: usize = 2 << 20;

/// Calls a function of the driver that has no wrapper.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),*)) => {
        // SAFETY: each argument is a value, or a place of the test that outlives the call and is as
        // large as this function's documentation requires.
        check(unsafe { ($driver.functions.$function)($($argument),*) })
    };
}

/// Memory of device 0, mapped to be read and written.
fn mapped_page(d: &Driver) -> u64 {
    // CUmemAllocationProp: pinned memory of device 0.
    let properties = [1_u32, 0, 1, 0, 0, 0, 0, 0];
    let (mut address, mut memory) = (0, 0);
    call!(d, cuMemAddressReserve(&mut address, PAGE, 0, 0, 0)).unwrap();
    call!(d, cuMemCreate(&mut memory, PAGE, properties.as_ptr().cast(), 0)).unwrap();
    call!(d, cuMemMap(address, PAGE, 0, memory, 0)).unwrap();
    set_access(d, address, 3);
    address
}

fn set_access(d: &Driver, address: u64, flags: u32) {
    // CUmemAccessDesc: device 0.
    let access = [1_u32, 0, flags];
    call!(d, cuMemSetAccess(address, PAGE, access.as_ptr().cast(), 1)).unwrap();
}

#[test]
fn access_is_taken_away_from_work_that_may_run() {
    let outcome = child("access_is_taken_away_from_work_that_may_run", &[], |d| {
        let (s, x) = (d.stream().unwrap(), mapped_page(d));
        d.launch("fill", s, &[x, N, 1, 0]).unwrap();
        while d.query_stream(s).is_err() {}
        // The program has learned that this has ended.
        set_access(d, x, 0);
        set_access(d, x, 3);
        d.launch("fill", s, &[x, N, 1, 0]).unwrap();
        set_access(d, x, 0);
        set_access(d, x, 3);
        d.synchronize().unwrap();
    });
    outcome.reports("sim: race: cuMemSetAccess");
}

#[test]
fn nothing_was_ever_there() {
    let outcome = child("nothing_was_ever_there", &[], |d| {
        let s = d.stream().unwrap();
        d.launch("fill", s, &[0x1000, 64, 1, 0]).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: wild access: fill");
}

#[test]
fn a_stream_ordered_free_races_with_an_unordered_use() {
    let outcome = child("a_stream_ordered_free_races_with_an_unordered_use", &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let x = d.alloc_async(N as usize, a).unwrap();
        d.synchronize_stream(a).unwrap();
        d.launch("fill", b, &[x, N, 1, MS]).unwrap();
        d.launch("delay", a, &[2 * MS]).unwrap();
        d.free_async(x, a).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: race: fill");
}

#[test]
fn pool_memory_is_used_before_its_stream_reaches_the_allocation() {
    let test = "pool_memory_is_used_before_its_stream_reaches_the_allocation";
    let outcome = child(test, &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let x = d.alloc_async(N as usize, a).unwrap();
        d.launch("late_fill", a, &[x, N, 1, MS]).unwrap();
        d.free_async(x, a).unwrap();
        // The same stream gets the block again at once; another stream must not touch it.
        assert_eq!(d.alloc_async(N as usize, a).unwrap(), x);
        d.launch("fill", b, &[x, N, 2, 0]).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: race: ");
}

#[test]
fn memory_is_used_beside_its_request() {
    let outcome = child("memory_is_used_beside_its_request", &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let x = d.alloc_async(N as usize, a).unwrap();
        d.launch("fill", b, &[x, N, 1, 0]).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: race: request#0 on stream");
}

#[test]
fn memory_is_used_beside_its_second_request() {
    let outcome = child("memory_is_used_beside_its_second_request", &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let x = d.alloc_async(N as usize, a).unwrap();
        d.launch("fill", a, &[x, N, 1, MS]).unwrap();
        d.free_async(x, a).unwrap();
        d.synchronize().unwrap();
        assert_eq!(d.alloc_async(N as usize, a).unwrap(), x);
        d.launch("fill", b, &[x, N, 2, 0]).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: race: ");
}

#[test]
fn requests_are_ordered_as_work_is() {
    let outcome = child("requests_are_ordered_as_work_is", &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let x = d.alloc_async(N as usize, a).unwrap();
        let event = d.event().unwrap();
        d.record(event, a).unwrap();
        d.stream_waits(b, event).unwrap();
        d.launch("fill", b, &[x, N, 1, MS]).unwrap();
        d.free_async(x, b).unwrap();
        let y = d.alloc_async(N as usize, a).unwrap();
        d.synchronize_stream(a).unwrap();
        d.launch("fill", b, &[y, N, 2, MS]).unwrap();
        let z = d.alloc_async(N as usize, PER_THREAD).unwrap();
        d.launch("fill", LEGACY, &[z, N, 3, MS]).unwrap();
        d.synchronize().unwrap();
    });
    outcome.clean();
}

#[test]
fn stream_ordered_reuse_is_clean() {
    let outcome = child("stream_ordered_reuse_is_clean", &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        for _ in 0..50 {
            let x = d.alloc_async(N as usize, a).unwrap();
            d.launch("fill", a, &[x, N, 1, MS]).unwrap();
            d.free_async(x, a).unwrap();
            let y = d.alloc_async(N as usize, b).unwrap();
            assert_ne!(x, y);
            d.launch("fill", b, &[y, N, 2, MS]).unwrap();
            d.free_async(y, b).unwrap();
        }
        d.synchronize().unwrap();
    });
    outcome.clean();
}

#[test]
fn a_hundred_thousand_operations_take_seconds() {
    let outcome = child("a_hundred_thousand_operations_take_seconds", &[], |d| {
        let streams: Vec<u64> = (0..16).map(|_| d.stream().unwrap()).collect();
        let blocks: Vec<u64> = (0..512).map(|_| d.alloc(512).unwrap()).collect();
        let start = std::time::Instant::now();
        for i in 0..100_000_usize {
            let (stream, block) = (streams[i % 16], blocks[i % 512]);
            d.launch("fill", stream, &[block, 512, i as u64, 20_000]).unwrap();
        }
        d.synchronize().unwrap();
        let elapsed = start.elapsed();
        assert!(elapsed.as_secs() < 20, "{elapsed:?}");
    });
    outcome.clean();
}
