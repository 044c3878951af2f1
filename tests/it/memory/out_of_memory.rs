//! Whichever driver call runs out of memory, the library reports the caller, the request and what
//! holds the memory, and records this if recording is on.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use cachealloc_tests::{Run, command, root, tier};

use crate::record::snapshots::Place;

fn program(arguments: &str) -> Run {
    Run::c("out_of_memory.c").args(arguments)
}

/// The functions that may return "out of memory", by symbol and by the name for their look-up.
fn listed() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("src/preload/functions.csv")).expect("the list");
    let rows = text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let may = rows.filter(|row| row[7] == "1");
    may.map(|row| (row[0].to_string(), row[1].to_string())).collect()
}

/// Calls each of them on a driver that has no memory for it.
#[test]
fn every_listed_function_is_reported() {
    let all = listed();
    assert!(all.len() > 200);
    // A process makes at most this many reports.
    for some in all.chunks(3).step_by(tier::count(4, 1)) {
        let symbols = some.iter().map(|(symbol, _)| symbol.as_str()).collect::<Vec<_>>().join(" ");
        let ran = program(&format!("calls {symbols}")).output().ok();
        for (symbol, base) in some {
            assert!(ran.stdout.contains(&format!("{symbol} 2\n")), "{symbol}: {ran:#?}");
            // Two symbols may be the same function, which then repeats its request.
            let title = format!(" on device 0: {base} asked for ");
            assert!(ran.stderr.contains(&title), "{symbol}: {}", ran.stderr);
        }
        assert_eq!(ran.stderr.matches("  asked by").count(), some.len(), "{}", ran.stderr);
    }
}

/// The document names each of these functions.
#[test]
fn the_document_lists_every_function() {
    let page = fs::read_to_string(root().join("docs/out-of-memory.md")).expect("the page");
    let table: BTreeSet<&str> = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    let listed: BTreeSet<String> = listed().into_iter().map(|(_, base)| base).collect();
    let missing: Vec<_> = listed.iter().filter(|base| !table.contains(base.as_str())).collect();
    assert!(missing.is_empty(), "docs/out-of-memory.md lacks {missing:?}");
    let functions = table.iter().filter(|name| name.starts_with("cu"));
    let extra: Vec<_> = functions.filter(|name| !listed.contains(**name)).collect();
    assert!(extra.is_empty(), "docs/out-of-memory.md has {extra:?}, which the list does not");
}

/// Fills the device with each kind of memory, recorded or not, and checks stderr, the snapshot, and
/// the first line of `findings`.
#[test]
fn each_kind_is_explained() {
    let kinds = [
        (
            "physical",
            "cuMemCreate asked for 200 MiB of physical memory",
            "physical memory for mappings",
        ),
        ("array", "cuArrayCreate asked for 200 MiB for an array", "driver: arrays"),
        ("pooled", "cuMemAllocAsync asked for 200 MiB of pool memory", "cache: held"),
        ("linear", "cuMemAlloc asked for 200 MiB of linear memory", "cache: held"),
    ];
    for (kind, title, part) in kinds {
        for conf in ["record:all", "record:off", "record:all,cache:false", "record:off,cache:false"]
        {
            let place = Place::new();
            let ran = place.run(&program(&format!("kind {kind}")).conf(conf)).ok();
            assert!(ran.stdout.starts_with(&format!("{kind}: 2 at 6")), "{conf}: {ran:#?}");
            let said = &ran.stderr;
            assert!(said.contains(&format!("device 0: {title}\n")), "{conf}: {said}");
            assert!(said.contains("out_of_memory.c:"), "{conf}: {said}");
            let part = if conf.contains("cache:false") { "1000 MiB driver" } else { part };
            assert!(said.contains(part), "{conf}: {said}");
            assert!(said.contains("MiB less than requested"), "{conf}: {said}");
            if conf.contains("record:off") {
                assert!(said.contains("not recorded"), "{conf}: {said}");
                continue;
            }
            assert!(said.contains("1000 MiB in 5 blocks"), "{conf}: {said}");
            let found = findings(&place, "1.pickle");
            let first = found.lines().next().unwrap_or_default();
            assert!(first.starts_with("Out of memory"), "{kind} {conf}: {found}");
            assert!(first.contains(title), "{kind} {conf}: {found}");
            assert!(first.contains("1000 MiB"), "{kind} {conf}: {found}");
            place.sound(2..=2, &["--from-start"]);
        }
    }
}

/// Returns the output of `cachealloc findings` for the snapshot whose name ends like this.
fn findings(place: &Place, end: &str) -> String {
    let names = place.names();
    let name = names.iter().find(|name| name.ends_with(end)).expect("a snapshot");
    let told = Command::new(command()).arg("findings").arg(place.path.join(name)).output();
    String::from_utf8_lossy(&told.expect("the command runs").stdout).into_owned()
}

/// Arrays have no addresses, but live ones are added up.
#[test]
fn live_arrays_add_up() {
    let place = Place::new();
    place.run(&program("kind array 5").conf("record:all")).ok();
    let found = findings(&place, "0.pickle");
    assert!(found.starts_with("Peak: 1000 MiB live"), "{found}");
    assert!(found.contains("5 blocks, 1000 MiB, were never freed"), "{found}");
}

/// The device has no room for the first context, so no context exists in which the driver could be
/// queried.
#[test]
fn a_context_is_explained() {
    for conf in ["record:off", "record:all,snapshot:/dev/null"] {
        let ran = program("context").conf(conf).output().ok();
        assert_eq!(ran.stdout, "context 2\n");
        let title = "out of memory on device 0: cuCtxCreate asked for a context\n";
        assert!(ran.stderr.contains(title), "{conf}: {}", ran.stderr);
    }
}

/// A program requests less and less until it succeeds: this is no finding, and is not reported each
/// time.
#[test]
fn recovered_failures_are_marked() {
    for conf in ["record:all", "record:off", "record:all,cache:false"] {
        let place = Place::new();
        let ran = place.run(&program("probe 100").conf(conf)).ok();
        assert_eq!(ran.stderr.matches("  asked by").count(), 2, "{conf}: {}", ran.stderr);
        assert!(ran.stderr.contains("recovered: cuMemAlloc failed for"), "{}", ran.stderr);
        let summary = "calls failed for lack of memory";
        assert_eq!(ran.stderr.matches(summary).count(), 1, "{conf}: {}", ran.stderr);
        if conf != "record:off" {
            let found = findings(&place, "3.pickle");
            assert!(!found.contains("Out of memory"), "{conf}: {found}");
            assert!(found.contains("but the program recovered"), "{conf}: {found}");
        }
    }
}

/// Calls that name no size are recovered by the same call: a launch of the same kernel, a load of
/// the same module. Each failure is reported once.
#[test]
fn repeated_calls_without_a_size_are_recovered() {
    for conf in ["record:all", "record:off", "record:all,cache:false"] {
        let place = Place::new();
        let ran = place.run(&program("again").conf(conf)).ok();
        assert_eq!(ran.stdout, "module 2 0 0\nlaunch 2 0 0\n", "{conf}");
        let said = &ran.stderr;
        assert_eq!(said.matches("  asked by").count(), 2, "{conf}: {said}");
        for (what, function) in [("module", "cuModuleLoadData"), ("launch", "cuLaunchKernel")] {
            let (before, after) = said.split_once(&format!("the same {what}\n")).expect("a mark");
            let recovered = format!("recovered: {function} failed, but the same call");
            assert!(!before.contains(&recovered), "{conf}: {said}");
            assert!(after.contains(&recovered), "{conf}: {said}");
        }
        assert!(!said.contains("calls failed for lack of memory"), "{conf}: {said}");
        if conf != "record:off" {
            let found = findings(&place, "2.pickle");
            assert!(!found.contains("Out of memory"), "{conf}: {found}");
            assert!(found.contains("but the program recovered"), "{conf}: {found}");
        }
    }
}

/// Launches do not count as allocations that could have overcome a failed one.
#[test]
fn allocation_is_recovered_after_many_launches() {
    for conf in ["record:all,snapshot:/dev/null", "record:off"] {
        let ran = program("launches_between").conf(conf).output().ok();
        assert_eq!(ran.stdout, "allocation 2 0\n", "{conf}");
        assert!(ran.stderr.contains("recovered: cuMemAlloc failed for 40.0 MiB"), "{}", ran.stderr);
    }
}

/// A failure without recovery after that is reported in full at the end, and is the first finding.
#[test]
fn fatal_failure_is_reported_after_recovered_ones() {
    let place = Place::new();
    let ran = place.run(&program("probe_then_fail 20").conf("record:all")).ok();
    assert_eq!(ran.stderr.matches("  asked by").count(), 3, "{}", ran.stderr);
    let title = "cuMemCreate asked for 1.95 GiB of physical memory";
    assert!(ran.stderr.contains(&format!("device 0: {title}\n")), "{}", ran.stderr);
    let found = findings(&place, "3.pickle");
    let first = found.lines().next().unwrap_or_default();
    assert!(first.starts_with("Out of memory") && first.contains(title), "{found}");
    // A much smaller allocation does not count as recovery.
    let ran = program("small_after").output().ok();
    assert_eq!(ran.stdout, "code 2\ncode 0\n");
    assert!(!ran.stderr.contains("recovered"), "{}", ran.stderr);
}

/// Without a cache every call reaches the driver as the program made it, and the library adds none;
/// no limit is in force.
#[test]
fn only_looking_changes_no_call() {
    const CALLS: [&str; 8] = [
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemsetD8_v2",
        "cuCtxRecordEvent",
        "cuCtxWaitEvent",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuCtxSynchronize",
    ];
    let native = program("probe 20").native().output().ok();
    let options = "record:all,snapshot:/dev/null,gpu_memory_limit_mb:100,fill:zero,red_zone:64";
    for conf in
        ["cache:false", &format!("cache:false,{options}"), "fraction_of_gpu_memory_to_use:0"]
    {
        let ran = program("probe 20").conf(conf).output().ok();
        for call in CALLS {
            assert_eq!(ran.report.calls(call), native.report.calls(call), "{conf}: {call}");
        }
    }
    let ran = program("kind linear").conf(&format!("cache:false,{options}")).output().ok();
    assert_eq!(ran.stdout, "linear: 2 at 6\n", "{ran:#?}");
    for option in ["gpu_memory_limit_mb", "fill", "red_zone"] {
        assert!(ran.stderr.contains(option), "{option} has no effect: {}", ran.stderr);
    }
}

/// Memory that the driver serves counts in the statistics.
#[test]
fn statistics_count_what_the_driver_serves() {
    let conf = "cache:false,record:all,snapshot:/dev/null,stats_on_exit:stderr";
    let ran = program("kind linear 3").conf(conf).output().ok();
    let row = |name: &str| {
        let line = ran.stderr.lines().find(|line| line.contains(name)).unwrap_or_default();
        line.rsplit("  ").next().unwrap_or_default().trim().to_string()
    };
    assert_eq!(row("allocations served"), "3", "{}", ran.stderr);
    assert_eq!(row("of these without the driver"), "0", "{}", ran.stderr);
    assert_eq!(row("allocated peak"), "600 MiB", "{}", ran.stderr);
    assert_eq!(row("reserved peak"), "600 MiB", "{}", ran.stderr);
    assert!(!ran.stderr.contains("time saved"), "{}", ran.stderr);
    // Its call sites are listed, too.
    let place = Place::new();
    let conf = "cache:false,record:all,snapshot:/dev/null,stats_on_exit:stats.json";
    place.run(&program("kind linear 3").conf(conf)).ok();
    let text = fs::read_to_string(place.path.join("stats.json")).expect("the statistics");
    assert!(text.contains("out_of_memory.c") && text.contains("629145600"), "{text}");
}

/// A snapshot compressed by gzip is read, and a truncated one is rejected.
#[test]
fn packed_snapshots_are_read() {
    let place = Place::new();
    let conf = "record:all,snapshot:a.pickle,log:quiet";
    place.run(&program("kind linear 3").conf(conf)).ok();
    let told = |name: &str| {
        let mut told = Command::new(command());
        told.arg("findings").arg(name).current_dir(&place.path).output().expect("the command runs")
    };
    let plain = told("a.pickle");
    let gzip = Command::new("gzip").arg("-k").arg("a.pickle").current_dir(&place.path).status();
    assert!(gzip.expect("gzip runs").success());
    let packed = told("a.pickle.gz");
    assert_eq!(plain.stdout, packed.stdout);
    let bytes = fs::read(place.path.join("a.pickle.gz")).expect("it is there");
    for (name, bytes) in
        [("cut.gz", &bytes[..bytes.len() / 2]), ("bad.gz", &b"\x1f\x8bnothing"[..])]
    {
        fs::write(place.path.join(name), bytes).expect("target/ is writable");
        let told = told(name);
        assert!(!told.status.success(), "{name}");
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(said.starts_with(&format!("cachealloc: {name} ")), "{said}");
    }
}

/// Freed memory that the library has begun to release reaches the driver only after the work before
/// its free. Here that work never ends.
#[test]
fn memory_on_its_way_to_the_driver_is_named() {
    let run =
        Run::program(env!("CARGO_BIN_EXE_hazards")).arg("stream_memory_beside_frees_without_end");
    let ran = run.env("SIM_MEMORY_MB", "64").env("SIM_DEADLOCK_MS", "20000").output();
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let why = "40.0 MiB are freed, but a stream may still use them";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    assert!(!ran.stderr.contains("44.0 MiB are in use, but no call"), "{}", ran.stderr);
}
