//! The properties of a hook are columns of `src/preload/functions.csv`. No hook repeats one by
//! hand, and no other file lists functions that have one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use cachealloc_tests::root;

use super::tidy::rust_files;

/// Index of the columns `hook` and `not_caching`.
const HOOK: usize = 11;
const NOT_CACHING: usize = 12;

/// A hook as `file::function`, and its column `not_caching`.
fn hooks() -> BTreeMap<String, String> {
    let list = fs::read_to_string(root().join("src/preload/functions.csv")).expect("the list");
    let mut hooks = BTreeMap::new();
    for row in list.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>()) {
        let name = row[HOOK].split('(').next().unwrap_or_default();
        let before = hooks.insert(name.to_string(), row[NOT_CACHING].to_string());
        // A row without a hook has the common one, which the library calls only while it caches.
        let same = before.is_none_or(|before| before == row[NOT_CACHING]);
        assert!(same, "{name}: not_caching differs between its rows, as at {}", row[0]);
    }
    hooks.remove("");
    hooks
}

/// The functions of a file, with their text.
fn functions(text: &str) -> BTreeMap<&str, &str> {
    let starts = |line: &str| ["fn ", "pub", "unsafe fn "].iter().any(|it| line.starts_with(it));
    let mut functions = BTreeMap::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if starts(line)
            && let Some((_, rest)) = line.split_once("fn ")
        {
            let name = rest.split(['(', '<']).next().expect("a name");
            let body = text[at..].split("\n}\n").next().expect("a body");
            functions.insert(name, body);
        }
        at += line.len();
    }
    functions
}

/// Returns this function and those of the same file that it reaches.
fn reached<'a>(functions: &BTreeMap<&'a str, &'a str>, from: &str) -> BTreeSet<&'a str> {
    let (first, _) = functions.get_key_value(from).unwrap_or_else(|| panic!("no hook {from}"));
    let (mut open, mut seen) = (vec![*first], BTreeSet::from([*first]));
    while let Some(name) = open.pop() {
        let words = functions[name].split(|c: char| !c.is_alphanumeric() && c != '_');
        let named = words.filter_map(|word| Some(*functions.get_key_value(word)?.0));
        open.extend(named.filter(|named| seen.insert(named)));
    }
    seen
}

/// The text of the file that contains a hook, and the name of the hook in it.
fn file_of(hook: &str) -> (String, String) {
    let (module, function) = hook.rsplit_once("::").expect("a path");
    let folder = root().join("src/preload/hooks");
    let file = folder.join(module.replace("::", "/"));
    let files = [file.with_extension("rs"), file.join("mod.rs")];
    let file = files.iter().find(|file| file.exists()).expect("a file of hooks");
    (fs::read_to_string(file).expect("a source file"), function.to_string())
}

/// The list states what a call does while the library does not cache, and the export does it. A
/// hook asks only where the list leaves the decision to it.
#[test]
fn a_hook_asks_whether_the_library_caches_only_where_the_list_says_so() {
    const ASKS: [&str; 2] = ["bypass::is_caching()", "bypass::is_switched_off()"];
    let hooks = hooks();
    let asks = |text: &str| ASKS.iter().any(|it| text.contains(it));
    let in_charge = hooks.iter().filter(|(_, column)| column.is_empty());
    let mut helpers: BTreeSet<(String, String)> = BTreeSet::new();
    for (hook, _) in in_charge {
        let (text, name) = file_of(hook);
        let functions = functions(&text);
        let reached = reached(&functions, &name);
        let found = reached.iter().any(|name| asks(functions[name]));
        assert!(found, "{hook} does not ask: it needs `real` in the column not_caching");
        let module = hook.rsplit_once("::").expect("a path").0;
        helpers.extend(reached.iter().map(|name| (module.to_string(), name.to_string())));
    }
    for (hook, column) in hooks.iter().filter(|(_, column)| !column.is_empty()) {
        let (text, name) = file_of(hook);
        let module = hook.rsplit_once("::").expect("a path").0.to_string();
        let functions = functions(&text);
        for name in reached(&functions, &name) {
            let shared = helpers.contains(&(module.clone(), name.to_string()));
            // The first launches, whose hook is not called, are the export's.
            let repeats = asks(functions[name]) && !shared;
            assert!(!repeats, "{hook} is {column:?} while not caching, and {name} asks again");
        }
    }
}

/// A function with a hook of its own has a body in the simulated driver, so that tests can run the
/// hook. A function with the common hook has one, or a reason in `tests/data/unsimulated.csv`.
#[test]
fn each_hooked_function_is_simulated_or_has_a_reason() {
    let bodies = simulated(&root().join("tests/sim/api"));
    let text = |path: &str| fs::read_to_string(root().join(path)).expect("a table");
    let (list, reasons) = (text("src/preload/functions.csv"), text("tests/data/unsimulated.csv"));
    let reasons: BTreeSet<&str> =
        reasons.lines().skip(1).filter_map(|line| Some(line.split_once(',')?.0)).collect();
    let (mut missing, mut found) = (Vec::new(), BTreeSet::new());
    for row in list.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>()) {
        let symbol = row[0].trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let by_class = ["submit", "order"].contains(&row[5]);
        let common = by_class || row[7] == "1" || row[9] == "1";
        let is_hooked = !row[10].is_empty() && (common || !row[HOOK].is_empty());
        let has_reason = row[HOOK].is_empty() && reasons.contains(symbol);
        if is_hooked && !bodies.contains(row[0]) {
            found.insert(symbol);
            missing.extend((!has_reason).then_some(row[0]));
        }
    }
    assert!(missing.is_empty(), "neither simulated nor in unsimulated.csv: {missing:?}");
    let wrong: Vec<_> = reasons.iter().filter(|name| !found.contains(**name)).collect();
    assert!(wrong.is_empty(), "in unsimulated.csv, though simulated or not hooked: {wrong:?}");
}

/// Returns the functions that have a body, by the rule of `tests/sim/build.rs`.
fn simulated(folder: &Path) -> BTreeSet<String> {
    let text = |file| fs::read_to_string(file).expect("a source file");
    let texts: String = rust_files(folder).into_iter().map(text).collect();
    let bodies = texts.lines().filter_map(|line| line.trim_start().strip_prefix("fn cu"));
    let symbols = bodies.flat_map(|rest| rest.split(':').next().unwrap_or_default().split(", "));
    symbols.map(|name| format!("cu{}", name.trim_start_matches("cu"))).collect()
}

/// A function renamed in the list would silently lose such a property.
#[test]
fn no_property_of_a_function_is_decided_by_its_name() {
    // The report of a failed call says what it asked for, by the function's arguments.
    const ALLOWED: &str = "hooks/out_of_memory.rs";
    fn check(folder: &Path) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                check(&path);
            } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with(ALLOWED) {
                let text = fs::read_to_string(&path).expect("a source file");
                for by_name in ["match function.base", "function.base ==", "function.base."] {
                    assert!(!text.contains(by_name), "{}: {by_name}", path.display());
                }
            }
        }
    }
    check(&root().join("src/preload"));
}

/// Three bits of the gate stand for state elsewhere: that state changes in one file, which sets the
/// bit first.
#[test]
fn the_gate_closes_before_what_it_stands_for_changes() {
    const CHANGES: [(&str, &str, &str); 3] = [
        (".note_visible(", "EveryKernelVisible", "ordering/observers.rs"),
        (".elision.ends(", "Untracked", "ordering/elision.rs"),
        ("scan::widen(", "PinnedMemory", "ordering/pinned.rs"),
    ];
    fn read(folder: &Path, files: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                read(&path, files);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                files.push((path.display().to_string(), text));
            }
        }
    }
    let mut files = Vec::new();
    read(&root().join("src/preload"), &mut files);
    for (change, condition, only) in CHANGES {
        let changing: Vec<_> = files.iter().filter(|(_, text)| text.contains(change)).collect();
        let [(path, text)] = changing[..] else {
            panic!("{change} is in {} files", changing.len())
        };
        assert!(path.ends_with(only), "{change} is in {path}");
        let set = text.find(&format!("gate::set(Condition::{condition})")).expect("the bit is set");
        assert!(set < text.find(change).expect("it is there"), "{path} sets {condition} too late");
    }
}

/// The seed of the standard tables comes from `getrandom`, which is a cancellation point.
#[test]
fn tables_have_a_fixed_seed() {
    for file in rust_files(&root().join("src/preload")) {
        let text = fs::read_to_string(&file).expect("a source file");
        let standard = |line: &&str| {
            let imports =
                line.starts_with("use std::collections::") || line.contains("RandomState");
            imports && ["HashMap", "HashSet", "RandomState"].iter().any(|it| line.contains(it))
        };
        let found: Vec<_> = text.lines().filter(standard).collect();
        assert!(found.is_empty(), "{}: {found:?}: use crate::lists::hash", file.display());
    }
}
