//! Lookup of addresses in a block, past its end, in free memory and outside all segments; and
//! PyTorch's names for blocks.

use cachealloc_analysis::model::{
    Action, Block, BlockState, Device, Entry, PoolId, Segment, StackId, TextId,
};
use cachealloc_analysis::{Lifetimes, Place, find, moment_of_version, version_of, versions_of};

use crate::made;

const BASE: u64 = 0x7f00_0000_0000;

fn entry(action: Action, address: u64, bytes: u64) -> Entry {
    Entry {
        time_us: 0,
        address,
        bytes,
        stream: 0,
        stack: StackId::NONE,
        category: TextId::EMPTY,
        compile_context: TextId::EMPTY,
        user_metadata: TextId::EMPTY,
        pool: PoolId::DEFAULT,
        action,
        entered: 0,
    }
}

fn block(address: u64, bytes: u64, requested_bytes: u64, state: BlockState) -> Block {
    let (stack, category) = (StackId::NONE, TextId::EMPTY);
    Block { address, bytes, requested_bytes, state, stack, category }
}

/// Two segments, one of them released. The other has a block of 1000 bytes that is held, in its
/// second life, and one that was freed.
fn device() -> Device {
    let gone = BASE + (8 << 20);
    let entries = [
        entry(Action::SegmentAlloc, BASE, 2 << 20),
        entry(Action::Alloc, BASE, 1000),
        entry(Action::Free, BASE, 1000),
        entry(Action::Alloc, BASE, 1000),
        entry(Action::Alloc, BASE + 1024, 512),
        entry(Action::SegmentAlloc, gone, 4 << 20),
        entry(Action::Alloc, gone, 4 << 20),
        entry(Action::Free, BASE + 1024, 512),
        entry(Action::Free, gone, 4 << 20),
        entry(Action::SegmentFree, gone, 4 << 20),
    ];
    let blocks = vec![
        block(BASE, 1024, 1000, BlockState::Allocated),
        block(BASE + 1024, (2 << 20) - 1024, 0, BlockState::Free),
    ];
    let segment = Segment {
        address: BASE,
        bytes: 2 << 20,
        stream: 0,
        small: true,
        pool: PoolId::DEFAULT,
        expandable: false,
        stack: StackId::NONE,
        blocks,
    };
    Device { segments: vec![segment], entries: entries.into_iter().collect() }
}

#[test]
fn every_place() {
    let device = device();
    let lifetimes = Lifetimes::of(&device);
    let at = |address, moment| find(&device, &lifetimes, address, moment).expect("there is memory");
    let gone = BASE + (8 << 20);
    for (address, moment, place, name) in [
        (BASE + 999, 10, Place::Held { offset: 999 }, Some((BASE, 1))),
        (BASE + 1000, 10, Place::PastEnd { past: 0 }, Some((BASE, 1))),
        (BASE + 1023, 10, Place::PastEnd { past: 23 }, Some((BASE, 1))),
        (BASE + 1024, 10, Place::Free, Some((BASE + 1024, 0))),
        (BASE + 4096, 10, Place::Free, None),
        (gone + 5, 10, Place::Unreserved, Some((gone, 0))),
        (gone + (4 << 20), 10, Place::Unreserved, None),
        (BASE - 1, 10, Place::Unreserved, None),
        // The next rows are for earlier moments.
        (BASE, 2, Place::Held { offset: 0 }, Some((BASE, 0))),
        (BASE, 3, Place::Free, Some((BASE, 0))),
        (BASE + 1024, 5, Place::Held { offset: 0 }, Some((BASE + 1024, 0))),
        (gone + 5, 8, Place::Held { offset: 5 }, Some((gone, 0))),
        (gone + 5, 9, Place::Free, Some((gone, 0))),
    ] {
        let found = at(address, moment);
        let life = found.life.map(|it| (it.life.address, it.version));
        assert_eq!((found.place, life), (place, name), "{address:#x} at {moment}");
        assert_eq!(found.segment.is_none(), place == Place::Unreserved);
    }
    let found = at(gone + 5, 10);
    assert_eq!((found.reserved_by, found.released_by), (Some(5), Some(9)));
    assert_eq!(at(BASE, 10).earlier_count, 1);
    let below = at(BASE + (2 << 20) + 7, 10).below;
    assert_eq!(below.map(|(segment, distance)| (segment.address, distance)), Some((BASE, 7)));
    let above = at(BASE - 1, 10).above;
    assert_eq!(above.map(|(segment, distance)| (segment.address, distance)), Some((BASE, 1)));
    let beside = at(BASE, 10).beside;
    let states: Vec<_> = beside.iter().map(|it| (it.address, it.state, it.is_at)).collect();
    assert_eq!(
        states,
        [(BASE, BlockState::Allocated, true), (BASE + 1024, BlockState::Free, false)]
    );
    assert!(find(&Device::default(), &Lifetimes::of(&Device::default()), BASE, 0).is_none());
}

/// The names of all blocks at once equal those computed one by one, and each leads to its block.
#[test]
fn names_of_random_histories() {
    let mut named = 0;
    for seed in 0..30 {
        let whole = made::read(&made::pickled(&made::history(seed, 200)));
        for device in &whole.devices {
            let lifetimes = Lifetimes::of(device);
            let versions = versions_of(device, &lifetimes);
            for (life, &version) in lifetimes.all.iter().zip(&versions) {
                assert_eq!(u64::from(version), version_of(device, life.address, life.begin));
                if life.begin_known {
                    let moment =
                        moment_of_version(device, &lifetimes, life.address, version.into());
                    let found = moment.and_then(|it| find(device, &lifetimes, life.address, it));
                    let at = found.and_then(|found| found.life).map(|it| it.version);
                    assert_eq!(at, Some(version.into()), "seed {seed}");
                    named += 1;
                }
            }
        }
    }
    assert!(named > 500, "{named}");
}
