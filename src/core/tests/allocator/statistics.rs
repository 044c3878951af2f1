//! The statistics, by the names under which others read them, compared with the numbers that
//! `count` finds.

use std::collections::BTreeMap;

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    Address, Allocator, BlockId, EventId, Policy, PrivatePool, Request, Requester, ReuseCondition,
    Stat, Stats, Step, StreamId,
};
use cachealloc_statistics::keys;

use crate::count::{Counted, KEYS};
use crate::random::Random;

#[derive(Default)]
struct Naive {
    counted: Counted,
    counters: BTreeMap<String, u64>,
}

impl Naive {
    fn count(&mut self, counter: &str) {
        *self.counters.entry(counter.to_string()).or_default() += 1;
    }

    #[track_caller]
    fn judge(&self, allocator: &Allocator) {
        let stats = allocator.stats();
        let mut wanted: BTreeMap<String, i64> = BTreeMap::new();
        for (key, Stat { current, peak, allocated, freed }) in by_key(&self.counted) {
            let metrics =
                [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)];
            for (metric, value) in metrics {
                wanted.insert(format!("{key}.{metric}"), value as i64);
            }
        }
        for counter in COUNTERS {
            let value = self.counters.get(counter).copied().unwrap_or(0);
            wanted.insert(counter.to_string(), value as i64);
        }
        wanted.insert("max_split_size".to_string(), -1); // filled in where the numbers are shown
        let found: BTreeMap<String, i64> = keys::all(&stats).into_iter().collect();
        for (key, value) in &found {
            assert_eq!(Some(value), wanted.get(key), "{key}");
            assert_eq!(keys::find(&stats, key), Some(*value), "{key}");
        }
        assert_eq!(found.len(), wanted.len());
    }
}

/// Returns the statistics that PyTorch has, by the prefix of the key, such as
/// `active_bytes.small_pool`.
fn by_key(counted: &Counted) -> Vec<(String, Stat)> {
    let mut all = Vec::new();
    let keys = KEYS.into_iter().zip(counted.0).filter(|(key, _)| *key != "retired_bytes");
    for (key, [both, small, large]) in keys {
        if key.starts_with("oversize") {
            all.push((key.to_string(), both));
        } else {
            let pools = [("all", both), ("small_pool", small), ("large_pool", large)];
            all.extend(pools.map(|(pool, stat)| (format!("{key}.{pool}"), stat)));
        }
    }
    all
}

const COUNTERS: [&str; 6] = [
    "num_alloc_retries",
    "num_device_alloc",
    "num_device_free",
    "num_oom_rejections",
    "num_ooms",
    "num_sync_all_streams",
];

/// A program on an allocator, with a driver of limited memory.
struct Program {
    allocator: Allocator,
    naive: Naive,
    capacity_bytes: u64,
    next_base: u64,
    next_event: u64,
    live: Vec<BlockId>,
    waiting: Vec<EventId>,
}

impl Program {
    fn new(policy: Policy, capacity_bytes: u64) -> Program {
        Program {
            allocator: Allocator::new(policy),
            naive: Naive::default(),
            capacity_bytes,
            next_base: 2 * MIB,
            next_event: 0,
            live: Vec::new(),
            waiting: Vec::new(),
        }
    }

    fn look(&mut self) {
        self.naive.counted.look(&self.allocator);
    }

    fn alloc(&mut self, bytes: u64, requester: Requester) {
        let mut request = Request::new(bytes, requester);
        loop {
            let retries = self.allocator.stats().num_alloc_retries;
            let step = self.allocator.poll(&mut request);
            self.look();
            // A retry is the only event that cannot be seen in the blocks.
            if self.allocator.stats().num_alloc_retries > retries {
                self.naive.count("num_alloc_retries");
                self.naive.count("num_sync_all_streams");
            }
            match step {
                Step::Done(allocation) => return self.live.push(allocation.block),
                Step::OutOfMemory => return self.naive.count("num_ooms"),
                Step::QueryEvents => {}
                Step::Release(segments) => {
                    segments.iter().for_each(|_| self.naive.count("num_device_free"));
                }
                Step::Order(_) => {
                    let event = self.new_event();
                    let allocation = self.allocator.ordered(&mut request, event);
                    return self.live.push(allocation.block);
                }
                step => {
                    let Step::Reserve { bytes } = step else { panic!("{step:?} without arenas") };
                    self.reserve(&mut request, bytes);
                }
            }
        }
    }

    fn reserve(&mut self, request: &mut Request, bytes: u64) {
        let reserved_bytes = self.allocator.stats().reserved_bytes.all.current;
        if reserved_bytes + bytes > self.capacity_bytes {
            return self.allocator.reserve_failed(request);
        }
        self.allocator.reserved(request, Address(self.next_base), bytes);
        self.next_base += bytes.next_multiple_of(2 * MIB) + 2 * MIB;
        self.naive.count("num_device_alloc");
        self.look();
    }

    fn free(&mut self, index: usize, ready: ReuseCondition) {
        let block = self.live.swap_remove(index);
        self.allocator.free(block, ready);
        self.look();
    }

    fn new_event(&mut self) -> EventId {
        self.next_event += 1;
        self.waiting.push(EventId(self.next_event));
        EventId(self.next_event)
    }
}

const STREAM: StreamId = StreamId(7);

fn any_program(seed: u64, policy: Policy) {
    let mut random = Random::new(seed);
    let mut program = Program::new(policy, 160 * MIB);
    program.look();
    for _ in 0..400 {
        match random.below(10) {
            0..=4 => {
                let sizes = [300, 512, 40_000, MIB, 3 * MIB, 9 * MIB, 12 * MIB, 40 * MIB];
                let bytes = sizes[random.below(8) as usize] + random.below(500);
                let stream = random.below(3) == 0;
                let requester = if stream { Requester::Stream(STREAM) } else { Requester::Context };
                program.alloc(bytes, requester);
            }
            5..=8 if !program.live.is_empty() => {
                let index = random.below(program.live.len() as u64) as usize;
                let ready = match random.below(4) {
                    0 => ReuseCondition::After { event: program.new_event() },
                    1 => ReuseCondition::OnStream { stream: STREAM, event: program.new_event() },
                    _ => ReuseCondition::Everywhere,
                };
                program.free(index, ready);
            }
            9 if random.below(6) == 0 => {
                let waiting = random.below(2) == 0;
                let released = match waiting {
                    true => program.allocator.release_freed(),
                    false => program.allocator.release_free(),
                };
                program.naive.count("num_sync_all_streams");
                released.iter().for_each(|_| program.naive.count("num_device_free"));
                program.look();
            }
            _ if !program.waiting.is_empty() => {
                let event = program.waiting.remove(0);
                program.allocator.events_completed(&[event]);
                program.look();
            }
            _ => {}
        }
        program.naive.judge(&program.allocator);
        program.allocator.check();
    }
}

#[test]
fn every_number_is_what_a_naive_count_says() {
    for seed in 0..40 {
        any_program(seed, Policy::default());
    }
}

#[test]
fn oversize_blocks_and_segments_are_counted() {
    let max_split_bytes = Some(20 * MIB);
    for seed in 0..20 {
        any_program(seed, Policy { max_split_bytes, ..Policy::default() });
    }
}

/// A part is taken from a free block: its bytes are removed, but no block is.
#[test]
fn a_block_that_shrinks_counts_by_what_it_lost() {
    let mut program = Program::new(Policy::default(), 160 * MIB);
    program.alloc(2 * MIB, Requester::Context);
    program.alloc(3 * MIB, Requester::Context);
    let stats = program.allocator.stats();
    let (blocks, bytes) = (stats.inactive_split.all, stats.inactive_split_bytes.all);
    assert_eq!((blocks.allocated, blocks.freed), (1, 0));
    assert_eq!((bytes.allocated, bytes.freed), (18 * MIB, 3 * MIB));
}

/// A capture takes the middle of a free block: the number of free blocks rises, and their bytes
/// fall.
#[test]
fn peak_is_counted_before_a_block_is_split() {
    let mut program = Program::new(Policy::default(), 160 * MIB);
    program.alloc(2 * MIB, Requester::Context);
    let begin = program.allocator.segments().next().expect("a segment").base.0;
    let pool = PrivatePool(1);
    let begun = program.allocator.idle_mark();
    // This use keeps the capture from finding the block idle.
    program.alloc(2 * MIB, Requester::Context);
    program.free(1, ReuseCondition::Everywhere);
    program.allocator.open_pool(pool, begun);
    let request = Request::in_pool(2 * MIB, Requester::Context, pool);
    let named_end = Address(begin + 4 * MIB);
    let part =
        program.allocator.adopt_part(&request, |from, _| (from < named_end).then_some(named_end));
    assert_eq!(part.map(|part| part.address), Some(named_end));
    program.look();
    assert_eq!(program.allocator.stats().inactive_split.all.current, 2);
    program.alloc(2 * MIB, Requester::Context);
    let split = program.allocator.stats().inactive_split.all;
    assert_eq!((split.current, split.peak), (1, 2));
    program.naive.judge(&program.allocator);
}

#[test]
fn peaks_and_totals_are_reset() {
    let mut program = Program::new(Policy::default(), 50 * MIB);
    program.alloc(30 * MIB, Requester::Context);
    program.alloc(40 * MIB, Requester::Context);
    program.alloc(1000, Requester::Context);
    program.free(0, ReuseCondition::Everywhere);
    let before = program.allocator.stats();
    assert_eq!((before.num_ooms, before.num_alloc_retries), (1, 1));
    program.allocator.counts_mut().reset_peaks();
    let after = program.allocator.stats();
    assert_eq!(after.allocated_bytes.all.peak, 1024);
    assert_eq!(after.allocated_bytes.all.allocated, before.allocated_bytes.all.allocated);
    assert_eq!(after.num_device_alloc, 2);
    program.allocator.counts_mut().reset_totals();
    for (key, value) in keys::all(&program.allocator.stats()) {
        let total = key.ends_with(".allocated") || key.ends_with(".freed");
        assert!(value == 0 || !(total || key.starts_with("num_")), "{key} is {value}");
    }
    assert_eq!(program.allocator.stats().allocated_bytes.all.current, 1024);
}

/// Numbers of all contexts of a device are added, and peaks are carried over.
#[test]
fn numbers_of_two_contexts_are_added_and_their_peaks_compared() {
    let policy = || Policy { max_split_bytes: Some(20 * MIB), ..Policy::default() };
    let [mut one, mut two] = [100 * MIB, 60 * MIB].map(|bytes| Program::new(policy(), bytes));
    for bytes in [30 * MIB, 5 * MIB, 1000, 80 * MIB, 2 * MIB] {
        one.alloc(bytes, Requester::Context);
    }
    for bytes in [21 * MIB, 512, 3 * MIB, 22 * MIB, 25 * MIB] {
        two.alloc(bytes, Requester::Context);
        two.free(0, ReuseCondition::Everywhere);
    }
    let (one, two) = (&one.allocator.stats(), &two.allocator.stats());
    let of = |stats: &_, key: &str| keys::find(stats, key).expect("a key of both");
    let changed = |change: fn(&mut Stats, &Stats), expected: fn(&str, i64, i64) -> i64| {
        let mut stats = one.clone();
        change(&mut stats, two);
        for (key, value) in keys::all(&stats).into_iter().filter(|it| it.0 != "max_split_size") {
            assert_eq!(value, expected(&key, of(one, &key), of(two, &key)), "{key}");
        }
    };
    changed(Stats::add, |_, one, two| one + two);
    let is_peak = |key: &str| key.ends_with(".peak");
    assert!(keys::all(one).iter().any(|(key, value)| is_peak(key) && *value < of(two, key)));
    changed(Stats::raise_peaks, |key, one, two| match key.ends_with(".peak") {
        true => one.max(two),
        false => one,
    });
    changed(Stats::take_peaks, |key, one, two| if key.ends_with(".peak") { two } else { one });
}
