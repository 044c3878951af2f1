//! The time of a hit and of a free. Prints, asserts nothing about time:
//! `cargo test --release -p cachealloc-core speed -- --ignored --nocapture`

use std::time::Instant;

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    Address, Allocator, BlockId, EventId, Policy, Request, Requester, ReuseCondition, Step,
    StreamId,
};

use crate::random::Random;

const LIVE_COUNT: usize = 1000;
const ROUNDS_COUNT: u64 = 2_000_000;

#[test]
#[ignore = "prints times"]
fn speed_of_a_hit_and_a_free() {
    let context = Requester::Context;
    let stream = Requester::Stream(StreamId(1));
    let everywhere = |_| ReuseCondition::Everywhere;
    let on_stream =
        |number| ReuseCondition::OnStream { stream: StreamId(1), event: EventId(number) };
    let mut random = Random::new(2);
    let mut sizes = |count: usize, largest: u64| -> Vec<u64> {
        (0..count).map(|_| 1 + random.below(largest)).collect()
    };
    let (few, many) = (sizes(40, 256 << 10), sizes(4096, 256 << 10));
    let mixed = sizes(4096, 8 * MIB);
    measure("one small size, free everywhere", &[5000], context, everywhere);
    measure("40 small sizes, free everywhere", &few, context, everywhere);
    measure("4096 small sizes, free everywhere", &many, context, everywhere);
    measure("4096 sizes in both pools, free everywhere", &mixed, context, everywhere);
    measure("40 small sizes, on one stream", &few, stream, on_stream);
    measure("4096 small sizes, on one stream", &many, stream, on_stream);
}

fn measure(name: &str, sizes: &[u64], requester: Requester, ready: impl Fn(u64) -> ReuseCondition) {
    let mut allocator = Allocator::new(Policy::default());
    let mut random = Random::new(1);
    let mut next_base = 0x7000_0000_0000;
    let mut live: Vec<BlockId> = (0..LIVE_COUNT)
        .map(|_| alloc(&mut allocator, &mut next_base, random.pick(sizes), requester).0)
        .collect();
    let order: Vec<u64> = (0..4096).map(|_| random.pick(sizes)).collect();
    let places: Vec<usize> = (0..4093).map(|_| random.below(LIVE_COUNT as u64) as usize).collect();
    let mut hits = 0;
    let begin = Instant::now();
    for round in 0..ROUNDS_COUNT {
        let place = places[round as usize % places.len()];
        allocator.free(live[place], ready(round));
        if round % 512 == 0 {
            allocator.barrier_passed(allocator.mark());
        }
        let bytes = order[round as usize % order.len()];
        let (block, hit) = alloc(&mut allocator, &mut next_base, bytes, requester);
        live[place] = block;
        hits += u64::from(hit);
    }
    let nanoseconds = begin.elapsed().as_nanos() as f64 / ROUNDS_COUNT as f64;
    let hits = hits as f64 * 100.0 / ROUNDS_COUNT as f64;
    println!("{name}: {nanoseconds:.0} ns for a hit and a free, {hits:.1} % hits");
    allocator.check();
}

fn alloc(
    allocator: &mut Allocator,
    next_base: &mut u64,
    bytes: u64,
    requester: Requester,
) -> (BlockId, bool) {
    let mut request = Request::new(bytes, requester);
    let mut hit = true;
    loop {
        match allocator.poll(&mut request) {
            Step::Done(allocation) => return (allocation.block, hit),
            Step::QueryEvents => {}
            Step::Reserve { bytes } => {
                allocator.reserved(&mut request, Address(*next_base), bytes);
                *next_base += bytes;
                hit = false;
            }
            step => panic!("{step:?}"),
        }
    }
}
