//! Memory released for another process: as much as it lacks, from the memory unused for longest.

use crate::picture::check;

#[test]
fn longest_unused_segment_is_released_up_to_the_request() {
    check(
        "
            a = alloc 30M
            b = alloc 40M
            c = alloc 50M
            free b
            d = alloc 1M
            free c
            e = alloc 1M
            free a
            n = now
            give 41M n
            give 1M n
            give 1M n
        ",
        "
            a: reserve 30M
            b: reserve 40M
            c: reserve 50M
            d: reserve 2M
            give: release 40M + 50M
            give: release 30M
            give: release nothing
            2M small | d 1M | e 1M
            reserved 2M  allocated 2M  active 2M
        ",
    );
}

#[test]
fn memory_used_since_is_not_released_to_peers() {
    check(
        "
            a = alloc 30M
            b = alloc 40M
            free a
            n = now
            free b
            give 60M n
        ",
        "
            a: reserve 30M
            b: reserve 40M
            give: release 30M
            40M large | 40M free
            reserved 40M  allocated 0  active 0
        ",
    );
}

#[test]
fn arenas_are_unmapped_from_their_end() {
    check(
        "
            policy expandable_segments:true
            a = alloc 100M
            b = alloc 30M
            free a
            n = now
            give 9M n
            give 1000M n
        ",
        "
            a: map 100M
            b: map 30M
            give: release nothing, unmap 10M
            give: release nothing, unmap 90M
            30M large | b 30M
            reserved 30M  allocated 30M  active 30M
        ",
    );
}

/// Small blocks are allocated and freed beside it, and keep only the memory that they touch.
#[test]
fn long_free_memory_keeps_its_age_beside_busy_blocks() {
    check(
        "
            policy expandable_segments:true
            a = alloc 20M
            b = alloc 100M
            c = alloc 30M
            free b
            n = now
            free a
            give 9M n
            d = alloc 10M
            free d
            give 1000M n
        ",
        "
            a: map 20M
            b: map 100M
            c: map 30M
            give: release nothing, unmap 10M
            give: release nothing, unmap 90M
            20M large | 20M free
            30M large | c 30M
            reserved 50M  allocated 30M  active 30M
        ",
    );
}
