//! Blocks that go from thread to thread through the lists of freed ones.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cache::thread_cache::{CachedBlock, ThreadCache};
use crate::process::thread::Thread;
use crate::seats::{self, SEATS_COUNT, SHARED};
use crate::{Bare, ROUNDS};

const BYTES: u64 = 4096;
const BLOCKS: usize = 6;

/// Every block is somebody's, with what was written to it before.
#[test]
fn a_block_has_one_owner() {
    (0..ROUNDS).for_each(|_| hand_on());
}

fn hand_on() {
    // SAFETY: zeros are empty lists.
    let mut cache: ThreadCache = unsafe { core::mem::zeroed() };
    cache.begin();
    let memory: [Bare; BLOCKS] = Default::default();
    let out = AtomicU32::new(0);
    let got = |cached: CachedBlock| {
        assert_eq!(cached.bytes, BYTES);
        let block = &memory[cached.block as usize];
        block.write(block.read() + 1);
        out.fetch_add(1, Ordering::Relaxed);
    };
    // The same list for all.
    ask_again_and_again(&cache, &Thread::new(1));
    std::thread::scope(|scope| {
        for blocks in [0..3, 3..BLOCKS] {
            let (cache, memory, got) = (&cache, &memory, &got);
            scope.spawn(move || {
                let here = Thread::new(1);
                for number in blocks {
                    memory[number].write(1);
                    let (block, slot) = (number as u32, Box::leak(Box::default()));
                    let cached = CachedBlock { address: 0, bytes: BYTES, block, slot };
                    // The list may be another thread's at this moment; then the block is still ours.
                    if let Err(refused) = cache.put(&here, cached, BYTES) {
                        got(refused);
                    }
                    if let Ok(taken) = cache.take(&here, BYTES, BYTES) {
                        got(taken);
                    }
                }
            });
        }
        scope.spawn(|| cache.empty(got));
    });
    cache.empty(got);
    assert_eq!(cache.cached_bytes(), 0);
    assert_eq!(out.load(Ordering::Relaxed), BLOCKS as u32);
    assert!(memory.iter().all(|block| block.read() == 2));
}

/// Until blocks of this size are kept.
fn ask_again_and_again(cache: &ThreadCache, thread: &Thread) {
    assert!(cache.settle(thread, None).is_none());
    for _ in 0..9 {
        let Err(Some(list)) = cache.take(thread, BYTES, BYTES) else { panic!("it is empty") };
        let list = cache.settle(thread, Some(list)).expect("the thread has it");
        assert!(list.note_request(BYTES));
    }
}

/// Threads that live at once have lists of their own, also more of them than one page has lists for; and whoever empties
/// all of them finds what is in each.
#[test]
fn each_seat_has_its_list() {
    (0..ROUNDS).for_each(|_| sit_apart());
}

fn sit_apart() {
    // SAFETY: zeros are empty lists.
    let mut cache: ThreadCache = unsafe { core::mem::zeroed() };
    cache.begin();
    std::thread::scope(|scope| {
        // Of two whose lists are on one new page, and of one whose are not.
        for seat in [40, 41, 3] {
            let cache = &cache;
            scope.spawn(move || {
                let here = Thread::new(seat);
                ask_again_and_again(cache, &here);
                let slot = Box::leak(Box::default());
                let cached = CachedBlock { address: 0, bytes: BYTES, block: seat, slot };
                assert!(cache.put(&here, cached, BYTES).is_ok());
                assert_eq!(
                    cache.take(&here, BYTES, BYTES).ok().map(|taken| taken.block),
                    Some(seat)
                );
                assert!(cache.put(&here, cached, BYTES).is_ok());
            });
        }
    });
    assert_eq!(cache.cached_bytes(), 3 * BYTES);
    // What a thread leaves at its end is its own.
    let mut left = Vec::new();
    cache.empty_own(&Thread::new(41), |cached| left.push(cached.block));
    assert_eq!(left, [41]);
    cache.empty(|cached| left.push(cached.block));
    assert_eq!(left, [41, 3, 40]);
}

/// A seat is one thread's at a time. All threads that there ever were need no more seats than those at once.
#[test]
fn seats_are_used_again() {
    let taken = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..ROUNDS * 10 {
                    let seat = seats::take();
                    assert!(taken.lock().expect("nobody panics").insert(seat), "{seat} twice");
                    assert!((1..=3).contains(&seat), "seat {seat}");
                    assert!(taken.lock().expect("nobody panics").remove(&seat));
                    seats::give_back(seat);
                }
            });
        }
    });
    if cfg!(miri) {
        return;
    }
    let all: HashSet<u32> = (1..SEATS_COUNT).map(|_| seats::take()).collect();
    assert!(all.len() == SEATS_COUNT - 1 && !all.contains(&SHARED));
    assert_eq!((seats::take(), seats::take()), (SHARED, SHARED));
    all.into_iter().for_each(seats::give_back);
}
