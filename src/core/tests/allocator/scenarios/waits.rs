//! What a stream freed, once the host has waited for it.

use crate::picture::check;

#[test]
fn the_program_does_once_it_has_waited_for_the_stream() {
    check(
        "
            a = alloc 20M s1
            free a on s1 e1
            wait s1
            b = alloc 20M
        ",
        "
            a: reserve 20M
            20M large | b 20M
            reserved 20M  allocated 20M  active 20M
        ",
    );
}

#[test]
fn not_if_it_was_freed_later_or_on_another_stream() {
    check(
        "
            a = alloc 20M s1
            before = mark
            free a on s1 e1
            wait s1 before
            wait s2
            b = alloc 20M
        ",
        "
            a: reserve 20M
            b: query, reserve 20M
            20M large | 20M free s1 e1
            20M large | b 20M
            reserved 40M  allocated 20M  active 20M
        ",
    );
}
