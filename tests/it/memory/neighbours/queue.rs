//! `wait_for_memory_s`: a request waits for memory instead of failing.

use std::fs::File;
use std::os::unix::fs::{FileExt, chown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use cachealloc_tests::skipped;

use super::*;

const WAITS: &str = "idle_release_s:3600,wait_for_memory_s:60";
const CACHES_NOTHING: &str = "live:false,fraction_of_gpu_memory_to_use:0";
/// Several checks of a waiting request.
const A_WHILE: Duration = Duration::from_millis(300);
/// Shorter than a request waits.
const LONG: Duration = Duration::from_secs(30);

impl Process {
    /// Whether the process has answered within a while.
    fn has_answered(&self) -> bool {
        self.has_answered_within(A_WHILE)
    }

    /// Waits until a request of the process waits for memory.
    fn waits_for_memory(&self) {
        let head = || std::fs::read(file_of(self)?).ok();
        while head().is_none_or(|head| head.len() < 152 || head[144..152] == [0; 8]) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns the file through which peers communicate with this process.
fn file_of(process: &Process) -> Option<PathBuf> {
    let folder = std::fs::read_dir("/dev/shm").expect("the folder of such files");
    let end = format!("-{}", process.child.id());
    let mut files = folder.map(|entry| entry.expect("an entry").path());
    files.find(|path| path.to_string_lossy().ends_with(&end))
}

/// Memory of another process: the cache releases what is free, and the driver releases what
/// bypasses the cache.
#[test]
fn a_request_waits_until_there_is_memory() {
    const ALONE: &str = "live:false,wait_for_memory_s:60";
    for (holder, waiter) in [(KEEPS, WAITS), (CACHES_NOTHING, WAITS), (CACHES_NOTHING, ALONE)] {
        for kind in ["alloc", "async", "create", "array"] {
            let house = House::new();
            let (mut first, mut second) = (house.process(holder), house.process(waiter));
            let block = first.takes("alloc 800");
            second.tell(&format!("{kind} 600"));
            assert!(!second.has_answered(), "{kind}, {holder}, {waiter}");
            first.frees(block);
            assert_eq!(second.answer(), 0, "{kind}, {holder}, {waiter}");
            first.ends();
            second.ends();
            house.ends_clean();
        }
    }
}

#[test]
fn another_thread_of_the_program_may_free_it() {
    for conf in [WAITS, "wait_for_memory_s:60,gpu_memory_limit_mb:900,live:false"] {
        let house = House::new();
        let mut process = house.process(conf);
        let block = process.takes("alloc 700");
        assert_eq!(process.does(&format!("soon {block}")), 0);
        process.takes("alloc 600");
        process.ends();
        house.ends_clean();
    }
}

/// A request too large for any device fails at once. Without the option every failing request does.
#[test]
fn impossible_request_does_not_wait() {
    let house = House::new();
    let (mut first, mut second) = (house.process(WAITS), house.process(KEEPS));
    for kind in ["alloc", "async", "create", "pitch"] {
        assert_eq!(first.does(&format!("{kind} 2000")), OUT_OF_MEMORY);
    }
    first.takes("alloc 800");
    assert_eq!(second.does("alloc 600"), OUT_OF_MEMORY);
    first.ends();
    second.ends();
    house.ends_clean();
}

/// A small request does not pass a large waiting one, unless the order is broken. Nor does a
/// request of a process that has waited for memory of another GPU before.
#[test]
fn waiting_requests_are_served_in_order() {
    let run = |rule: Option<Rule>, waits_elsewhere: bool| {
        let house = House::new();
        let breaks = |run: Run| {
            let run = run.env("SIM_DEVICES", "2");
            rule.iter().fold(run, |run, rule| run.env("CACHEALLOC_BREAK", rule.name()))
        };
        let mut holder = house.process_with(CACHES_NOTHING, breaks);
        let [mut large, mut small] = [0, 1].map(|_| house.process_with(WAITS, breaks));
        if waits_elsewhere {
            holder.takes("alloc 800");
            assert_eq!(large.does("beside 600"), 0);
            large.waits_for_memory();
            for process in [&mut holder, &mut large, &mut small] {
                assert_eq!(process.does("use 1"), 0);
            }
        }
        let blocks = [400, 200, 200].map(|mib| holder.takes(&format!("alloc {mib}")));
        large.tell("alloc 700");
        assert!(!large.has_answered());
        small.tell("alloc 300");
        assert!(!small.has_answered());
        holder.frees(blocks[1]);
        holder.frees(blocks[2]);
        let longest = if rule.is_some() { Duration::from_secs(60) } else { A_WHILE };
        let has_passed = small.has_answered_within(longest);
        holder.frees(blocks[0]);
        if !has_passed {
            assert_eq!(large.answer(), 0);
        }
        small.dies();
        large.dies();
        holder.ends();
        has_passed
    };
    assert!(!run(None, false));
    assert!(run(Some(Rule::WaitersQueue), false));
    assert!(!run(None, true));
    assert!(run(Some(Rule::EachGpuHasAFirst), true));
}

/// A process that was stopped or killed while it waited delays no other one.
#[test]
fn inactive_waiter_is_skipped() {
    let house = House::new();
    let mut holder = house.process(KEEPS);
    let [mut stopped, mut killed, mut last] = [0, 1, 2].map(|_| house.process(WAITS));
    let block = holder.takes("alloc 600");
    for process in [&mut stopped, &mut killed] {
        process.tell("alloc 500");
        assert!(!process.has_answered());
    }
    stopped.signal(libc::SIGSTOP);
    killed.dies();
    last.tell("alloc 500");
    holder.frees(block);
    assert_eq!(last.answer(), 0);
    stopped.signal(libc::SIGCONT);
    last.ends();
    assert_eq!(stopped.answer(), 0);
    stopped.ends();
    holder.ends();
    house.ends_clean();
}

/// Each process waits for what the other one holds: both requests end with the driver's error.
#[test]
fn two_that_wait_for_each_other_both_end() {
    let house = House::new();
    let conf = "wait_for_memory_s:1";
    let (mut first, mut second) = (house.process(conf), house.process(conf));
    for process in [&mut first, &mut second] {
        process.takes("alloc 400");
    }
    let begun = Instant::now();
    first.tell("alloc 500");
    second.tell("alloc 500");
    assert_eq!((first.answer(), second.answer()), (OUT_OF_MEMORY, OUT_OF_MEMORY));
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    first.ends();
    second.takes("alloc 500");
    second.ends();
    house.ends_clean();
}

/// A file like that of a process with a waiting request, by the process's number. A thread writes
/// `looked_ns` to it, again and again, until this is dropped.
struct Planted {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
}

impl Planted {
    fn like(process: &Process, looked_ns: impl Fn() -> u64 + Send + 'static) -> Planted {
        let mut head =
            std::fs::read(file_of(process).expect("its file")).expect("a file of the user's");
        let end = format!("-{}", process.child.id());
        // The process is in another namespace, so that no other one can tell that it is gone; it
        // precedes all others.
        head[24..32].copy_from_slice(&1_u64.to_ne_bytes());
        head[144..152].copy_from_slice(&1_u64.to_ne_bytes());
        // SAFETY: the call only returns a number.
        let user = unsafe { libc::geteuid() };
        let path = PathBuf::from(format!("/dev/shm/cachealloc-{user}-1{end}"));
        std::fs::write(&path, &head).expect("the folder is writable");
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, target) = (is_over.clone(), path.clone());
        let writer = std::thread::spawn(move || {
            let file = File::options().write(true).open(target).expect("it was made");
            while !over.load(Ordering::Relaxed) {
                file.write_all_at(&looked_ns().to_ne_bytes(), 152).expect("it is writable");
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Planted { path, is_over, writer: Some(writer) }
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.writer.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.path);
    }
}

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether a request is served although such a file exists.
fn is_served_beside(looked_ns: fn() -> u64, by_another_user: bool, longest: Duration) -> bool {
    let house = House::new();
    let (mut holder, mut waiter) = (house.process(CACHES_NOTHING), house.process(WAITS));
    let block = holder.takes("alloc 800");
    waiter.tell("alloc 600");
    assert!(!waiter.has_answered());
    let planted = Planted::like(&waiter, looked_ns);
    if by_another_user {
        chown(&planted.path, Some(1), None).expect("the tests run as root");
    }
    holder.frees(block);
    let is_served = waiter.has_answered_within(longest);
    drop(planted);
    assert_eq!(waiter.answer(), 0);
    waiter.ends();
    holder.ends();
    house.ends_clean();
    is_served
}

#[test]
fn waiter_with_another_clock_blocks_nobody() {
    assert!(is_served_beside(|| u64::MAX, false, LONG));
}

#[test]
fn file_of_another_user_blocks_nobody() {
    // SAFETY: the call only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        return skipped("only root can give a file to another user");
    }
    assert!(is_served_beside(now_ns, true, LONG));
    // The same file, owned by the user, does delay the request until it is out of date.
    assert!((0..5).any(|_| !is_served_beside(now_ns, false, A_WHILE)));
}

/// A waiting request does not count against the limit: a smaller one is served beside it.
#[test]
fn waiting_request_does_not_count_against_the_limit() {
    let house = House::new();
    let mut holder = house.process(KEEPS);
    let mut waiter = house.process("wait_for_memory_s:60,gpu_memory_limit_mb:700");
    holder.takes("alloc 800");
    assert_eq!(waiter.does("beside 600"), 0);
    a_while();
    waiter.tell("alloc 150");
    assert!(waiter.has_answered_within(Duration::from_secs(30)));
    assert_eq!(waiter.answer(), 0);
    waiter.dies();
    holder.ends();
    house.ends_clean();
}

/// A process that ends waits for nothing.
#[test]
fn an_exit_handler_does_not_wait() {
    let ended = |seconds: u32, broken: &str| {
        let begun = Instant::now();
        let conf = format!("wait_for_memory_s:{seconds}");
        let run = Run::c("request_at_end.c").conf(&conf).env("CACHEALLOC_BREAK", broken);
        assert_eq!(run.output().ok().stdout, "code 2\n");
        begun.elapsed()
    };
    ended(86_400, "");
    assert!(ended(2, Rule::NoReclaimAtExit.name()) >= Duration::from_secs(2));
}

/// The driver returns the same code for a lack of something else.
#[test]
fn other_failures_do_not_wait() {
    let run = |seconds: u32, broken: &'static str| {
        let house = House::new();
        let fails = |run: Run| {
            let run = run.env("SIM_FAIL", "cuModuleLoadData@*=2");
            run.env("CACHEALLOC_BREAK", broken)
        };
        let (mut neighbour, conf) = (house.process(KEEPS), format!("wait_for_memory_s:{seconds}"));
        let mut process = house.process_with(&conf, fails);
        neighbour.caches(300, 100);
        assert_eq!(process.does("module"), OUT_OF_MEMORY);
        let kept = neighbour.has_mib() >= 300;
        process.ends();
        neighbour.ends();
        house.ends_clean();
        kept
    };
    assert!(run(86_400, ""));
    assert!(!run(1, Rule::OtherShortagesFail.name()));
}
