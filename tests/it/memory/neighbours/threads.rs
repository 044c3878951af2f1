//! Threads beside a request that asks peers, or waits: those of the program, and the library's
//! threads in a peer.

use super::*;
use crate::command::cachealloc;

const WAITS: &str = "idle_release_s:3600,wait_for_memory_s:60";
const CONTEXT_IS_DESTROYED: i32 = 709;

#[test]
fn a_cancelled_thread_gets_its_answer() {
    for conf in [KEEPS, "wait_for_memory_s:1"] {
        let house = House::new();
        // The simulation opens files to count the device memory of all processes.
        let apart = |run: Run| run.env("SIM_SHARED", "");
        let (mut first, mut second) =
            (house.process_with(KEEPS, apart), house.process_with(conf, apart));
        first.caches(900, 100);
        assert_eq!(second.does("cancelled 1023"), OUT_OF_MEMORY);
        first.ends();
        second.ends();
        std::fs::create_dir_all(&house.device).expect("target/ is writable");
        house.ends_clean();
    }
}

#[test]
fn a_limit_counts_a_request_once() {
    for kind in ["alloc", "async", "pitch", "create", "array", "pool"] {
        let house = House::new();
        let mut first = house.process(KEEPS);
        let mut second = house.process(&format!("{KEEPS},gpu_memory_limit_mb:900"));
        first.caches(900, 20);
        assert_eq!((kind, second.does(&format!("{kind} 600"))), (kind, 0));
        first.ends();
        second.ends();
        house.ends_clean();
    }
}

/// Another thread frees memory of the capture meanwhile.
#[test]
fn a_request_in_a_capture_waits() {
    let house = House::new();
    let mut process = house.process(WAITS);
    assert_eq!(process.does("begin"), 0);
    let block = process.takes("alloc 500");
    assert_eq!(process.does(&format!("soon {block}")), 0);
    process.takes("alloc 700");
    assert_eq!(process.does("end"), 0);
    process.ends();
    house.ends_clean();
}

/// Another thread creates and ends contexts beside the thread that requests memory.
#[test]
fn contexts_come_and_go() {
    for conf in [KEEPS, "idle_release_s:3600,wait_for_memory_s:1"] {
        let house = House::new();
        let (mut first, mut second) = (house.process(conf), house.process(KEEPS));
        second.takes("alloc 800");
        assert_eq!(first.does("churn"), 0);
        for _ in 0..3 {
            assert_eq!(first.does("alloc 600"), OUT_OF_MEMORY);
        }
        assert_eq!(first.does("over"), 0);
        first.ends();
        second.ends();
        house.ends_clean();
    }
}

#[test]
fn a_wait_ends_with_its_context() {
    let house = House::new();
    let (mut first, mut second) = (house.process(WAITS), house.process(KEEPS));
    second.takes("alloc 800");
    assert_eq!(first.does("reset"), 0);
    assert_eq!(first.does("alloc 600"), CONTEXT_IS_DESTROYED);
    first.ends();
    second.ends();
    house.ends_clean();
}

/// The request concerns the memory of the primary context's device, not that of the current
/// context's.
#[test]
fn reclaim_is_for_the_device_of_the_context() {
    let house = House::new();
    let two = |run: Run| run.env("SIM_DEVICES", "2");
    let (mut first, mut second) = (house.process_with(KEEPS, two), house.process_with(KEEPS, two));
    assert_eq!(first.does("use 1"), 0);
    let all = (0..).take_while(|_| first.does("alloc 2") == 0).count();
    first.blocks_count = all;
    (0..all).for_each(|block| first.frees(block));
    assert_eq!(second.does("primary 1"), 0);
    first.ends();
    second.ends();
    house.ends_clean();
}

/// The program needs its descriptors itself.
#[test]
fn few_files_are_open_at_once() {
    let house = House::new();
    let mut asker = house.process(KEEPS);
    let others = [0; 8].map(|_| {
        let mut other = house.process(KEEPS);
        other.caches(100, 10);
        other
    });
    assert_eq!(asker.does("files 4"), 0);
    asker.takes("alloc 900");
    others.into_iter().for_each(Process::ends);
    asker.ends();
    house.ends_clean();
}

/// The library gets no descriptor for a while.
#[test]
fn failed_scan_is_repeated() {
    let house = House::new();
    let (mut first, mut second) = (house.process(KEEPS), house.process(KEEPS));
    first.caches(900, 100);
    assert_eq!(first.does("files 0"), 0);
    assert_eq!(second.does("alloc 600"), OUT_OF_MEMORY);
    assert_eq!(first.does("files 100"), 0);
    let has_it = |_: &i32| {
        a_while();
        second.does("alloc 600") == 0
    };
    assert!((0..100).find(has_it).is_some());
    first.ends();
    second.ends();
    house.ends_clean();
}

/// A measurement that a capture postpones does not delay the release of memory to another process.
#[test]
fn late_measurement_does_not_delay_a_release() {
    let house = House::new();
    let (mut first, mut second) = (house.process(KEEPS), house.process(KEEPS));
    first.caches(900, 100);
    assert_eq!(first.does("begin"), 0);
    let account = cachealloc(&format!("explain {}", first.child.id()));
    let mut account = account.plain_command().stdout(Stdio::null()).spawn().expect("it starts");
    a_while();
    second.takes("alloc 600");
    assert_eq!(first.does("end"), 0);
    assert!(account.wait().expect("it ends").success());
    first.ends();
    second.ends();
    house.ends_clean();
}

/// The library's threads in a peer may get no processor for a while. As long as the process works,
/// the request waits for it: on the plain driver, what the peer has freed would be available.
#[test]
fn a_peer_that_works_is_waited_for() {
    let asks_beside = |way: &str, bound: &str| {
        let house = House::new();
        let bounded = |run: Run| run.env("CACHEALLOC_BOUND", bound);
        let (mut first, mut second) = (house.process(KEEPS), house.process_with(KEEPS, bounded));
        first.caches(900, 100);
        if way == "works" {
            assert_eq!(first.does("spin"), 0);
        }
        let held = Held::library_threads(&first);
        second.tell("alloc 600");
        let waits = way == "works" && bound.is_empty();
        if waits {
            assert!(!second.has_answered_within(Duration::from_secs(1)));
        }
        let held = (!waits).then_some(held); // until the answer
        let code = second.answer();
        drop(held);
        [first, second].into_iter().for_each(Process::ends);
        code
    };
    assert_eq!(asks_beside("works", ""), 0);
    assert_eq!(asks_beside("works", "PEERS:0"), OUT_OF_MEMORY);
    assert_eq!(asks_beside("sleeps", ""), OUT_OF_MEMORY);
}

/// Threads of the library in a process, stopped while the process's other threads run.
struct Held(Vec<i32>);

impl Held {
    fn library_threads(process: &Process) -> Held {
        let threads = std::fs::read_dir(format!("/proc/{}/task", process.child.id()));
        let threads = threads.expect("its threads").map(|thread| thread.expect("an entry").path());
        let is_ours = |thread: &PathBuf| {
            std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name == "cachealloc\n")
        };
        let id_of = |thread: PathBuf| thread.file_name()?.to_str()?.parse().ok();
        let ours: Vec<i32> = threads.filter(is_ours).filter_map(id_of).collect();
        assert!(!ours.is_empty());
        let _turn = process.outside_of_the_driver();
        for &id in &ours {
            // SAFETY: stops a thread of a child; only this code waits for it.
            unsafe {
                assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, id, 0, 0), 0);
                assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, id, 0, 0), 0);
                assert_eq!(libc::waitpid(id, &mut 0, libc::__WALL), id);
            }
        }
        Held(ours)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for &id in &self.0 {
            // SAFETY: as above; this is the thread that stopped it.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, id, 0, 0) };
        }
    }
}
