//! Cost of the file of a busy process. Run with `--release -- --ignored --nocapture`, because times
//! on a loaded machine prove nothing; the size is always asserted.

use std::sync::Arc;
use std::time::Instant;

use cachealloc_history::{
    Action, Clock, Describe, Device, Entry, Frame, Ring, Snapshot, StackId, Stacks, write_snapshot,
};

const PAIRS: u64 = 100_000;
const STACKS: u32 = 20_000;
const FRAMES: u64 = 4_000;
const DEPTH: u64 = 30;
const FILE_BYTES_MAX: usize = 28_000_000;

#[test]
fn file_of_many_entries_is_small() {
    let snapshot = busy_snapshot();
    let mut stacks = MadeUp::new();
    let mut file = Vec::new();
    let begin = Instant::now();
    write_snapshot(&snapshot, &mut stacks, &mut file).unwrap();
    println!("{} bytes in {:?}", file.len(), begin.elapsed());
    assert!(file.len() <= FILE_BYTES_MAX, "{} bytes", file.len());
    if let Ok(path) = std::env::var("SPEED_FILE") {
        std::fs::write(path, &file).unwrap();
    }
}

#[test]
#[ignore = "prints times"]
fn times() {
    let stacks = Stacks::new(u64::MAX);
    let words: Vec<Vec<u64>> = (0..1000).map(words_of).collect();
    for words in &words {
        stacks.intern(words);
    }
    for (name, words) in [("one known stack", &words[..1]), ("1000 known stacks", &words[..])] {
        let begin = Instant::now();
        for _ in 0..1_000_000 / words.len() {
            for words in words {
                std::hint::black_box(stacks.intern(std::hint::black_box(words)));
            }
        }
        let ns = begin.elapsed().as_nanos() as f64 / 1e6;
        println!("{name} of {DEPTH} words: {ns:.1} ns");
    }
    let lock = std::sync::Mutex::new(0);
    let begin = Instant::now();
    for _ in 0..1_000_000 {
        *std::hint::black_box(&lock).lock().unwrap() += 1;
    }
    println!("a lock: {:.1} ns", begin.elapsed().as_nanos() as f64 / 1e6);

    let mut ring = Ring::new(1 << 20);
    let begin = Instant::now();
    for number in 0..1u64 << 22 {
        ring.push(entry(Action::Alloc, number, StackId::NONE));
    }
    println!("an entry: {} ns", begin.elapsed().as_nanos() >> 22);

    let snapshot = busy_snapshot();
    let begin = Instant::now();
    snapshot.check().unwrap();
    println!("the check: {:?}", begin.elapsed());
}

fn words_of(number: u64) -> Vec<u64> {
    (0..DEPTH).map(|depth| 0x7f00_0000_0000 + number * 4096 + depth * 24).collect()
}

fn entry(action: Action, number: u64, stack: StackId) -> Entry {
    Entry {
        time_ns: number,
        address: BASE + number % 500 * 4096,
        bytes: 4000,
        stream: 0,
        stack,
        action,
        entered: 0,
        range: 0,
    }
}

const BASE: u64 = 0x7f12_3400_0000;

fn busy_snapshot() -> Snapshot {
    let mut entries = vec![entry(Action::SegmentAlloc, 0, StackId::NONE)];
    entries[0].bytes = 500 * 4096;
    for number in 0..PAIRS {
        let stack = StackId(1 + (number * 7919 % u64::from(STACKS)) as u32);
        entries.push(entry(Action::Alloc, number, stack));
        entries.push(entry(Action::Free, number, stack));
    }
    for (time_ns, entry) in (0..).zip(&mut entries) {
        entry.time_ns = time_ns;
    }
    let segment = cachealloc_history::Segment {
        device: 0,
        address: BASE,
        bytes: 500 * 4096,
        stream: 0,
        kind: cachealloc_history::PoolKind::Large,
        pool_id: (0, 0),
        pool_since_ns: None,
        expandable: false,
        stack: StackId::NONE,
        blocks: vec![cachealloc_history::Block {
            address: BASE,
            bytes: 500 * 4096,
            requested_bytes: 0,
            state: cachealloc_history::BlockState::Free,
            stack: StackId::NONE,
        }],
    };
    let device = Device { entries, dropped_count: 0, recorded_from_start: true };
    let clock = Clock { time_ns: 0, epoch_us: 1_790_000_000_000_000 };
    Snapshot { devices: vec![device], segments: vec![segment], clock, ..Snapshot::default() }
}

struct MadeUp(Vec<Arc<Frame>>);

impl MadeUp {
    fn new() -> MadeUp {
        let frame = |number| Frame {
            name: format!("namespace::function_{number}(int, float)"),
            filename: format!("/usr/lib/some/library_{}.so", number % 40),
            line: number,
        };
        MadeUp((0..FRAMES).map(|number| Arc::new(frame(number))).collect())
    }
}

impl Describe for MadeUp {
    fn frames(&mut self, stack: StackId) -> Vec<Arc<Frame>> {
        let first = u64::from(stack.0) * 31;
        (0..DEPTH).map(|depth| self.0[((first + depth * 131) % FRAMES) as usize].clone()).collect()
    }

    fn category(&mut self, stack: StackId) -> String {
        ["app", "cuBLAS", "NCCL"][stack.0 as usize % 3].into()
    }
}
