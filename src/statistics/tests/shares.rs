//! How a request is distributed over the peer processes.

use cachealloc_statistics::page::Offer;
use cachealloc_statistics::shares::shares;

fn offer(free_mebibytes: u32, idle_mebibytes: u32) -> Offer {
    Offer { free_mebibytes, idle_mebibytes }
}

#[test]
fn idle_memory_is_released_first_from_few_processes() {
    let offers = [offer(50, 10), offer(100, 40), offer(30, 30)];
    for (wanted, given) in [
        (0, [0, 0, 0]),
        (25, [0, 25, 0]),
        (45, [0, 40, 5]),
        (80, [10, 40, 30]),
        (100, [10, 60, 30]),
        (180, [50, 100, 30]),
    ] {
        assert_eq!(shares(&offers, wanted, true), given, "{wanted}");
        assert_eq!(shares(&offers, wanted, false), given, "{wanted}");
    }
}

#[test]
fn nothing_is_released_if_all_of_it_is_not_enough() {
    let offers = [offer(50, 10), offer(100, 40)];
    assert_eq!(shares(&offers, 151, true), [0, 0]);
    assert_eq!(shares(&offers, 151, false), [50, 100]);
    assert_eq!(shares(&[], 1, false), []);
}

/// Another process may report anything.
#[test]
fn more_idle_than_free_is_only_what_is_free() {
    let offers = [offer(5, u32::MAX), offer(u32::MAX, u32::MAX)];
    assert_eq!(shares(&offers, 1 << 40, false), [5, u32::MAX]);
    assert_eq!(shares(&offers, u64::MAX, true), [0, 0]);
}
