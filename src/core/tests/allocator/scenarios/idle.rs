//! Idle memory is released, and no other.

use cachealloc_core::policy::MIB;
use cachealloc_core::{Policy, Requester, ReuseCondition};

use crate::picture::check;
use crate::world::World;

#[test]
fn what_was_used_since_stays() {
    check(
        "
            a = alloc 30M
            b = alloc 40M
            c = alloc 50M
            free a
            free b
            n = now
            d = alloc 25M
            free d
            free c
            idle n
        ",
        "
            a: reserve 30M
            b: reserve 40M
            c: reserve 50M
            idle: release 40M
            30M large | 30M free
            50M large | 50M free
            reserved 80M  allocated 0  active 0
        ",
    );
}

#[test]
fn segment_is_released_when_all_of_it_is_idle() {
    check(
        "
            a = alloc 4M
            b = alloc 4M
            free a
            n = now
            idle n
            free b
            idle n
            m = now
            idle m
        ",
        "
            a: reserve 20M
            idle: release nothing
            idle: release nothing
            idle: release 20M
            reserved 0  allocated 0  active 0
        ",
    );
}

#[test]
fn a_part_that_was_freed_later_keeps_the_whole() {
    check(
        "
            a = alloc 4M
            b = alloc 4M
            free a
            n = now
            free b
            m = now
            idle n
            idle m
        ",
        "
            a: reserve 20M
            idle: release nothing
            idle: release 20M
            reserved 0  allocated 0  active 0
        ",
    );
}

#[test]
fn rest_of_a_split_block_keeps_its_age() {
    check(
        "
            policy expandable_segments:true
            a = alloc 30M
            free a
            n = now
            b = alloc 12M
            idle n
        ",
        "
            a: map 30M
            idle: release nothing, unmap 18M
            12M large | b 12M
            reserved 12M  allocated 12M  active 12M
        ",
    );
}

/// No request was made between the mark and the first free.
#[test]
fn block_freed_after_the_epoch_is_not_older() {
    check(
        "
            policy expandable_segments:true
            a = alloc 30M
            b = alloc 12M
            n = now
            free a
            c = alloc 1K
            free b
            idle n
        ",
        "
            a: map 30M
            b: map 12M
            c: map 2M
            idle: release nothing
            2M small | c 1K | 2047K free
            42M large | 42M free
            reserved 44M  allocated 1K  active 1K
        ",
    );
}

#[test]
fn memory_that_waits_is_not_idle() {
    check(
        "
            a = alloc 30M s1
            b = alloc 40M s1
            c = alloc 50M
            free a on s1 e1
            free b after e2
            free c parked
            n = now
            idle n
            finish e1
            finish e2
            report
            barrier
            idle n
            m = now
            idle m
        ",
        "
            a: reserve 30M
            b: reserve 40M
            c: reserve 50M
            idle: release nothing
            idle: release nothing
            idle: release 30M + 40M + 50M
            reserved 0  allocated 0  active 0
        ",
    );
}

#[test]
fn exported_memory_is_not_idle() {
    check(
        "
            a = alloc 4M
            b = alloc 4M
            export a
            free a
            n = now
            idle n
            free b
            m = now
            idle m
        ",
        "
            a: reserve 20M
            idle: release nothing
            free b: release 20M for good
            idle: release nothing
            reserved 0  allocated 0  active 0
        ",
    );
}

#[test]
fn chunks_stay() {
    check(
        "
            policy strategy:pre_allocate
            chunk 100M
            a = alloc 10M
            free a
            n = now
            idle n
        ",
        "
            a: reserve 100M
            idle: release nothing
            100M large | 100M free
            reserved 100M  allocated 0  active 0
        ",
    );
}

#[test]
fn idle_pages_are_released_from_the_middle() {
    check(
        "
            policy expandable_segments:true
            a = alloc 10M
            b = alloc 12M
            c = alloc 10M
            d = alloc 12M
            e = alloc 10M
            free b
            n = now
            free d
            idle n
            f = alloc 20M
        ",
        "
            a: map 10M
            b: map 12M
            c: map 10M
            d: map 12M
            e: map 10M
            idle: release nothing, unmap 12M
            f: map 20M
            10M large | a 10M
            52M large | c 10M | 12M free | e 10M | f 20M
            reserved 62M  allocated 50M  active 50M
        ",
    );
}

/// The age of the larger of two adjacent parts is remembered, or that of the left one if they are
/// equal.
#[test]
fn the_larger_part_of_a_block_in_an_arena_is_as_old_as_it_was() {
    for (left, right) in [(40, 4), (4, 40), (20, 20), (22, 20), (20, 22)] {
        for left_is_older in [true, false] {
            let policy = Policy { expandable_segments: true, ..Policy::default() };
            let mut world = World::new(policy, 1 << 40);
            let blocks = [left, right, 10].map(|mib| {
                world.alloc(mib * MIB, Requester::Context).0.expect("there is memory").block
            });
            let (older, younger) = if left_is_older { (0, 1) } else { (1, 0) };
            world.free(blocks[older], ReuseCondition::Everywhere);
            let moment = world.moment();
            world.free(blocks[younger], ReuseCondition::Everywhere);
            let (segments, mappings) = world.release_idle(moment);
            let gone: u64 = mappings.iter().map(|mapping| mapping.bytes).sum();
            let is_left_larger = left >= right;
            let idle = if is_left_larger == left_is_older { left.max(right) } else { 0 };
            assert_eq!((segments.len(), gone), (0, idle * MIB), "{left} {right} {left_is_older}");
            world.check();
            world.end([blocks[2]]);
        }
    }
}
