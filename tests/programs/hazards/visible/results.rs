//! [1] [2] [3] [28] After a free, the host reads the results of the work submitted before it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Event, Outcome, Stream, THREAD_LOCAL};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Full, pinned_write),
    hazard!(Full, pinned_interior_write),
    hazard!(Full, pinned_in_packed_arguments),
    hazard!(Full, registered_write),
    hazard!(Full, managed_write),
    hazard!(Full, copy_to_pinned),
    hazard!(Full, copy_2d_to_pinned),
    hazard!(Full, memset_of_pinned),
    hazard!(Full, value_to_pinned),
    hazard!(Full, launched_host_function),
    hazard!(Full, stream_callback),
    hazard!(Full, graph_host_node),
    hazard!(Full, pinned_in_graph),
    hazard!(Full, refill_pinned),
    hazard!(Full, refill_what_was_registered_twice),
    hazard!(Full, host_pool_write),
    hazard!(Full, numa_pool_write),
    hazard!(Full, managed_pool_write),
    hazard!(Full, elapsed_time),
    hazard!(Full, event_query),
    hazard!(Full, stream_query),
    hazard!(Full, event_query_behind_a_skipped_barrier),
];

const LOOKED_EARLY: &str = "the host looked before the work was done";

fn pinned_write(d: &Driver) -> Verdict {
    let word = d.pinned(4096)?;
    read_after_free(d, word)
}

fn pinned_interior_write(d: &Driver) -> Verdict {
    let words = d.pinned(1 << 20)?;
    read_after_free(d, words + 400_000)
}

fn registered_write(d: &Driver) -> Verdict {
    let page = page_of_host();
    call!(d, cuMemHostRegister(page, 4096, 0))?;
    read_after_free(d, page)
}

fn managed_write(d: &Driver) -> Verdict {
    let mut word = 0;
    call!(d, cuMemAllocManaged(&mut word, 4096, 1))?;
    read_after_free(d, word)
}

fn read_after_free(d: &Driver, word: u64) -> Verdict {
    look_after(d, |s| fill(d, s, word, 8, 7, 0), || d.host_read(word) == 7)
}

fn host_pool_write(d: &Driver) -> Verdict {
    pool_write(d, [PINNED, 0, HOST, 0])
}

fn numa_pool_write(d: &Driver) -> Verdict {
    pool_write(d, [PINNED, 0, HOST_NUMA, 0])
}

fn managed_pool_write(d: &Driver) -> Verdict {
    pool_write(d, [MANAGED, 0, DEVICE, 0])
}

/// Kinds of memory in a pool, and kinds of its places.
const PINNED: u32 = 1;
const MANAGED: u32 = 2;
const DEVICE: u32 = 1;
const HOST: u32 = 2;
const HOST_NUMA: u32 = 3;

/// The program has created the pool. `start` holds the kind, the handle types, and the kind and
/// number of the place.
fn pool_write(d: &Driver, start: [u32; 4]) -> Verdict {
    let (stream, mut pool, mut word) = (d.stream()?, 0, 0);
    let mut properties = [0_u32; 22];
    properties[..4].copy_from_slice(&start);
    call!(d, cuMemPoolCreate(&mut pool, properties.as_ptr().cast()))?;
    // Without it the device may not access a pool of the host.
    let access = [DEVICE, 0, 3];
    call!(d, cuMemPoolSetAccess(pool, access.as_ptr().cast(), 1))?;
    call!(d, cuMemAllocFromPoolAsync(&mut word, 4096, pool, stream))?;
    d.synchronize()?;
    read_after_free(d, word)
}

/// The program passes all kernel arguments in one packed block.
fn pinned_in_packed_arguments(d: &Driver) -> Verdict {
    let word = d.pinned(4096)?;
    let kernel = d.kernel("late_fill")?;
    let launch = |stream| {
        let block = [word, WORD, 7, 0];
        let bytes = size_of_val(&block);
        let (start, length) = (block.as_ptr() as usize, (&raw const bytes) as usize);
        let extra = [1_usize, start, 2, length, 0];
        let (none, extra) = (std::ptr::null(), extra.as_ptr().cast());
        call!(d, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, none, extra))
    };
    look_after(d, launch, || d.host_read(word) == 7)
}

/// Submits work after a delay, frees an unrelated block, and then checks what the host sees.
pub fn look_after(
    d: &Driver,
    submit: impl FnOnce(Stream) -> Outcome,
    arrived: impl FnOnce() -> bool,
) -> Verdict {
    let (stream, unrelated) = (d.stream()?, d.alloc(SMALL)?);
    d.launch("delay", stream, &[LATE])?;
    submit(stream)?;
    d.free(unrelated)?;
    ok_if(arrived(), LOOKED_EARLY)
}

fn copy_to_pinned(d: &Driver) -> Verdict {
    let (source, host) = (filled(d, 7)?, d.pinned(SMALL)?);
    let last = host + SMALL as u64 - WORD;
    look_after(d, |s| d.copy(host, source, SMALL, s), || d.host_read(last) == 7)
}

fn copy_2d_to_pinned(d: &Driver) -> Verdict {
    let (source, host) = (filled(d, 7)?, d.pinned(SMALL)?);
    let last = host + SMALL as u64 - WORD;
    // CUDA_MEMCPY2D: offsets, kind of memory (host 1, device 2), address, pitch; width, height.
    let (pitch, rows) = (4096, SMALL as u64 / 4096);
    let from = [0, 0, 2, 0, source, 0, pitch];
    let to = [0, 0, 1, host, 0, 0, pitch];
    let shape = [&from[..], &to, &[pitch, rows]].concat();
    let submit = |s| call!(d, cuMemcpy2DAsync(shape.as_ptr().cast(), s));
    look_after(d, submit, || d.host_read(last) == 7)
}

fn memset_of_pinned(d: &Driver) -> Verdict {
    let host = d.pinned(SMALL)?;
    let last = host + SMALL as u64 - WORD;
    look_after(d, |s| d.memset(host, 1, SMALL, s), || d.host_read(last) == 0x0101_0101_0101_0101)
}

fn value_to_pinned(d: &Driver) -> Verdict {
    let word = d.pinned(4096)?;
    d.host_write(word, 0);
    let submit = |s| call!(d, cuStreamWriteValue64(s, word, 7, 0));
    look_after(d, submit, || d.host_read(word) == 7)
}

static RAN: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn host_function(_: *mut c_void) {
    RAN.store(true, Ordering::SeqCst);
}

unsafe extern "C" fn callback(_: u64, _: i32, _: *mut c_void) {
    RAN.store(true, Ordering::SeqCst);
}

fn ran() -> bool {
    RAN.load(Ordering::SeqCst)
}

fn launched_host_function(d: &Driver) -> Verdict {
    look_after(d, |s| d.host_function(s, host_function, std::ptr::null_mut()), ran)
}

fn stream_callback(d: &Driver) -> Verdict {
    let submit = |s| call!(d, cuStreamAddCallback(s, callback, std::ptr::null_mut(), 0));
    look_after(d, submit, ran)
}

fn graph_host_node(d: &Driver) -> Verdict {
    let graph = captured(d, |s| d.host_function(s, host_function, std::ptr::null_mut()))?;
    look_after(d, |s| d.launch_graph(graph, s), ran)
}

fn pinned_in_graph(d: &Driver) -> Verdict {
    let word = d.pinned(4096)?;
    let graph = captured(d, |s| fill(d, s, word, 8, 7, 0))?;
    look_after(d, |s| d.launch_graph(graph, s), || d.host_read(word) == 7)
}

/// [2] The host overwrites memory that the device is still reading.
fn refill_pinned(d: &Driver) -> Verdict {
    let host = d.pinned(WORD as usize)?;
    refill(d, host)
}

/// The driver refuses the second registration, and the first one remains in force.
fn refill_what_was_registered_twice(d: &Driver) -> Verdict {
    let page = page_of_host();
    call!(d, cuMemHostRegister(page, 4096, 0))?;
    let again = [4096, 512].map(|bytes| code(call!(d, cuMemHostRegister(page, bytes, 0))));
    let verdict = refill(d, page)?;
    Ok(format!("again {again:?}, {verdict}"))
}

fn refill(d: &Driver, host: u64) -> Verdict {
    let target = d.alloc(SMALL)?;
    d.host_write(host, 1);
    let submit = |s| d.copy(target, host, WORD as usize, s);
    look_after(d, submit, || true)?;
    d.host_write(host, 2);
    ok_if(holds(d, target, 8, 1)?, "the host overwrote memory still being read")
}

// [3] Queried once, because on the plain driver nothing can be incomplete.

fn elapsed_time(d: &Driver) -> Verdict {
    timed(d, |start, stop, _| d.elapsed_ms(start, stop).map(drop))
}

fn event_query(d: &Driver) -> Verdict {
    timed(d, |_, stop, _| d.query_event(stop))
}

fn stream_query(d: &Driver) -> Verdict {
    timed(d, |_, _, stream| d.query_stream(stream))
}

fn timed(d: &Driver, ask: impl FnOnce(Event, Event, Stream) -> Outcome) -> Verdict {
    let (stream, unrelated) = (d.stream()?, d.alloc(SMALL)?);
    let (start, stop) = (d.event()?, d.event()?);
    d.record(start, stream)?;
    d.launch("delay", stream, &[LATE])?;
    d.record(stop, stream)?;
    d.free(unrelated)?;
    ok_if(ask(start, stop, stream).is_ok(), "it was not done after the free")
}

/// The second free has to wait only for what the first one has not waited for.
fn event_query_behind_a_skipped_barrier(d: &Driver) -> Verdict {
    let (stream, stop) = (d.stream()?, d.event()?);
    let (first, second) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
    // This delay is longer than a query waits for another thread's free.
    d.launch("delay", stream, &[4 * LATE])?;
    d.record(stop, stream)?;
    let (freed, asked) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let freeing = spawn(scope, d, || {
            let done = d.free(first);
            freed.wait();
            asked.wait();
            done
        });
        freed.wait();
        let freed = d.free(second);
        let answer = d.query_event(stop);
        asked.wait();
        freeing.join().expect("no program panics").and(freed)?;
        ok_if(answer.is_ok(), "it was not done after the free")
    })
}

fn captured(d: &Driver, work: impl FnOnce(Stream) -> Outcome) -> Outcome<u64> {
    let stream = d.stream()?;
    d.begin_capture(stream, THREAD_LOCAL)?;
    work(stream)?;
    let graph = d.end_capture(stream)?;
    d.instantiate(graph)
}

pub fn filled(d: &Driver, value: u64) -> Outcome<u64> {
    let block = d.alloc(SMALL)?;
    d.write_words(block, &vec![value; SMALL / 8])?;
    Ok(block)
}

/// Returns a page of ordinary memory that is never freed.
pub fn page_of_host() -> u64 {
    pages_of_host(1)
}

/// Returns consecutive pages of ordinary memory that are never freed.
pub fn pages_of_host(count: usize) -> u64 {
    let pages = std::alloc::Layout::from_size_align(4096 * count, 4096).expect("some pages");
    // SAFETY: the layout is not empty.
    unsafe { std::alloc::alloc_zeroed(pages) as u64 }
}
