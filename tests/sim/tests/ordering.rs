//! Each ordering rule between streams: its guarantees, by contents and without races, and the
//! limits of the guarantees, by the race that is reported.

mod common;
use common::*;

const N: u64 = 4096;

/// Fills late on `first` and copies out on `second`. Returns whether the copy saw the fill.
fn saw_fill(d: &Driver, first: u64, second: u64, between: impl FnOnce(&Driver)) -> bool {
    let (a, b) = (d.alloc(N as usize).unwrap(), d.alloc(N as usize).unwrap());
    d.launch("late_fill", first, &[a, N, 7, 5 * MS]).unwrap();
    between(d);
    d.launch("copy", second, &[b, a, N, 0]).unwrap();
    d.synchronize().unwrap();
    d.read_words(b, 1).unwrap()[0] == 7
}

macro_rules! ordered {
    ($($name:ident $body:expr;)+) => {$(
        #[test]
        fn $name() {
            let body: fn(&Driver) -> bool = $body;
            child(stringify!($name), &[], |d| assert!(body(d))).clean();
        }
    )+};
}

macro_rules! unordered {
    ($($name:ident $body:expr;)+) => {$(
        #[test]
        fn $name() {
            let body: fn(&Driver) -> bool = $body;
            let outcome = child(stringify!($name), &[], |d| assert!(!body(d)));
            // The copy comes first in virtual time: the fill takes longer.
            outcome.reports("sim: race: copy");
        }
    )+};
}

ordered! {
    one_stream |d| { let s = d.stream().unwrap(); saw_fill(d, s, s, |_| {}) };
    legacy_waits_for_blocking |d| {
        let s = d.blocking_stream().unwrap();
        saw_fill(d, s, 0, |_| {})
    };
    blocking_waits_for_legacy |d| {
        let s = d.blocking_stream().unwrap();
        saw_fill(d, 0, s, |_| {})
    };
    legacy_waits_for_a_destroyed_blocking_stream |d| {
        let s = d.blocking_stream().unwrap();
        saw_fill(d, s, 0, |d| d.destroy_stream(s).unwrap())
    };
    legacy_waits_for_per_thread |d| saw_fill(d, PER_THREAD, LEGACY, |_| {});
    event_between_streams |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        saw_fill(d, a, b, |d| {
            let e = d.event().unwrap();
            d.record(e, a).unwrap();
            d.stream_waits(b, e).unwrap();
            d.destroy_event(e).unwrap();
        })
    };
    barrier_orders_a_new_stream |d| {
        let a = d.stream().unwrap();
        let (x, y) = (d.alloc(N as usize).unwrap(), d.alloc(N as usize).unwrap());
        d.launch("late_fill", a, &[x, N, 7, 5 * MS]).unwrap();
        d.destroy_stream(a).unwrap();
        d.barrier(d.event().unwrap()).unwrap();
        let b = d.stream().unwrap();
        d.launch("copy", b, &[y, x, N, 0]).unwrap();
        d.synchronize().unwrap();
        d.read_words(y, 1).unwrap()[0] == 7
    };
    host_wait_between |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        saw_fill(d, a, b, |d| d.synchronize_stream(a).unwrap())
    };
    query_until_done_between |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        saw_fill(d, a, b, |d| while d.query_stream(a).is_err() {})
    };
    free_between |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        saw_fill(d, a, b, |d| d.free(d.alloc(16).unwrap()).unwrap())
    };
    barrier_holds_back_an_early_start |d| {
        let s = d.stream().unwrap();
        let (x, y) = (d.alloc(N as usize).unwrap(), d.alloc(N as usize).unwrap());
        d.launch("late_fill", s, &[x, N, 7, 5 * MS]).unwrap();
        d.barrier(d.event().unwrap()).unwrap();
        d.launch_early("copy", s, &[y, x, N, 0]).unwrap();
        d.synchronize().unwrap();
        d.read_words(y, 1).unwrap()[0] == 7
    };
    flag_between_streams |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let flag = d.alloc(8).unwrap();
        saw_fill(d, a, b, |d| {
            d.memset(flag, 0, 8, a).unwrap();
            d.launch("set", a, &[flag, 1]).unwrap();
            let e = d.event().unwrap();
            d.record(e, a).unwrap();
            // The flag itself is cleared in order; what follows is ordered by the flag alone.
            let wait = d.functions.cuStreamWaitValue64;
            // SAFETY: the function takes numbers.
            assert_eq!(unsafe { wait(b, flag, 1, 1) }, 0);
        })
    };
}

unordered! {
    two_streams |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        saw_fill(d, a, b, |_| {})
    };
    legacy_and_non_blocking |d| { let s = d.stream().unwrap(); saw_fill(d, 0, s, |_| {}) };
    an_event_recorded_too_early |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let e = d.event().unwrap();
        d.record(e, a).unwrap();
        saw_fill(d, a, b, |d| d.stream_waits(b, e).unwrap())
    };
    another_streams_wait |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        saw_fill(d, a, b, |d| d.synchronize_stream(b).unwrap())
    };
    another_streams_wait_for_an_event |d| {
        let (blocking, a, b) =
            (d.blocking_stream().unwrap(), d.stream().unwrap(), d.stream().unwrap());
        let e = d.event().unwrap();
        d.launch("delay", a, &[MS]).unwrap();
        d.record(e, a).unwrap();
        saw_fill(d, LEGACY, b, |d| {
            d.stream_waits(blocking, e).unwrap();
            d.synchronize_stream(blocking).unwrap();
        })
    };
    an_early_start |d| {
        let s = d.stream().unwrap();
        let (x, y) = (d.alloc(N as usize).unwrap(), d.alloc(N as usize).unwrap());
        d.launch("late_fill", s, &[x, N, 7, 5 * MS]).unwrap();
        d.launch_early("copy", s, &[y, x, N, 0]).unwrap();
        d.synchronize().unwrap();
        d.read_words(y, 1).unwrap()[0] == 7
    };
    an_early_start_behind_a_finished_event |d| {
        let s = d.stream().unwrap();
        let (x, y) = (d.alloc(N as usize).unwrap(), d.alloc(N as usize).unwrap());
        let e = d.event().unwrap();
        d.record(e, s).unwrap();
        d.synchronize_event(e).unwrap();
        d.launch("late_fill", s, &[x, N, 7, 5 * MS]).unwrap();
        d.stream_waits(s, e).unwrap();
        d.launch_early("copy", s, &[y, x, N, 0]).unwrap();
        d.synchronize().unwrap();
        d.read_words(y, 1).unwrap()[0] == 7
    };
    a_free_in_another_context |d| {
        let (a, own) = (d.stream().unwrap(), d.context());
        let (x, y) = (d.alloc(N as usize).unwrap(), d.alloc(N as usize).unwrap());
        d.launch("late_fill", a, &[x, N, 7, 5 * MS]).unwrap();
        let other = d.create_context(0).unwrap();
        d.free(d.alloc(16).unwrap()).unwrap();
        let b = d.stream().unwrap();
        d.launch("copy", b, &[y, x, N, 0]).unwrap();
        d.synchronize().unwrap();
        let seen = d.read_words(y, 1).unwrap()[0] == 7;
        assert_ne!(own, other);
        d.set_context(own).unwrap();
        d.synchronize().unwrap();
        seen
    };
}

#[test]
fn work_in_flight_is_really_in_flight() {
    let outcome = child("work_in_flight_is_really_in_flight", &[], |d| {
        let s = d.stream().unwrap();
        let p = d.pinned(64).unwrap();
        let e = d.event().unwrap();
        d.launch("late_fill", s, &[p, 64, 9, 5 * MS]).unwrap();
        d.record(e, s).unwrap();
        assert_eq!(d.query_event(e), Err(600));
        // SAFETY: pinned memory of this test.
        assert_eq!(unsafe { (p as *const u64).read_volatile() }, 0);
        d.synchronize_event(e).unwrap();
        assert_eq!(d.host_read(p), 9);
        assert!(d.virtual_ns().is_none_or(|ns| ns >= 5 * MS));
    });
    outcome.clean();
}

#[test]
fn events_measure_virtual_time() {
    let outcome = child("events_measure_virtual_time", &[], |d| {
        let s = d.stream().unwrap();
        let (a, b) = (d.event().unwrap(), d.event().unwrap());
        d.kernel("delay").unwrap();
        d.record(a, s).unwrap();
        d.launch("delay", s, &[3 * MS]).unwrap();
        d.record(b, s).unwrap();
        assert_eq!(d.elapsed_ms(a, b), Err(600));
        d.synchronize().unwrap();
        let ms = d.elapsed_ms(a, b).unwrap();
        assert!((3.0..3.1).contains(&ms), "{ms}");
    });
    outcome.clean();
}

/// Only the end of work that was waited for is known. Another GPU may not report the end of other
/// work.
#[test]
fn an_answer_without_a_wait_is_chance() {
    let outcome =
        child("an_answer_without_a_wait_is_chance", &[("SIM_ONLY_WAITS_TELL", "1")], |d| {
            let (s, e) = (d.stream().unwrap(), d.event().unwrap());
            d.launch("delay", s, &[MS]).unwrap();
            d.record(e, s).unwrap();
            while d.query_event(e).is_err() {
                assert_eq!(d.answered_by_chance(), Some(false));
            }
            assert_eq!(d.answered_by_chance(), Some(true));
            // A result that rests on that is by chance, too.
            d.query_stream(s).unwrap();
            assert_eq!(d.answered_by_chance(), Some(true));
            d.synchronize_stream(s).unwrap();
            d.query_stream(s).unwrap();
            assert_eq!(d.answered_by_chance(), Some(false));
            d.launch("delay", s, &[MS]).unwrap();
            d.synchronize().unwrap();
            d.query_stream(s).unwrap();
            assert_eq!(d.answered_by_chance(), Some(false));
        });
    outcome.clean();
}

/// A program cannot know whether it gets recycled memory, so its request for memory does not make a
/// wait for the stream wait for a record behind a barrier of the context.
#[test]
fn a_request_makes_no_record_known() {
    let outcome = child("a_request_makes_no_record_known", &[("SIM_ONLY_WAITS_TELL", "1")], |d| {
        let (s, t, barrier) = (d.stream().unwrap(), d.stream().unwrap(), d.event().unwrap());
        let mut untimed = 0;
        // SAFETY: a local for the result; 2 is an event without timing.
        check(unsafe { (d.functions.cuEventCreate)(&mut untimed, 2) }).unwrap();
        let recycled = d.alloc_async(4096, s).unwrap();
        d.free_async(recycled, s).unwrap();
        d.launch("delay", t, &[5 * MS]).unwrap();
        d.record(barrier, t).unwrap();
        d.context_waits(barrier).unwrap();
        d.record(untimed, s).unwrap();
        let again = d.alloc_async(4096, s).unwrap();
        assert_eq!(again, recycled);
        d.synchronize_stream(s).unwrap();
        assert_eq!(d.query_event(untimed), Err(600));
        // Work comes after the record, too.
        d.launch("late_fill", s, &[again, 4096, 1, 0]).unwrap();
        d.synchronize_stream(s).unwrap();
        d.query_event(untimed).unwrap();
        assert_eq!(d.answered_by_chance(), Some(false));
    });
    outcome.clean();
}

/// Work that one thread has waited for is past for all threads.
#[test]
fn record_after_a_wait_of_another_is_complete() {
    let outcome = child("record_after_a_wait_of_another_is_complete", &[], |d| {
        let (s, e) = (d.stream().unwrap(), d.event().unwrap());
        let context = d.context();
        let wait = || {
            d.set_context(context).unwrap();
            d.launch("delay", s, &[MS]).unwrap();
            d.synchronize().unwrap();
        };
        std::thread::scope(|scope| scope.spawn(wait).join().unwrap());
        d.record(e, s).unwrap();
        d.query_event(e).unwrap();
    });
    outcome.clean();
}

/// Measured on an H200 for 4 KiB to 4 GiB, touched by the host or the device before, alone and
/// after a kernel of 10 ms.
#[test]
fn the_host_waits_for_a_fill_of_managed_memory() {
    let outcome = child("the_host_waits_for_a_fill_of_managed_memory", &[], |d| {
        let mut managed = 0;
        // SAFETY: the driver writes one address there, and the fill is inside of what it gave.
        let (made, filled) = unsafe {
            let made = (d.functions.cuMemAllocManaged)(&mut managed, 4096, 1);
            d.launch("delay", 0, &[MS]).unwrap();
            (made, (d.functions.cuMemsetD32)(managed, 7, 1024))
        };
        assert_eq!((made, filled, d.host_read(managed)), (0, 0, 7 << 32 | 7));
    });
    outcome.clean();
}

#[test]
fn handles_are_reused_and_ids_are_not() {
    let outcome = child("handles_are_reused_and_ids_are_not", &[], |d| {
        let a = d.stream().unwrap();
        let id = d.stream_id(a).unwrap();
        d.destroy_stream(a).unwrap();
        let b = d.stream().unwrap();
        assert_eq!(a, b);
        assert_ne!(d.stream_id(b).unwrap(), id);
        let e = d.event().unwrap();
        d.destroy_event(e).unwrap();
        assert_eq!(d.event().unwrap(), e);
        assert_eq!(d.query_stream(0x1234_5670), Err(400));
    });
    outcome.clean();
}

#[test]
fn a_host_function_runs_in_order_and_may_not_call() {
    unsafe extern "C" fn note(data: *mut std::ffi::c_void) {
        // SAFETY: the test gives its own driver and cell, which live long enough.
        let (driver, cell) = unsafe { *(data as *const (&Driver, &std::sync::atomic::AtomicI32)) };
        let code = driver.alloc(16).unwrap_err();
        cell.store(code, std::sync::atomic::Ordering::SeqCst);
    }
    let outcome = child("a_host_function_runs_in_order_and_may_not_call", &[], |d| {
        let cell = std::sync::atomic::AtomicI32::new(0);
        let mut data = (d, &cell);
        let s = d.stream().unwrap();
        d.launch("delay", s, &[MS]).unwrap();
        d.host_function(s, note, (&raw mut data).cast()).unwrap();
        d.synchronize_stream(s).unwrap();
        assert_eq!(cell.load(std::sync::atomic::Ordering::SeqCst), 800);
    });
    outcome.clean();
}

#[test]
fn a_peer_copy_moves_bytes_between_devices() {
    let outcome = child("a_peer_copy_moves_bytes_between_devices", &[("SIM_DEVICES", "2")], |d| {
        let first = d.context();
        let a = d.alloc(64).unwrap();
        d.write_words(a, &[5; 8]).unwrap();
        let second = d.use_device(1).unwrap();
        let b = d.alloc(64).unwrap();
        let s = d.stream().unwrap();
        // SAFETY: the function takes numbers.
        let code = unsafe { (d.functions.cuMemcpyPeerAsync)(b, second, a, first, 64, s) };
        assert_eq!(code, 0);
        d.synchronize().unwrap();
        assert_eq!(d.read_words(b, 8).unwrap(), [5; 8]);
    });
    outcome.clean();
}
