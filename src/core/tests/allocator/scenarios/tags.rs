//! Tags: which requests may take a freed block before an event or a barrier, and how tags go away.

use crate::picture::check;

#[test]
fn stream_reuses_its_freed_memory() {
    check(
        "
            a = alloc 3M s1
            free a on s1 e1
            b = alloc 2M s1
        ",
        "
            a: reserve 20M
            20M large | b 3M | 17M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}

#[test]
fn another_stream_does_not() {
    check(
        "
            a = alloc 3M s1
            free a on s1 e1
            b = alloc 3M s2
        ",
        "
            a: reserve 20M
            20M large | 3M free s1 e1 | b 3M | 14M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}

#[test]
fn the_program_does_not() {
    check(
        "
            a = alloc 20M s1
            free a on s1 e1
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

#[test]
fn the_program_does_once_the_event_is_complete() {
    check(
        "
            a = alloc 20M s1
            free a on s1 e1
            finish e1
            b = alloc 20M
        ",
        "
            a: reserve 20M
            b: query
            20M large | b 20M
            reserved 20M  allocated 20M  active 20M
        ",
    );
}

#[test]
fn on_a_tie_the_stream_prefers_its_own() {
    check(
        "
            a = alloc 6M
            b = alloc 6M s1
            c = alloc 6M
            d = alloc 6M
            free d
            e = alloc 14M
            f = alloc 6M
            free a
            free c on s1 e1
            g = alloc 6M s1
        ",
        "
            a: reserve 20M
            d: reserve 20M
            20M large | 6M free | b 6M | g 6M | 2M free
            20M large | e 14M | f 6M
            reserved 40M  allocated 32M  active 32M
        ",
    );
}

#[test]
fn a_smaller_block_free_everywhere_beats_its_own() {
    check(
        "
            a = alloc 7M
            b = alloc 1M
            c = alloc 11M
            d = alloc 9M
            free d on s1 e1
            free a
            e = alloc 7M s1
        ",
        "
            a: reserve 20M
            b: reserve 2M
            d: reserve 20M
            20M large | e 7M | c 11M | 2M free
            2M small | b 1M | 1M free
            20M large | 9M free s1 e1 | 11M free
            reserved 42M  allocated 19M  active 19M
        ",
    );
}

/// If joined, the first block would wait for the event of the second.
#[test]
fn blocks_of_one_stream_stay_apart_while_they_wait() {
    check(
        "
            a = alloc 3M s1
            b = alloc 3M s1
            c = alloc 3M
            free a on s1 e1
            free b on s1 e2
            finish e1
            report
        ",
        "
            a: reserve 20M
            20M large | 3M free | 3M free s1 e2 | c 3M | 11M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}

#[test]
fn blocks_that_wait_for_the_same_event_of_their_stream_coalesce() {
    check(
        "
            a = alloc 3M s1
            b = alloc 3M s1
            c = alloc 3M
            free a on s1 e1
            free b on s1 e1
        ",
        "
            a: reserve 20M
            20M large | 6M free s1 e1 | c 3M | 11M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}

#[test]
fn a_request_of_their_stream_joins_them() {
    check(
        "
            a = alloc 3M s1
            b = alloc 3M s1
            c = alloc 14M
            free a on s1 e1
            free b on s1 e2
            d = alloc 4M s1
        ",
        "
            a: reserve 20M
            20M large | 2M free s1 e1 | d 4M | c 14M
            reserved 20M  allocated 18M  active 18M
        ",
    );
}

#[test]
fn blocks_of_two_streams_do_not_coalesce() {
    check(
        "
            a = alloc 3M s1
            b = alloc 3M s2
            c = alloc 3M
            free a on s1 e1
            free b on s2 e2
        ",
        "
            a: reserve 20M
            20M large | 3M free s1 e1 | 3M free s2 e2 | c 3M | 11M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}

#[test]
fn adjacent_blocks_coalesce_when_their_events_complete() {
    check(
        "
            a = alloc 3M s1
            b = alloc 3M s2
            c = alloc 3M
            free a on s1 e1
            free b on s2 e2
            free c
            barrier
        ",
        "
            a: reserve 20M
            20M large | 20M free
            reserved 20M  allocated 0  active 0
        ",
    );
}

#[test]
fn a_completed_event_lets_neighbours_coalesce() {
    check(
        "
            a = alloc 3M s1
            b = alloc 3M s2
            c = alloc 3M s2
            free a on s1 e1
            free b on s2 e2
            finish e1
            report
            finish e2
            report
        ",
        "
            a: reserve 20M
            20M large | 6M free | c 3M | 11M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}

#[test]
fn rest_of_a_split_block_also_waits() {
    check(
        "
            a = alloc 9M s1
            b = alloc 11M
            free a on s1 e1
            c = alloc 2M s1
            d = alloc 2M
        ",
        "
            a: reserve 20M
            d: query, reserve 20M
            20M large | c 2M | 7M free s1 e1 | b 11M
            20M large | d 2M | 18M free
            reserved 40M  allocated 15M  active 15M
        ",
    );
}

#[test]
fn a_barrier_drops_only_tags_made_before_its_mark() {
    check(
        "
            a = alloc 3M s1
            b = alloc 3M s1
            c = alloc 3M
            free a on s1 e1
            m = mark
            free c on s2 e2
            barrier m
        ",
        "
            a: reserve 20M
            20M large | 3M free | b 3M | 3M free s2 e2 | 11M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}

#[test]
fn the_mark_and_a_later_free_of_the_same_stream() {
    check(
        "
            a = alloc 3M s1
            b = alloc 3M s1
            c = alloc 3M
            free a on s1 e1
            m = mark
            free b on s1 e2
            barrier m
        ",
        "
            a: reserve 20M
            20M large | 3M free | 3M free s1 e2 | c 3M | 11M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}

#[test]
fn pending_blocks_are_active_and_never_coalesce() {
    check(
        "
            a = alloc 3M
            b = alloc 3M
            c = alloc 3M
            free a after e1
            free b after e1
            d = alloc 3M s1
        ",
        "
            a: reserve 20M
            20M large | 3M pending e1 | 3M pending e1 | c 3M | d 3M | 8M free
            reserved 20M  allocated 6M  active 12M
        ",
    );
}

#[test]
fn one_event_for_several_blocks() {
    check(
        "
            a = alloc 3M
            b = alloc 3M
            c = alloc 3M
            free a after e1
            free b after e1
            finish e1
            report
        ",
        "
            a: reserve 20M
            20M large | 6M free | c 3M | 11M free
            reserved 20M  allocated 3M  active 3M
        ",
    );
}

#[test]
fn waits_for_another_context_outlast_barriers() {
    check(
        "
            a = alloc 20M
            b = alloc 20M
            free a elsewhere e1
            free b after e2
            barrier
            c = alloc 20M s1
            d = alloc 20M
            finish e1
            e = alloc 20M
        ",
        "
            a: reserve 20M
            b: reserve 20M
            d: query, reserve 20M
            e: query
            20M large | e 20M
            20M large | c 20M
            20M large | d 20M
            reserved 60M  allocated 60M  active 60M
        ",
    );
}

#[test]
fn parked_blocks_wait_for_a_barrier() {
    check(
        "
            a = alloc 12M
            free a parked
            trim
            b = alloc 12M
            barrier
            c = alloc 12M
        ",
        "
            a: reserve 12M
            trim: release nothing
            b: query, reserve 12M
            12M large | c 12M
            12M large | b 12M
            reserved 24M  allocated 24M  active 24M
        ",
    );
}

#[test]
fn trim_names_the_events_to_wait_for() {
    check(
        "
            a = alloc 3M
            b = alloc 3M
            c = alloc 3M
            free a after e1
            free b on s1 e2
            free c after e1
            trim
        ",
        "
            a: reserve 20M
            trim: release 20M e1 e2
            reserved 0  allocated 0  active 0
        ",
    );
}
