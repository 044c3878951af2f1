//! Paddle's strategies: chunks that serve requests of all sizes.

use crate::picture::check;

#[test]
fn one_chunk_serves_small_and_large_alike() {
    check(
        "
            policy strategy:pre_allocate
            chunk 100M
            a = alloc 512
            b = alloc 7M
            c = alloc 60M
            d = alloc 3K s1
        ",
        "
            a: reserve 100M
            100M large | a 512 | b 7M | c 60M | d 3K | 34599424 free
            reserved 100M  allocated 70258176  active 70258176
        ",
    );
}

#[test]
fn a_small_request_fills_the_hole_of_a_small_block() {
    check(
        "
            policy strategy:pre_allocate
            chunk 100M
            a = alloc 4K
            b = alloc 30M
            free a
            c = alloc 1K
            d = alloc 2K
        ",
        "
            a: reserve 100M
            100M large | c 1K | d 2K | 1K free | b 30M | 71676K free
            reserved 100M  allocated 30723K  active 30723K
        ",
    );
}

#[test]
fn a_full_chunk_is_followed_by_another() {
    check(
        "
            policy strategy:pre_allocate
            chunk 100M
            a = alloc 80M
            chunk 40M
            b = alloc 30M
            c = alloc 50M
        ",
        "
            a: reserve 100M
            b: reserve 40M
            c: reserve 50M
            100M large | a 80M | 20M free
            40M large | b 30M | 10M free
            50M large | c 50M
            reserved 190M  allocated 160M  active 160M
        ",
    );
}

#[test]
fn chunk_is_halved_if_it_does_not_fit() {
    check(
        "
            capacity 70M
            policy strategy:pre_allocate
            chunk 128M
            a = alloc 10M
            b = alloc 60M
            c = alloc 5M
        ",
        "
            a: reserve 64M
            b: reserve 64M fails, reserve 64M fails, reserve 60M fails, out of memory
            64M large | a 10M | c 5M | 49M free
            reserved 64M  allocated 15M  active 15M
        ",
    );
}

#[test]
fn entirely_free_chunk_is_released_under_pressure() {
    check(
        "
            capacity 100M
            policy strategy:pre_allocate
            chunk 40M
            a = alloc 30M
            free a
            chunk 0
            b = alloc 70M
        ",
        "
            a: reserve 40M
            b: reserve 70M fails, release 40M, reserve 70M
            70M large | b 70M
            reserved 70M  allocated 70M  active 70M
        ",
    );
}

#[test]
fn a_chunk_is_cut_under_pressure_and_for_oversize_requests_too() {
    check(
        "
            policy strategy:pre_allocate,max_split_size_mb:20
            pressure on
            chunk 200M
            a = alloc 30M
            free a
            b = alloc 50M
            c = alloc 5M
        ",
        "
            a: reserve 200M
            200M large | b 50M | c 5M | 145M free
            reserved 200M  allocated 55M  active 55M
        ",
    );
}
