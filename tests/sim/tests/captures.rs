//! Captures and graphs: what is recorded, what kills, what is kept alive.

mod common;
use common::*;
use std::sync::atomic::{AtomicU32, Ordering};

const N: u64 = 4096;

#[test]
fn a_captured_graph_runs_in_its_order() {
    let outcome = child("a_captured_graph_runs_in_its_order", &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let (x, y) = (d.alloc(N as usize).unwrap(), d.alloc(N as usize).unwrap());
        let (fork, join) = (d.event().unwrap(), d.event().unwrap());
        d.begin_capture(a, GLOBAL).unwrap();
        d.launch("late_fill", a, &[x, N, 3, MS]).unwrap();
        d.record(fork, a).unwrap();
        d.stream_waits(b, fork).unwrap();
        assert_eq!(d.capture_status(b), Ok(1));
        d.launch("copy", b, &[y, x, N, 0]).unwrap();
        d.record(join, b).unwrap();
        d.stream_waits(a, join).unwrap();
        let graph = d.end_capture(a).unwrap();
        assert_eq!(d.graph_nodes_count(graph), Ok(2));
        let executable = d.instantiate(graph).unwrap();
        d.destroy_graph(graph).unwrap();
        assert_eq!(d.read_words(x, 1).unwrap()[0], 0);
        for _ in 0..3 {
            d.launch_graph(executable, a).unwrap();
        }
        d.synchronize().unwrap();
        assert_eq!(d.read_words(y, 1).unwrap()[0], 3);
        d.destroy_executable(executable).unwrap();
    });
    outcome.clean();
}

#[test]
fn branches_of_a_graph_race() {
    let outcome = child("branches_of_a_graph_race", &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let x = d.alloc(N as usize).unwrap();
        let (fork, join) = (d.event().unwrap(), d.event().unwrap());
        d.begin_capture(a, RELAXED).unwrap();
        d.record(fork, a).unwrap();
        d.stream_waits(b, fork).unwrap();
        d.launch("fill", a, &[x, N, 1, MS]).unwrap();
        d.launch("late_fill", b, &[x, N, 2, MS]).unwrap();
        d.record(join, b).unwrap();
        d.stream_waits(a, join).unwrap();
        let executable = d.instantiate(d.end_capture(a).unwrap()).unwrap();
        d.launch_graph(executable, a).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: race: fill");
}

#[test]
fn allocation_kills_strict_captures_and_not_relaxed_ones() {
    let outcome = child("allocation_kills_strict_captures_and_not_relaxed_ones", &[], |d| {
        let (s, p) = (d.stream().unwrap(), d.alloc(64).unwrap());
        for mode in [GLOBAL, THREAD_LOCAL] {
            d.begin_capture(s, mode).unwrap();
            assert_eq!(d.alloc(64), Err(900));
            assert_eq!(d.capture_status(s), Ok(2));
            assert_eq!(d.free(p), Err(901).or(Err(900)));
            assert_eq!(d.launch("delay", s, &[1]), Err(901));
            assert_eq!(d.end_capture(s), Err(901));
            assert_eq!(d.capture_status(s), Ok(0));
        }
        d.begin_capture(s, RELAXED).unwrap();
        d.free(d.alloc(64).unwrap()).unwrap();
        assert_eq!(d.graph_nodes_count(d.end_capture(s).unwrap()), Ok(0));
    });
    outcome.reports("capture killed by cuMemAlloc_v2");
}

#[test]
fn relaxed_thread_mode_protects_a_global_capture() {
    let outcome = child("relaxed_thread_mode_protects_a_global_capture", &[], |d| {
        let (s, t) = (d.stream().unwrap(), d.stream().unwrap());
        let e = d.event().unwrap();
        d.begin_capture(s, GLOBAL).unwrap();
        assert_eq!(d.exchange_capture_mode(RELAXED), Ok(GLOBAL));
        d.free(d.alloc(64).unwrap()).unwrap();
        d.record(e, t).unwrap();
        while d.query_event(e) == Err(600) {}
        d.query_event(e).unwrap();
        assert_eq!(d.exchange_capture_mode(GLOBAL), Ok(RELAXED));
        assert_eq!(d.capture_status(s), Ok(1));
        d.end_capture(s).unwrap();
    });
    outcome.clean();
}

#[test]
fn barriers_kill_captures_from_any_thread() {
    let outcome = child("barriers_kill_captures_from_any_thread", &[], |d| {
        let (s, e, context) = (d.stream().unwrap(), d.event().unwrap(), d.context());
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            d.begin_capture(s, mode).unwrap();
            std::thread::scope(|scope| {
                let barrier = scope.spawn(|| {
                    d.set_context(context).unwrap();
                    d.barrier(e)
                });
                assert_eq!(barrier.join().unwrap(), Err(900));
            });
            assert_eq!(d.end_capture(s), Err(901));
        }
        d.begin_capture(s, RELAXED).unwrap();
        assert_eq!(d.synchronize(), Err(900));
        assert_eq!(d.end_capture(s), Err(901));
    });
    outcome.reports("capture killed by cuCtxRecordEvent");
}

#[test]
fn a_global_capture_forbids_other_threads_and_a_local_one_does_not() {
    let test = "a_global_capture_forbids_other_threads_and_a_local_one_does_not";
    let outcome = child(test, &[], |d| {
        let (s, context) = (d.stream().unwrap(), d.context());
        for (mode, expected) in [(GLOBAL, Err(900)), (THREAD_LOCAL, Ok(()))] {
            d.begin_capture(s, mode).unwrap();
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    d.set_context(context).unwrap();
                    d.alloc(64).map(drop)
                });
                assert_eq!(other.join().unwrap(), expected);
            });
            assert_eq!(d.end_capture(s).map(drop), expected.map_err(|_| 901));
        }
    });
    outcome.ran();
}

#[test]
fn questions_about_captured_events_and_streams_kill() {
    let outcome = child("questions_about_captured_events_and_streams_kill", &[], |d| {
        let (s, e) = (d.stream().unwrap(), d.event().unwrap());
        d.begin_capture(s, RELAXED).unwrap();
        d.record(e, s).unwrap();
        assert_eq!(d.query_event(e), Err(907));
        assert_eq!(d.end_capture(s), Err(901));
        d.begin_capture(s, RELAXED).unwrap();
        assert_eq!(d.query_stream(s), Err(900));
        assert_eq!(d.end_capture(s), Err(901));
    });
    outcome.reports("capture killed by cuEventQuery");
}

#[test]
fn captures_end_only_as_they_began() {
    let outcome = child("captures_end_only_as_they_began", &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let (e, context) = (d.event().unwrap(), d.context());
        assert_eq!(d.end_capture(a), Err(401));
        assert_eq!(d.begin_capture(LEGACY, RELAXED), Err(900));
        d.begin_capture(a, GLOBAL).unwrap();
        assert_eq!(d.begin_capture(a, GLOBAL), Err(401));
        d.record(e, a).unwrap();
        d.stream_waits(b, e).unwrap();
        std::thread::scope(|scope| {
            let wrong = scope.spawn(|| {
                d.set_context(context).unwrap();
                d.end_capture(a)
            });
            assert_eq!(wrong.join().unwrap(), Err(908));
        });
        // The capture has ended nevertheless.
        assert_eq!(d.capture_status(a), Ok(0));
        d.begin_capture(a, GLOBAL).unwrap();
        d.record(e, a).unwrap();
        d.stream_waits(b, e).unwrap();
        d.launch("delay", b, &[1]).unwrap();
        assert_eq!(d.end_capture(a), Err(904));
        assert_eq!(d.capture_status(b), Ok(0));
        d.begin_capture(a, GLOBAL).unwrap();
        d.record(e, a).unwrap();
        d.stream_waits(b, e).unwrap();
        assert_eq!(d.end_capture(b), Err(903));
        assert_eq!(d.end_capture(a), Err(901));
    });
    outcome.reports("capture killed by cuStreamEndCapture");
}

#[test]
fn captures_do_not_merge_or_leak() {
    let outcome = child("captures_do_not_merge_or_leak", &[], |d| {
        let (a, b) = (d.stream().unwrap(), d.stream().unwrap());
        let (e, outside) = (d.event().unwrap(), d.event().unwrap());
        d.record(outside, b).unwrap();
        d.begin_capture(a, RELAXED).unwrap();
        assert_eq!(d.stream_waits(a, outside), Err(905));
        assert_eq!(d.end_capture(a), Err(901));
        d.begin_capture(a, RELAXED).unwrap();
        d.begin_capture(b, RELAXED).unwrap();
        d.record(e, a).unwrap();
        assert_eq!(d.stream_waits(b, e), Err(902));
        assert_eq!(d.end_capture(b), Err(901));
        assert_eq!(d.end_capture(a), Err(901));
    });
    outcome.ran();
}

#[test]
fn the_legacy_stream_meets_a_blocking_capture() {
    let outcome = child("the_legacy_stream_meets_a_blocking_capture", &[], |d| {
        let s = d.blocking_stream().unwrap();
        d.begin_capture(s, RELAXED).unwrap();
        assert_eq!(d.capture_status(0), Err(906));
        assert_eq!(d.capture_status(s), Ok(1));
        assert_eq!(d.launch("delay", 0, &[1]), Err(906));
        assert_eq!(d.end_capture(s), Err(901));
    });
    outcome.ran();
}

#[test]
fn memory_nodes_allow_one_executable() {
    let outcome = child("memory_nodes_allow_one_executable", &[], |d| {
        let s = d.stream().unwrap();
        d.begin_capture(s, GLOBAL).unwrap();
        let p = d.alloc_async(N as usize, s).unwrap();
        d.launch("fill", s, &[p, N, 1, 0]).unwrap();
        d.free_async(p, s).unwrap();
        let graph = d.end_capture(s).unwrap();
        assert_eq!(d.graph_nodes_count(graph), Ok(3));
        let executable = d.instantiate(graph).unwrap();
        assert_eq!(d.instantiate(graph), Err(801));
        let mut clone = 0;
        // SAFETY: a local for the result.
        assert_eq!(unsafe { (d.functions.cuGraphClone)(&mut clone, graph) }, 801);
        d.launch_graph(executable, s).unwrap();
        d.synchronize().unwrap();
    });
    outcome.clean();
}

#[test]
fn memory_of_a_launch_outlives_its_graph() {
    let outcome = child("memory_of_a_launch_outlives_its_graph", &[], |d| {
        let s = d.stream().unwrap();
        let captured = || {
            d.begin_capture(s, GLOBAL).unwrap();
            let p = d.alloc_async(N as usize, s).unwrap();
            d.launch("fill", s, &[p, N, 1, 0]).unwrap();
            let graph = d.end_capture(s).unwrap();
            (p, graph, d.instantiate(graph).unwrap())
        };
        for launches in [0, 1] {
            let (p, graph, executable) = captured();
            for _ in 0..launches {
                d.launch_graph(executable, s).unwrap();
            }
            d.synchronize().unwrap();
            d.destroy_executable(executable).unwrap();
            d.destroy_graph(graph).unwrap();
            if launches == 1 {
                assert_eq!(d.read_words(p, 1), Ok(vec![1]));
                d.free(p).unwrap();
            }
            assert_eq!(d.free(p), Err(1));
        }
    });
    outcome.clean();
}

#[test]
fn a_user_object_lives_as_long_as_the_executable() {
    static FIRED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn fired(_: *mut std::ffi::c_void) {
        FIRED.fetch_add(1, Ordering::SeqCst);
    }
    fn settle() -> u32 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        FIRED.load(Ordering::SeqCst)
    }
    let outcome = child("a_user_object_lives_as_long_as_the_executable", &[], |d| {
        let (s, flag) = (d.stream().unwrap(), d.pinned(8).unwrap());
        d.begin_capture(s, GLOBAL).unwrap();
        d.launch("spin", s, &[flag, 1]).unwrap();
        let graph = d.end_capture(s).unwrap();
        let mut object = 0;
        let null = std::ptr::null_mut();
        // SAFETY: a local for the result; the destructor ignores its pointer.
        assert_eq!(unsafe { (d.functions.cuUserObjectCreate)(&mut object, null, fired, 1, 1) }, 0);
        // SAFETY: the function takes handles and numbers; 1 moves the reference.
        assert_eq!(unsafe { (d.functions.cuGraphRetainUserObject)(graph, object, 1, 1) }, 0);
        let executable = d.instantiate(graph).unwrap();
        d.destroy_graph(graph).unwrap();
        assert_eq!(settle(), 0);
        d.launch_graph(executable, s).unwrap();
        d.destroy_executable(executable).unwrap();
        assert_eq!(settle(), 0);
        d.set_flag(flag, 1);
        d.synchronize().unwrap();
        assert_eq!(settle(), 1);
    });
    outcome.clean();
}

/// Measured, each in a separate capture that nothing else concerns: the calls that kill a global
/// capture, by whichever thread, and the calls that do not.
#[test]
fn calls_forbidden_by_a_global_capture() {
    let test = "calls_forbidden_by_a_global_capture";
    let outcome = child(test, &[], |d| {
        let (s, other, context) = (d.stream().unwrap(), d.stream().unwrap(), d.context());
        let event = d.event().unwrap();
        let (plain, ordered) = (d.alloc(4096).unwrap(), d.alloc_async(4096, other).unwrap());
        let graph = || {
            d.begin_capture(other, RELAXED).unwrap();
            d.end_capture(other).unwrap()
        };
        let graph = graph();
        let executable = d.instantiate(graph).unwrap();
        d.record(event, other).unwrap();
        d.synchronize().unwrap();
        type Ask<'a> = &'a (dyn Fn() -> Result<(), i32> + Sync);
        let forbidden: &[(&str, Ask<'_>)] = &[
            ("cuStreamSynchronize", &|| d.synchronize_stream(other)),
            ("cuStreamQuery", &|| d.query_stream(other)),
            ("cuEventSynchronize", &|| d.synchronize_event(event)),
            ("cuEventQuery", &|| d.query_event(event)),
            ("cuMemAllocAsync", &|| d.alloc_async(64, other).map(drop)),
            ("cuMemFreeAsync", &|| d.free_async(ordered, other)),
            ("cuMemAlloc", &|| d.alloc(64).map(drop)),
            ("cuMemFree", &|| d.free(plain)),
            ("cuMemHostAlloc", &|| d.pinned(64).map(drop)),
            ("cuGraphInstantiate", &|| d.instantiate(graph).map(drop)),
            ("cuGraphExecDestroy", &|| d.destroy_executable(executable)),
        ];
        let allowed: &[(&str, Ask<'_>)] = &[
            ("cuMemsetD8Async", &|| d.memset(plain, 1, 64, other)),
            ("cuMemcpyAsync", &|| d.copy(plain, plain + 64, 64, other)),
            ("cuEventRecord", &|| d.record(event, other)),
            ("cuStreamWaitEvent", &|| d.stream_waits(other, event)),
            ("cuGraphLaunch", &|| d.launch_graph(executable, other)),
            ("cuStreamCreate", &|| d.stream().map(drop)),
            ("cuMemGetInfo", &|| d.memory_info().map(drop)),
        ];
        for (list, expected) in [(forbidden, Err(900)), (allowed, Ok(()))] {
            for (name, ask) in list {
                for own_thread in [true, false] {
                    d.begin_capture(s, GLOBAL).unwrap();
                    let asked = || {
                        d.set_context(context).unwrap();
                        ask()
                    };
                    let said = match own_thread {
                        true => asked(),
                        false => std::thread::scope(|scope| scope.spawn(asked).join().unwrap()),
                    };
                    assert_eq!(said, expected, "{name}");
                    let ended = d.end_capture(s).map(drop);
                    assert_eq!(ended, expected.map_err(|_| 901), "{name}");
                }
            }
        }
    });
    outcome.ran();
}
