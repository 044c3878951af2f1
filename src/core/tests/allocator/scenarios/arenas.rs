//! Expandable segments: where memory is mapped, and from where it is unmapped.

use crate::picture::check;

#[test]
fn a_segment_grows_by_what_is_missing() {
    check(
        "
            policy expandable_segments:true
            a = alloc 3M
            b = alloc 512
            c = alloc 30M
            free a
            d = alloc 2M
            e = alloc 5M
        ",
        "
            a: map 4M
            b: map 2M
            c: map 30M
            e: map 4M
            2M small | b 512 | 2096640 free
            38M large | d 2M | 1M free | c 30M | e 5M
            reserved 40M  allocated 38797824  active 38797824
        ",
    );
}

#[test]
fn a_free_block_at_the_end_is_counted_in() {
    check(
        "
            policy expandable_segments:true
            a = alloc 10M
            b = alloc 7M
            free b
            c = alloc 12M
        ",
        "
            a: map 10M
            b: map 8M
            c: map 4M
            22M large | a 10M | c 12M
            reserved 22M  allocated 22M  active 22M
        ",
    );
}

#[test]
fn memory_in_the_middle_is_unmapped_and_mapped_again() {
    check(
        "
            policy expandable_segments:true
            a = alloc 10M
            b = alloc 12M
            c = alloc 10M
            free b
            trim
            d = alloc 8M
            e = alloc 3M
        ",
        "
            a: map 10M
            b: map 12M
            c: map 10M
            trim: release nothing, unmap 12M
            d: map 8M
            e: map 4M
            32M large | a 10M | d 8M | e 3M | 1M free | c 10M
            reserved 32M  allocated 31M  active 31M
        ",
    );
}

#[test]
fn pages_that_a_live_block_touches_stay() {
    check(
        "
            policy expandable_segments:true
            a = alloc 3M
            b = alloc 6M
            c = alloc 3M
            free b
            trim
        ",
        "
            a: map 4M
            b: map 6M
            c: map 2M
            trim: release nothing, unmap 4M
            4M large | a 3M | 1M free
            4M large | 1M free | c 3M
            reserved 8M  allocated 6M  active 6M
        ",
    );
}

#[test]
fn free_memory_anywhere_serves_a_request_the_driver_cannot() {
    check(
        "
            policy expandable_segments:true
            capacity 40M
            a = alloc 8M
            b = alloc 8M
            c = alloc 8M
            d = alloc 8M
            e = alloc 8M
            free b
            free d
            f = alloc 14M
            g = alloc 2M
            h = alloc 2M
        ",
        "
            a: map 8M
            b: map 8M
            c: map 8M
            d: map 8M
            e: map 8M
            f: map 14M fails, unmap 16M, map 14M
            g: map 2M
            h: map 2M fails, map 2M fails, reserve 2M fails, out of memory
            10M large | a 8M | g 2M
            8M large | c 8M
            22M large | e 8M | f 14M
            reserved 40M  allocated 40M  active 40M
        ",
    );
}

#[test]
fn free_memory_suffices_if_it_is_as_much_as_missing() {
    check(
        "
            policy expandable_segments:true
            capacity 40M
            a = alloc 8M
            b = alloc 8M
            c = alloc 8M
            d = alloc 8M
            e = alloc 8M
            free b
            free d
            f = alloc 16M
        ",
        "
            a: map 8M
            b: map 8M
            c: map 8M
            d: map 8M
            e: map 8M
            f: map 16M fails, unmap 16M, map 16M
            8M large | a 8M
            8M large | c 8M
            24M large | e 8M | f 16M
            reserved 40M  allocated 40M  active 40M
        ",
    );
}

#[test]
fn small_and_large_lend_each_other_memory() {
    check(
        "
            policy expandable_segments:true
            capacity 8M
            a = alloc 1M
            b = alloc 1M
            c = alloc 1M
            d = alloc 1M
            free a
            free b
            e = alloc 6M
        ",
        "
            a: map 2M
            c: map 2M
            e: map 6M fails, unmap 2M, map 6M
            2M small | c 1M | d 1M
            6M large | e 6M
            reserved 8M  allocated 8M  active 8M
        ",
    );
}

#[test]
fn memory_that_a_stream_may_still_use_stays() {
    check(
        "
            policy expandable_segments:true
            capacity 20M
            a = alloc 10M
            b = alloc 10M
            free a on s1 e1
            c = alloc 4M
            finish e1
            d = alloc 4M
        ",
        "
            a: map 10M
            b: map 10M
            c: query, map 4M fails, query, map 4M fails, reserve 4M fails, out of memory
            d: query
            20M large | d 4M | 6M free | b 10M
            reserved 20M  allocated 14M  active 14M
        ",
    );
}

#[test]
fn the_limit_counts_what_is_mapped() {
    check(
        "
            policy expandable_segments:true
            limit 20M
            a = alloc 10M
            b = alloc 6M
            free a
            c = alloc 12M
            d = alloc 3M
        ",
        "
            a: map 10M
            b: map 6M
            c: unmap 10M, map 12M
            d: out of memory
            18M large | b 6M | c 12M
            reserved 18M  allocated 18M  active 18M
        ",
    );
}

#[test]
fn only_memory_above_the_limit_is_released() {
    check(
        "
            policy expandable_segments:true
            limit 24M
            a = alloc 4M
            b = alloc 4M
            c = alloc 4M
            d = alloc 4M
            e = alloc 4M
            free b
            free d
            f = alloc 8M
        ",
        "
            a: map 4M
            b: map 4M
            c: map 4M
            d: map 4M
            e: map 4M
            f: unmap 4M, map 8M
            4M large | a 4M
            20M large | c 4M | 4M free | e 4M | f 8M
            reserved 24M  allocated 20M  active 20M
        ",
    );
}

#[test]
fn a_large_request_is_mapped_in_few_parts() {
    check(
        "
            policy expandable_segments:true
            a = alloc 200M
            free a
            b = alloc 1M
            c = alloc 9M
            trim
        ",
        "
            a: map 200M
            b: map 2M
            trim: release nothing, unmap 188M
            2M small | b 1M | 1M free
            12M large | c 9M | 3M free
            reserved 14M  allocated 10M  active 10M
        ",
    );
}

#[test]
fn an_arena_that_is_full_leaves_the_rest_to_the_driver() {
    check(
        "
            policy expandable_segments:true
            a = alloc 250M
            b = alloc 250M
            c = alloc 250M
            free c
            d = alloc 6M
        ",
        "
            a: map 250M
            b: map 250M
            c: reserve 250M
            250M large | d 6M | 244M free
            250M large | a 250M
            250M large | b 250M
            reserved 750M  allocated 506M  active 506M
        ",
    );
}

/// All free memory would not suffice: memory stays where it is until the last attempt.
#[test]
fn too_little_memory_does_not_move() {
    check(
        "
            policy expandable_segments:true
            capacity 16M
            a = alloc 4M
            b = alloc 4M
            c = alloc 4M
            free b
            d = alloc 14M
        ",
        "
            a: map 4M
            b: map 4M
            c: map 4M
            d: map 14M fails, unmap 4M, map 14M fails, out of memory
            4M large | a 4M
            4M large | c 4M
            reserved 8M  allocated 8M  active 8M
        ",
    );
}
