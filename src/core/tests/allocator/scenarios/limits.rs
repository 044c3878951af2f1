//! Oversize blocks (`max_split_size_mb`), garbage collection, and what is not cut up when memory is
//! short.

use crate::picture::check;

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

/// They go with everything else that is free, and not before.
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

/// Neither one more, nor anything else.
#[test]
fn as_many_oversize_segments_go_as_are_enough() {
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
        ",
        "
            a: reserve 30M
            b: reserve 30M
            c: reserve 20M
            d: reserve 2M
            e: reserve 60M fails, release 30M + 30M, reserve 60M
            60M large | e 60M
            20M large | 20M free
            2M small | 2M free
            reserved 82M  allocated 60M  active 60M
        ",
    );
}

#[test]
fn oversize_segments_that_are_just_enough_go_alone() {
    check(
        "
            policy max_split_size_mb:20
            capacity 62M
            a = alloc 30M
            b = alloc 30M
            c = alloc 512
            free a
            free b
            free c
            d = alloc 60M
        ",
        "
            a: reserve 30M
            b: reserve 30M
            c: reserve 2M
            d: reserve 60M fails, release 30M + 30M, reserve 60M
            60M large | d 60M
            2M small | 2M free
            reserved 62M  allocated 60M  active 60M
        ",
    );
}

/// They go with everything else, in no order of size.
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

/// It would come back only when the stream is done, and serves other streams behind that.
#[test]
fn garbage_collection_leaves_what_a_stream_uses() {
    check(
        "
            policy garbage_collection_threshold:0.4
            limit 100M
            a = alloc 50M s1
            free a on s1 e1
            b = alloc 30M s2
        ",
        "
            a: reserve 50M
            b: query, reserve 30M
            50M large | 50M free s1 e1
            30M large | b 30M
            reserved 80M  allocated 30M  active 30M
        ",
    );
}

/// An age is a difference: of 27, 18 and 9 requests two are at least the average.
#[test]
fn garbage_collection_takes_all_that_are_as_old_as_the_average() {
    let nine = "x = alloc 512\nfree x\n".repeat(9);
    check(
        &format!(
            "
            policy garbage_collection_threshold:0.4
            limit 100M
            a = alloc 20M
            b = alloc 12M
            c = alloc 12M
            s = alloc 512
            free a
            {nine}
            free b
            {nine}
            free c
            {nine}
            d = alloc 26M
            "
        ),
        "
            a: reserve 20M
            b: reserve 12M
            c: reserve 12M
            s: reserve 2M
            d: release 20M + 12M, reserve 26M
            26M large | d 26M
            12M large | 12M free
            2M small | s 512 | 2096640 free
            reserved 40M  allocated 27263488  active 27263488
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
