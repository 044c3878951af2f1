//! PyTorch's own cases for a program with a budget, as its tests have them (`test_cuda.py`).

use cachealloc_core::policy::MIB;
use cachealloc_options::parse;

use crate::picture::check;

/// `test_max_split_expandable`, without expandable segments.
#[test]
fn a_budget_of_three_blocks_under_max_split() {
    check(
        "
            policy max_split_size_mb:40
            limit 120M
            a = alloc 40M
            b = alloc 40M
            c = alloc 40M
            d = alloc 40M
            free a
            free b
            free c
            e = alloc 120M
        ",
        "
            a: reserve 40M
            b: reserve 40M
            c: reserve 40M
            d: out of memory
            e: release 40M + 40M + 40M, reserve 120M
            120M large | e 120M
            reserved 120M  allocated 120M  active 120M
        ",
    );
}

/// `test_garbage_collect_expandable`, without expandable segments.
#[test]
fn a_budget_under_garbage_collection() {
    check(
        "
            policy garbage_collection_threshold:0.5
            limit 120M
            a = alloc 40M
            b = alloc 40M
            free a
            free b
            c = alloc 80M
        ",
        "
            a: reserve 40M
            b: reserve 40M
            c: release 40M + 40M, reserve 80M
            80M large | c 80M
            reserved 80M  allocated 80M  active 80M
        ",
    );
}

/// `test_raises_oom`: more than any device has, with and without the steps for oversize blocks.
#[test]
fn a_request_of_a_tebibyte_fails() {
    check(
        "
            capacity 1000M
            limit 1000M
            a = alloc 1024G
        ",
        "
            a: out of memory
            reserved 0  allocated 0  active 0
        ",
    );
    check(
        "
            capacity 1000M
            policy max_split_size_mb:1024
            limit 1000M
            a = alloc 1024G
            b = alloc 900M
        ",
        "
            a: out of memory
            b: reserve 900M
            900M large | b 900M
            reserved 900M  allocated 900M  active 900M
        ",
    );
}

/// `test_out_of_memory_retry`: half of the device twice, apart from the memory lost to others.
#[test]
fn the_second_half_fails_until_the_first_is_freed() {
    check(
        "
            capacity 990M
            a = alloc 500M
            b = alloc 500M
            free a
            c = alloc 500M
        ",
        "
            a: reserve 500M
            b: reserve 500M fails, reserve 500M fails, out of memory
            500M large | c 500M
            reserved 500M  allocated 500M  active 500M
        ",
    );
}

/// `test_allocator_settings`: PyTorch's test computes the rounding by adding steps.
#[test]
fn divisions_round_as_in_pytorch() {
    let small = 4 * 21 * MIB;
    let big = 10 * small;
    for (settings, bytes, divisions) in [
        ("0", small, 0),
        ("4", small, 4),
        ("8", small, 8),
        ("8", big, 8),
        ("[64:8,128:2,256:2,512:2,1024:1,>:1]", small, 8),
        ("[64:2,128:4,256:8,512:1,1024:1,>:1]", small, 2),
        ("[256:1,512:2,1024:4,>:8]", big, 2),
        ("[64:8,128:4,>:2]", big, 2),
    ] {
        let policy = parse(&format!("roundup_power2_divisions:{settings}")).0.policy;
        let wanted = if divisions < 2 { bytes } else { by_steps(bytes, divisions) };
        assert_eq!(policy.block_bytes(bytes), Some(wanted), "{bytes} with {settings}");
    }
}

fn by_steps(bytes: u64, divisions: u64) -> u64 {
    let above = bytes.next_power_of_two();
    let steps = (above / 2..=above).step_by((above / 2 / divisions) as usize);
    steps.into_iter().find(|step| *step >= bytes).expect("the power of two itself")
}
