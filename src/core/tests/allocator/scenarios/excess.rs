//! Excess memory is released, the largest first, up to a share. A sixteenth of a GiB is 64 MiB.

use cachealloc_core::policy::MIB;
use cachealloc_core::{Policy, Requester, ReuseCondition};

use crate::picture::check;
use crate::world::World;

#[test]
fn largest_blocks_are_released_until_within_the_maximum() {
    check(
        "
            policy eager_delete_tensor_gb:0.0625
            a = alloc 30M
            b = alloc 50M
            c = alloc 40M
            d = alloc 60M
            free a
            free b
            m = now
            excess m
            free c
            n = now
            excess n
            excess n
        ",
        "
            a: reserve 30M
            b: reserve 50M
            c: reserve 40M
            d: reserve 60M
            excess: release 50M
            excess: release 40M
            excess: release nothing
            30M large | 30M free
            60M large | d 60M
            reserved 90M  allocated 60M  active 60M
        ",
    );
}

/// Without the option, or below the maximum.
#[test]
fn memory_within_the_maximum_stays() {
    check(
        "
            a = alloc 900M
            free a
            n = now
            excess n
        ",
        "
            a: reserve 900M
            excess: release nothing
            900M large | 900M free
            reserved 900M  allocated 0  active 0
        ",
    );
    check(
        "
            policy eager_delete_tensor_gb:0.0625
            a = alloc 64M
            free a
            n = now
            excess n
        ",
        "
            a: reserve 64M
            excess: release nothing
            64M large | 64M free
            reserved 64M  allocated 0  active 0
        ",
    );
}

#[test]
fn maximum_of_0_releases_everything() {
    check(
        "
            policy eager_delete_tensor_gb:0
            a = alloc 30M
            b = alloc 4M
            c = alloc 1M
            free a
            free b
            free c
            n = now
            excess n
        ",
        "
            a: reserve 30M
            b: reserve 20M
            c: reserve 2M
            excess: release 30M + 20M + 2M
            reserved 0  allocated 0  active 0
        ",
    );
}

/// Memory used or freed since the mark may still be in use by work.
#[test]
fn what_was_used_since_stays() {
    check(
        "
            policy eager_delete_tensor_gb:0
            a = alloc 30M
            b = alloc 40M
            free a
            n = now
            free b
            excess n
        ",
        "
            a: reserve 30M
            b: reserve 40M
            excess: release 30M
            40M large | 40M free
            reserved 40M  allocated 0  active 0
        ",
    );
}

/// The free part counts, but other blocks of its segment are in use.
#[test]
fn free_parts_count_but_cannot_be_released() {
    check(
        "
            policy eager_delete_tensor_gb:0.0625
            a = alloc 100M
            free a
            b = alloc 20M
            c = alloc 30M
            d = alloc 90M
            free c
            free d
            n = now
            excess n
        ",
        "
            a: reserve 100M
            d: reserve 90M
            excess: release 90M
            100M large | b 20M | 80M free
            reserved 100M  allocated 20M  active 20M
        ",
    );
}

/// Half of 100 MiB is released, the largest segments first. The rest stays until it is used again.
#[test]
fn a_share_leaves_the_smaller_ones() {
    check(
        "
            policy eager_delete_tensor_gb:0,memory_fraction_of_eager_deletion:0.5
            a = alloc 30M
            b = alloc 20M
            c = alloc 26M
            d = alloc 24M
            free a
            free b
            free c
            free d
            n = now
            excess n
            m = now
            excess m
            e = alloc 24M
            free e
            o = now
            excess o
        ",
        "
            a: reserve 30M
            b: reserve 20M
            c: reserve 26M
            d: reserve 24M
            excess: release 30M + 26M
            excess: release nothing
            excess: release 24M
            20M large | 20M free
            reserved 20M  allocated 0  active 0
        ",
    );
}

/// The share equals the excess: all of that is released, and no remainder is left that would not
/// count.
#[test]
fn share_that_covers_the_excess_leaves_no_rest() {
    let excess_share = 0.5;
    let free_bytes_max = Some(64 * MIB);
    let mut world =
        World::new(Policy { free_bytes_max, excess_share, ..Policy::default() }, 1 << 50);
    let blocks = [64, 64, 30]
        .map(|mib| world.alloc(mib * MIB, Requester::Context).0.expect("there is memory").block);
    let excess = |world: &mut World, freed: &[usize]| {
        freed.iter().for_each(|place| world.free(blocks[*place], ReuseCondition::Everywhere));
        let moment = world.moment();
        let (segments, _) = world.release_excess(moment);
        segments.iter().map(|segment| segment.bytes / MIB).collect::<Vec<_>>()
    };
    assert_eq!(excess(&mut world, &[0, 1]), [64]);
    assert_eq!(excess(&mut world, &[2]), [64], "30 MiB are too much, and it is the largest");
    world.end([]);
}

#[test]
fn share_of_0_releases_nothing() {
    check(
        "
            policy eager_delete_tensor_gb:0,memory_fraction_of_eager_deletion:0
            a = alloc 30M
            free a
            n = now
            excess n
        ",
        "
            a: reserve 30M
            excess: release nothing
            30M large | 30M free
            reserved 30M  allocated 0  active 0
        ",
    );
}

/// The remainder does not count: new garbage has the whole maximum.
#[test]
fn memory_left_by_the_share_no_longer_counts() {
    check(
        "
            policy eager_delete_tensor_gb:0.0625,memory_fraction_of_eager_deletion:0.5
            a = alloc 100M
            b = alloc 80M
            c = alloc 90M
            d = alloc 60M
            e = alloc 50M
            free a
            free b
            free c
            n = now
            excess n
            free d
            m = now
            excess m
            free e
            o = now
            excess o
        ",
        "
            a: reserve 100M
            b: reserve 80M
            c: reserve 90M
            d: reserve 60M
            e: reserve 50M
            excess: release 100M + 90M
            excess: release nothing
            excess: release 60M
            80M large | 80M free
            50M large | 50M free
            reserved 130M  allocated 0  active 0
        ",
    );
}

/// A remainder that is in use now does not count as remainder either.
#[test]
fn reused_memory_counts_again() {
    check(
        "
            policy eager_delete_tensor_gb:0.0625,memory_fraction_of_eager_deletion:0.5
            a = alloc 100M
            b = alloc 80M
            free a
            free b
            n = now
            excess n
            c = alloc 80M
            d = alloc 100M
            free d
            m = now
            excess m
        ",
        "
            a: reserve 100M
            b: reserve 80M
            excess: release 100M
            d: reserve 100M
            excess: release 100M
            80M large | c 80M
            reserved 80M  allocated 80M  active 80M
        ",
    );
}

/// In arenas no more than the excess is released, to a mapping, from the end of a block.
#[test]
fn part_of_a_block_is_released_from_an_arena() {
    check(
        "
            policy expandable_segments:true,eager_delete_tensor_gb:0.0625
            a = alloc 200M
            b = alloc 20M
            free a
            n = now
            excess n
            m = now
            excess m
        ",
        "
            a: map 200M
            b: map 20M
            excess: release nothing, unmap 136M
            excess: release nothing
            64M large | 64M free
            20M large | b 20M
            reserved 84M  allocated 20M  active 20M
        ",
    );
}

#[test]
fn pending_memory_is_not_excess() {
    check(
        "
            policy eager_delete_tensor_gb:0
            a = alloc 30M s1
            b = alloc 40M
            free a on s1 e1
            free b parked
            n = now
            excess n
            finish e1
            report
            barrier
            m = now
            excess m
        ",
        "
            a: reserve 30M
            b: reserve 40M
            excess: release nothing
            excess: release 40M + 30M
            reserved 0  allocated 0  active 0
        ",
    );
}

#[test]
fn exported_memory_stays() {
    check(
        "
            policy eager_delete_tensor_gb:0
            a = alloc 4M
            b = alloc 4M
            export a
            free b
            n = now
            excess n
        ",
        "
            a: reserve 20M
            excess: release nothing
            20M large | a 4M exported | 16M free
            reserved 20M  allocated 4M  active 4M
        ",
    );
}

#[test]
fn chunks_are_not_excess() {
    let chunk_bytes = Some(100 * MIB);
    let policy = Policy { free_bytes_max: Some(0), chunk_bytes, ..Policy::default() };
    let mut world = World::new(policy, 1 << 40);
    let found = world.alloc(10 * MIB, Requester::Context).0.expect("there is memory");
    world.free(found.block, ReuseCondition::Everywhere);
    let now = world.moment();
    assert_eq!(world.release_excess(now), (vec![], vec![]));
}
