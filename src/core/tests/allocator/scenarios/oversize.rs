//! Blocks that are kept whole for requests of their size (`max_split_size_mb`).

use crate::picture::check;

#[test]
fn oversize_blocks_are_kept_for_requests_of_about_their_size() {
    check(
        "
            policy max_split_size_mb:30
            a = alloc 40M
            b = alloc 60M
            free a
            free b
            c = alloc 12M
            d = alloc 32M
            e = alloc 32M
        ",
        "
            a: reserve 40M
            b: reserve 60M
            c: reserve 12M
            e: reserve 32M
            40M large | d 40M
            60M large | 60M free
            12M large | c 12M
            32M large | e 32M
            reserved 144M  allocated 84M  active 84M
        ",
    );
}

/// The other free segments are kept.
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

/// Oversize segments are released with everything else that is free, and not before.
#[test]
fn oversize_segments_that_are_not_enough_are_not_taken_for_it() {
    check(
        "
            policy max_split_size_mb:20
            capacity 70M
            a = alloc 25M
            b = alloc 30M
            free a
            free b
            c = alloc 80M
        ",
        "
            a: reserve 26M
            b: reserve 30M
            c: reserve 80M fails, release 26M + 30M, reserve 80M fails, out of memory
            reserved 0  allocated 0  active 0
        ",
    );
}

/// No more of them and no others are released. The second time they just suffice.
#[test]
fn only_as_many_oversize_segments_as_needed_are_released() {
    check(
        "
            policy max_split_size_mb:20
            capacity 82M
            a = alloc 30M
            b = alloc 30M
            c = alloc 20M
            d = alloc 512
            free a
            free b
            free c
            free d
            e = alloc 60M
            free e
            f = alloc 80M
        ",
        "
            a: reserve 30M
            b: reserve 30M
            c: reserve 20M
            d: reserve 2M
            e: reserve 60M fails, release 30M + 30M, reserve 60M
            f: reserve 80M fails, release 60M + 20M, reserve 80M
            80M large | f 80M
            2M small | 2M free
            reserved 82M  allocated 80M  active 80M
        ",
    );
}

/// Smaller segments are released with everything else, in no order of size.
#[test]
fn smaller_segments_are_not_taken_for_oversize() {
    check(
        "
            policy max_split_size_mb:30
            capacity 52M
            a = alloc 8M
            b = alloc 30M
            free a
            free b
            c = alloc 34M
        ",
        "
            a: reserve 20M
            b: reserve 30M
            c: reserve 34M fails, release 20M + 30M, reserve 34M
            34M large | c 34M
            reserved 34M  allocated 34M  active 34M
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
