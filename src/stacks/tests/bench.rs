//! Nanoseconds per frame of this crate and of libgcc, through eight -O2 libraries without frame
//! pointers.
//!
//! `cargo test --release -p cachealloc-stacks --test bench -- --ignored --nocapture`

mod common;

use std::ffi::{c_int, c_void};
use std::sync::Barrier;

use cachealloc_stacks::{capture, capture_by_libgcc, fallbacks};
use common::{FRAMES_MAX, Library, NOTHING_HIDDEN, build};

const LIBRARIES: usize = 8;
const HOPS: usize = 64;

#[repr(C)]
struct Chain {
    hops: [u64; HOPS],
    count: c_int,
    bottom: extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
}

struct Measure {
    ours: bool,
    captures: u32,
    frames: usize,
    nanoseconds: f64,
}

#[test]
#[ignore = "a measurement"]
fn nanoseconds_a_frame() {
    let mut hops = [0; HOPS];
    for index in 0..LIBRARIES {
        let Some(path) = build("chain.cpp", &format!("chain{index}"), &["-O2"]) else { return };
        let library = Library::open(&path);
        for step in 0..HOPS / LIBRARIES {
            hops[step * LIBRARIES + index] = library.address(&format!("hop{step}"));
        }
    }
    println!("threads  hops  frames   ours ns/frame  libgcc ns/frame");
    for threads in [1, 2, 4, 8] {
        for depth in [5, 15, 30] {
            let [ours, libgcc] = [true, false].map(|ours| on_threads(threads, &hops, depth, ours));
            println!(
                "{threads:7} {depth:5} {:7} {:15.2} {:16.1}",
                ours.frames,
                ours.nanoseconds / ours.frames as f64,
                libgcc.nanoseconds / libgcc.frames as f64,
            );
        }
    }
    println!("captures left to libgcc: {}", fallbacks());
}

/// Returns the best of several rounds by processor time, so that other work on the machine does not
/// count.
fn on_threads(threads: usize, hops: &[u64; HOPS], depth: c_int, ours: bool) -> Measure {
    let barrier = Barrier::new(threads);
    let run = || {
        barrier.wait();
        let captures = if ours { 20_000 } else { 1_000 };
        let rounds = (0..10).map(|_| one_round(hops, depth, ours, captures));
        rounds.min_by(|a, b| a.nanoseconds.total_cmp(&b.nanoseconds)).unwrap()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let all: Vec<_> = running.into_iter().map(|thread| thread.join().unwrap()).collect();
        let mean = all.iter().map(|it| it.nanoseconds).sum::<f64>() / threads as f64;
        Measure { nanoseconds: mean, ..all.into_iter().next().unwrap() }
    })
}

fn one_round(hops: &[u64; HOPS], depth: c_int, ours: bool, captures: u32) -> Measure {
    let mut measure = Measure { ours, captures, frames: 0, nanoseconds: 0.0 };
    let chain = Chain {
        hops: *hops,
        count: HOPS as c_int,
        bottom: measured,
        argument: (&raw mut measure).cast(),
    };
    // SAFETY: the fixture's function of this type.
    let first: extern "C-unwind" fn(*const Chain, c_int) -> c_int =
        unsafe { core::mem::transmute(hops[0]) };
    first(&chain, depth);
    measure
}

extern "C-unwind" fn measured(argument: *mut c_void) {
    // SAFETY: the pointer that `one_round` passed.
    let measure = unsafe { &mut *argument.cast::<Measure>() };
    let mut out = [0; FRAMES_MAX];
    let mut take = || match measure.ours {
        true => capture(&mut out, NOTHING_HIDDEN).count,
        false => capture_by_libgcc(&mut out),
    };
    measure.frames = take();
    let begin = processor_time();
    for _ in 0..measure.captures {
        std::hint::black_box(take());
    }
    measure.nanoseconds = (processor_time() - begin) / f64::from(measure.captures);
}

fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
