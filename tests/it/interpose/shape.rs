//! The file that users get: its exports, its dependencies, and the oldest C library with which it
//! loads.
//!
//! The fast tier does not build this file, and checks the exports of the one with assertions, which
//! are the same.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use cachealloc_core::rules::Rule;
use cachealloc_tests::{library, release_library, root};

/// The exports must match the committed list exactly: an additional export may replace a function
/// of the program, and with a missing one calls bypass the library. `UPDATE=1 make test` writes the
/// list from the table of functions.
#[test]
fn exports_are_the_committed_list() {
    let list = root().join("tests/data/exports.txt");
    let found: BTreeSet<String> =
        names(&library(), &["--defined-only"]).into_iter().map(|n| n.name).collect();
    if env::var_os("UPDATE").is_some() {
        let text: String = found.iter().map(|name| format!("{name}\n")).collect();
        fs::write(&list, text).expect("the list is writable");
    }
    let text = fs::read_to_string(&list).expect("the list is committed");
    let wanted: BTreeSet<String> = text.lines().map(str::to_string).collect();
    let more: Vec<_> = found.difference(&wanted).collect();
    let fewer: Vec<_> = wanted.difference(&found).collect();
    assert!(more.is_empty() && fewer.is_empty(), "not in the list: {more:?}; missing: {fewer:?}");
}

/// Exports are the library's hooks in the C library, the functions of its own header, and functions
/// of the driver. Nothing that a dependency defines is exported.
#[test]
fn every_export_is_a_driver_function() {
    let table = fs::read_to_string(root().join("src/preload/functions.csv")).expect("the table");
    let symbols = table.lines().filter_map(|row| Some(row.split_once(',')?.0.to_string()));
    let known: BTreeSet<String> = symbols.collect();
    let header = fs::read_to_string(root().join("include/cachealloc.h")).expect("our header");
    for symbol in names(&library(), &["--defined-only"]) {
        let name = &symbol.name;
        const OF_LIBC: [&str; 17] = [
            "dlsym",
            "dlopen",
            "dlmopen",
            "dlclose",
            "dup2",
            "dup3",
            "freopen",
            "freopen64",
            "_exit",
            "_Exit",
            "prctl",
            "sigaction",
            "signal",
            "bsd_signal",
            "ssignal",
            "sysv_signal",
            "__sysv_signal",
        ];
        let of_header =
            header.contains(&format!(" {name}(")) || header.contains(&format!("*{name}("));
        let of_libc = OF_LIBC.contains(&name.as_str());
        // The function by which NVTX finds a tool.
        let of_nvtx = name == "InitializeInjectionNvtx2";
        assert!(of_libc || of_nvtx || of_header || known.contains(name), "{name} is exported");
        // The loader would silently ignore a symbol with a version of the library's own.
        assert_eq!(symbol.version, "", "{name} has a version");
    }
}

/// Red Hat 7 and every newer system has glibc 2.17.
#[test]
#[ignore = "long tier"]
fn loads_from_glibc_2_17_on() {
    for symbol in names(&release_library(), &["--undefined-only"]) {
        let (name, version) = (&symbol.name, &symbol.version);
        if let Some(number) = version.strip_prefix("GLIBC_") {
            let number: Vec<u32> = number.split('.').map(|part| part.parse().unwrap()).collect();
            assert!(number <= vec![2, 17], "{name} needs {version}");
        } else if version.is_empty() {
            assert!(symbol.weak, "{name} has no version: list it in src/preload/build/glibc.rs");
            // Unversioned: the system's function, or null. Each user checks before calling.
            const WEAK: [&str; 7] = [
                "_ITM_deregisterTMCloneTable",
                "_ITM_registerTMCloneTable",
                "__cxa_thread_atexit_impl",
                "__gmon_start__",
                "getrandom",
                "gettid",
                "statx",
            ];
            assert!(WEAK.contains(&name.as_str()), "{name} is weak: is null harmless?");
        } else {
            assert!(version.starts_with("GCC_") && !version.starts_with("GCC_7"), "{symbol:?}");
        }
    }
}

#[test]
#[ignore = "long tier"]
fn needs_the_c_library_and_the_unwinder_only() {
    let text = tool("readelf", &["-d", &release_library().display().to_string()]);
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        let name = line.split(['[', ']']).nth(1).expect("a name in brackets");
        let known = ["libc.so.6", "libdl.so.2", "libpthread.so.0", "libgcc_s.so.1"];
        assert!(known.contains(&name) || name.starts_with("ld-linux-"), "needs {name}");
    }
    let flags: String = text.lines().filter(|line| line.contains("FLAGS_1")).collect();
    assert!(flags.contains("NODELETE"), "could be unmapped while the driver uses it: {flags}");
    assert!(!text.contains("RUNPATH") && !text.contains("RPATH"), "has a search path of its own");
    assert!(!text.contains("TEXTREL"));
    assert!(!text.contains("STATIC_TLS"), "cannot be opened late");
}

/// The loader adds the library's base to each of these addresses in every process, before the
/// process runs.
#[test]
#[ignore = "long tier"]
fn the_loader_has_few_addresses_to_change() {
    const ADDRESSES_MAX: u64 = 2_700;
    let text = tool("readelf", &["-d", &release_library().display().to_string()]);
    let line = text.lines().find(|line| line.contains("(RELACOUNT)")).expect("a count");
    let count = line.split_whitespace().last().and_then(|word| word.parse::<u64>().ok());
    let count = count.expect("a number");
    assert!(count <= ADDRESSES_MAX, "{count} addresses, at most {ADDRESSES_MAX} wanted");
}

/// To a program the library with assertions has the same exports and dependencies.
#[test]
#[ignore = "long tier"]
fn the_checked_library_exports_the_same() {
    let list = |path: &Path| {
        tool("nm", &["-D", "--defined-only", "--format=just-symbols", &path.display().to_string()])
    };
    assert_eq!(list(&library()), list(&release_library()));
}

#[derive(Debug)]
struct Symbol {
    name: String,
    version: String,
    weak: bool,
}

/// The switches by which tests turn rules and bounds off are not in the library that users get.
#[test]
#[ignore = "long tier"]
fn release_has_no_test_switches() {
    let has = |library: &Path, text: &str| {
        let bytes = fs::read(library).expect("the library");
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    for switch in ["CACHEALLOC_BREAK", "CACHEALLOC_BOUND", Rule::PublishAfterBarrier.name()] {
        assert!(has(&library(), switch), "the tests' library lacks {switch}");
        assert!(!has(&release_library(), switch), "{switch}");
    }
}

fn names(library: &Path, flags: &[&str]) -> Vec<Symbol> {
    let path = library.display().to_string();
    let text = tool("nm", &[&["-D"], flags, &[path.as_str()]].concat());
    let symbol = |line: &str| {
        let mut words = line.split_whitespace().rev();
        let name = words.next().expect("nm prints names");
        let kind = words.next().expect("nm prints kinds");
        let (name, version) = name.split_once('@').unwrap_or((name, ""));
        let version = version.trim_start_matches('@').to_string();
        Symbol { name: name.to_string(), version, weak: kind == "w" }
    };
    text.lines().map(symbol).collect()
}

fn tool(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("binutils come with gcc");
    assert!(output.status.success(), "{program} {arguments:?} failed");
    String::from_utf8(output.stdout).expect("names are ASCII")
}
