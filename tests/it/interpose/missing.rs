//! Drivers that lack functions. Each function that the library calls or hooks is missing alone
//! once, as in no real driver; and then all functions that an older driver lacks are missing
//! together.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_tests::{Ran, Run, driver_of_version, driver_without, root};

use crate::command::cachealloc;

const VERSIONS: [u32; 8] = [11_040, 11_080, 12_000, 12_030, 12_040, 12_050, 12_080, 13_000];

/// Messages about features that are off because a function is missing. The library prints each
/// once, and `cachealloc doctor` prints it in advance.
const SAID: [(&str, &str); 11] = [
    ("cuCtxGetCurrent", "caching is off for the rest of this process"),
    ("cuCtxRecordEvent", "frees wait, as without the library, from now on"),
    ("cuCtxWaitEvent", "frees wait, as without the library, from now on"),
    ("cuMemAddressReserve", "using ordinary segments"),
    ("cuMemCreate", "using ordinary segments"),
    ("cuMemMap", "using ordinary segments"),
    ("cuMemRelease", "using ordinary segments"),
    ("cuMemSetAccess", "using ordinary segments"),
    ("cuMemUnmap", "using ordinary segments"),
    ("cuGraphRetainUserObject", "memory of its capture stays reserved"),
    ("cuUserObjectCreate", "memory of its capture stays reserved"),
];

/// Programs: allocations with segments that grow, a kernel that checks memory contents, and memory
/// inside a capture.
fn programs() -> [Run; 3] {
    [
        Run::c("use.c").conf("log:info,expandable_segments:true,fill:zero"),
        Run::program(env!("CARGO_BIN_EXE_hello")).arg("symbols").conf("log:info"),
        Run::program(env!("CARGO_BIN_EXE_graphs")).arg("reuse").conf("log:info"),
    ]
}

/// Returns the functions that the library names: those that it calls, and some of those that it
/// hooks.
fn named() -> BTreeSet<String> {
    let table = fs::read_to_string(root().join("src/preload/functions.csv")).expect("the table");
    let symbols: HashSet<&str> = table.lines().filter_map(|row| row.split(',').next()).collect();
    let mut named = BTreeSet::new();
    each_source(&root().join("src/preload"), &mut |text| {
        for line in text.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            named.extend(words.filter(|word| symbols.contains(word)).map(str::to_string));
        }
    });
    named
}

fn each_source(folder: &Path, visit: &mut impl FnMut(&str)) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            each_source(&path, visit);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            visit(&fs::read_to_string(path).expect("a source file"));
        }
    }
}

fn ended(ran: &Ran) -> (Option<i32>, &str) {
    (ran.code, &ran.stdout)
}

/// Returns what is wrong with the programs on this driver, beyond what is wrong with a complete
/// one. Adds the messages to `said`.
fn wrong(run: Run, whole: &Ran, said: &mut Vec<String>) -> Option<String> {
    let ran = run.output();
    let own = ran.said();
    said.extend(own.iter().map(|line| line.to_string()));
    let twice = own.iter().collect::<HashSet<_>>().len() < own.len();
    if twice || ran.report.races() != 0 {
        return Some(format!("said twice, or a race: {ran:#?}"));
    }
    if ended(&ran) == ended(whole) {
        return None;
    }
    // A capture with allocations fails without the library: it may then fail in another way under
    // it.
    let native = run.native().output();
    let both_fail = native.code != Some(0) && ran.code.is_some_and(|code| code < 128);
    let is_native = ended(&native) == ended(&ran) || both_fail;
    (!is_native).then(|| format!("natively {native:#?}\nhere {ran:#?}"))
}

#[test]
fn each_function_may_be_missing() {
    let whole = programs().map(|run| run.output());
    let functions: Vec<String> = named().into_iter().collect();
    assert!(functions.len() > 80, "{functions:?}");
    let next = AtomicUsize::new(0);
    let one_after_the_other = || {
        while let Some(function) = functions.get(next.fetch_add(1, Ordering::Relaxed)) {
            let driver = driver_without(&format!("without-{function}"), |row| row[0] == *function);
            let mut said = Vec::new();
            for (run, whole) in programs().into_iter().zip(&whole) {
                let problem =
                    wrong(run.driver(&driver).env("SIM_LACKS", function), whole, &mut said);
                assert!(problem.is_none(), "without {function}: {}", problem.unwrap_or_default());
            }
            for (_, line) in SAID.iter().filter(|(of, _)| of == function) {
                assert!(said.iter().any(|said| said.contains(line)), "{function}: {said:#?}");
                let doctor = cachealloc("doctor").driver(&driver).output().stdout;
                assert!(doctor.contains(&format!("it lacks {function}: ")), "{doctor}");
            }
            fs::remove_dir_all(driver).expect("its own folder");
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(one_after_the_other);
        one_after_the_other();
        other.join().expect("the other thread's functions");
    });
    assert!(SAID.iter().all(|(function, _)| functions.iter().any(|named| named == function)));
}

#[test]
fn a_driver_may_be_old() {
    let whole = programs().map(|run| run.output());
    for version in VERSIONS {
        let driver = driver_of_version(version);
        for (run, whole) in programs().into_iter().zip(&whole) {
            let run = run.driver(&driver).env("SIM_DRIVER_VERSION", version.to_string());
            let problem = wrong(run, whole, &mut Vec::new());
            assert!(problem.is_none(), "driver {version}: {}", problem.unwrap_or_default());
        }
    }
}
