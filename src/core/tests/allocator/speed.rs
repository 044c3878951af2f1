//! How long a hit and a free take. Prints, asserts nothing about time:
//! `cargo test --release -p cachealloc-core speed -- --ignored --nocapture`

use std::time::Instant;

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    Address, Allocator, BlockId, EventId, Policy, Ready, Request, Requester, Step, StreamId,
};

use crate::random::Random;

const LIVE_COUNT: usize = 1000;
const ROUNDS_COUNT: u64 = 2_000_000;

#[test]
#[ignore = "prints times"]
fn speed_of_a_hit_and_a_free() {
    let context = Requester::Context;
    let stream = Requester::Stream(StreamId(1));
    let anyone = |_| Ready::Anyone;
    let on_stream = |number| Ready::OnStream { stream: StreamId(1), event: EventId(number) };
    measure("small, for anyone", 256 << 10, context, anyone);
    measure("small and large, for anyone", 8 * MIB, context, anyone);
    measure("small, on one stream", 256 << 10, stream, on_stream);
}

fn measure(name: &str, largest: u64, requester: Requester, ready: impl Fn(u64) -> Ready) {
    let mut allocator = Allocator::new(Policy::default());
    let mut random = Random::new(1);
    let mut next_base = 0x7000_0000_0000;
    let mut live: Vec<BlockId> = (0..LIVE_COUNT)
        .map(|_| alloc(&mut allocator, &mut next_base, 1 + random.below(largest), requester).0)
        .collect();
    let sizes: Vec<u64> = (0..4096).map(|_| 1 + random.below(largest)).collect();
    let places: Vec<usize> = (0..4093).map(|_| random.below(LIVE_COUNT as u64) as usize).collect();
    let mut hits = 0;
    let begin = Instant::now();
    for round in 0..ROUNDS_COUNT {
        let place = places[round as usize % places.len()];
        allocator.free(live[place], ready(round));
        if round % 512 == 0 {
            allocator.barrier_passed(allocator.mark());
        }
        let bytes = sizes[round as usize % sizes.len()];
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
