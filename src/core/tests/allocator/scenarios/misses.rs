//! Misses: what is asked of the driver, in which order, and what is not cut up when memory is
//! short.

use crate::picture::check;

#[test]
fn everything_free_goes_back_before_a_request_fails() {
    check(
        "
            capacity 40M
            a = alloc 12M
            b = alloc 14M
            c = alloc 512
            free a
            free b
            d = alloc 30M
        ",
        "
            a: reserve 12M
            b: reserve 14M
            c: reserve 2M
            d: reserve 30M fails, release 12M + 14M, reserve 30M
            2M small | c 512 | 2096640 free
            30M large | d 30M
            reserved 32M  allocated 31457792  active 31457792
        ",
    );
}

#[test]
fn out_of_memory_keeps_what_is_allocated() {
    check(
        "
            capacity 40M
            a = alloc 12M
            b = alloc 2M
            c = alloc 20M
            d = alloc 12M
        ",
        "
            a: reserve 12M
            b: reserve 20M
            c: reserve 20M fails, reserve 20M fails, out of memory
            12M large | a 12M
            20M large | b 2M | d 12M | 6M free
            reserved 32M  allocated 26M  active 26M
        ",
    );
}

/// The second request fails; once the first is freed it succeeds.
#[test]
fn half_of_the_memory_twice() {
    check(
        "
            capacity 100M
            a = alloc 60M
            b = alloc 60M
            free a
            b = alloc 60M
        ",
        "
            a: reserve 60M
            b: reserve 60M fails, reserve 60M fails, out of memory
            60M large | b 60M
            reserved 60M  allocated 60M  active 60M
        ",
    );
}

#[test]
fn completed_events_are_asked_for_before_memory_is_reserved() {
    check(
        "
            a = alloc 12M
            free a after e1
            finish e1
            b = alloc 12M
        ",
        "
            a: reserve 12M
            b: query
            12M large | b 12M
            reserved 12M  allocated 12M  active 12M
        ",
    );
}

/// PyTorch does not search again after its wait (pytorch#189504) and reports out of memory here.
#[test]
fn a_block_freed_by_the_wait_is_found_inside_a_split_segment() {
    check(
        "
            capacity 20M
            a = alloc 9M
            b = alloc 9M
            free a after e1
            finish e1
            c = alloc 9M
        ",
        "
            a: reserve 20M
            c: query
            20M large | c 9M | b 9M | 2M free
            reserved 20M  allocated 18M  active 18M
        ",
    );
}

/// Natively it fits: a segment for others to share does not.
#[test]
fn the_last_attempt_is_as_small_as_the_request() {
    check(
        "
            capacity 12M
            a = alloc 10M
            b = alloc 1900K
        ",
        "
            a: reserve 10M
            b: reserve 20M fails, reserve 20M fails, reserve 1900K
            10M large | a 10M
            1900K large | b 1900K
            reserved 12140K  allocated 12140K  active 12140K
        ",
    );
}

#[test]
fn a_small_last_attempt() {
    check(
        "
            capacity 2816K
            a = alloc 2M
            b = alloc 700K
        ",
        "
            a: reserve 20M fails, reserve 20M fails, reserve 2M
            b: reserve 2M fails, reserve 2M fails, reserve 700K
            2M large | a 2M
            700K small | b 700K
            reserved 2748K  allocated 2748K  active 2748K
        ",
    );
}

#[test]
fn the_limit_counts_like_the_device() {
    check(
        "
            limit 40M
            a = alloc 12M
            b = alloc 14M
            free a
            c = alloc 16M
            d = alloc 30M
        ",
        "
            a: reserve 12M
            b: reserve 14M
            c: release 12M, reserve 16M
            d: out of memory
            14M large | b 14M
            16M large | c 16M
            reserved 30M  allocated 30M  active 30M
        ",
    );
}

#[test]
fn the_stages_of_a_long_miss() {
    check(
        "
            policy max_split_size_mb:30,garbage_collection_threshold:0.3
            limit 200M
            capacity 60M
            a = alloc 20M
            b = alloc 12M s1
            c = alloc 40M
            free b on s1 e1
            c = alloc 30M
            free c after e2
            d = alloc 42M
        ",
        "
            a: reserve 20M
            b: reserve 12M
            c: reserve 40M fails, reserve 40M fails, out of memory
            c: query, reserve 30M fails, query, release 12M e1, reserve 30M
            d: query, reserve 42M fails, query, release 30M e2, reserve 42M fails, out of memory
            20M large | a 20M
            reserved 20M  allocated 20M  active 20M
        ",
    );
}

#[test]
fn beyond_any_device() {
    check(
        "
            a = alloc 1152921504606846977
            b = alloc 18446744073709551615
        ",
        "
            a: out of memory
            b: out of memory
            reserved 0  allocated 0  active 0
        ",
    );
}

#[test]
fn oversize_blocks_are_kept_for_oversize_requests() {
    check(
        "
            policy max_split_size_mb:30
            a = alloc 40M
            free a
            b = alloc 12M
            c = alloc 32M
        ",
        "
            a: reserve 40M
            b: reserve 12M
            40M large | c 40M
            12M large | b 12M
            reserved 52M  allocated 52M  active 52M
        ",
    );
}

#[test]
fn an_oversize_block_much_larger_than_the_request_is_left() {
    check(
        "
            policy max_split_size_mb:30
            a = alloc 60M
            free a
            b = alloc 32M
        ",
        "
            a: reserve 60M
            b: reserve 32M
            60M large | 60M free
            32M large | b 32M
            reserved 92M  allocated 32M  active 32M
        ",
    );
}

/// The other free segments stay.
#[test]
fn one_oversize_segment_makes_room() {
    check(
        "
            policy max_split_size_mb:30
            capacity 120M
            a = alloc 36M
            b = alloc 60M
            c = alloc 12M
            free a
            free b
            free c
            d = alloc 40M
            e = alloc 34M
        ",
        "
            a: reserve 36M
            b: reserve 60M
            c: reserve 12M
            d: reserve 40M fails, release 60M, reserve 40M
            36M large | e 36M
            40M large | d 40M
            12M large | 12M free
            reserved 88M  allocated 76M  active 76M
        ",
    );
}

#[test]
fn several_oversize_segments_make_room_largest_first() {
    check(
        "
            policy max_split_size_mb:20
            capacity 120M
            a = alloc 24M
            b = alloc 30M
            c = alloc 36M
            d = alloc 12M
            free a
            free b
            free c
            free d
            e = alloc 64M
        ",
        "
            a: reserve 24M
            b: reserve 30M
            c: reserve 36M
            d: reserve 12M
            e: reserve 64M fails, release 36M + 30M, reserve 64M
            24M large | 24M free
            64M large | e 64M
            12M large | 12M free
            reserved 100M  allocated 64M  active 64M
        ",
    );
}

#[test]
fn the_ordinary_segment_is_shared_even_at_the_smallest_split_limit() {
    check(
        "
            policy max_split_size_mb:20
            a = alloc 5M
            free a
            b = alloc 5M
        ",
        "
            a: reserve 20M
            20M large | b 5M | 15M free
            reserved 20M  allocated 5M  active 5M
        ",
    );
}

#[test]
fn garbage_collection_takes_the_older_ones() {
    check(
        "
            policy garbage_collection_threshold:0.4
            limit 100M
            a = alloc 20M
            b = alloc 24M
            c = alloc 512
            free a
            d = alloc 512
            e = alloc 512
            free b
            f = alloc 26M
        ",
        "
            a: reserve 20M
            b: reserve 24M
            c: reserve 2M
            f: release 20M, reserve 26M
            24M large | 24M free
            2M small | c 512 | d 512 | e 512 | 2095616 free
            26M large | f 26M
            reserved 52M  allocated 27264512  active 27264512
        ",
    );
}

#[test]
fn garbage_collection_waits_for_the_threshold() {
    check(
        "
            policy garbage_collection_threshold:0.9
            limit 100M
            a = alloc 20M
            free a
            b = alloc 26M
        ",
        "
            a: reserve 20M
            b: reserve 26M
            20M large | 20M free
            26M large | b 26M
            reserved 46M  allocated 26M  active 26M
        ",
    );
}

#[test]
fn splitting_as_long_as_memory_is_plentiful() {
    check(
        "
            capacity 1000M
            a = alloc 600M
            free a
            b = alloc 400M
        ",
        "
            a: reserve 600M
            600M large | b 400M | 200M free
            reserved 600M  allocated 400M  active 400M
        ",
    );
}

/// 400 + 500 of 1000 fit natively; cut out of the 600, the 500 would find 200 + 400.
#[test]
fn a_program_that_fits_natively_fits_under_pressure() {
    check(
        "
            capacity 1000M
            pressure on
            a = alloc 600M
            free a
            b = alloc 400M
            c = alloc 500M
        ",
        "
            a: reserve 600M
            b: reserve 400M
            c: reserve 500M fails, release 600M, reserve 500M
            500M large | c 500M
            400M large | b 400M
            reserved 900M  allocated 900M  active 900M
        ",
    );
}

#[test]
fn the_same_program_without_the_rule() {
    check(
        "
            capacity 1000M
            a = alloc 600M
            free a
            b = alloc 400M
            c = alloc 500M
            d = alloc 450M
        ",
        "
            a: reserve 600M
            c: reserve 500M fails, reserve 500M fails, out of memory
            d: reserve 450M fails, reserve 450M fails, out of memory
            600M large | b 400M | 200M free
            reserved 600M  allocated 400M  active 400M
        ",
    );
}

#[test]
fn the_first_failure_turns_pressure_on() {
    check(
        "
            capacity 1000M
            a = alloc 900M
            b = alloc 200M
            free a
            c = alloc 500M
            d = alloc 450M
        ",
        "
            a: reserve 900M
            b: reserve 200M fails, reserve 200M fails, out of memory
            c: reserve 500M fails, release 900M, reserve 500M
            d: reserve 450M
            500M large | c 500M
            450M large | d 450M
            reserved 950M  allocated 950M  active 950M
        ",
    );
}

#[test]
fn under_pressure_parts_of_a_used_segment_are_still_cut() {
    check(
        "
            a = alloc 600M
            free a
            b = alloc 100M
            pressure on
            c = alloc 100M
        ",
        "
            a: reserve 600M
            600M large | b 100M | c 100M | 400M free
            reserved 600M  allocated 200M  active 200M
        ",
    );
}
