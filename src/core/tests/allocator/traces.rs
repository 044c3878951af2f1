//! Memory needs of real programs: `tests/data/traces`, each replayed through the allocator.

use std::collections::HashMap;
use std::path::PathBuf;

use cachealloc_core::policy::MIB;
use cachealloc_fit::{Asked, Capacity, Requests, Smallest, replay, smallest};
use cachealloc_options::Config;

/// Memory needed with expandable segments, as a multiple of the bytes that the program holds at its
/// peak: without a limit, and as the smallest limit at which the program still completes.
const EXPECTED: &[(&str, f64, f64)] = &[
    ("dtr_lstm", 1.008, 1.002),
    ("dtr_resnet32", 1.000, 1.000),
    ("dtr_unet", 1.023, 1.001),
    ("dtr_unroll_gan", 1.004, 1.004),
    ("mm_A", 2.037, 1.004),
    ("mm_D", 1.464, 1.022),
    ("mm_F", 1.199, 1.006),
    ("snap_Weds_medium_128_inference", 1.008, 1.005),
    ("snap_Weds_medium_128_training", 1.008, 1.004),
    ("snap_Weds_medium_256_training", 1.001, 1.001),
    ("sizes_bert", 1.010, 1.004),
];

/// Smallest limit with ordinary segments. On the plain driver it is 1.
const ORDINARY: &[(&str, f64)] = &[
    ("dtr_lstm", 1.010),
    ("dtr_resnet32", 1.010),
    ("dtr_unet", 1.010),
    ("dtr_unroll_gan", 1.010),
    ("mm_A", 1.010),
    ("mm_D", 1.010),
    ("mm_F", 1.010),
    ("snap_Weds_medium_128_inference", 1.010),
    ("snap_Weds_medium_128_training", 1.010),
    ("snap_Weds_medium_256_training", 1.010),
    // The sizes never repeat, and the last step but one holds most. With half of the slack in Note
    // [Capacity]: 1.039.
    ("sizes_bert", 1.016),
];

/// Number of limits tried above the smallest one: more memory must not make a program fail.
const LARGER_COUNT: u32 = 60;

#[test]
fn expandable_segments_need_little_more_than_is_held() {
    let (config, _) = cachealloc_options::parse("expandable_segments:true");
    let mut table = String::new();
    let mut failures = 0;
    for (trace, freely, limited) in EXPECTED {
        let requests = read(trace);
        let ratio = |bytes: u64| bytes as f64 / requests.peak_bytes() as f64;
        let reserved = replay(&requests, &config, Capacity::Plenty).peak_reserved_bytes;
        let smallest = smallest_limit(&requests, &config, 0);
        let (freely_found, limited_found) = (ratio(reserved), ratio(smallest.bytes));
        // Three decimals are compared.
        let holds = freely_found < *freely + 0.0005 && limited_found < *limited + 0.0005;
        failures += u32::from(!holds);
        table += &format!("    (\"{trace}\", {freely_found:.3}, {limited_found:.3}),\n");
    }
    assert!(failures == 0, "more than expected:\n{table}");
}

#[test]
fn ordinary_segments_need_little_more_than_is_held_and_with_more_memory_too() {
    let mut problems = String::new();
    for (trace, expected) in ORDINARY {
        let requests = read(trace);
        let smallest = smallest_limit(&requests, &Config::default(), LARGER_COUNT);
        let ratio = smallest.bytes as f64 / requests.peak_bytes() as f64;
        if ratio >= *expected + 0.0005 {
            problems += &format!("{trace}: {ratio:.3}, not {expected:.3}\n");
        }
        if !smallest.also_bytes.is_empty() {
            problems += &format!("{trace}: not with all above {:?}\n", smallest.also_bytes);
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

fn read(trace: &str) -> Requests {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/traces");
    let text = std::fs::read_to_string(path.join(format!("{trace}.txt"))).expect("a trace");
    let mut requests = Requests::default();
    let mut numbers = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |place: usize| words[place].parse().expect("a number");
        let id: u64 = number(1);
        match words[0] {
            "a" => {
                let asked = Asked { bytes: number(2), stream: 0, by_driver: false };
                numbers.extend(requests.allocate(asked).map(|number| (id, number)));
            }
            _ => numbers.remove(&id).into_iter().for_each(|number| requests.free(number)),
        }
    }
    requests
}

/// Returns the smallest limit, to the MiB.
fn smallest_limit(requests: &Requests, config: &Config, larger_count: u32) -> Smallest {
    let completes = |bytes| replay(requests, config, Capacity::Limit(bytes)).completes();
    smallest(requests.peak_bytes(), None, MIB, larger_count, completes)
        .expect("some limit is enough")
}
