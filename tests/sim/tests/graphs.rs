//! Graphs from an allocator's view: the nodes that a capture reports, the order of a replay, and
//! the references that keep memory alive.

mod common;
use common::graphs::*;
use common::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const N: u64 = 4096;

/// Creates two streams, the second forked from the first after a kernel.
fn fork(d: &Driver) -> (u64, u64, u64) {
    let (a, b, e) = (d.stream().unwrap(), d.stream().unwrap(), d.event().unwrap());
    d.begin_capture(a, RELAXED).unwrap();
    d.launch("delay", a, &[1]).unwrap();
    d.record(e, a).unwrap();
    d.stream_waits(b, e).unwrap();
    (a, b, e)
}

fn join(d: &Driver, a: u64, b: u64, e: u64) {
    d.record(e, b).unwrap();
    d.stream_waits(a, e).unwrap();
}

fn nodes(d: &Driver, stream: u64) -> Vec<u64> {
    terminals(d, stream).unwrap().1.into_iter().map(|(node, _)| node).collect()
}

#[test]
fn terminals_precede_the_next_node() {
    let outcome = child("terminals_precede_the_next_node", &[], |d| {
        let (a, b, e) = fork(d);
        let first = nodes(d, a);
        assert_eq!((first.len(), nodes(d, b)), (1, first.clone()));
        d.launch("delay", b, &[1]).unwrap();
        let second = nodes(d, b);
        assert_eq!(edges_into(d, second[0]), Ok(vec![(first[0], FULL)]));
        join(d, a, b, e);
        assert_eq!(nodes(d, a), [first[0], second[0]]);
        d.launch("delay", a, &[1]).unwrap();
        assert_eq!(edges_into(d, nodes(d, a)[0]).unwrap().len(), 2);
        d.end_capture(a).unwrap();
    });
    outcome.clean();
}

#[test]
fn early_starts_are_edges_that_older_questions_refuse() {
    let outcome = child("early_starts_are_edges_that_older_questions_refuse", &[], |d| {
        let s = d.stream().unwrap();
        d.begin_capture(s, RELAXED).unwrap();
        d.launch("delay", s, &[1]).unwrap();
        d.launch_early("delay", s, &[1]).unwrap();
        let (_, now) = terminals(d, s).unwrap();
        assert_eq!(now[0].1, FULL, "what the next launch asks for is not known yet");
        let (before, data) = edges_into(d, now[0].0).unwrap()[0];
        assert_eq!((data[0], data[2]), (1, 1));
        assert_eq!(edges_into_without_data(d, now[0].0), Err(402));
        update_terminals_with(d, s, &[now[0].0], &[data], SET).unwrap();
        assert_eq!(terminals(d, s).unwrap().1, [(now[0].0, data)]);
        assert_eq!(terminals_count(d, s), Err(402));
        update_terminals(d, s, &[before], SET).unwrap();
        assert_eq!(terminals_count(d, s), Ok(1));
        d.end_capture(s).unwrap();
    });
    outcome.clean();
}

#[test]
fn terminals_may_be_set_and_added_to() {
    let outcome = child("terminals_may_be_set_and_added_to", &[], |d| {
        let (a, b, e) = fork(d);
        let root = nodes(d, a);
        d.launch("delay", b, &[1]).unwrap();
        let side = nodes(d, b);
        update_terminals(d, a, &side, ADD).unwrap();
        assert_eq!(nodes(d, a), [root[0], side[0]]);
        update_terminals(d, a, &root, SET).unwrap();
        assert_eq!(nodes(d, a), root);
        assert_eq!(update_terminals(d, a, &root, 2), Err(1));
        assert_eq!(update_terminals(d, a, &[77], ADD), Err(1));
        assert_eq!(nodes(d, a), root);
        // Nodes that were removed from a stream need no join; nodes of a stream do.
        update_terminals(d, b, &root, SET).unwrap();
        d.end_capture(a).unwrap();
        let (a, b, _) = (fork(d).0, b, e);
        assert_eq!(update_terminals(d, b, &root, SET), Err(401), "not a stream of this capture");
        let (graph, _) = terminals(d, a).unwrap();
        let empty = add_empty_node(d, graph, &[]).unwrap();
        update_terminals(d, a, &[empty], ADD).unwrap();
        let loose = nodes(d, a)[0];
        update_terminals(d, a, &[loose], SET).unwrap();
        add_empty_node(d, graph, &[loose]).unwrap();
        d.end_capture(a).unwrap();
    });
    outcome.clean();
}

#[test]
fn empty_node_on_a_joined_stream_is_an_unjoined_branch() {
    let test = "empty_node_on_a_joined_stream_is_an_unjoined_branch";
    let outcome = child(test, &[], |d| {
        let (a, b, e) = fork(d);
        d.launch("delay", b, &[1]).unwrap();
        join(d, a, b, e);
        let (graph, now) = terminals(d, b).unwrap();
        let marker = add_empty_node(d, graph, &[now[0].0]).unwrap();
        update_terminals(d, b, &[marker], SET).unwrap();
        assert_eq!(d.end_capture(a), Err(904));
    });
    outcome.ran();
}

#[test]
fn a_replay_orders_by_edges_alone_at_every_launch() {
    let outcome = child("a_replay_orders_by_edges_alone_at_every_launch", &[], |d| {
        let x = d.alloc(N as usize).unwrap();
        let (a, b, e) = fork(d);
        // Captured one after the other, as by an allocator that gives x away too early.
        d.launch("fill", a, &[x, N, 1, 0]).unwrap();
        d.launch("fill", b, &[x, N, 2, MS]).unwrap();
        join(d, a, b, e);
        let executable = d.instantiate(d.end_capture(a).unwrap()).unwrap();
        let mut races = 0;
        for _ in 0..3 {
            d.launch_graph(executable, a).unwrap();
            d.synchronize().unwrap();
            let now = d.races().unwrap();
            assert!(now > races, "{now} races");
            races = now;
        }
    });
    outcome.reports("sim: race: fill");
}

#[test]
fn a_dependency_that_was_added_orders_a_replay() {
    let outcome = child("a_dependency_that_was_added_orders_a_replay", &[], |d| {
        let x = d.alloc(N as usize).unwrap();
        let (a, b, e) = fork(d);
        d.launch("fill", a, &[x, N, 1, MS]).unwrap();
        update_terminals(d, b, &nodes(d, a), SET).unwrap();
        d.launch("fill", b, &[x, N, 2, 0]).unwrap();
        join(d, a, b, e);
        let executable = d.instantiate(d.end_capture(a).unwrap()).unwrap();
        d.launch_graph(executable, a).unwrap();
        d.synchronize().unwrap();
        assert_eq!(d.read_words(x, 1).unwrap()[0], 2);
    });
    outcome.clean();
}

#[test]
fn an_early_start_leaves_what_is_before_it_running() {
    let outcome = child("an_early_start_leaves_what_is_before_it_running", &[], |d| {
        let (s, x) = (d.stream().unwrap(), d.alloc(N as usize).unwrap());
        d.begin_capture(s, RELAXED).unwrap();
        d.launch("late_fill", s, &[x, N, 1, MS]).unwrap();
        d.launch_early("delay", s, &[1]).unwrap();
        // Fully ordered after the second, which is complete while the first still runs.
        d.launch("fill", s, &[x, N, 2, 0]).unwrap();
        let executable = d.instantiate(d.end_capture(s).unwrap()).unwrap();
        d.launch_graph(executable, s).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: race: fill");
}

#[test]
fn memory_that_a_graph_uses_is_not_anyone_elses() {
    let outcome = child("memory_that_a_graph_uses_is_not_anyone_elses", &[], |d| {
        let (s, t, x) = (d.stream().unwrap(), d.stream().unwrap(), d.alloc(N as usize).unwrap());
        d.begin_capture(s, RELAXED).unwrap();
        d.launch("fill", s, &[x, N, 1, MS]).unwrap();
        let graph = d.end_capture(s).unwrap();
        let (one, two) = (d.instantiate(graph).unwrap(), d.instantiate(graph).unwrap());
        d.launch_graph(one, s).unwrap();
        d.launch("fill", t, &[x, N, 2, 0]).unwrap();
        d.synchronize().unwrap();
        assert_eq!(d.races(), Some(1), "another owner");
        d.launch_graph(one, s).unwrap();
        d.launch_graph(two, t).unwrap();
        d.synchronize().unwrap();
        assert_eq!(d.races(), Some(2), "another executable");
        d.free(x).unwrap();
        d.launch_graph(one, s).unwrap();
        d.synchronize().unwrap();
    });
    outcome.reports("sim: use after free");
}

static FIRED: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

unsafe extern "C" fn fired(data: *mut c_void) {
    FIRED[data as usize].fetch_add(1, Ordering::SeqCst);
}

fn fired_so_far() -> [u32; 2] {
    std::thread::sleep(std::time::Duration::from_millis(100));
    [0, 1].map(|index| FIRED[index].load(Ordering::SeqCst))
}

/// A captured kernel whose graph keeps an object alive.
fn kept(d: &Driver, s: u64, object: usize) -> u64 {
    d.begin_capture(s, RELAXED).unwrap();
    d.launch("delay", s, &[1]).unwrap();
    let graph = d.end_capture(s).unwrap();
    retain(d, graph, fired, object as *mut c_void).unwrap();
    graph
}

#[test]
fn clones_and_children_keep_objects() {
    let outcome = child("clones_and_children_keep_objects", &[], |d| {
        let s = d.stream().unwrap();
        let (first, second) = (kept(d, s, 0), kept(d, s, 1));
        let copy = clone(d, first).unwrap();
        d.destroy_graph(first).unwrap();
        let parent = copy;
        add_child(d, parent, second).unwrap();
        d.destroy_graph(second).unwrap();
        assert_eq!(fired_so_far(), [0, 0]);
        let executable = d.instantiate(parent).unwrap();
        d.destroy_graph(parent).unwrap();
        assert_eq!(fired_so_far(), [0, 0]);
        d.launch_graph(executable, s).unwrap();
        d.synchronize().unwrap();
        d.destroy_executable(executable).unwrap();
        assert_eq!(fired_so_far(), [1, 1]);
    });
    outcome.clean();
}

#[test]
fn an_updated_executable_keeps_what_the_new_graph_keeps() {
    let outcome = child("an_updated_executable_keeps_what_the_new_graph_keeps", &[], |d| {
        let s = d.stream().unwrap();
        let (first, second) = (kept(d, s, 0), kept(d, s, 1));
        let executable = d.instantiate(first).unwrap();
        d.destroy_graph(first).unwrap();
        update_executable(d, executable, second).unwrap();
        d.destroy_graph(second).unwrap();
        assert_eq!(fired_so_far(), [1, 0]);
        d.destroy_executable(executable).unwrap();
        assert_eq!(fired_so_far(), [1, 1]);
    });
    outcome.clean();
}

/// An executable that is destroyed while it runs keeps its memory until then.
#[test]
fn memory_of_a_graph_lasts_as_long_as_its_launch() {
    let outcome = child("memory_of_a_graph_lasts_as_long_as_its_launch", &[], |d| {
        let s = d.stream().unwrap();
        d.begin_capture(s, RELAXED).unwrap();
        let x = d.alloc_async(N as usize, s).unwrap();
        d.launch("fill", s, &[x, N, 1, MS]).unwrap();
        d.free_async(x, s).unwrap();
        let graph = d.end_capture(s).unwrap();
        let executable = d.instantiate(graph).unwrap();
        d.destroy_graph(graph).unwrap();
        d.launch_graph(executable, s).unwrap();
        d.destroy_executable(executable).unwrap();
        d.synchronize().unwrap();
        assert!(d.address_range(x).is_err());
    });
    outcome.clean();
}

#[test]
fn a_destructor_may_not_call_the_driver() {
    static ANSWER: AtomicU64 = AtomicU64::new(0);
    static DRIVER: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn calls(_: *mut c_void) {
        let driver = DRIVER.load(Ordering::SeqCst) as *const Driver;
        // SAFETY: the driver outlives the test's body.
        let answer = unsafe { &*driver }.alloc(64);
        ANSWER.store(answer.unwrap_or_else(|code| code as u64), Ordering::SeqCst);
    }
    let outcome = child("a_destructor_may_not_call_the_driver", &[], |d| {
        DRIVER.store(std::ptr::from_ref(d) as u64, Ordering::SeqCst);
        let graph = kept(d, d.stream().unwrap(), 0);
        retain(d, graph, calls, std::ptr::null_mut()).unwrap();
        d.destroy_graph(graph).unwrap();
        assert_eq!(fired_so_far()[0], 1);
        assert_eq!(ANSWER.load(Ordering::SeqCst), 800);
    });
    outcome.reports("sim: cuMemAlloc_v2 was called inside a destructor");
}

#[test]
fn a_destructor_runs_late_and_says_that_the_launch_is_over() {
    static GONE: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn gone(begun: *mut c_void) {
        // SAFETY: the test's own, which waits for this.
        let begun = unsafe { *begun.cast::<Instant>() };
        GONE.store(begun.elapsed().as_nanos() as u64, Ordering::SeqCst);
    }
    let outcome = child("a_destructor_runs_late_and_says_that_the_launch_is_over", &[], |d| {
        let (s, t) = (d.stream().unwrap(), d.stream().unwrap());
        let x = d.alloc(N as usize).unwrap();
        d.begin_capture(s, RELAXED).unwrap();
        d.launch("fill", s, &[x, N, 1, MS]).unwrap();
        let graph = d.end_capture(s).unwrap();
        let mut begun = Instant::now();
        retain(d, graph, gone, std::ptr::from_mut(&mut begun).cast()).unwrap();
        let executable = d.instantiate(graph).unwrap();
        d.destroy_graph(graph).unwrap();
        d.launch_graph(executable, s).unwrap();
        d.destroy_executable(executable).unwrap();
        while GONE.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(GONE.load(Ordering::SeqCst) >= MS);
        // Nothing else orders this after the launch.
        d.launch("fill", t, &[x, N, 2, 0]).unwrap();
        d.synchronize().unwrap();
    });
    outcome.clean();
}

#[test]
fn a_conditional_node_has_a_graph_inside() {
    let outcome = child("a_conditional_node_has_a_graph_inside", &[], |d| {
        let (s, t) = (d.stream().unwrap(), d.stream().unwrap());
        let (x, y) = (d.alloc(N as usize).unwrap(), d.alloc(N as usize).unwrap());
        for (place, holds) in [(x, true), (y, false)] {
            d.begin_capture(s, RELAXED).unwrap();
            d.launch("fill", s, &[place, N, 1, 0]).unwrap();
            let (graph, before) = terminals(d, s).unwrap();
            let (node, body) = add_conditional(d, graph, &[before[0].0], holds).unwrap();
            begin_capture_to(d, t, body).unwrap();
            d.launch("fill", t, &[place, N, 2, MS]).unwrap();
            assert_eq!(d.end_capture(t), Ok(body));
            update_terminals(d, s, &[node], SET).unwrap();
            d.launch("add", s, &[place, place, N, 0]).unwrap();
            let executable = d.instantiate(d.end_capture(s).unwrap()).unwrap();
            d.launch_graph(executable, s).unwrap();
            d.synchronize().unwrap();
        }
        assert_eq!(d.read_words(x, 1).unwrap()[0], 4, "the body ran in its place");
        assert_eq!(d.read_words(y, 1).unwrap()[0], 2);
    });
    outcome.clean();
}
