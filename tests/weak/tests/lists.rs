//! Blocks that pass from thread to thread through the lists of freed blocks.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::lock_timeout::LockWait;
use crate::seats::{self, SEATS_COUNT, SHARED};
use crate::state::thread::Thread;
use crate::state::thread_cache::{CachedBlock, ListsSeen, Noted, ThreadCache};
use crate::{Bare, ROUNDS};

const BYTES: u64 = 4096;
const BLOCKS: usize = 6;

/// Every block has one owner, who finds its earlier contents.
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
                cache.settle(&here);
                for number in blocks {
                    memory[number].write(1);
                    let (block, slot) = (number as u32, Box::leak(Box::default()));
                    let cached = CachedBlock { address: 0, bytes: BYTES, block, slot };
                    // Another thread may have locked the list at this moment; then the block still
                    // belongs to this thread.
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

/// Requests blocks of this size until the lists keep them.
fn ask_again_and_again(cache: &ThreadCache, thread: &Thread) {
    cache.settle(thread);
    for _ in 0..9 {
        let Err(Some(mut list)) = cache.take(thread, BYTES, BYTES) else { panic!("it is empty") };
        assert!(list.note_request(BYTES));
    }
}

/// Concurrent threads have separate lists, even if there are more threads than lists in one page.
/// Emptying all lists finds all their blocks.
#[test]
fn each_seat_has_its_list() {
    (0..ROUNDS).for_each(|_| sit_apart());
}

fn sit_apart() {
    // SAFETY: zeros are empty lists.
    let mut cache: ThreadCache = unsafe { core::mem::zeroed() };
    cache.begin();
    std::thread::scope(|scope| {
        // Two seats whose lists are on one new page, and one on another page.
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
    // At its end, a thread empties only its own list.
    let mut left = Vec::new();
    cache.empty_own(&Thread::new(41), |cached| left.push(cached.block));
    assert_eq!(left, [41]);
    cache.empty(|cached| left.push(cached.block));
    assert_eq!(left, [41, 3, 40]);
}

/// A seat has one thread at a time. All threads together need no more seats than the maximum of
/// concurrent threads.
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

/// Number of sizes that a thread requests in turn.
const SIZES: u64 = 8;

fn size(number: u64) -> u64 {
    512 * (1 + number % SIZES)
}

/// Requests this size. Returns the block that the lists have for it.
fn ask(cache: &ThreadCache, thread: &Thread, bytes: u64) -> Option<CachedBlock> {
    cache.settle(thread);
    match cache.take(thread, bytes, bytes) {
        Ok(cached) => Some(cached),
        Err(list) => match list?.note_request_of_any(bytes, bytes) {
            Noted::Block(cached) => Some(cached),
            Noted::Several => {
                cache.keep_apart(thread);
                None
            }
            Noted::Empty | Noted::NotEmpty => None,
        },
    }
}

fn keep(cache: &ThreadCache, thread: &Thread, cached: CachedBlock, most_bytes: u64) -> bool {
    cache.keep(thread, cached, cached.bytes, |_| most_bytes, || ())
}

/// Requests blocks until the lists keep all these sizes.
fn ask_for_several(cache: &ThreadCache, thread: &Thread) {
    let found = (0..SIZES * 20).find_map(|number| ask(cache, thread, size(number)));
    assert!(found.is_none());
}

fn block_of(number: u64) -> CachedBlock {
    let slot = Box::leak(Box::default());
    CachedBlock { address: number, bytes: size(number), block: number as u32, slot }
}

/// Blocks of several sizes are found by their sizes, each has one owner, and the budget of all
/// threads holds.
#[test]
fn several_sizes_come_back() {
    (0..ROUNDS.min(20)).for_each(|_| come_and_go());
}

fn come_and_go() {
    const MOST_BYTES: u64 = 2 * (256 << 10);
    // SAFETY: zeros are empty lists.
    let mut cache: ThreadCache = unsafe { core::mem::zeroed() };
    cache.begin();
    let memory: [Bare; SIZES as usize * 2] = Default::default();
    let out = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (cache, memory, out) = (&cache, &memory, &out);
            scope.spawn(move || {
                let here = Thread::new(1 + thread as u32);
                ask_for_several(cache, &here);
                for number in thread * SIZES..(thread + 1) * SIZES {
                    memory[number as usize].write(1);
                    if !keep(cache, &here, block_of(number), MOST_BYTES) {
                        memory[number as usize].write(2);
                        out.fetch_add(1, Ordering::Relaxed);
                    }
                }
                for number in 0..SIZES {
                    if let Some(cached) = ask(cache, &here, size(number)) {
                        assert_eq!(cached.bytes, size(number));
                        let block = &memory[cached.block as usize];
                        block.write(block.read() + 1);
                        out.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let (cache, memory, out) = (&cache, &memory, &out);
        scope.spawn(move || {
            cache.empty(|cached| {
                let block = &memory[cached.block as usize];
                block.write(block.read() + 1);
                out.fetch_add(1, Ordering::Relaxed);
            });
        });
    });
    assert_eq!(cache.cached_bytes(), 0);
    assert_eq!(out.load(Ordering::Relaxed), 2 * SIZES as u32);
    assert!(memory.iter().all(|block| block.read() == 2));
}

/// From the eighth miss in a row on, blocks of regular sizes stay for small requests, where memory
/// is plentiful. A miss long after the last one takes them out.
#[test]
fn regular_sizes_stay_after_misses_in_a_row() {
    // SAFETY: zeros are empty lists.
    let mut cache: ThreadCache = unsafe { core::mem::zeroed() };
    cache.begin();
    let here = Thread::new(1);
    ask_for_several(&cache, &here);
    let stays_after_miss = |bytes: u64, is_plentiful: bool| {
        let kept = cache.cached_bytes() != 0 || keep(&cache, &here, block_of(1), u64::MAX);
        assert!(kept);
        cache.empty_for_miss(&here, bytes, is_plentiful, |_| ());
        cache.cached_bytes() != 0
    };
    let stayed = [(); 9].map(|()| stays_after_miss(4096, true));
    assert_eq!(stayed, [false, false, false, false, false, false, false, true, true]);
    assert!(!stays_after_miss(4096, false));
    // Until the next miss, the bound is that of scarce memory.
    let keeps =
        || cache.keep(&here, block_of(1), 512, |is_scarce| u64::from(!is_scarce) << 20, || ());
    assert!(!keeps());
    assert!(!stays_after_miss(2 << 20, true));
    assert!(keeps());
    assert!(stays_after_miss(4096, true));
    let found = (0..2_000).filter_map(|_| ask(&cache, &here, size(1))).count();
    assert_eq!(found, 1);
    assert!(!stays_after_miss(4096, true));
}

/// A hit after which the program cannot hold more than ever samples nothing. Others sample at
/// first, then rarely, until the peak changes or this thread alone could have made a new one.
#[test]
fn samples_of_the_peak_become_rare() {
    const MIB: u64 = 1 << 20;
    // SAFETY: zeros are empty lists.
    let mut cache: ThreadCache = unsafe { core::mem::zeroed() };
    cache.begin();
    let here = Thread::new(1);
    let is_due = |counted, peak| cache.sample_is_due(&here, counted * MIB, peak * MIB);
    assert!(!is_due(8, 8));
    let due: Vec<u32> = (1..=10_000).filter(|_| is_due(10, 8)).collect();
    assert_eq!(due[..64], Vec::from_iter(1..=64));
    assert_eq!(due[64..69], [65, 129, 257, 513, 1025]);
    assert!(due[69..].iter().zip(&due[68..]).all(|(next, last)| next - last == 511));
    assert!(is_due(11, 8) && !is_due(11, 8));
    assert!(is_due(11, 9));
}

/// The total that threads keep is bounded. An emptied size may be kept again. A size that is no
/// longer requested is dropped, and unused blocks are taken out.
#[test]
fn regular_sizes_are_bounded() {
    // SAFETY: zeros are empty lists.
    let mut cache: ThreadCache = unsafe { core::mem::zeroed() };
    cache.begin();
    let threads = [1, 2, 3].map(Thread::new);
    threads.iter().for_each(|thread| ask_for_several(&cache, thread));
    let most_bytes = 2 * (256 << 10);
    let kept = threads.each_ref().map(|thread| keep(&cache, thread, block_of(1), most_bytes));
    assert_eq!(kept, [true, true, false]);
    assert_eq!(cache.cached_bytes(), 2 * size(1));
    let mut emptied = 0;
    cache.empty(|_| emptied += 1);
    assert_eq!((emptied, cache.cached_bytes()), (2, 0));
    assert!(keep(&cache, &threads[2], block_of(1), most_bytes));
    // Four of each requested size; none of a size that is not requested or too large.
    let kept = (0..6).filter(|_| keep(&cache, &threads[2], block_of(2), most_bytes)).count();
    assert_eq!(kept, 4);
    for bytes in [512 * 100, 2 << 20] {
        let cached = CachedBlock { bytes, ..block_of(1) };
        assert!(!keep(&cache, &threads[2], cached, most_bytes));
    }
    // Used sizes stay, the others are dropped.
    assert!(ask(&cache, &threads[2], size(2)).is_some());
    let mut unused = Vec::new();
    cache.empty_unused(&mut ListsSeen::default(), |cached| unused.push(cached.bytes));
    assert_eq!((unused, cache.cached_bytes()), (vec![size(1)], 3 * size(2)));
    // The statistics count what passed and what is kept.
    let tally = cache.tally(LockWait::Blocking);
    assert_eq!(tally.small.cached_bytes + tally.large.cached_bytes, cache.cached_bytes());
    let mut left = 0;
    cache.leave(&threads[2], |_| left += 1);
    assert_eq!((left, cache.cached_bytes()), (3, 0));
    assert_eq!((cache.tally(LockWait::Blocking).hits(), tally.hits()), (1, 1));
}
