//! Requests made by hand, passed through the allocator.

use cachealloc_fit::{Asked, Capacity, Outcome, Requests, replay};
use cachealloc_options::{Config, parse};

const MIB: u64 = 1 << 20;

fn plain(bytes: u64) -> Asked {
    Asked { bytes, stream: 0, by_driver: false }
}

fn config(text: &str) -> Config {
    let (config, problems) = parse(text);
    assert_eq!(problems, []);
    config
}

fn completes(requests: &Requests, options: &str, capacity: Capacity) -> bool {
    replay(requests, &config(options), capacity).completes()
}

/// Allocations that are freed before the next one.
fn pairs(asked: &[Asked]) -> Requests {
    let mut requests = Requests::default();
    for one in asked {
        let number = requests.allocate(*one).expect("it asks for something");
        match one.stream {
            0 => requests.free(number),
            _ => requests.free_on_stream(number),
        }
    }
    requests
}

#[test]
fn freed_memory_is_reused() {
    let requests = pairs(&[plain(32 * MIB), plain(32 * MIB), plain(32 * MIB)]);
    assert_eq!(requests.peak_bytes(), 32 * MIB);
    let outcome = replay(&requests, &Config::default(), Capacity::Plenty);
    let wanted = Outcome {
        failed_at: None,
        peak_reserved_bytes: 32 * MIB,
        held_then_bytes: 32 * MIB,
        driver_calls: 1,
    };
    assert_eq!(outcome, wanted);
    assert_eq!(outcome.fragmentation(), 0.0);
    // The third request requires that existing memory is released.
    let requests = pairs(&[plain(32 * MIB), plain(48 * MIB)]);
    assert_eq!(replay(&requests, &Config::default(), Capacity::Limit(48 * MIB)).driver_calls, 3);
    let outcome = replay(&requests, &Config::default(), Capacity::Plenty);
    assert_eq!((outcome.peak_reserved_bytes, outcome.held_then_bytes), (80 * MIB, 48 * MIB));
    assert_eq!(outcome.fragmentation(), 0.4);
}

#[test]
fn a_limit_counts_bytes_and_a_device_pages() {
    let requests = pairs(&[plain(3 * MIB)]);
    assert!(completes(&requests, "", Capacity::Limit(3 * MIB)));
    assert!(!completes(&requests, "", Capacity::Device(3 * MIB)));
    assert!(completes(&requests, "", Capacity::Device(4 * MIB)));
    assert!(!completes(&requests, "", Capacity::Limit(3 * MIB - 1)));
    let failed = replay(&requests, &Config::default(), Capacity::Limit(MIB));
    assert_eq!(failed.failed_at, Some(0));
    // Small allocations share a page.
    let mut small = Requests::default();
    (0..4).for_each(|_| _ = small.allocate(plain(MIB / 2)));
    assert!(completes(&small, "", Capacity::Device(2 * MIB)));
    assert!(completes(&small, "expandable_segments:true", Capacity::Device(2 * MIB)));
}

/// The cache does not keep such memory for others, and releases memory for it.
#[test]
fn memory_served_by_the_driver_is_released_to_it() {
    let by_driver = Asked { by_driver: true, ..plain(32 * MIB) };
    let requests = pairs(&[by_driver, plain(32 * MIB), by_driver]);
    let outcome = replay(&requests, &Config::default(), Capacity::Limit(32 * MIB));
    assert_eq!((outcome.failed_at, outcome.driver_calls), (None, 6));
    assert_eq!(
        replay(&requests, &Config::default(), Capacity::Plenty).peak_reserved_bytes,
        64 * MIB
    );
}

/// Another stream gets the memory if there is nothing else.
#[test]
fn streams_keep_what_they_freed() {
    let on = |stream| Asked { stream, ..plain(32 * MIB) };
    let reserved = |requests: &Requests, capacity| {
        let outcome = replay(requests, &Config::default(), capacity);
        assert!(outcome.completes());
        outcome.peak_reserved_bytes
    };
    let (one, two) = (pairs(&[on(1), on(1)]), pairs(&[on(1), on(2)]));
    assert_eq!(reserved(&one, Capacity::Plenty), 32 * MIB);
    assert_eq!(reserved(&two, Capacity::Limit(32 * MIB)), 32 * MIB);
}

/// A plain request takes the best fit from what it leaves.
#[test]
fn plain_free_is_ordered_after_all_streams() {
    let mut requests = Requests::default();
    let on_stream = requests.allocate(Asked { stream: 1, ..plain(32 * MIB) }).expect("bytes");
    let plainly = requests.allocate(plain(40 * MIB)).expect("bytes");
    requests.free_on_stream(on_stream);
    requests.free(plainly);
    requests.allocate(plain(32 * MIB));
    requests.allocate(plain(40 * MIB));
    let outcome = replay(&requests, &Config::default(), Capacity::Plenty);
    assert_eq!(outcome.peak_reserved_bytes, 72 * MIB);
}

#[test]
fn red_zones_count() {
    let requests = pairs(&[plain(12 * MIB)]);
    assert!(completes(&requests, "", Capacity::Limit(12 * MIB)));
    assert!(!completes(&requests, "red_zone:512", Capacity::Limit(12 * MIB - 1)));
    assert_eq!(
        replay(&requests, &config("red_zone:512"), Capacity::Plenty).peak_reserved_bytes,
        14 * MIB
    );
}

/// A file may contain anything.
#[test]
fn no_numbers_are_too_large() {
    for options in ["", "expandable_segments:true", "max_split_size_mb:128"] {
        for bytes in [u64::MAX, 1 << 63, 1 << 60, 1 << 50, 1 << 43, 1 << 42, 1 << 40] {
            let mut requests = Requests::default();
            (0..5000).for_each(|_| _ = requests.allocate(plain(bytes)));
            assert!(!completes(&requests, options, Capacity::Plenty), "{options} {bytes}");
            let by_turns = pairs(&vec![plain(bytes); 20_000]);
            assert_eq!(
                completes(&by_turns, options, Capacity::Plenty),
                bytes <= 1 << 42,
                "{options} {bytes}"
            );
        }
    }
    assert_eq!(Requests::default().allocate(plain(0)), None);
    assert!(completes(&Requests::default(), "", Capacity::Device(0)));
}

/// The library releases the memory by the times of the history.
#[test]
fn memory_unused_for_seconds_is_released() {
    const SECOND_US: u64 = 1_000_000;
    let reserved = |seconds: u64, options: &str| {
        let mut requests = Requests::default();
        requests.time_is(SECOND_US);
        let first = requests.allocate(plain(64 * MIB)).expect("bytes");
        requests.free(first);
        requests.time_is((1 + seconds) * SECOND_US);
        requests.allocate(plain(96 * MIB));
        replay(&requests, &config(options), Capacity::Plenty).peak_reserved_bytes / MIB
    };
    for options in ["", "expandable_segments:true"] {
        let kept = if options.is_empty() { 160 } else { 96 };
        assert_eq!((reserved(3, options), reserved(5, options)), (kept, 96), "{options}");
    }
    assert_eq!(reserved(3600, "idle_release_s:off"), 160);
    assert_eq!((reserved(5, "idle_release_s:10"), reserved(12, "idle_release_s:10")), (160, 96));
    // Free memory above this maximum is released at the next pass.
    assert_eq!(reserved(2, "eager_delete_tensor_gb:0.01"), 96);
    // A smaller cache starts no passes.
    let mut requests = pairs(&[plain(40 * MIB)]);
    requests.time_is(100 * SECOND_US);
    requests.allocate(plain(48 * MIB));
    let outcome = replay(&requests, &Config::default(), Capacity::Plenty);
    assert_eq!(outcome.peak_reserved_bytes, 88 * MIB);
}
