//! Which GPU a process is on: its own numbers begin at 0, whichever GPUs are visible to it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use cachealloc_tests::{Run, command, compile, compile_library, driver_of_version, skipped};

use super::cachealloc;
use crate::record::snapshots::Place;
use crate::record::statistics::{Running, statistics};

/// Runs on the machine whose GPUs the watcher knows.
fn on_known_gpus(way: &str) -> Run {
    statistics(way).env("SIM_MACHINE", "0")
}

/// Starts a process that sees only one GPU of the machine, by CUDA_VISIBLE_DEVICES.
fn rank(number: u32) -> Running {
    shown(on_known_gpus("busy 1 exit").env("SIM_FIRST_DEVICE", number.to_string()))
}

fn shown(run: Run) -> Running {
    let running = Running::new(run.conf("log:quiet"));
    running.wait_for_file();
    running
}

/// Returns the columns of the process's line.
#[track_caller]
fn line_of(table: &str, running: &Running) -> Vec<String> {
    let id = running.child.id().to_string();
    let mut lines = table.lines().map(|line| line.split_whitespace().map(String::from));
    let found =
        lines.find_map(|line| Some(line.collect::<Vec<_>>()).filter(|it| it[..1] == [id.clone()]));
    found.unwrap_or_else(|| panic!("{id} is missing:\n{table}"))
}

fn has(table: &str, running: &Running) -> bool {
    let id = running.child.id().to_string();
    table.lines().any(|line| line.split_whitespace().next() == Some(&id))
}

/// Runs the command with NVIDIA's library, here that of the tests.
fn with_watcher(arguments: &str) -> Run {
    let library = compile_library("watcher.c", "watcher/libnvidia-ml.so.1", &[]);
    let folder = library.parent().expect("a folder").to_path_buf();
    cachealloc(arguments).driver(folder)
}

#[test]
fn ranks_are_on_gpus_of_their_own() {
    let ranks: Vec<Running> = (0..4).map(rank).collect();
    let table = with_watcher("top --once").output().ok().stdout;
    for (number, rank) in ranks.iter().enumerate() {
        assert_eq!(line_of(&table, rank)[1], number.to_string(), "{table}");
        let uuid = format!("GPU-73696d75-6c61-7465-6420-6465766963{number:02x}");
        let wanted = format!("80.0 GiB {}.00 GiB 0000:{number:02}:00.0 {uuid}", number + 1);
        let mut lines =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(lines.any(|line| line == format!("{number} {wanted}")), "{wanted}\n{table}");
    }
    // Without NVIDIA's library GPUs are identified by address: no two processes share one, and free
    // memory is unknown.
    let table = cachealloc("top").output().ok().stdout;
    for (number, rank) in ranks.iter().enumerate() {
        assert_eq!(line_of(&table, rank)[1], format!("{number:02}:00.0"), "{table}");
    }
    // Selects one GPU, by each of its names.
    for name in ["2", "GPU-73696d75-6c61-7465-6420-646576696302", "02:00.0", "0000:02:00.0"] {
        let table = with_watcher(&format!("top --gpu {name}")).output().ok().stdout;
        for (number, rank) in ranks.iter().enumerate() {
            assert_eq!(has(&table, rank), number == 2, "{name}: {table}");
        }
    }
    let json = cachealloc("top --json --gpu 01:00.0,03:00.0").output().ok().stdout;
    let there = |rank: &Running| json.contains(&format!("\"process\":{},", rank.child.id()));
    assert_eq!(ranks.iter().map(there).collect::<Vec<_>>(), [false, true, false, true], "{json}");
    assert!(json.contains(r#""pci":"0000:03:00.0","total_bytes":"#), "{json}");
    for rank in ranks {
        assert_eq!(rank.end(), Some(0));
    }
}

#[test]
fn unknown_gpu_is_refused() {
    let ran = cachealloc("top --gpu ff:00.0").output().ok();
    let wanted = "no program under cachealloc uses this GPU; omit --gpu to show all\n";
    assert_eq!(ran.stdout, wanted);
    let ran = cachealloc("top --gpu first").output();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let ran = cachealloc("top --gpu 0").output();
    let wanted = "cachealloc: cannot find GPU 0 by number: NVML is missing; name it by UUID or PCI address\n";
    assert_eq!((ran.stderr.as_str(), ran.code), (wanted, Some(1)));
}

/// A part of a GPU (MIG) has a different UUID, and is on the whole one.
#[test]
fn a_part_of_a_gpu() {
    let whole = rank(3);
    let run = on_known_gpus("busy 1 exit").env("SIM_FIRST_DEVICE", "3").env("SIM_MIG", "1");
    let part = shown(run);
    let table = with_watcher("top").output().ok().stdout;
    assert_eq!(
        (&*line_of(&table, &whole)[1], &*line_of(&table, &part)[1]),
        ("3", "3:1"),
        "{table}"
    );
    assert!(table.contains("MIG-73696d75-6c61-7465-6420-612070617203"), "{table}");
    for (name, wanted) in [("3", [true, true]), ("3:1", [false, true]), ("MIG-7", [false, true])] {
        let table = with_watcher(&format!("top --gpu {name}")).output().ok().stdout;
        assert_eq!([has(&table, &whole), has(&table, &part)], wanted, "{name}: {table}");
    }
    assert_eq!((whole.end(), part.end()), (Some(0), Some(0)));
}

/// Drivers before 11.4 have only the first version of the query.
#[test]
fn an_old_driver_has_uuids_too() {
    let run = on_known_gpus("busy 1 exit").driver(driver_of_version(11_030));
    let running = shown(run.env("SIM_FIRST_DEVICE", "9").env("SIM_DRIVER_VERSION", "11030"));
    let json = cachealloc(&format!("top --json {}", running.child.id())).output().ok().stdout;
    assert!(json.contains("\"uuid\":\"GPU-73696d75-6c61-7465-6420-646576696309\""), "{json}");
    assert_eq!(running.end(), Some(0));
}

/// Root sees the programs of all users with their owners; others see only their own.
#[test]
fn root_sees_everybody() {
    if fs::metadata("/proc/self").expect("/proc").uid() != 0 {
        return skipped("this is not root");
    }
    const NOBODY: &str = "65534";
    let own = shown(on_known_gpus("busy 1 exit"));
    // A folder that the other user may read: the tests may lie in a closed one.
    let place = PathBuf::from(format!("/tmp/cachealloc-test-others-{}", std::process::id()));
    fs::create_dir_all(&place).expect("/tmp");
    let copy = |from: PathBuf, name: &str| {
        let to = place.join(name);
        fs::copy(from, &to).expect("/tmp");
        to
    };
    let library = copy(cachealloc_tests::library(), "libcachealloc.so");
    let program = copy(compile("statistics.c"), "statistics");
    copy(cachealloc_tests::driver_folder().join("libcuda.so.1"), "libcuda.so.1");
    let tool = copy(command(), "cachealloc");
    let as_nobody = |program: &PathBuf| {
        let run = Run::program("setpriv").args(&format!("--reuid {NOBODY} --regid {NOBODY}"));
        run.args("--clear-groups").arg(program).folder(&place).driver(&place)
    };
    let run = as_nobody(&program).preload(&[library]).args("busy 1 exit").conf("log:quiet");
    let mut other = Running::new(run);
    let own_page = other.file.file_name().expect("a name").to_string_lossy().into_owned();
    let page = own_page.replacen("cachealloc-0-", &format!("cachealloc-{NOBODY}-"), 1);
    other.file = other.file.with_file_name(page);
    other.wait_for_file();
    let table = cachealloc("top").output().ok().stdout;
    assert!(table.lines().next().is_some_and(|line| line.contains("  USER")), "{table}");
    let user_of = |running| line_of(&table, running).iter().any(|word| word == "nobody");
    assert_eq!((user_of(&other), user_of(&own)), (true, false), "{table}");
    let seen = Place::new().run(&as_nobody(&tool).native().args("top"));
    assert_eq!((has(&seen.stdout, &other), has(&seen.stdout, &own)), (true, false), "{seen:?}");
    assert_eq!((own.end(), other.end()), (Some(0), Some(0)));
    let _ = fs::remove_dir_all(place);
}
