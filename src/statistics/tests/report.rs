//! The statistics as text: PyTorch's keys, PyTorch's table, JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use cachealloc_core::policy::MIB;
use cachealloc_core::{Address, Allocator, Policy, Request, Requester, Stat, Stats, Step};
use cachealloc_statistics::{
    ContextReport, Frame, Gpu, Holder, HostCache, Place, Report, Timed, json, keys, summary,
};

/// Returns the statistics of an allocator with these blocks, each in separate segments.
fn stats_of(sizes: &[u64]) -> Stats {
    let mut allocator = Allocator::new(Policy::default());
    let mut base = 2 * MIB;
    for bytes in sizes {
        let mut request = Request::new(*bytes, Requester::Context);
        while let Step::Reserve { bytes } = allocator.poll(&mut request) {
            allocator.reserved(&mut request, Address(base), bytes);
            base += bytes + 2 * MIB;
        }
    }
    allocator.stats()
}

#[test]
fn the_keys_are_pytorchs() {
    let found: Vec<String> = keys::all(&Stats::default()).into_iter().map(|(key, _)| key).collect();
    let mut wanted = BTreeSet::new();
    for stat in [
        "allocation",
        "segment",
        "active",
        "inactive_split",
        "allocated_bytes",
        "reserved_bytes",
        "active_bytes",
        "inactive_split_bytes",
        "requested_bytes",
    ] {
        for pool in ["all", "large_pool", "small_pool"] {
            for metric in ["current", "peak", "allocated", "freed"] {
                wanted.insert(format!("{stat}.{pool}.{metric}"));
            }
        }
    }
    for stat in ["oversize_allocations", "oversize_segments"] {
        for metric in ["current", "peak", "allocated", "freed"] {
            wanted.insert(format!("{stat}.{metric}"));
        }
    }
    for counter in [
        "num_alloc_retries",
        "num_ooms",
        "max_split_size",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "num_oom_rejections",
    ] {
        wanted.insert(counter.to_string());
    }
    assert_eq!(wanted.len(), 123);
    assert_eq!(found, wanted.into_iter().collect::<Vec<_>>()); // sorted, as in PyTorch
}

#[test]
fn one_key_is_found_by_its_whole_name() {
    let mut stats = stats_of(&[1000]);
    assert_eq!(keys::find(&stats, "requested_bytes.small_pool.peak"), Some(1000));
    assert_eq!(keys::find(&stats, "allocated_bytes.large_pool.peak"), Some(0));
    assert_eq!(keys::find(&stats, "num_device_alloc"), Some(1));
    assert_eq!(keys::find(&stats, "max_split_size"), Some(-1));
    stats.max_split_bytes = Some(MIB);
    assert_eq!(keys::find(&stats, "max_split_size"), Some(1 << 20));
    for wrong in [
        "",
        "active",
        "active.all",
        "active.all.now",
        "active.medium_pool.peak",
        "active.all.peak.",
        "active.all.peak.x",
        "num_ooms.current",
        "oversize_segments",
        "oversize_segments.all.peak",
        " num_ooms",
    ] {
        assert_eq!(keys::find(&stats, wrong), None, "{wrong}");
    }
}

#[test]
fn the_summary_is_pytorchs_table() {
    let mut stats = stats_of(&[1000, 30 * MIB, 3 * MIB]);
    stats.num_ooms = 2;
    stats.allocated_bytes.all.allocated = 3 << 40;
    stats.allocation.all.allocated = 751_000;
    let text = summary("device ID 0", &stats);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 47);
    assert!(lines.iter().all(|line| line.len() == 77), "{text}");
    let begin = [
        "|===========================================================================|",
        "|                     CUDA memory summary, device ID 0                      |",
        "|---------------------------------------------------------------------------|",
        "|            CUDA OOMs: 2            |        cudaMalloc retries: 0         |",
        "|===========================================================================|",
        "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |",
        "|---------------------------------------------------------------------------|",
        "| Allocated memory      |  33793 KiB |  33793 KiB |   3072 GiB |      0 B   |",
        "|       from large pool |  33792 KiB |  33792 KiB |      0 GiB |      0 B   |",
        "|       from small pool |      1 KiB |      1 KiB |      0 GiB |      0 B   |",
    ];
    assert_eq!(lines[..begin.len()], begin);
    let row = |name: &str| lines.iter().find(|line| line.contains(name)).expect(name).to_string();
    assert_eq!(
        row("Allocations "),
        "| Allocations           |       3    |       3    |     751 K  |       0    |"
    );
    assert_eq!(
        row("Oversize GPU"),
        "| Oversize GPU segments |       0    |       0    |       0    |       0    |"
    );
}

fn with_peak(id: u64, met: usize, gone: usize, peak: u64) -> ContextReport {
    let mut stats = Stats::default();
    stats.reserved_bytes.all = Stat { current: 1, peak, allocated: 10, freed: 9 };
    let is_alive = gone == usize::MAX;
    ContextReport { id, device: 0, is_alive, met, gone, stats, barriers_count: 2 }
}

/// Peaks of contexts that never existed together are not added.
#[test]
fn the_contexts_of_a_device_together() {
    let contexts =
        vec![with_peak(1, 0, 1, 50), with_peak(2, 1, 3, 30), with_peak(3, 2, usize::MAX, 40)];
    let report = Report { contexts, ..Report::default() };
    let all = report.of_device(0).reserved_bytes.all;
    assert_eq!(all, Stat { current: 3, peak: 70, allocated: 30, freed: 27 });
    assert_eq!(report.of_device(1), Stats::default());
    assert_eq!(report.devices(), [0]);
}

#[test]
fn json_of_little() {
    let report = Report {
        version: "1.2",
        process_id: 7,
        free_mode: "ordered",
        calls: vec![Timed { name: "reserve", count: 2, nanoseconds: Some(9) }],
        waits: vec![Timed { name: "free: mode strict", count: 1, nanoseconds: None }],
        counts: vec![("said so-and-so", 3)],
        host_cache: HostCache { pieces_count: 2, bytes: 8 },
        gpus: vec![Gpu {
            device: 1,
            uuid: Some("GPU-5".to_string()),
            whole_uuid: None,
            pci: Some("0000:01:00.0".to_string()),
            total_bytes: Some(9),
        }],
        holders: Some(vec![Holder {
            device: 0,
            library: "a \"b\"\\\n".to_string(),
            bytes: 5,
            bytes_at_peak: 6,
        }]),
        steady: Some(Duration::from_millis(2500)),
        steady_ended_by: Some(vec![Frame {
            name: "f".to_string(),
            filename: "a.c".to_string(),
            place: Place::Line(3),
        }]),
        ..Report::default()
    };
    let wanted = r#"{
  "schema_version": 1,
  "cachealloc": "1.2",
  "process": 7,
  "free_mode": "ordered",
  "allocations_served": 0,
  "hits": 0,
  "hit_rate": null,
  "driver_calls": {
    "reserve": {
      "count": 2,
      "nanoseconds": 9
    }
  },
  "barriers": 0,
  "waits": {
    "free_mode_strict": {
      "count": 1,
      "nanoseconds": null
    }
  },
  "counts": {
    "said_so_and_so": 3
  },
  "host_cache": {
    "pieces": 2,
    "bytes": 8
  },
  "devices": {},
  "gpus": [
    {
      "device": 1,
      "uuid": "GPU-5",
      "whole_uuid": null,
      "pci": "0000:01:00.0",
      "total_bytes": 9
    }
  ],
  "contexts": [],
  "libraries": [
    {
      "device": 0,
      "library": "a \"b\"\\\n",
      "bytes": 5,
      "bytes_at_peak": 6
    }
  ],
  "call_sites": null,
  "snapshots": {
    "signal": null,
    "written": 0,
    "failed": 0,
    "last": null,
    "last_problem": null
  },
  "recording": null,
  "limits": [],
  "trims": {
    "asked": 0,
    "done": 0,
    "bytes": 0
  },
  "steady_seconds": 2.500,
  "steady_ended_by": [
    {
      "name": "f",
      "filename": "a.c",
      "line": 3
    }
  ],
  "measures": {
    "asked": 0,
    "done": 0
  },
  "accounts": null
}
"#;
    assert_eq!(json(&report), wanted);
    assert!(json(&Report::default()).contains("\n  \"libraries\": null,\n"));
}

#[test]
fn json_of_a_context_has_every_key_twice() {
    let mut context = with_peak(1, 0, usize::MAX, 5);
    context.stats = stats_of(&[1000, 1000, 3 * MIB]);
    let text = json(&Report { contexts: vec![context], ..Report::default() });
    for (key, value) in keys::all(&stats_of(&[1000, 1000, 3 * MIB])) {
        assert_eq!(text.matches(&format!("\"{key}\": {value}")).count(), 2, "{key}");
    }
    assert!(text.contains("\"hit_rate\": 0.333333,"), "{text}");
    assert!(text.contains("\"hits\": 1,"), "{text}");
    assert_eq!(text.matches('{').count(), text.matches('}').count());
}
