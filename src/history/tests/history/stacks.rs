//! Interned stacks: compared with a map, at the bound, and from many threads at once.

use std::collections::HashMap;
use std::sync::Barrier;
use std::thread;

use cachealloc_history::{StackId, Stacks};
use proptest::prelude::*;

proptest! {
    #[test]
    fn one_id_for_one_stack(asked in prop::collection::vec(
        prop::collection::vec(0u64..3, 0..20), 0..400,
    )) {
        let stacks = Stacks::new(u64::MAX);
        let mut known: HashMap<Vec<u64>, StackId> = HashMap::new();
        for words in asked {
            let id = stacks.intern(&words).0;
            prop_assert_eq!(id.is_none(), words.is_empty());
            prop_assert_eq!(&stacks.words(id), &words);
            let first = *known.entry(words).or_insert(id);
            prop_assert_eq!(first, id);
        }
        let distinct = known.keys().filter(|words| !words.is_empty()).count();
        let ids: std::collections::HashSet<_> = known.values().filter(|id| !id.is_none()).collect();
        prop_assert_eq!((stacks.len(), ids.len()), (distinct, distinct));
        stacks.check();
    }

    #[test]
    fn never_more_words_than_the_bound(
        words_max in 0u64..300,
        asked in prop::collection::vec(prop::collection::vec(0u64..5, 1..20), 0..200),
    ) {
        let stacks = Stacks::new(words_max);
        let mut refused = 0;
        for words in &asked {
            let id = stacks.intern(words).0;
            refused += u64::from(id.is_none());
            prop_assert_eq!(id.is_none(), stacks.words(id).is_empty());
            prop_assert!(stacks.words_count() <= words_max);
        }
        prop_assert_eq!(stacks.refused_count(), refused);
        stacks.check();
    }
}

/// Addresses of code differ in few bits, and the ids must be dense all the same.
#[test]
fn similar_stacks_spread_evenly() {
    let stacks = Stacks::new(u64::MAX);
    let count = 64 * 1000;
    let mut largest = 0;
    for number in 0..count {
        let words: Vec<u64> = (0..12).map(|depth| 0x7f00_0000_1000 + depth * 64).collect();
        let words = [&words[..], &[0x5555_0000_0000 + u64::from(number) * 4]].concat();
        largest = largest.max(stacks.intern(&words).0.0);
    }
    assert_eq!(stacks.len(), count as usize);
    assert!(largest < count + count / 4, "the largest of {count} ids is {largest}");
    stacks.check();
}

#[test]
fn a_stack_is_new_once() {
    let stacks = Stacks::new(4);
    let (first, is_new) = stacks.intern(&[1, 2]);
    assert!(is_new);
    assert_eq!(stacks.intern(&[1, 2]), (first, false));
    assert_eq!(stacks.intern(&[]), (StackId::NONE, false));
    assert!(stacks.intern(&[3, 4]).1);
    assert_eq!(stacks.intern(&[5]), (StackId::NONE, false), "there is no room");
}

#[test]
fn memory_is_for_what_is_kept() {
    let stacks = Stacks::new(u64::MAX);
    let empty = stacks.memory_bytes();
    assert!(empty < 16 * 1024, "{empty} bytes before use");
    for number in 0..50_000u64 {
        stacks.intern(&(0..30).map(|depth| number * 100 + depth).collect::<Vec<_>>());
    }
    let words_bytes = stacks.words_count() as usize * size_of::<u64>();
    assert_eq!(words_bytes, 50_000 * 30 * 8);
    let all = stacks.memory_bytes();
    assert!(all < words_bytes * 2, "{all} bytes for {words_bytes} of words");
}

#[test]
fn an_id_that_was_never_given_has_no_words() {
    let stacks = Stacks::new(100);
    stacks.intern(&[1, 2, 3]);
    for id in [StackId::NONE, StackId(64 * 5), StackId(u32::MAX)] {
        assert!(stacks.words(id).is_empty());
    }
}

#[test]
fn a_long_stack_is_kept_whole() {
    let stacks = Stacks::new(u64::MAX);
    let words: Vec<u64> = (0..100_000).collect();
    let id = stacks.intern(&words).0;
    assert_eq!(stacks.words(id), words);
    assert_eq!(stacks.intern(&words).0, id);
    assert_ne!(stacks.intern(&words[1..]).0, id);
    stacks.check();
}

/// All threads intern the same stacks, each in a different order, and reach the bound meanwhile.
#[test]
fn threads_agree() {
    const THREADS: u64 = 8;
    const STACKS: u64 = 3000;
    for words_max in [u64::MAX, 5 * STACKS] {
        let stacks = Stacks::new(words_max);
        let begin = Barrier::new(THREADS as usize);
        let ids: Vec<Vec<StackId>> = thread::scope(|scope| {
            let run = |thread: u64| {
                let (stacks, begin) = (&stacks, &begin);
                scope.spawn(move || {
                    begin.wait();
                    let mut ids = vec![StackId::NONE; STACKS as usize];
                    for step in 0..2 * STACKS {
                        let number = step * (2 * thread + 1) * 7 % STACKS;
                        ids[number as usize] = stacks.intern(&words_of(number)).0;
                    }
                    ids
                })
            };
            let threads: Vec<_> = (0..THREADS).map(run).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for number in 0..STACKS {
            let known: Vec<StackId> = ids.iter().map(|ids| ids[number as usize]).collect();
            let given: Vec<StackId> = known.into_iter().filter(|id| !id.is_none()).collect();
            assert!(given.iter().all(|&id| id == given[0]), "stack {number}: {given:?}");
            if let Some(&id) = given.first() {
                assert_eq!(stacks.words(id), words_of(number));
            }
        }
        assert_eq!(stacks.refused_count() == 0, words_max == u64::MAX);
        stacks.check();
    }
}

fn words_of(number: u64) -> Vec<u64> {
    (0..10).map(|depth| number << 8 | depth).collect()
}
