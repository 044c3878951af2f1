//! A request that is about to fail asks the user's peer processes for memory
//! (`preload/peer_reclaim`). Several processes share a simulated device. The test sends commands to
//! each in turn, and so knows how much memory the plain driver would have free.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use cachealloc_core::rules::Rule;
use cachealloc_tests::dice::Dice;
use cachealloc_tests::{Run, scratch_file, skipped, tier};

mod house;
mod queue;
mod threads;

use house::{House, Process};

/// No memory is released on its own while a test runs.
const KEEPS: &str = "idle_release_s:3600";
const EXPANDABLE: &str = "idle_release_s:3600,expandable_segments:true";
const DEVICE_MIB: u64 = 1024;
const OUT_OF_MEMORY: i32 = 2;

/// Sleeps until free memory counts as unused in a pass.
fn a_while() {
    std::thread::sleep(Duration::from_millis(100));
}

#[test]
fn peer_releases_its_freed_memory() {
    for conf in [KEEPS, EXPANDABLE] {
        for part_mib in [900, 100, 20, 2] {
            let house = House::new();
            let (mut first, mut second) = (house.process(conf), house.process(conf));
            first.caches(900, part_mib);
            second.takes("alloc 600");
            // The process can still allocate as usual.
            first.takes("alloc 100");
            first.ends();
            second.ends();
            house.ends_clean();
        }
    }
}

/// A container has its own process numbers, and shares the files in `/dev/shm`.
#[test]
fn containers_release_and_receive_memory() {
    // The container's second process.
    let inside =
        |run: Run| run.started_by("unshare", "--pid --fork --mount-proc sh -c \"$@\";exit sh");
    if inside(Run::program("true").native()).output().code != Some(0) {
        return skipped("only root makes namespaces");
    }
    for gives_inside in [true, false] {
        let house = House::new();
        let mut contained = house.process_with(KEEPS, inside);
        let mut other = house.process(KEEPS);
        let (first, second) =
            if gives_inside { (&mut contained, &mut other) } else { (&mut other, &mut contained) };
        first.caches(900, 100);
        second.takes("alloc 600");
        contained.ends();
        other.ends();
        house.ends_clean();
    }
}

/// Requests of every kind ask the peers.
#[test]
fn peers_release_for_every_kind_of_memory() {
    for kind in ["alloc", "async", "pitch", "create", "array", "pool"] {
        let house = House::new();
        let (mut first, mut second) = (house.process(KEEPS), house.process(KEEPS));
        first.caches(900, 20);
        second.takes(&format!("{kind} 600"));
        first.ends();
        second.ends();
        house.ends_clean();
    }
}

/// Requests without a size, such as those for a context's memory, ask the peers as well.
#[test]
fn peers_release_for_requests_of_unknown_size() {
    let house = House::new();
    let (mut first, mut second) = (house.process(KEEPS), house.process(KEEPS));
    second.takes("alloc 100");
    first.caches(916, 4);
    assert_eq!(first.does("alloc 1"), 0);
    assert_eq!(second.does("context"), 0);
    first.ends();
    second.ends();
    house.ends_clean();
}

#[test]
fn peers_release_no_more_than_requested() {
    for (conf, more_mib) in [(KEEPS, 100), (EXPANDABLE, 2)] {
        let house = House::new();
        let (mut idle, mut busy) = (house.process(conf), house.process(conf));
        idle.caches(400, 100);
        a_while();
        busy.caches(400, 100);
        let (idle_mib, busy_mib) = (idle.has_mib(), busy.has_mib());
        let mut third = house.process(conf);
        let free_mib = DEVICE_MIB - idle_mib - busy_mib - third.has_mib();
        third.takes(&format!("alloc {}", free_mib + 150));
        let given_mib = idle_mib - idle.has_mib();
        assert!((150..150 + more_mib).contains(&given_mib), "{given_mib} for 150, {conf}");
        assert_eq!(busy.has_mib(), busy_mib, "what was just used stays");
        // The second process releases only what the first one lacks.
        third.takes("alloc 400");
        assert!(busy.has_mib() < busy_mib);
        [idle, busy, third].into_iter().for_each(Process::ends);
        house.ends_clean();
    }
}

#[test]
fn impossible_request_takes_no_memory_from_peers() {
    for conf in [KEEPS, EXPANDABLE] {
        let house = House::new();
        let (mut first, mut second) = (house.process(conf), house.process(conf));
        first.takes("alloc 200");
        first.caches(400, 100);
        let before = first.has_mib();
        for kind in ["alloc", "async", "create"] {
            assert_eq!(second.does(&format!("{kind} 900")), OUT_OF_MEMORY);
            assert_eq!(second.does(&format!("{kind} 2000")), OUT_OF_MEMORY);
        }
        assert_eq!(first.has_mib(), before);
        first.ends();
        second.ends();
        house.ends_clean();
    }
}

/// Enough memory seems to be free for the request, and the driver refuses it nevertheless.
#[test]
fn refused_request_takes_more_than_is_missing() {
    let house = House::new();
    let refused = |run: Run| run.env("SIM_FAIL", "cuMemAlloc_v2@*=2");
    let (mut first, mut second) = (house.process(KEEPS), house.process_with(KEEPS, refused));
    first.caches(800, 100);
    let before = first.has_mib();
    assert_eq!(second.does("alloc 50"), OUT_OF_MEMORY);
    assert!(first.has_mib() < before);
    first.ends();
    second.ends();
    house.ends_clean();
}

#[test]
fn peers_keep_memory_if_the_user_disables_release() {
    let kept = |giver: &str, asker: &str| {
        let house = House::new();
        let (mut first, mut second) = (house.process(giver), house.process(asker));
        first.caches(800, 100);
        assert_eq!(second.does("alloc 600"), OUT_OF_MEMORY, "{giver}; {asker}");
        first.ends();
        second.ends();
        house.ends_clean();
    };
    kept("idle_release_s:off", "");
    kept("strategy:pre_allocate,idle_release_s:off", "");
    kept(&format!("{KEEPS},live:false"), "");
    kept(KEEPS, "live:false");
    kept(KEEPS, "gpu_memory_limit_mb:500,log:quiet");
}

#[test]
fn without_the_rule_it_fails() {
    let house = House::new();
    let broken = |run: Run| run.env("CACHEALLOC_BREAK", Rule::PeersAreAsked.name());
    let (mut first, mut second) = (house.process(KEEPS), house.process_with(KEEPS, broken));
    first.caches(900, 100);
    assert_eq!(second.does("alloc 600"), OUT_OF_MEMORY);
    first.ends();
    second.ends();
    house.ends_clean();
}

/// On the plain driver the free would have waited for the kernel.
#[test]
fn memory_that_a_kernel_writes_is_not_released_to_peers() {
    let run = |broken: Option<Rule>| {
        let house = House::new();
        let breaks = |run: Run| match broken {
            Some(rule) => run.env("CACHEALLOC_BREAK", rule.name()),
            None => run,
        };
        let (mut first, mut second) = (house.process_with(KEEPS, breaks), house.process(KEEPS));
        let block = first.takes("alloc 800");
        assert_eq!(first.does(&format!("late {block}")), 0);
        first.frees(block);
        let code = second.does("alloc 600");
        first.does("wait");
        let later = second.does("alloc 600");
        first.ends();
        second.ends();
        (code, later)
    };
    assert_eq!(run(None), (OUT_OF_MEMORY, 0));
    assert_eq!(run(Some(Rule::IdleAfterBarrier)).0, 0);
}

#[test]
fn a_capture_on_either_side_is_no_obstacle() {
    let house = House::new();
    let (mut first, mut second) = (house.process(KEEPS), house.process(KEEPS));
    first.caches(900, 100);
    assert_eq!(first.does("begin"), 0);
    second.takes("alloc 600");
    assert_eq!(first.does("end"), 0);
    assert_eq!(second.does("begin"), 0);
    second.takes("alloc 200");
    assert_eq!(second.does("end"), 0);
    first.ends();
    second.ends();
    house.ends_clean();
}

/// A process that is stopped, was killed or never answers costs no memory.
#[test]
fn a_process_that_does_not_answer_is_not_waited_for() {
    let house = House::new();
    let (mut first, mut second) = (house.process(KEEPS), house.process(KEEPS));
    let (mut stopped, mut killed) = (house.process(KEEPS), house.process(KEEPS));
    stopped.caches(200, 100);
    stopped.stops();
    killed.caches(200, 100);
    killed.dies();
    first.caches(500, 100);
    second.takes("alloc 600");
    assert_eq!(second.does("alloc 300"), OUT_OF_MEMORY);
    stopped.signal(libc::SIGCONT);
    second.takes("alloc 300");
    [first, second, stopped].into_iter().for_each(Process::ends);
    house.ends_clean();
}

/// Each process requests what the other one holds: both requests end with the driver's error.
#[test]
fn two_that_starve_each_other_both_end() {
    let house = House::new();
    let (mut first, mut second) = (house.process(KEEPS), house.process(KEEPS));
    for process in [&mut first, &mut second] {
        process.takes("alloc 300");
        process.caches(100, 100);
    }
    first.tell("alloc 600");
    second.tell("alloc 600");
    assert_eq!((first.answer(), second.answer()), (OUT_OF_MEMORY, OUT_OF_MEMORY));
    // One of the processes may have the memory: the first one gets it.
    first.tell("alloc 350");
    second.tell("alloc 350");
    let mut codes = [first.answer(), second.answer()];
    codes.sort_unstable();
    assert_eq!(codes, [0, OUT_OF_MEMORY]);
    first.ends();
    second.ends();
    house.ends_clean();
}

/// A request that fails is not repeated if there are no peer processes.
#[test]
fn request_without_peers_sends_no_reclaim() {
    let calls = |conf: &str| {
        let report = scratch_file("report");
        let house = House::new();
        let alone = |run: Run| run.env("SIM_REPORT", &report);
        let mut process = house.process_with(conf, alone);
        assert_eq!(process.does("alloc 2000"), OUT_OF_MEMORY);
        assert_eq!(process.does("alloc 1023"), OUT_OF_MEMORY);
        process.ends();
        let text = std::fs::read_to_string(&report).expect("a report");
        std::fs::remove_file(report).expect("it was made");
        house.ends_clean();
        let calls = text.lines().filter(|line| line.starts_with("call cuMemAlloc"));
        calls.map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(calls(KEEPS), calls(&format!("{KEEPS},live:false")));
}

/// Memory that a process of the random programs uses.
struct Tenant {
    process: Process,
    /// Number and size of each block.
    blocks: Vec<(usize, u64)>,
    is_stopped: bool,
}

/// Eight processes, random requests, kills and stops: all memory that the plain driver would have
/// free is available.
#[test]
fn all_memory_free_in_the_driver_is_available() {
    for seed in 1..=tier::count(1, 3) {
        play(seed, KEEPS, &[40]);
        // Sizes are whole mappings: the rest of a mapping in use cannot be released.
        play(seed, EXPANDABLE, &[32, 64, 96, 256, 384]);
    }
}

fn play(seed: u64, conf: &str, sizes: &[u64]) {
    let house = House::new();
    let mut dice = Dice::new(seed);
    let tenant = || Tenant { process: house.process(conf), blocks: Vec::new(), is_stopped: false };
    let mut tenants: Vec<Tenant> = (0..8).map(|_| tenant()).collect();
    let context_mib = tenants[0].process.has_mib();
    for step in 0..200 {
        let at = dice.below(tenants.len());
        match dice.below(60) {
            0 => {
                tenants.swap_remove(at).process.dies();
                tenants.push(tenant());
            }
            1 if !tenants[at].is_stopped => {
                tenants[at].process.stops();
                tenants[at].is_stopped = true;
            }
            2..6 => {
                for tenant in tenants.iter_mut().filter(|tenant| tenant.is_stopped) {
                    tenant.process.signal(libc::SIGCONT);
                    tenant.is_stopped = false;
                }
            }
            _ if tenants[at].is_stopped => {}
            ..30 if !tenants[at].blocks.is_empty() => {
                let tenant = &mut tenants[at];
                let (block, _) = tenant.blocks.swap_remove(dice.below(tenant.blocks.len()));
                tenant.process.frees(block);
            }
            _ => {
                let mib = dice.pick(sizes);
                // A stopped process releases nothing from its cache.
                let used = |tenant: &Tenant| match tenant.is_stopped {
                    true => tenant.process.has_mib(),
                    false => context_mib + tenant.blocks.iter().map(|(_, mib)| mib).sum::<u64>(),
                };
                let used_mib: u64 = tenants.iter().map(used).sum();
                let is_free = used_mib + mib <= DEVICE_MIB;
                let tenant = &mut tenants[at];
                let code = tenant.process.does(&format!("alloc {mib}"));
                let wanted = if is_free { 0 } else { OUT_OF_MEMORY };
                if code != wanted {
                    let all = tenants.iter().map(|it| {
                        let used_mib: u64 = it.blocks.iter().map(|(_, mib)| mib).sum();
                        (used_mib, it.process.has_mib(), it.is_stopped)
                    });
                    let all: Vec<_> = all.collect();
                    panic!(
                        "seed {seed}, step {step}: {code} for {mib}, {used_mib} used, {conf}: {all:?} {at}"
                    );
                }
                let tenant = &mut tenants[at];
                if code == 0 {
                    tenant.blocks.push((tenant.process.blocks_count, mib));
                    tenant.process.blocks_count += 1;
                }
            }
        }
    }
    for tenant in &tenants {
        tenant.process.signal(libc::SIGCONT);
    }
    tenants.into_iter().for_each(|tenant| tenant.process.ends());
    house.ends_clean();
}
