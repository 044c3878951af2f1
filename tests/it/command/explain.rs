//! `cachealloc explain`: what its rows say adds up, running and from a file, and what is not known is not said.

use std::collections::BTreeMap;
use std::fs;

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Run, compile_library};
use serde_json::Value;

use super::cachealloc;
use super::live::failed;
use crate::hazards::problems;
use crate::snapshots::Place;
use crate::statistics::Running;

const MIB: i64 = 1 << 20;
/// What the program and the driver hold of the device, in MiB.
const ROWS: [(&str, i64); 10] = [
    ("cache_held", 12),
    ("cache_free", 24),
    ("linear", 4),
    ("arrays", 16),
    ("virtual", 10),
    ("pools_held", 8),
    ("pools_free", 24),
    ("graphs", 16),
    // And the small page in which the driver has something.
    ("context", CONTEXT),
    ("rest", MODULE),
];
const CONTEXT: i64 = 40 + 2;
const MODULE: i64 = 14;

/// A pass so seldom that there is none, and a thread for it however little is reserved.
const PACE: (&str, &str) = ("CACHEALLOC_PASS_MS", "100000");

fn program(way: &str) -> Run {
    let run = Run::c("account.c").arg(way).env("SIM_CONTEXT_MB", "40").env("SIM_MACHINE", "0");
    run.env("SIM_MODULE_MB", MODULE.to_string())
}

fn running(way: &str, conf: &str) -> Running {
    let running = Running::new(program(way).conf(conf));
    running.wait_for_file();
    running
}

/// With NVML, which says of these processes what they have.
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

/// Device 0 of what is printed, and the bytes of its parts with the rest, in MiB.
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
        // With the process in NVML's list: the same, and 100 MiB are another one's.
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
        // Another one draws, and this one does both.
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
fn what_people_read() {
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
        // Mapped twice.
        "10.0 MiB 5.88 % counted app driver: physical memory to be mapped",
        "24.0 MiB 14.11 % asked driver's pools: free",
        "42.0 MiB 24.70 % difference first context, if other processes have what they had then",
        "14.0 MiB 8.23 % difference the rest: modules, lazily loaded kernels, their memory, rounding",
        "170 MiB 100.00 % = of the process, according to NVML",
        "6.00 MiB counted app beside: managed memory, wherever it is",
        "91.76 % of it has a row, 67.05 % without differences, which other processes may have changed",
        "not measured: 1 calls that may have taken memory, because other memory changed meanwhile",
        "host",
        "5.00 MiB counted app beside: pinned and registered memory of the host",
        "3.00 MiB counted beside: pinned memory of the host, cached: free",
    ] {
        assert!(lines.iter().any(|it| it == line), "{line}\n{text}");
    }
    assert!(!text.contains("by all processes"), "{text}");
    assert_eq!(running.end(), Some(0));
}

/// A mapping from before the recording does not hide which library has mapped it since.
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

/// Memory of a pool is where the pool has it: a host's takes nothing of the device.
#[test]
fn a_pool_of_the_host_is_on_the_host() {
    let running = running("host", "log:quiet");
    let text = explain(&running.child.id().to_string(), None).output().ok().stdout;
    let (device, host) = text.split_once("\nhost\n").expect("the host");
    assert!(host.contains("beside: pinned and registered memory of the host"), "{text}");
    assert!(host.contains("2.00 MiB") && !device.contains("pools: held"), "{text}");
    assert_eq!(running.end(), Some(0));
}

/// A snapshot has the same rows, whether a signal asked for it or the end of the process.
#[test]
fn a_file_says_the_same() {
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
    // One of both moments shows the last, and the other where that is opened: each the device and the host.
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

/// The command that asks for a snapshot says in it what NVML says of the process at that moment; no later one says it again.
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
    // NVML says it of the others only, of processes none of which need be this one, and of none.
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

/// What is counted is known all the same.
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

/// The driver is asked nothing before somebody wants to know, but what a large request may find.
#[test]
fn nothing_is_asked_before() {
    for (way, calls) in [("all", 0), ("file", 1)] {
        let run =
            program(way).conf("log:quiet,keep_free_mb:0,idle_release_s:1000,snapshot:/dev/null/no");
        let run = run.env("CACHEALLOC_BREAK", Rule::NothingIsAskedInVain.name());
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
fn what_ends_is_not_asked() {
    let run = program("ends").conf("log:quiet,snapshot:/dev/null/no").env(PACE.0, PACE.1);
    for pause in ["cuCtxPushCurrent_v2@*=60", "cuMemPoolGetAttribute@*=60"] {
        let ran = run.clone().env("SIM_PAUSE_MS", pause).output().ok();
        assert_eq!(problems(&ran), [""; 0], "{pause}");
        assert!(ran.report.calls("cuMemPoolGetAttribute") > 0);
    }
}
