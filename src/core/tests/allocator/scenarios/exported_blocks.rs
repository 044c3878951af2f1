//! Exported blocks: Note [Exported blocks] in exported_blocks.rs.

use crate::picture::check;

#[test]
fn a_block_that_is_its_segment_leaves_with_its_free() {
    check(
        "
            a = alloc 12M
            export a
            free a
            b = alloc 12M
        ",
        "
            a: reserve 12M
            free a: release 12M for good
            b: reserve 12M
            12M large | b 12M
            reserved 12M  allocated 12M  active 12M
        ",
    );
}

#[test]
fn a_block_inside_a_segment_waits_for_the_others() {
    check(
        "
            a = alloc 64K
            b = alloc 64K
            c = alloc 64K
            export b
            free b
            d = alloc 64K
            free a
            free c
        ",
        "
            a: reserve 2M
            2M small | 64K free | 64K retired | 64K free | d 64K | 1792K free
            reserved 2M  allocated 64K  active 64K
        ",
    );
}

#[test]
fn the_last_block_takes_the_segment_with_it() {
    check(
        "
            a = alloc 64K
            b = alloc 64K
            export b
            free b
            free a
        ",
        "
            a: reserve 2M
            free a: release 2M for good
            reserved 0  allocated 0  active 0
        ",
    );
}

#[test]
fn memory_in_use_by_a_stream_is_not_released() {
    check(
        "
            a = alloc 12M
            b = alloc 12M
            c = alloc 12M
            export a
            export b
            export c
            free a on s1 e1
            free b after e2
            free c parked
        ",
        "
            a: reserve 12M
            b: reserve 12M
            c: reserve 12M
            12M large | 12M free s1 e1
            12M large | 12M pending e2
            12M large | 12M parked
            reserved 36M  allocated 0  active 24M
        ",
    );
}

#[test]
fn retired_block_is_released_when_its_events_complete() {
    check(
        "
            a = alloc 12M
            b = alloc 12M
            export a
            export b
            free a on s1 e1
            free b parked
            c = alloc 12M s1
            finish e1
            report
            barrier
        ",
        "
            a: reserve 12M
            b: reserve 12M
            c: query, reserve 12M
            report: release 12M for good
            barrier: release 12M for good
            12M large | c 12M
            reserved 12M  allocated 12M  active 12M
        ",
    );
}

#[test]
fn after_the_first_export_large_blocks_are_segments() {
    check(
        "
            a = alloc 3M
            b = alloc 512
            export b
            c = alloc 3M
            d = alloc 1500K
            free c
            e = alloc 2500K
        ",
        "
            a: reserve 20M
            b: reserve 2M
            c: reserve 4M
            d: reserve 2M
            20M large | a 3M | 17M free
            2M small | b 512 exported | 2096640 free
            4M large | e 4M
            2M large | d 2M
            reserved 28M  allocated 9437696  active 9437696
        ",
    );
}

/// The 17 MiB beside `a` serve no request until there is no other way.
#[test]
fn part_of_a_segment_serves_the_last_attempt() {
    check(
        "
            capacity 24M
            a = alloc 3M
            b = alloc 512
            export b
            c = alloc 3M
            d = alloc 3M
        ",
        "
            a: reserve 20M
            b: reserve 2M
            c: reserve 4M fails, reserve 4M fails, reserve 3M fails
            d: reserve 4M fails, reserve 4M fails, reserve 3M fails
            20M large | a 3M | c 3M | d 3M | 11M free
            2M small | b 512 exported | 2096640 free
            reserved 22M  allocated 9437696  active 9437696
        ",
    );
}

/// Under memory pressure everything is released, retired blocks with their segments.
#[test]
fn trim_releases_retired_blocks_after_their_events() {
    check(
        "
            a = alloc 64K
            b = alloc 64K
            export b
            free b after e1
            free a
            trim
        ",
        "
            a: reserve 2M
            trim: release 2M e1
            reserved 0  allocated 0  active 0
        ",
    );
}
