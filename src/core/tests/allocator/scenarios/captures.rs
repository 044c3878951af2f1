//! Memory of captures. See Note [Private pools] in private.rs.

use crate::picture::check;

#[test]
fn memory_freed_in_a_capture_waits_for_its_pool() {
    check(
        "
            open p1
            a = alloc 30M in p1
            free a
            b = alloc 30M in p1
            c = alloc 30M
            barrier
            trim
        ",
        "
            a: reserve 30M
            b: reserve 30M
            c: reserve 30M
            trim: release nothing
            30M large p1 | 30M kept
            30M large p1 | b 30M
            30M large | c 30M
            reserved 90M  allocated 60M  active 90M
        ",
    );
}

#[test]
fn memory_ordered_by_the_capture_is_reused() {
    check(
        "
            open p1
            a = alloc 4M in p1
            b = alloc 4M in p1
            free a
            free b
            reuse a
            reuse b
            c = alloc 12M in p1
        ",
        "
            a: reserve 20M
            20M large p1 | c 12M | 8M free
            reserved 20M  allocated 12M  active 12M
        ",
    );
}

/// Adjacent blocks that are ordered for one stream are one block for it, and not for another.
#[test]
fn a_stream_has_neighbours_that_are_in_order_for_it() {
    check(
        "
            open p1
            a = alloc 6M s1 in p1
            b = alloc 6M s1 in p1
            c = alloc 8M s1 in p1
            free a
            free b
            reuse a s1
            reuse b s1
            d = alloc 12M s2 in p1
            e = alloc 12M s1 in p1
        ",
        "
            a: reserve 20M
            d: reserve 12M
            20M large p1 | e 12M | c 8M
            12M large p1 | d 12M
            reserved 32M  allocated 32M  active 32M
        ",
    );
}

#[test]
fn a_stream_has_what_is_in_order_for_it() {
    check(
        "
            open p1
            a = alloc 12M s1 in p1
            free a
            reuse a s1
            b = alloc 12M in p1
            c = alloc 12M s2 in p1
            d = alloc 12M s1 in p1
        ",
        "
            a: reserve 12M
            b: reserve 12M
            c: reserve 12M
            12M large p1 | d 12M
            12M large p1 | b 12M
            12M large p1 | c 12M
            reserved 36M  allocated 36M  active 36M
        ",
    );
}

#[test]
fn captures_get_memory_unused_since_they_began() {
    check(
        "
            a = alloc 30M
            b = alloc 40M
            c = alloc 50M
            free a
            open p1
            free b
            d = alloc 30M in p1
            e = alloc 40M in p1
        ",
        "
            a: reserve 30M
            b: reserve 40M
            c: reserve 50M
            e: reserve 40M
            30M large p1 | d 30M
            40M large | 40M free
            50M large | c 50M
            40M large p1 | e 40M
            reserved 160M  allocated 120M  active 120M
        ",
    );
}

#[test]
fn an_ended_pool_is_free_everywhere_once_it_is_closed() {
    check(
        "
            open p1
            a = alloc 4M in p1
            b = alloc 4M in p1
            c = alloc 4M in p1
            free a
            end p1
            d = alloc 4M in p1
            e = alloc 4M
            free b
            close p1
            f = alloc 8M
        ",
        "
            a: reserve 20M
            d: out of memory
            e: reserve 20M
            20M large | f 8M | c 4M | 8M free
            20M large | e 4M | 16M free
            reserved 40M  allocated 16M  active 16M
        ",
    );
}
