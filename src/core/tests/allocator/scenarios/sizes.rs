//! Sizes: rounding, pools, segments, splitting, best fit. The block absorption cases of PyTorch.

use crate::picture::check;

#[test]
fn a_small_request_cuts_a_small_segment() {
    check(
        "
            a = alloc 512
            b = alloc 1
            c = alloc 1M
        ",
        "
            a: reserve 2M
            2M small | a 512 | b 512 | c 1M | 1023K free
            reserved 2M  allocated 1025K  active 1025K
        ",
    );
}

#[test]
fn small_ends_at_one_mebibyte() {
    check(
        "
            a = alloc 1048576
            b = alloc 1048577
        ",
        "
            a: reserve 2M
            b: reserve 20M
            2M small | a 1M | 1M free
            20M large | b 1049088 | 19922432 free
            reserved 22M  allocated 2097664  active 2097664
        ",
    );
}

#[test]
fn two_mebibytes_cut_a_shared_large_segment() {
    check(
        "
            a = alloc 2M
        ",
        "
            a: reserve 20M
            20M large | a 2M | 18M free
            reserved 20M  allocated 2M  active 2M
        ",
    );
}

#[test]
fn a_small_rest_of_a_large_segment_is_not_cut_off() {
    check(
        "
            policy large_segment_size_mb:12
            capacity 100M
            a = alloc 9M
            b = alloc 11M
            free b
            c = alloc 11M
        ",
        "
            a: reserve 12M
            b: reserve 12M
            12M large | a 9M | 3M free
            12M large | c 12M
            reserved 24M  allocated 21M  active 21M
        ",
    );
}

#[test]
fn from_ten_mebibytes_on_a_segment_of_its_own() {
    check(
        "
            a = alloc 9M
            b = alloc 10M
            c = alloc 10486000
        ",
        "
            a: reserve 20M
            c: reserve 12M
            20M large | a 9M | b 11M
            12M large | c 10486272 | 2096640 free
            reserved 32M  allocated 31457792  active 31457792
        ",
    );
}

#[test]
fn twenty_mebibytes_fill_a_segment() {
    check(
        "
            a = alloc 20M
            b = alloc 19M
            free a
            c = alloc 19M
        ",
        "
            a: reserve 20M
            b: reserve 20M
            20M large | c 20M
            20M large | b 20M
            reserved 40M  allocated 40M  active 40M
        ",
    );
}

#[test]
fn a_small_request_never_takes_a_large_block() {
    check(
        "
            a = alloc 2M
            free a
            b = alloc 1K
        ",
        "
            a: reserve 20M
            b: reserve 2M
            20M large | 20M free
            2M small | b 1K | 2047K free
            reserved 22M  allocated 1K  active 1K
        ",
    );
}

#[test]
fn divisions_round_up() {
    check(
        "
            policy roundup_power2_divisions:4
            a = alloc 1200
            b = alloc 5000
            c = alloc 4096
            d = alloc 9M
        ",
        "
            a: reserve 2M
            d: reserve 10M
            2M small | a 1536 | b 5K | c 4K | 2086400 free
            10M large | d 10M
            reserved 12M  allocated 10496512  active 10496512
        ",
    );
}

#[test]
fn the_smallest_block_that_fits_is_taken() {
    check(
        "
            a = alloc 12M
            b = alloc 14M
            c = alloc 16M
            free a
            free c
            free b
            d = alloc 13M
        ",
        "
            a: reserve 12M
            b: reserve 14M
            c: reserve 16M
            12M large | 12M free
            14M large | d 14M
            16M large | 16M free
            reserved 42M  allocated 14M  active 14M
        ",
    );
}

/// Young segments should become empty.
#[test]
fn among_equals_the_oldest_segment_then_the_lowest_address() {
    check(
        "
            a = alloc 6M
            b = alloc 6M
            c = alloc 6M
            d = alloc 6M
            e = alloc 6M
            f = alloc 6M
            free e
            free c
            free a
            g = alloc 6M
        ",
        "
            a: reserve 20M
            d: reserve 20M
            20M large | g 6M | b 6M | 8M free
            20M large | d 6M | 6M free | f 6M | 2M free
            reserved 40M  allocated 24M  active 24M
        ",
    );
}

#[test]
fn freed_neighbours_coalesce() {
    check(
        "
            a = alloc 3M
            b = alloc 3M
            c = alloc 3M
            d = alloc 3M
            free b
            free d
            free c
        ",
        "
            a: reserve 20M
            20M large | a 3M | 17M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}

#[test]
fn segments_that_touch_do_not_coalesce() {
    check(
        "
            a = alloc 12M
            b = alloc 12M
            free a
            free b
            c = alloc 24M
        ",
        "
            a: reserve 12M
            b: reserve 12M
            c: reserve 24M
            12M large | 12M free
            12M large | 12M free
            24M large | c 24M
            reserved 48M  allocated 24M  active 24M
        ",
    );
}

#[test]
fn trim_releases_only_whole_segments() {
    check(
        "
            a = alloc 3M
            b = alloc 12M
            c = alloc 1K
            free b
            free c
            trim
        ",
        "
            a: reserve 20M
            c: reserve 2M
            trim: release 2M
            20M large | a 3M | 17M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}
