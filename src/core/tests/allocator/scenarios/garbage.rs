//! Garbage collection: above a share of the limit, old free segments are released before a new one
//! is reserved.

use crate::picture::check;

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

/// The memory would be released only when the stream is done, and it serves other streams ordered
/// after that.
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

/// An age is a difference: of the ages 27, 18 and 9 requests, two are at least the average.
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
