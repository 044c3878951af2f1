//! Other libraries between the program and the driver, loaded before or after this one: each
//! program, and each such library, behaves as it does without this one.

use std::fs;
use std::path::{Path, PathBuf};

use cachealloc_tests::{
    Ran, Run, compile_library, compile_with, driver_folder, library, link, root, scratch_file,
    target_folder,
};

const KINDS: [&str; 7] =
    ["TRACER", "LOADER", "SHARE", "OVERLAY", "VERSIONED", "PATCHER", "VARIABLES"];
const WAYS: [&str; 7] = ["local", "global", "asked", "mixed", "lazy", "now", "no-plt"];

fn neighbour(kind: &str) -> PathBuf {
    let flag = format!("-D{kind}");
    let name = format!("neighbours/lib{}.so", kind.to_lowercase());
    compile_library("chain_neighbour.c", &name, &[&flag, "-ldl"])
}

fn program(way: &str, driver: &Path) -> Run {
    let driver = driver.join("libcuda.so.1").display().to_string();
    let linked = |flags: &[&str]| {
        let flags = [&["-DLINKED", "-Wl,--no-as-needed", driver.as_str()], flags].concat();
        Run::program(compile_with("chain.c", &format!("chain-{way}"), &flags))
    };
    match way {
        "lazy" => linked(&["-Wl,-z,lazy"]),
        "now" => linked(&["-Wl,-z,now"]),
        "no-plt" => linked(&["-fno-plt"]),
        _ => Run::c("chain.c").arg(way),
    }
}

fn calls(ran: &Ran) -> u64 {
    let line = ran.stderr.lines().find_map(|line| line.strip_prefix("neighbour: "));
    let number = line.and_then(|line| line.split(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{ran:#?}"))
}

/// Few calls reach the driver while the library caches, and all of them while it is off.
#[test]
fn every_other_tool_sees_what_the_driver_shows() {
    for kind in KINDS {
        let other = neighbour(kind);
        for way in WAYS {
            // Without the library the program's calls would go into a variable.
            let is_linked = matches!(way, "lazy" | "now" | "no-plt" | "global");
            if kind == "VARIABLES" && is_linked {
                continue;
            }
            let program = program(way, &driver_folder());
            let native = program.clone().preload(std::slice::from_ref(&other)).output().ok();
            let orders = [[other.clone(), library()], [library(), other.clone()]];
            for order in &orders {
                for switch in ["0", "1"] {
                    let place = format!("{kind}, {way}, {order:?}, CACHEALLOC={switch}");
                    let run = program.clone().preload(order).env("CACHEALLOC", switch);
                    let ours = run.output();
                    assert_eq!(native.stdout, ours.stdout, "{place}: {ours:#?}");
                    assert_eq!(native.code, ours.code, "{place}: {ours:#?}");
                    let (native_calls, our_calls) = (calls(&native), calls(&ours));
                    let is_behind = order[0] == library();
                    if kind == "SHARE" && is_behind && switch == "1" {
                        // The other library counts memory, and is now a layer below the cache.
                        assert!((1..=native_calls).contains(&our_calls), "{place}: {ours:#?}");
                    } else {
                        assert_eq!(native_calls, our_calls, "{place}: {ours:#?}");
                    }
                    let at_driver = ours.report.calls("cuMemAlloc_v2");
                    if switch == "0" {
                        assert_eq!(native.report.calls("cuMemAlloc_v2"), at_driver, "{place}");
                    } else if is_behind {
                        assert!(at_driver < 5, "not served: {place}: {ours:#?}");
                    }
                }
            }
        }
    }
}

/// Writes a header with a macro for each name. Returns the flag of the compiler that finds it.
fn names_in<'a>(header: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: String = names.map(|name| format!("F({name})\n")).collect();
    let folder = target_folder().join("tests-c/chain_names");
    let file = folder.join(header);
    fs::create_dir_all(&folder).expect("target/ is writable");
    if fs::read_to_string(&file).ok().as_ref() != Some(&names) {
        let draft = scratch_file("names");
        fs::write(&draft, names).expect("target/ is writable");
        fs::rename(draft, &file).expect("target/ is writable");
    }
    format!("-I{}", folder.display())
}

/// A driver whose `libcuda.so.1` only loads another file, and whose `cuGetProcAddress` returns the
/// functions of that file.
fn driver_of_two_files() -> PathBuf {
    let table = fs::read_to_string(root().join("src/preload/functions.csv")).expect("the table");
    let names = table.lines().skip(1).filter_map(|row| row.split(',').next());
    let include = names_in("names.h", names);
    let flags = [include.as_str(), "-Wl,-Bsymbolic", "-ldl"];
    let made = compile_library("chain_driver.c", "chain_two_files/libcuda.so.1", &flags);
    let folder = made.parent().expect("it has a folder").to_path_buf();
    let real = fs::canonicalize(driver_folder().join("libcuda.so.1")).expect("the driver");
    link(&folder.join("inner"), "libcuda_inner.so.1", &real);
    folder
}

/// WSL 2 and some remote GPUs have such a driver. The library serves a function whichever of the
/// two files it is found in.
#[test]
fn a_driver_of_two_files_is_served_whichever_way_it_is_reached() {
    let driver = driver_of_two_files();
    for way in WAYS {
        for switch in ["0", "1"] {
            let run = program(way, &driver).driver(&driver).env("CACHEALLOC", switch);
            let ran = run.output().ok();
            assert_eq!(ran.stderr, "", "{way}");
            let at_driver = ran.report.calls("cuMemAlloc_v2");
            let wanted = if switch == "0" { 20..=20 } else { 1..=4 };
            assert!(wanted.contains(&at_driver), "{way}, CACHEALLOC={switch}: {ran:#?}");
        }
    }
}

/// The library calls functions of the C library while it looks up a symbol and before any
/// constructor has run. Each may be another library's, which looks up the next one first.
#[cfg(target_arch = "x86_64")]
#[test]
fn another_library_may_interpose_every_function_that_is_called() {
    const VARIABLES: [&str; 3] = ["environ", "__libc_stack_end", "_r_debug"];
    let listed =
        std::process::Command::new("nm").args(["-D", "--undefined-only"]).arg(library()).output();
    let listed = String::from_utf8(listed.expect("binutils come with gcc").stdout).expect("ASCII");
    // Those with a version: the others are optional.
    let versioned = listed.lines().filter_map(|line| line.trim_start().strip_prefix("U "));
    let names: Vec<&str> =
        versioned.filter_map(|name| name.split_once('@')).map(|it| it.0).collect();
    assert!(names.len() > 90, "{names:?}");
    let functions = names.iter().copied().filter(|name| !VARIABLES.contains(name));
    let include = names_in("imports.h", functions);
    let every = compile_library("chain_every.c", "neighbours/libevery.so", &[&include, "-ldl"]);
    for way in ["local", "asked"] {
        let run = program(way, &driver_folder());
        let native = run.clone().preload(std::slice::from_ref(&every)).output().ok();
        for order in [[every.clone(), library()], [library(), every.clone()]] {
            for switch in ["0", "1"] {
                let place = crate::record::snapshots::Place::new();
                let run = run.clone().preload(&order).env("CACHEALLOC", switch);
                let ours = place.run(&run.conf("record:all,log:quiet"));
                let message = format!("{way}, {order:?}, CACHEALLOC={switch}: {ours:#?}");
                assert_eq!(native.stdout, ours.stdout, "{message}");
                if switch == "1" {
                    assert!(ours.report.calls("cuMemAlloc_v2") < 5, "{message}");
                    place.sound(1..=1, &[]);
                }
            }
        }
    }
}

/// The second of two copies only passes calls on.
#[test]
fn two_copies_do_what_one_does() {
    let folder = scratch_file("copy");
    fs::create_dir_all(&folder).expect("target/ is writable");
    let copy = folder.join("libcachealloc.so");
    fs::copy(library(), &copy).expect("target/ is writable");
    for way in WAYS {
        let run = program(way, &driver_folder()).preload(&[library(), copy.clone()]);
        let ran = run.conf("stats_on_exit:stderr").output().ok();
        assert_eq!(ran.stderr.matches("allocations served").count(), 1, "{way}: {ran:#?}");
        assert!(ran.report.calls("cuMemAlloc_v2") < 5, "{way}: {ran:#?}");
    }
    let none = Run::c("default_scope.c").no_driver().arg("none").preload(&[library(), copy]);
    let found = none.output().ok().stdout;
    assert!(found.lines().all(|line| line.starts_with("nowhere")), "{found}");
    let _ = fs::remove_dir_all(&folder); // only disk space is lost
}

#[track_caller]
fn same_with_either_switch(run: &Run) {
    let native = run.clone().native().output();
    for switch in ["0", "1"] {
        let ours = run.clone().env("CACHEALLOC", switch).output();
        let said = |ran: &Ran| (ran.stdout.clone(), ran.stderr.clone(), ran.code);
        assert_eq!(said(&native), said(&ours), "CACHEALLOC={switch}");
    }
}

/// A weak reference tells a program whether CUDA is present.
#[test]
fn weak_references_are_null_as_without_the_library() {
    let driver = driver_folder().join("libcuda.so.1").display().to_string();
    let linked = ["-DWEAK", "-Wl,--no-as-needed", driver.as_str()];
    let fixed = ["-DWEAK", "-fno-pie", "-no-pie"];
    let flags: [(&str, &[&str]); 3] =
        [("weak", &["-DWEAK"]), ("weak-fixed", &fixed), ("weak-linked", &linked)];
    for (name, flags) in flags {
        let run = Run::program(compile_with("chain_names.c", name, flags));
        same_with_either_switch(&run);
        if name != "weak-linked" {
            same_with_either_switch(&run.no_driver());
        }
    }
}

/// A library keeps the driver's functions in variables of the same names. A program uses them
/// through its own copy or through the library.
#[test]
fn variables_of_the_same_names_are_the_librarys() {
    let other = neighbour("VARIABLES").display().to_string();
    let kinds: [(&str, &[&str]); 3] =
        [("copied", &[]), ("fixed", &["-fno-pie", "-no-pie"]), ("through", &["-fPIC"])];
    for (name, flags) in kinds {
        let flags = [&["-DUSES", other.as_str(), "-Wl,-rpath,$ORIGIN/neighbours"], flags].concat();
        let run = Run::program(compile_with("chain_names.c", &format!("uses-{name}"), &flags));
        same_with_either_switch(&run);
        same_with_either_switch(&run.no_driver());
    }
}

/// UCX patches the first instructions of the driver's functions, and can decode only a few.
#[test]
fn functions_can_be_patched() {
    let run = Run::c("prologue.c").arg(root().join("tests/data/exports.txt"));
    let ran = run.output().ok();
    let seen = if cfg!(target_arch = "x86_64") { "10 frees seen\n" } else { "" };
    assert_eq!(ran.stdout, format!("all can be patched: 1\n{seen}"));
}

/// The options and the folder remain those with which the process was started.
#[test]
fn a_program_may_leave_what_it_was_started_with() {
    let place = crate::record::snapshots::Place::new();
    let ran = place.run(&Run::c("start.c").conf("record:all,log:quiet"));
    assert_eq!(ran.stdout, "served by libcachealloc.so\n", "{ran:#?}");
    place.sound(1..=1, &[]);
    let off = Run::c("start.c").env("CACHEALLOC", "0").output().ok();
    assert_eq!(off.stdout, "served by libcuda.so.1\n");
}

/// A GPU-sharing tool that should limit the memory below the cache, but is loaded before the
/// library.
#[test]
fn sharing_tool_loaded_first_is_reported() {
    let share = neighbour("SHARE");
    for (order, lines) in [([share.clone(), library()], 1), ([library(), share], 0)] {
        let ran = program("now", &driver_folder()).preload(&order).output().ok();
        let said = ran.said();
        assert_eq!(said.len(), lines, "{said:?}");
        assert!(
            said.iter().all(|line| line.contains("libshare.so is loaded before this library")),
            "{said:?}"
        );
    }
}
