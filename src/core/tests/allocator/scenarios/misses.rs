//! Misses: the requests to the driver, and their order.

use crate::picture::check;

#[test]
fn all_free_memory_is_released_before_a_request_fails() {
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

/// The second request fails; it succeeds once the first block is freed.
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

/// The request fits on the plain driver: a segment for others to share does not.
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
            finish e1
            c = alloc 30M
            free c after e2
            d = alloc 42M
        ",
        "
            a: reserve 20M
            b: reserve 12M
            c: reserve 40M fails, reserve 40M fails, out of memory
            c: query, reserve 30M fails, release 12M, reserve 30M
            d: query, reserve 42M fails, query, reserve 42M fails, out of memory
            20M large | a 20M
            30M large | 30M pending e2
            reserved 50M  allocated 20M  active 50M
        ",
    );
}

/// A stream takes memory that others still use once nothing else is left, and that memory is not
/// released.
#[test]
fn stream_request_is_ordered_after_other_streams() {
    check(
        "
            capacity 60M
            a = alloc 40M s1
            b = alloc 20M s1
            free a on s1 e1
            free b on s2 e2
            c = alloc 40M
            d = alloc 30M s2
            e = alloc 10M s1
            f = alloc 20M s1
        ",
        "
            a: reserve 40M
            b: reserve 20M
            c: query, reserve 40M fails, query, reserve 40M fails, out of memory
            d: query, reserve 30M fails, query, reserve 30M fails, behind e1
            f: query, reserve 20M fails, query, reserve 20M fails, behind e2
            40M large | e 10M | d 30M
            20M large | f 20M
            reserved 60M  allocated 60M  active 60M
        ",
    );
}

/// Adjacent blocks serve a request together, and their remainder continues to wait.
#[test]
fn neighbours_serve_a_stream_together() {
    check(
        "
            capacity 60M
            a = alloc 60M
            free a
            a = alloc 20M s1
            b = alloc 20M s2
            c = alloc 20M s3
            free a on s1 e1
            free b on s2 e2
            free c on s3 e3
            d = alloc 35M s4
            e = alloc 5M s1
        ",
        "
            a: reserve 60M
            d: query, reserve 36M fails, query, reserve 36M fails, reserve 35M fails, behind e1 e2
            60M large | e 5M | d 35M | 20M free s3 e3
            reserved 60M  allocated 40M  active 40M
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
