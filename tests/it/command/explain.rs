//! The rows of `cachealloc explain` add up, for a running process and for a file. Unknown amounts
//! are not printed.

use std::collections::BTreeMap;
use std::fs;

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Run, compile_library, target_folder};
use serde_json::Value;

use super::cachealloc;
use super::live::failed;
use crate::ordering::hazards::problems;
use crate::record::snapshots::Place;
use crate::record::statistics::Running;

const MIB: i64 = 1 << 20;
/// Device memory that the program and the driver hold, in MiB.
const ROWS: [(&str, i64); 10] = [
    ("cache_held", 12),
    ("cache_free", 24),
    ("linear", 4),
    ("arrays", 16),
    ("virtual", 10),
    ("pools_held", 8),
    ("pools_free", 24),
    ("graphs", 16),
    // Includes the small page that the driver itself uses.
    ("context", CONTEXT),
    ("rest", MODULE),
];
const CONTEXT: i64 = 40 + 2;
const MODULE: i64 = 14;

/// Interval of passes, so long that none runs. With it, the thread starts for any amount of memory.
const PACE: (&str, &str) = ("CACHEALLOC_PASS_MS", "100000");

fn program(way: &str) -> Run {
    let run = Run::c("account.c").arg(way).env("SIM_CONTEXT_MB", "40").env("SIM_MACHINE", "0");
    let run = run.env("SIM_MODULE_MB", MODULE.to_string());
    // Folder for a snapshot written at the end.
    run.folder(target_folder().join("tests-c"))
}

fn running(way: &str, conf: &str) -> Running {
    let running = Running::new(program(way).conf(conf));
    running.wait_for_file();
    running
}

/// Runs `explain` with an NVML that reports these amounts for these processes.
pub(super) fn explain(what: &str, processes: Option<&str>) -> Run {
    beside_nvml(&format!("explain {what}"), processes)
}

fn beside_nvml(words: &str, processes: Option<&str>) -> Run {
    let run = cachealloc(words);
    let Some(processes) = processes else { return run };
    let library = compile_library("watcher.c", "watcher/libnvidia-ml.so.1", &[]);
    let folder = library.parent().expect("a folder").to_path_buf();
    run.driver(folder).env("WATCHER_PROCESSES", processes)
}

/// Returns device 0 of the output, and the bytes of its components with the unattributed rest, in
/// MiB.
#[track_caller]
pub(super) fn account(run: Run) -> (Value, BTreeMap<String, i64>) {
    let json: Value = serde_json::from_str(&run.arg("--json").output().ok().stdout).expect("JSON");
    let device = json["devices"][0].clone();
    assert_eq!(device["device"], 0, "{json}");
    let mut parts: BTreeMap<String, i64> = BTreeMap::new();
    for row in device["rows"].as_array().expect("rows").iter().filter(|row| row["place"] == "sum") {
        let bytes = row["bytes"].as_i64().expect("a number");
        *parts.entry(row["part"].as_str().expect("a word").to_string()).or_default() += bytes;
    }
    if let Some(rest) = device["rest_bytes"].as_i64() {
        parts.insert("rest".to_string(), rest);
    }
    let in_mib = parts.into_iter().map(|(part, bytes)| (part, bytes / MIB)).collect();
    (device, in_mib)
}

fn wanted() -> BTreeMap<String, i64> {
    ROWS.iter().map(|(part, mib)| (part.to_string(), *mib)).collect()
}

fn sum_mib() -> i64 {
    ROWS.iter().map(|(_, mib)| mib).sum()
}

#[test]
fn rows_add_up_to_what_is_in_use() {
    for conf in ["log:quiet", "log:quiet,record:all,snapshot:/dev/null/no"] {
        let running = running("all", conf);
        let process = running.child.id();
        let (device, parts) = account(explain(&process.to_string(), None));
        assert_eq!(parts, wanted(), "{device}");
        assert_eq!(
            (&device["sum"], device["sum_bytes"].as_i64()),
            (&Value::from("device"), Some(sum_mib() * MIB))
        );
        // With the process in NVML's list the result is the same, and 100 MiB belong to another
        // process.
        let own = (sum_mib() - 100) * MIB;
        let (device, parts) =
            account(explain(&process.to_string(), Some(&format!("1=1 {process}={own}"))));
        assert_eq!(
            (&device["sum"], device["sum_bytes"].as_i64()),
            (&Value::from("process"), Some(own))
        );
        assert_eq!(
            (parts.get("context"), parts["rest"]),
            (None, CONTEXT + MODULE - 100),
            "{device}"
        );
        let others = 30 * MIB;
        let listed = format!("1={others} {process}=-1");
        let (device, parts) = account(explain(&process.to_string(), Some(&listed)));
        assert_eq!(device["sum"], "less_others");
        assert_eq!((parts["context"], parts["rest"]), (CONTEXT - 30, MODULE), "{device}");
        // Another process draws, and this one both draws and computes.
        let drawing = format!("5={others} {process}=-1");
        let run = explain(&process.to_string(), Some(&format!("{process}=-1")));
        let (device, parts) = account(run.env("WATCHER_DRAWING", drawing));
        assert_eq!((parts["context"], parts["rest"]), (CONTEXT - 30, MODULE), "{device}");
        let (device, _) = account(explain(&process.to_string(), Some("1=5 2=6")));
        assert_eq!(device["sum"], "device");
        assert!(device["note"].as_str().is_some_and(|note| note.contains("does not list")));
        assert_eq!(running.end(), Some(0));
    }
}

#[test]
fn explain_as_text() {
    let running = running("all", "log:quiet,record:state,snapshot:/dev/null/no");
    let process = running.child.id();
    let own = sum_mib() * MIB;
    let run = explain(&process.to_string(), Some(&format!("{process}={own}")));
    let text = run.output().ok().stdout;
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "device 0, GPU-73696d75-6c61-7465-6420-646576696300, 1.00 GiB",
        "BYTES SHARE KNOWN BY LIBRARY MEMORY",
        "12.0 MiB 7.05 % counted cache: held by the program",
        "16.0 MiB 9.41 % counted app driver: arrays",
        // This memory is mapped twice.
        "10.0 MiB 5.88 % counted app driver: physical memory for mappings",
        "24.0 MiB 14.11 % asked driver's pools: free",
        "42.0 MiB 24.70 % difference first context, if other processes have not changed",
        "14.0 MiB 8.23 % difference the rest: modules, lazily loaded kernels, their memory, rounding",
        "170 MiB 100.00 % = of the process, according to NVML",
        "6.00 MiB counted app not added: managed memory, on any device or the host",
        "91.76 % is accounted for, 67.05 % without differences, which other processes may affect",
        "not measured: 1 calls that may have used memory, because other memory changed meanwhile",
        "host",
        "5.00 MiB counted app not added: pinned and registered host memory",
        "3.00 MiB counted not added: pinned host memory, cached: free",
    ] {
        assert!(lines.iter().any(|it| it == line), "{line}\n{text}");
    }
    assert!(!text.contains("by all processes"), "{text}");
    assert_eq!(running.end(), Some(0));
}

/// A mapping made before the recording does not hide which library has mapped the memory since.
#[test]
fn physical_memory_is_named_by_any_mapping() {
    let running = running("late", "log:quiet");
    let process = running.child.id();
    let (device, parts) = account(explain(&process.to_string(), None));
    let rows = device["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["part"] == "virtual").expect("physical memory");
    assert_eq!((&row["library"], parts["virtual"]), (&Value::from("app"), 10), "{device}");
    assert_eq!(running.end(), Some(0));
}

/// Memory of a pool lies where the pool has it: a host pool takes nothing of the device.
#[test]
fn a_pool_of_the_host_is_on_the_host() {
    let running = running("host", "log:quiet");
    let text = explain(&running.child.id().to_string(), None).output().ok().stdout;
    let (device, host) = text.split_once("\nhost\n").expect("the host");
    assert!(host.contains("not added: pinned and registered host memory"), "{text}");
    assert!(host.contains("2.00 MiB") && !device.contains("pools: held"), "{text}");
    assert_eq!(running.end(), Some(0));
}

/// A snapshot has the same rows, whether a signal asked for it or the process wrote it at its end.
#[test]
fn snapshot_has_the_same_breakdown() {
    let place = Place::new();
    place
        .run(&program("file").conf("log:quiet,record:all,snapshot:%n.pickle").env(PACE.0, PACE.1))
        .ok();
    for file in ["0.pickle", "1.pickle"] {
        let run = explain(file, None).folder(&place.path);
        let text = run.output().ok().stdout;
        let (device, parts) = account(run);
        assert_eq!(parts, wanted(), "{file}: {device}\n{text}");
        assert_eq!(device["sum"], "device");
    }
    // A report has the same table.
    place.run(&cachealloc("report 0.pickle -o a.html")).ok();
    let page = fs::read_to_string(place.path.join("a.html")).expect("the report");
    for wanted in
        ["<a href=\"#account\">", "<td class=\"text\">driver: arrays</td>", "by all processes</td>"]
    {
        assert!(page.contains(wanted), "{wanted}");
    }
    // A report of two snapshots shows the last one, and the first where it is opened: each with the
    // device and the host.
    place.run(&cachealloc("report 0.pickle 1.pickle -o both.html")).ok();
    let page = fs::read_to_string(place.path.join("both.html")).expect("the report");
    let folded = page.split_once("<details><summary>At other moments</summary>");
    let (open, folded) = folded.expect("what is folded");
    let (folded, _) = folded.split_once("</details>").expect("its end");
    for (tables, moment) in [(open, "1.pickle"), (folded, "0.pickle")] {
        let captions: Vec<&str> = tables.split("<caption>").skip(1).collect();
        assert_eq!(captions.len(), 2, "{tables}");
        assert!(captions.iter().all(|it| it.starts_with(moment)), "{captions:#?}");
    }
    let ran = place.run(&explain("0.pickle --device 3", None));
    failed(&ran, "0.pickle has no GPU memory on device 3");
}

/// The command that requests a snapshot stores NVML's number for the process in it. Later snapshots
/// do not repeat that number.
#[test]
fn a_snapshot_has_the_number_of_nvml() {
    let place = Place::new();
    let run =
        program("all").conf("log:quiet,idle_release_s:1000,snapshot:%n.pickle").env(PACE.0, PACE.1);
    let running = Running::new(run.folder(&place.path));
    running.wait_for_file();
    let process = running.child.id();
    let (own, others) = ((sum_mib() - 10) * MIB, 10 * MIB);
    let says = |processes: &str, wanted: (&str, i64)| {
        let file =
            beside_nvml(&format!("snapshot {process}"), Some(processes)).output().ok().stdout;
        let (device, parts) = account(explain(file.trim_end(), None));
        assert_eq!(
            (device["sum"].as_str(), device["sum_bytes"].as_i64()),
            (Some(wanted.0), Some(wanted.1))
        );
        (parts["context"], parts["rest"])
    };
    let listed = format!("1={others} {process}={own}");
    assert_eq!(says(&listed, ("process", own)), (CONTEXT - 10, MODULE));
    // NVML lists only other processes, processes none of which need be this one, or none at all.
    let less = format!("1={others} {process}=-1");
    assert_eq!(says(&less, ("less_others", own)), (CONTEXT - 10, MODULE));
    assert_eq!(says("1=5 2=6", ("device", sum_mib() * MIB)), (CONTEXT, MODULE));
    assert_eq!(says("", ("device", sum_mib() * MIB)), (CONTEXT, MODULE));
    // A report of it has the same sum.
    place.run(&cachealloc("report 0.pickle -o a.html")).ok();
    let page = fs::read_to_string(place.path.join("a.html")).expect("the report");
    assert!(page.contains("of the process, according to NVML</td>"));
    assert_eq!(running.end(), Some(0));
}

/// Counted memory is known even during a capture.
#[test]
fn a_capture_is_left_alone() {
    let running = running("captures", "log:quiet");
    let process = running.child.id();
    let (device, parts) = account(explain(&format!("{process} --timeout 1"), None));
    assert_eq!((parts["cache_held"], parts.get("graphs"), parts.get("rest")), (12, None, None));
    assert_eq!((&device["sum"], &device["age_ms"]), (&Value::Null, &Value::Null));
    let text = explain(&format!("{process} --timeout 1"), None).output().ok().stdout;
    assert!(text.contains("the driver was not asked: "), "{text}");
    assert_eq!(running.end(), Some(0));
}

/// Before a command asks, the library queries the driver only for the free memory of a large
/// request.
#[test]
fn driver_is_not_asked_before_explain() {
    for (way, calls) in [("all", 0), ("file", 1)] {
        let run =
            program(way).conf("log:quiet,keep_free_mb:0,idle_release_s:1000,snapshot:/dev/null/no");
        let run = run.env("CACHEALLOC_BREAK", Rule::OnlySupportedQueries.name());
        let run = if calls > 0 { run.env(PACE.0, PACE.1) } else { run };
        let ran = run.output().ok();
        let asked = ["cuCtxGetLimit", "cuDeviceGetGraphMemAttribute", "cuMemPoolGetAttribute"];
        for function in asked {
            assert_eq!(ran.report.calls(function) > 0, calls > 0, "{way}: {function}");
        }
        let made_and_asked = ran.report.calls("cuMemGetInfo_v2");
        assert_eq!(made_and_asked, 1 + calls, "{way}");
    }
}

#[test]
fn ending_context_is_not_asked() {
    let run = program("ends").conf("log:quiet,snapshot:/dev/null/no").env(PACE.0, PACE.1);
    for pause in ["cuCtxPushCurrent_v2@*=60", "cuMemPoolGetAttribute@*=60"] {
        let ran = run.clone().env("SIM_PAUSE_MS", pause).output().ok();
        assert_eq!(problems(&ran), [""; 0], "{pause}");
        assert!(ran.report.calls("cuMemPoolGetAttribute") > 0);
    }
}
