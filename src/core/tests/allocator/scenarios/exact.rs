//! The last attempt: exactly the memory that the program asked for. The plain driver would have
//! served that request.

use crate::picture::check;

/// 9 MiB are rounded to 12 MiB, for which there is no memory; for 9 MiB there is.
#[test]
fn without_rounding_it_fits_into_an_arena() {
    check(
        "
            policy expandable_segments:true,roundup_power2_divisions:2
            capacity 10M
            a = alloc 9M
        ",
        "
            a: map 12M fails, map 12M fails, map 10M
            10M large | a 9M | 1M free
            reserved 10M  allocated 9M  active 9M
        ",
    );
}

/// Memory that is already mapped counts here.
#[test]
fn without_rounding_an_arena_needs_less_more() {
    check(
        "
            policy expandable_segments:true,roundup_power2_divisions:2
            capacity 14M
            a = alloc 4M
            b = alloc 2M
            free b
            c = alloc 9M
        ",
        "
            a: map 4M
            b: map 2M
            c: map 10M fails, unmap 2M, map 12M fails, map 10M
            14M large | a 4M | c 9M | 1M free
            reserved 14M  allocated 13M  active 13M
        ",
    );
}

/// The limit has no capacity for 12 MiB.
#[test]
fn without_rounding_it_is_within_the_limit() {
    check(
        "
            policy expandable_segments:true,roundup_power2_divisions:2
            limit 10M
            a = alloc 9M
        ",
        "
            a: map 10M
            10M large | a 9M | 1M free
            reserved 10M  allocated 9M  active 9M
        ",
    );
}

/// A size that is not rounded is not tried again.
#[test]
fn unrounded_size_is_tried_once() {
    check(
        "
            policy expandable_segments:true
            capacity 10M
            a = alloc 12M
        ",
        "
            a: map 12M fails, map 12M fails, out of memory
            reserved 0  allocated 0  active 0
        ",
    );
}

/// The memory of a capture is in no arena.
#[test]
fn a_capture_takes_a_segment_of_that_size() {
    check(
        "
            policy expandable_segments:true,roundup_power2_divisions:2
            capacity 10M
            open p1
            a = alloc 9M in p1
        ",
        "
            a: reserve 12M fails, reserve 12M fails, reserve 12M fails, reserve 9M
            9M large p1 | a 9M
            reserved 9M  allocated 9M  active 9M
        ",
    );
}

#[test]
fn a_segment_of_that_size() {
    check(
        "
            policy roundup_power2_divisions:2
            capacity 10M
            a = alloc 9M
            free a
            b = alloc 3M
        ",
        "
            a: reserve 12M fails, reserve 12M fails, reserve 9M
            9M large | b 3M | 6M free
            reserved 9M  allocated 3M  active 3M
        ",
    );
}
