//! Limits on cutting and sharing segments when the capacity of the program is known: Note
//! [Capacity] in capacity.rs.

use crate::picture::check;

#[test]
fn while_most_of_the_room_is_left_segments_are_cut_and_shared() {
    check(
        "
            room 10240M
            a = alloc 60M
            free a
            b = alloc 30M
            c = alloc 9M
            free c
            d = alloc 4M
        ",
        "
            a: reserve 60M
            60M large | b 30M | d 4M | 26M free
            reserved 60M  allocated 34M  active 34M
        ",
    );
}

/// 1/512 of 10 GiB are 20 MiB.
#[test]
fn then_a_whole_segment_is_cut_only_if_the_hole_is_small() {
    check(
        "
            room 10240M
            a = alloc 6000M
            b = alloc 60M
            free b
            c = alloc 38M
            d = alloc 40M
            e = alloc 10M
        ",
        "
            a: reserve 6000M
            b: reserve 60M
            c: reserve 38M
            6000M large | a 6000M
            60M large | d 40M | e 10M | 10M free
            38M large | c 38M
            reserved 6098M  allocated 6088M  active 6088M
        ",
    );
}

/// The remainder of 20 MiB would be more than 13.
#[test]
fn then_a_large_request_begins_no_segment_for_several() {
    check(
        "
            room 7000M
            a = alloc 6000M
            b = alloc 8M
            c = alloc 12M
            d = alloc 6M
        ",
        "
            a: reserve 6000M
            b: reserve 20M
            d: reserve 6M
            6000M large | a 6000M
            20M large | b 8M | c 12M
            6M large | d 6M
            reserved 6026M  allocated 6026M  active 6026M
        ",
    );
}

/// Each 2 MiB page would lose 848 KiB.
#[test]
fn unless_it_loses_much_of_its_last_page() {
    check(
        "
            room 7000M
            a = alloc 6000M
            b = alloc 8M
            c = alloc 12M
            d = alloc 1200K
        ",
        "
            a: reserve 6000M
            b: reserve 20M
            d: reserve 20M
            6000M large | a 6000M
            20M large | b 8M | c 12M
            20M large | d 1200K | 19280K free
            reserved 6040M  allocated 6165680K  active 6165680K
        ",
    );
}

/// Note [Chunks] in policy.rs.
#[test]
fn a_chunk_is_cut_and_shared() {
    check(
        "
            policy strategy:pre_allocate
            chunk 40M
            room 200M
            a = alloc 100M
            b = alloc 30M
            free b
            c = alloc 4M
        ",
        "
            a: reserve 100M
            b: reserve 40M
            100M large | a 100M
            40M large | c 4M | 36M free
            reserved 140M  allocated 104M  active 104M
        ",
    );
}

#[test]
fn nor_does_a_request_of_a_capture() {
    check(
        "
            room 7000M
            a = alloc 6000M
            b = alloc 6M
            free b
            open p1
            c = alloc 6M in p1
            d = alloc 4M in p1
        ",
        "
            a: reserve 6000M
            b: reserve 6M
            d: reserve 4M
            6000M large | a 6000M
            6M large p1 | c 6M
            4M large p1 | d 4M
            reserved 6010M  allocated 6010M  active 6010M
        ",
    );
}

/// A single segment of 20 MiB would be more than 1/256 of the limit.
#[test]
fn within_a_low_limit_nothing_large_is_shared() {
    check(
        "
            room 5119M limit
            a = alloc 8M
            b = alloc 3M
        ",
        "
            a: reserve 8M
            b: reserve 3M
            8M large | a 8M
            3M large | b 3M
            reserved 11M  allocated 11M  active 11M
        ",
    );
}

/// A single segment of 20 MiB is no more than 1/256 of this limit.
#[test]
fn within_a_high_limit_segments_are_shared() {
    check(
        "
            room 5120M limit
            a = alloc 8M
            b = alloc 3M
        ",
        "
            a: reserve 20M
            20M large | a 8M | b 3M | 9M free
            reserved 20M  allocated 11M  active 11M
        ",
    );
}

/// Others hold the rest, as the driver's refusal shows.
#[test]
fn a_refusal_shows_the_room() {
    check(
        "
            room 100000M
            capacity 1200M
            a = alloc 900M
            b = alloc 600M
            c = alloc 30M
            free c
            d = alloc 14M
        ",
        "
            a: reserve 900M
            b: reserve 600M fails, reserve 600M fails, out of memory
            c: reserve 30M
            d: reserve 14M
            900M large | a 900M
            30M large | 30M free
            14M large | d 14M
            reserved 944M  allocated 914M  active 914M
        ",
    );
}

/// The limit refuses as the driver does, though the driver is not asked.
#[test]
fn a_refusal_of_the_limit_shows_the_room() {
    check(
        "
            room 100000M
            limit 1200M
            a = alloc 900M
            b = alloc 600M
            c = alloc 30M
            free c
            d = alloc 14M
        ",
        "
            a: reserve 900M
            b: out of memory
            c: reserve 30M
            d: reserve 14M
            900M large | a 900M
            30M large | 30M free
            14M large | d 14M
            reserved 944M  allocated 914M  active 914M
        ",
    );
}

/// The driver grants more than it refused before. Little of the new capacity is taken.
#[test]
fn other_processes_may_release_memory_again() {
    check(
        "
            room 100000M
            capacity 1200M
            a = alloc 900M
            b = alloc 600M
            capacity 2000M
            b = alloc 700M
            c = alloc 30M
            free c
            d = alloc 14M
        ",
        "
            a: reserve 900M
            b: reserve 600M fails, reserve 600M fails, out of memory
            b: reserve 700M
            c: reserve 30M
            900M large | a 900M
            700M large | b 700M
            30M large | d 14M | 16M free
            reserved 1630M  allocated 1614M  active 1614M
        ",
    );
}

/// The rounded-up size does not fit.
#[test]
fn before_a_request_fails_it_takes_a_hole_of_its_exact_size() {
    check(
        "
            policy roundup_power2_divisions:2,large_segment_size_mb:21
            capacity 22M
            a = alloc 7M
            b = alloc 7M
            c = alloc 4608K
        ",
        "
            a: reserve 21M
            c: reserve 21M fails, reserve 21M fails, reserve 4608K fails
            21M large | a 8M | b 8M | c 5M
            reserved 21M  allocated 21M  active 21M
        ",
    );
}

/// A small request finds a hole among the large ones, and takes no more of it than it needs.
#[test]
fn before_a_request_fails_it_takes_a_hole_of_the_other_pool() {
    check(
        "
            capacity 20M
            a = alloc 9M
            b = alloc 9M
            c = alloc 700K
            d = alloc 700K
        ",
        "
            a: reserve 20M
            c: reserve 2M fails, reserve 2M fails, reserve 700K fails
            d: reserve 2M fails, reserve 2M fails, reserve 700K fails
            20M large | a 9M | b 9M | c 700K | d 700K | 648K free
            reserved 20M  allocated 19832K  active 19832K
        ",
    );
}
