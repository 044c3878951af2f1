//! Every hazard in every mode that promises it: the same output and exit code as without the
//! library. The simulation finds no race, no deadlock and no capture that died.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use cachealloc_tests::{Ran, Run, tier};

#[test]
fn natively_clean() {
    check(None);
}

#[test]
fn ordered() {
    check(Some("ordered"));
}

#[test]
fn strict() {
    check(Some("strict"));
}

#[test]
fn relaxed() {
    check(Some("relaxed"));
}

/// Memory in arenas gives the same guarantees as ordinary segments, but cannot be exported.
#[test]
#[ignore = "long tier"]
fn expandable() {
    check(Some(EXPANDABLE));
}

/// Work that the library itself submits to the program's streams is ordered like any other.
#[test]
#[ignore = "long tier"]
fn filled() {
    check(Some(FILLED));
}

/// A free that waits reads the zone of its block, and another thread's request writes one.
#[test]
fn zones_are_read_beside_requests() {
    passes("pool_memory_beside_a_free_that_seems_over", "ordered,red_zone:64");
}

/// A request that only a limit refuses waits for no kernel.
#[test]
fn limit_refuses_without_a_wait() {
    passes("spin_and_pitched_memory_beyond_a_limit", "ordered,gpu_memory_limit_mb:100");
}

/// Only code that depends on a free in one context from another one needs the waits.
#[test]
#[ignore = "long tier"]
fn promised() {
    check(Some(PROMISED));
}

/// Without a cache every hazard behaves as in the driver itself; the fast tier runs a few.
#[test]
fn without_a_cache() {
    check(Some(LOOKED_AT));
}

const LOOKED_AT: &str = "ordered,cache:false,record:all,snapshot:/dev/null,log:quiet";

pub const PROMISED: &str = "ordered,across_contexts:barrier";

const FILLED: &str = "ordered,fill:zero";

const EXPANDABLE: &str = "ordered,expandable_segments:true";

/// Hazards that no mode covers yet, and why. Each must still fail; remove those that are fixed.
const GAPS: [(&str, &str); 0] = [];

/// Hazards that only expandable segments cover.
const GAPS_OF_PLAIN: [(&str, &str); 1] =
    [("one_block_left_in_each_segment", "a segment in use cannot be released in part")];

/// Actions that the program promises to avoid.
const GAPS_OF_PROMISED: [(&str, &str); 12] = {
    const WHY: &str = "it relies in one context on a free in another";
    [
        GAPS_OF_PLAIN[0],
        ("peer_copy_into_reused_memory", WHY),
        ("peer_kernel_in_reused_memory", WHY),
        ("foreign_stream_in_reused_memory", WHY),
        ("foreign_stream_of_a_peer_in_reused_memory", WHY),
        ("second_context_looks_at_data", WHY),
        ("peer_access_behind_a_barrier", WHY),
        ("one_thread_in_two_contexts", WHY),
        ("another_thread_submits_elsewhere", WHY),
        ("first_work_beside_a_second_context", WHY),
        ("second_init", WHY),
        (
            "physical_memory_beside_a_long_release",
            "in this mode a free orders all streams of its context, the library's as well",
        ),
    ]
};

/// Hazards that a fill by the library adds to.
const GAPS_OF_FILLED: [(&str, &str); 9] = {
    const WHY: &str = "the fill is work, which the driver blocks while a free waits";
    [
        GAPS_OF_PLAIN[0],
        ("pool_memory_beside_a_free_and_a_capture", WHY),
        ("pool_memory_beside_a_free_of_an_old_driver", WHY),
        ("memory_beside_an_end_from_another_context", WHY),
        ("memory_beside_an_end_in_another_context", WHY),
        ("memory_beside_the_end_of_an_array_and_a_capture", WHY),
        ("memory_beside_the_end_of_managed_memory_and_a_capture", WHY),
        ("memory_beside_the_end_of_a_registration_and_a_capture", WHY),
        (
            "capture_whose_thread_ends",
            "a barrier after the fill ends a capture that nobody can end",
        ),
    ]
};

/// Hazards that expandable segments do not cover.
const GAPS_OF_EXPANDABLE: [(&str, &str); 15] = {
    const WHY: &str = "memory in an arena cannot be exported";
    const SERVED: &str = "an arena coalesces the memory, available in stream order after the frees";
    [
        ("export_behind_a_barrier", WHY),
        ("export_of_neighbours", WHY),
        ("close_of_what_is_not_open", WHY),
        ("opens_beside_references", WHY),
        ("exported_block_is_not_reused", WHY),
        (
            "dma_buf_of_a_block_widened_to_pages",
            "the simulation exports no range over several mappings",
        ),
        ("large_blocks_after_an_export", WHY),
        ("handle_of_a_freed_block", WHY),
        ("handles_that_are_damaged", WHY),
        ("memory_that_cannot_be_exported", WHY),
        ("memory_comes_back_after_an_export", WHY),
        ("free_of_stream_ordered_memory_behind_an_export", WHY),
        ("stream_memory_beside_frees_without_end", SERVED),
        ("stream_memory_behind_a_graph_beside_frees_without_end", SERVED),
        ("stream_memory_beside_work_without_end", SERVED),
    ]
};

/// Runs one hazard with other options than those of the modes.
fn passes(name: &str, options: &str) {
    let hazards = hazards();
    let hazard = hazards.iter().find(|hazard| hazard.name == name).expect(name);
    assert_eq!(hazard.problem(Some(options)), None);
}

fn check(mode: Option<&str>) {
    let hazards = hazards();
    assert!(hazards.len() > 90, "only {} hazards are listed", hazards.len());
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(String::new()));
    // The fast tier takes all of the default mode, and a part of each other one.
    let step = match mode {
        None | Some("ordered") => 1,
        Some(LOOKED_AT) => tier::count(12, 1),
        Some(_) => tier::count(3, 1),
    };
    let work = || {
        while let Some(hazard) = hazards.get(step * next.fetch_add(1, Ordering::Relaxed)) {
            if hazard.is_for(mode)
                && let Some(failure) = failure(hazard, mode)
            {
                writeln!(failures.lock().expect("not poisoned"), "{failure}").unwrap();
            }
        }
    };
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| _ = scope.spawn(work)));
    let failures = failures.into_inner().expect("not poisoned");
    assert!(failures.is_empty(), "in mode {mode:?}:\n{failures}");
}

/// Some hazards wait for seconds, and use no processor meanwhile.
const WORKERS: usize = 2;

/// Describes what is wrong with the hazard in this mode, or with the list of gaps.
fn failure(hazard: &Hazard, mode: Option<&str>) -> Option<String> {
    let problem = hazard.problem(mode);
    let of_kind = match mode {
        Some(EXPANDABLE) => &GAPS_OF_EXPANDABLE[..],
        Some(PROMISED) => &GAPS_OF_PROMISED[..],
        Some(FILLED) => &GAPS_OF_FILLED[..],
        Some(LOOKED_AT) => &[],
        _ => &GAPS_OF_PLAIN[..],
    };
    let mut gaps = GAPS.iter().chain(of_kind).filter(|_| mode.is_some());
    let gap = gaps.find(|(name, _)| *name == hazard.name);
    match (problem, gap) {
        (None, None) => None,
        (Some(_), Some((name, why))) => {
            println!("{name}: {why}");
            None
        }
        (None, Some((name, _))) => Some(format!("{name} is kept: no gap")),
        (Some(problem), None) => Some(problem),
    }
}

/// One line of `hazards --list`.
pub struct Hazard {
    pub name: String,
    kept: String,
    pub natively: bool,
    machine: Vec<(String, String)>,
}

pub fn hazards() -> Vec<Hazard> {
    let list = Run::program(PROGRAM).arg("--list").native().output().ok();
    list.stdout.lines().map(Hazard::read).collect()
}

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_hazards");

impl Hazard {
    fn read(line: &str) -> Hazard {
        let mut words = line.split_whitespace();
        let mut next = || words.next().unwrap_or_else(|| panic!("too short: {line}")).to_string();
        let (name, kept, natively) = (next(), next(), next() == "natively");
        let pair = |text: &str| text.split_once('=').map(|(n, v)| (n.to_string(), v.to_string()));
        let machine = words.map(|word| pair(word).expect("a variable")).collect();
        Hazard { name, kept, natively, machine }
    }

    /// Returns `true` if the mode promises it; the mode `None` is without the library.
    pub fn is_for(&self, mode: Option<&str>) -> bool {
        match (mode, self.kept.as_str()) {
            (None | Some(LOOKED_AT), _) => self.natively,
            (Some("strict"), _) | (Some(_), "Always") => true,
            (Some(mode), "Full") => mode.starts_with("ordered"),
            _ => false,
        }
    }

    /// Returns `true` if ordinary segments do not cover it yet.
    pub fn is_gap_of_plain(&self) -> bool {
        GAPS.iter().chain(&GAPS_OF_PLAIN).any(|(name, _)| *name == self.name)
    }

    pub fn run(&self) -> Run {
        let run = Run::program(PROGRAM).arg(&self.name).env("SIM_DEADLOCK_MS", "20000");
        self.machine.iter().fold(run, |run, (name, value)| run.env(name, value))
    }

    /// Describes what is wrong, if anything.
    fn problem(&self, mode: Option<&str>) -> Option<String> {
        let Some(mode) = mode else { return self.wrong(&self.natively(), None) };
        let natively = self.natively.then(|| self.natively());
        let ours = self.run().conf(&format!("free_mode:{mode}")).output();
        self.wrong(&ours, natively.as_deref())
    }

    /// Runs it without the library: the result is the same in each mode, so it runs once for all
    /// tests of this process.
    pub fn natively(&self) -> Arc<Ran> {
        type Once = Arc<OnceLock<Arc<Ran>>>;
        static RUNS: Mutex<BTreeMap<String, Once>> = Mutex::new(BTreeMap::new());
        let mut runs = RUNS.lock().expect("not poisoned");
        let run = runs.entry(self.name.clone()).or_default().clone();
        drop(runs);
        run.get_or_init(|| Arc::new(self.run().native().output())).clone()
    }

    /// Describes a run that is not clean, differs from the driver's, or was not served by the
    /// library.
    pub fn wrong(&self, ran: &Ran, natively: Option<&Ran>) -> Option<String> {
        let problems = problems(ran);
        let same = natively.is_none_or(|native| native.stdout == ran.stdout);
        let bypassed = ran.stderr.contains("caching is off");
        let good = ran.code == Some(0) && problems.is_empty() && same && !bypassed;
        let said = (ran.stdout.trim(), ran.said());
        let natively = natively.map(|ran| ran.stdout.trim());
        (!good).then(|| {
            let name = &self.name;
            format!("{name}: {:?} {said:?} {problems:?}, natively {natively:?}", ran.code)
        })
    }
}

/// Problems that the simulation found.
pub fn problems(ran: &Ran) -> Vec<&str> {
    let lines = ran.report.text.lines();
    lines.filter(|line| line.starts_with("sim: ") || line.starts_with("capture killed")).collect()
}
