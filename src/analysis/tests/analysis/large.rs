//! A file as large as the recording's default bound allows: a million entries, 20,000 stacks of 30
//! frames. The cost is printed, not asserted, because times on a loaded machine prove nothing:
//! `cargo test --release -p cachealloc-analysis --test analysis large -- --ignored
//! --nocapture`.

use std::fs::{self, File};
use std::sync::Arc;
use std::time::Instant;

use cachealloc_analysis::{Lifetimes, sites};
use cachealloc_history as history;
use cachealloc_history::{Action, Describe, Entry, Frame, StackId};

const STACKS: u64 = 20_000;
const FRAMES: u64 = 4_000;
const DEPTH: u64 = 30;
const BASE: u64 = 0x7f12_3400_0000;
const BLOCK: u64 = 4096;
const LIVE: u64 = 1000;

/// Creates a snapshot in which a constant number of blocks is live, each for the same time.
pub fn busy(entries: u64) -> history::Snapshot {
    let entry = |number, action, address, stack| Entry {
        time_ns: number * 1000,
        address,
        bytes: if action == Action::SegmentAlloc { (LIVE + 1) * BLOCK } else { BLOCK - 96 },
        stream: 0,
        stack: StackId(stack),
        action,
        entered: 0,
        range: 0,
    };
    let mut all = vec![entry(0, Action::SegmentAlloc, BASE, 0)];
    let address = |number: u64| BASE + number % (LIVE + 1) * BLOCK;
    for number in 0.. {
        if all.len() as u64 + 2 > entries {
            break;
        }
        let stack = 1 + (number * 7919 % STACKS) as u32;
        all.push(entry(all.len() as u64, Action::Alloc, address(number), stack));
        if number >= LIVE {
            all.push(entry(all.len() as u64, Action::Free, address(number - LIVE), stack));
        }
    }
    // The blocks live at the end are all those that were not freed.
    let mut blocks = std::collections::BTreeMap::new();
    for entry in &all[1..] {
        if entry.action == Action::Alloc {
            blocks.insert(entry.address, *entry);
        } else {
            blocks.remove(&entry.address);
        }
    }
    let block = |index: u64| {
        let address = BASE + index * BLOCK;
        let live = blocks.get(&address);
        let state = history::BlockState::Allocated;
        history::Block {
            address,
            bytes: BLOCK,
            requested_bytes: live.map_or(0, |entry| entry.bytes),
            state: if live.is_some() { state } else { history::BlockState::Free },
            stack: live.map_or(StackId::NONE, |entry| entry.stack),
        }
    };
    let segment = history::Segment {
        device: 0,
        address: BASE,
        bytes: (LIVE + 1) * BLOCK,
        stream: 0,
        kind: history::PoolKind::Large,
        pool_id: (0, 0),
        pool_since_ns: None,
        expandable: false,
        stack: StackId::NONE,
        blocks: (0..=LIVE).map(block).collect(),
    };
    let device = history::Device { entries: all, dropped_count: 0, recorded_from_start: true };
    let clock = history::Clock { time_ns: 0, epoch_us: 1_790_000_000_000_000 };
    history::Snapshot {
        devices: vec![device],
        segments: vec![segment],
        clock,
        ..Default::default()
    }
}

pub struct MadeUp(Vec<Arc<Frame>>);

impl Default for MadeUp {
    fn default() -> MadeUp {
        let frame = |number| Frame {
            name: format!("namespace::function_{number}(int, float)"),
            filename: format!("/home/user/project/source_{}.cpp", number % 40),
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

#[test]
#[ignore = "prints times"]
fn million() {
    let directory = crate::made::Directory::new("million");
    let path = std::env::var_os("LARGE_FILE").map(std::path::PathBuf::from);
    let path = path.unwrap_or_else(|| directory.0.join("large.pickle"));
    {
        let snapshot = busy(1_000_000);
        assert_eq!(snapshot.check(), Ok(()));
        let file = std::io::BufWriter::new(File::create(&path).expect("a file"));
        history::write_snapshot(&snapshot, &mut MadeUp::default(), file).expect("room");
    }
    println!("{} MB in the file", fs::metadata(&path).expect("the file").len() / 1_000_000);
    let begin = Instant::now();
    let snapshot = cachealloc_analysis::read(File::open(&path).expect("the file")).expect("sound");
    println!("{} entries read in {:?}", snapshot.entries_count(), begin.elapsed());
    let begin = Instant::now();
    let device = &snapshot.devices[0];
    let lifetimes = Lifetimes::of(device);
    println!("{} lifetimes in {:?}", lifetimes.all.len(), begin.elapsed());
    let begin = Instant::now();
    println!("{} sites in {:?}", sites(device, &lifetimes, lifetimes.peak).len(), begin.elapsed());
}
