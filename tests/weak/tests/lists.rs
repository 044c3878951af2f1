//! Blocks that go from thread to thread through the lists of freed ones.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::cache::thread_cache::{CachedBlock, ThreadCache};
use crate::process::thread::Thread;
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
    let here = Thread::new(1);
    for _ in 0..9 {
        let Err(Some(list)) = cache.take(&here, BYTES, BYTES) else { panic!("it is empty") };
        assert!(list.note_request(BYTES));
    }
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
