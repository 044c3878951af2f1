//! The look-up of a block by address: a block that is found is complete, and only one free takes
//! it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cachealloc_core::BlockId;

use crate::pagemap::{self, Claimed, Kind, Place, insert, occupy, place, remove};
use crate::stand_ins::contexts::Context;
use crate::state::thread::Thread;
use crate::{ROUNDS, look_until};

const SEGMENT_BYTES: u64 = 2 << 20;

/// Returns addresses of this round alone, with a separate table, because the pagemap is global.
fn segment(test: u64, round: u64) -> u64 {
    (test << 42) + (round << 35)
}

/// A look-up of an address that is about to be handed out finds nothing or the complete block.
#[test]
fn a_block_that_is_found_is_whole() {
    (0..ROUNDS).for_each(|round| find(segment(1, round), round % 2 == 0));
}

/// The segment is not removed at the end, because the next one would get its tables. With `beside`,
/// the table of the page exists already.
fn find(base: u64, beside: bool) {
    let context = Context::leaked(7);
    assert!(!beside || insert(context, base + (1 << 30), SEGMENT_BYTES));
    let claims = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(insert(context, base, SEGMENT_BYTES));
            occupy(base, Kind::Context, 1024, 1000, BlockId(3));
            occupy(base + 1024, Kind::Stream, 512, 512, BlockId(4));
        });
        for _ in 0..2 {
            scope.spawn(|| {
                look_until(|| {
                    let Place::Block(block) = place(base) else { return false };
                    assert_eq!((block.bytes, block.requested_bytes), (1024, 1000));
                    assert_eq!((block.block, block.context().id), (BlockId(3), 7));
                    claims.fetch_add(u32::from(block.claim()), Ordering::Relaxed);
                    true
                });
                look_until(|| {
                    let Place::Block(block) = place(base + 1024) else { return false };
                    assert_eq!((block.kind, block.bytes), (Kind::Stream, 512));
                    assert_eq!((block.block, block.context().id), (BlockId(4), 7));
                    true
                });
            });
        }
    });
    assert!(claims.into_inner() <= 1, "two frees have taken one block");
}

/// The tables of a removed segment are reused: no look-up of the second segment finds blocks of the
/// first.
#[test]
fn tables_are_used_again() {
    (0..ROUNDS).for_each(|round| exchange(segment(2, round), segment(3, round)));
}

fn exchange(first: u64, second: u64) {
    let (old, new) = (Context::leaked(8), Context::leaked(9));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(insert(old, first, SEGMENT_BYTES));
            occupy(first, Kind::Context, 1024, 1024, BlockId(5));
            let Place::Block(block) = place(first) else { panic!("just handed out") };
            assert!(block.claim());
            pagemap::vacate(first);
            remove(first);
            assert!(insert(new, second, SEGMENT_BYTES));
            occupy(second, Kind::Context, 512, 512, BlockId(6));
        });
        for _ in 0..2 {
            scope.spawn(|| {
                look_until(|| {
                    let Place::Block(block) = place(second) else { return false };
                    assert_eq!((block.bytes, block.block), (512, BlockId(6)));
                    assert_eq!(block.context().id, 9);
                    true
                });
            });
        }
    });
    remove(second);
}

/// A block passes through a thread cache without the allocator: its next owner finds it free.
#[test]
fn a_claimed_block_comes_back_whole() {
    (0..ROUNDS).for_each(|round| come_back(segment(4, round)));
}

fn come_back(base: u64) {
    let context = Context::leaked(10);
    assert!(insert(context, base, SEGMENT_BYTES));
    occupy(base, Kind::Context, 2048, 2000, BlockId(11));
    let held = place(base);
    let cached = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let Place::Block(block) = place(base) else { panic!("handed out before") };
            assert!(block.claim());
            block.mark_cached();
            // As in a list.
            cached.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            look_until(|| {
                let free = cached.load(Ordering::Acquire);
                if free {
                    let Place::Block(held) = held else { panic!("handed out before") };
                    assert!(held.slot().occupy_cached(Kind::Stream, 2048, 2048 - 1999));
                }
                free
            });
        });
        scope.spawn(|| {
            look_until(|| {
                let Place::Block(block) = place(base) else { return false };
                let again = block.kind == Kind::Stream;
                assert_eq!(block.requested_bytes, if again { 1999 } else { 2000 });
                assert_eq!(block.block, BlockId(11));
                again
            });
        });
    });
    remove(base);
}

/// A second free of a block takes no equal block that has got its slot meanwhile.
#[test]
fn a_second_free_takes_no_other_block() {
    (0..ROUNDS).for_each(|round| free_twice(segment(5, round)));
}

fn free_twice(base: u64) {
    let (first, second) = (base, base + 4096);
    assert!(insert(Context::leaked(12), base, SEGMENT_BYTES));
    occupy(first, Kind::Context, 1024, 1024, BlockId(20));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if claim(first).is_some() {
                pagemap::vacate(first);
                occupy(second, Kind::Context, 1024, 1024, BlockId(21));
            }
        });
        scope.spawn(|| {
            if let Some(claimed) = claim(first) {
                assert_eq!(claimed.block(first).block, BlockId(20));
            }
        });
    });
    remove(base);
}

fn claim(address: u64) -> Option<Claimed> {
    let thread = Thread::new(1);
    assert!(pagemap::go_near(&thread, address));
    Claimed::near(&thread, address)
}
