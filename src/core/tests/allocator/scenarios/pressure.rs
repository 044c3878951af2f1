//! Pressure: when memory is short, whole free segments are not cut.

use crate::picture::check;

/// 400 + 500 of 1000 fit on the plain driver; if the 400 are cut from the 600, the 500 find 200 +
/// 400.
#[test]
fn segments_are_cut_as_long_as_memory_is_plentiful() {
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

/// This is the program of the test above, under pressure.
#[test]
fn program_that_fits_the_driver_fits_under_pressure() {
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
