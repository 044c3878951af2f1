//! A call that the driver refuses has no effect in the library: each hooked function is refused
//! at once, and refused after it has done everything (`tests/programs/refusals`). Functions listed
//! in `tests/data/unrefused.csv` and `unsimulated.csv` are not refused in the second way.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Run, root, tier};

use crate::ordering::hazards::problems;

/// There is memory in the cache, and frees of two threads follow a kernel.
#[test]
fn refused_calls_change_nothing() {
    check("free_mode:ordered");
}

#[test]
#[ignore = "long tier"]
fn refused_calls_change_nothing_where_each_free_waits() {
    check("free_mode:strict");
}

/// Without the rule the test fails.
#[test]
fn a_refusal_that_changes_something_shows() {
    let (_, symbol, types) =
        hooked().into_iter().find(|row| row.1 == "cuIpcGetEventHandle").unwrap();
    let broken =
        refusal(&symbol, &types).env("CACHEALLOC_BREAK", Rule::RefusedChangesNothing.name());
    let ran = broken.output();
    assert!(ran.stdout.contains("CHANGED"), "{}", ran.stdout);
}

/// Each hooked function is refused in both ways, or listed with the reason why not. The simulated
/// driver must have a body for it.
#[test]
fn each_hook_is_refused_or_has_a_reason() {
    let reasons = ["unrefused", "unsimulated"].map(|name| text(&format!("tests/data/{name}.csv")));
    let reasons = reasons.iter().flat_map(|list| list.lines().skip(1));
    let reasons: BTreeSet<&str> =
        reasons.filter_map(|line| Some(line.split_once(',')?.0)).collect();
    let all: BTreeSet<String> = hooked().into_iter().map(|(_, symbol, _)| plain(&symbol)).collect();
    let known = known();
    let unknown: Vec<_> =
        all.iter().filter(|n| !known.contains(*n) && !reasons.contains(n.as_str())).collect();
    assert!(unknown.is_empty(), "neither known to refusals nor in a list: {unknown:?}");
    let both: Vec<_> = reasons.iter().filter(|name| known.contains(**name)).collect();
    assert!(both.is_empty(), "refused by now, though in a list: {both:?}");
    let wrong: Vec<_> = reasons.iter().filter(|name| !all.contains(**name)).collect();
    assert!(wrong.is_empty(), "no such hooks: {wrong:?}");
}

fn check(conf: &str) {
    // The default tier omits the twins and all but the newest of several versions, and takes one in
    // three of the rest.
    let mut functions = hooked();
    if !tier::is_long() {
        functions.retain(|(_, symbol, _)| plain(symbol) == *symbol);
        let newest =
            |index: usize| functions.get(index + 1).is_none_or(|n| n.0 != functions[index].0);
        let kept: Vec<bool> = (0..functions.len()).map(newest).collect();
        let mut kept = kept.into_iter();
        functions.retain(|_| kept.next().unwrap_or(true));
    }
    assert!(functions.len() > 150, "hardly any hook was found");
    let functions: Vec<_> = functions.into_iter().step_by(tier::count(3, 1)).collect();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(String::new()));
    let work = || {
        while let Some((_, symbol, types)) = functions.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(problem) = wrong(symbol, types, conf) {
                writeln!(failures.lock().unwrap(), "{symbol}: {problem}").unwrap();
            }
        }
    };
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| _ = scope.spawn(work)));
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{failures}");
}

const WORKERS: usize = 2;

/// Returns what is wrong, if anything.
fn wrong(symbol: &str, types: &str, conf: &str) -> Option<String> {
    let natively = refusal(symbol, types).native().output();
    let ours = refusal(symbol, types).conf(conf).output();
    for ran in [&natively, &ours] {
        let problems = problems(ran);
        if ran.code != Some(0) || !problems.is_empty() || ran.stderr.contains("caching is off") {
            return Some(format!("{:?} {:?} {problems:?}", ran.code, ran.stderr));
        }
    }
    let differs = natively.stdout.lines().zip(ours.stdout.lines()).find(|(a, b)| a != b);
    let changed = ours.stdout.lines().find(|line| line.starts_with("CHANGED"));
    changed.map(str::to_string).or_else(|| differs.map(|pair| format!("{pair:?}")))
}

fn refusal(symbol: &str, types: &str) -> Run {
    let run = Run::program(env!("CARGO_BIN_EXE_refusals")).arg(symbol).arg(types);
    let run = run.env("SIM_DEADLOCK_MS", "4000").env("SIM_DRIVER_VERSION", "13050");
    // Functions of peer access need two devices: more memory is visible then.
    if symbol.contains("PeerAccess") { run.env("SIM_DEVICES", "2") } else { run }
}

/// Returns the base name, symbol and argument types of each hooked function, by the rule of
/// `src/preload/build.rs`.
fn hooked() -> Vec<(String, String, String)> {
    let list = text("src/preload/functions.csv");
    let rows = list.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let has_hook = |row: &Vec<&str>| {
        let by_class = ["submit", "order"].contains(&row[5]);
        let wanted = !row[11].is_empty() || by_class || row[7] == "1" || row[9] == "1";
        wanted && !row[10].is_empty()
    };
    let owned = |row: Vec<&str>| (row[1].to_string(), row[0].to_string(), row[10].to_string());
    rows.filter(has_hook).map(owned).collect()
}

/// Removes the suffix of the twin for a thread's default stream.
fn plain(symbol: &str) -> String {
    symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds").to_string()
}

/// Returns the symbols for which the program knows arguments.
fn known() -> BTreeSet<String> {
    let symbols: String = hooked().iter().map(|(_, symbol, _)| plain(symbol) + " ").collect();
    let run = Run::program(env!("CARGO_BIN_EXE_refusals")).arg("--list").args(&symbols);
    let run = run.native().env("SIM_DEVICES", "2").env("SIM_DRIVER_VERSION", "13050");
    let ran = run.output().ok();
    ran.stdout.lines().map(str::to_string).collect()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("a table")
}
