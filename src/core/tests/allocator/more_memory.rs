//! More memory must not make a program fail: small random programs, each at all limits from the
//! bytes that it holds at its peak to three times that.
//!
//! No online allocator can guarantee this: better placement under a larger limit may be worse for
//! later requests. The test therefore counts such programs.
//! for what comes. So this counts them.

use std::collections::BTreeMap;

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    Address, Allocation, Allocator, Policy, Request, Requester, ReuseCondition, Step,
};

use crate::random::Random;

const PROGRAMS_COUNT: u64 = 400;
const STEPS_COUNT: u64 = 120;
const LIMITS_COUNT: u64 = 40;

#[derive(Clone, Copy)]
enum Event {
    Alloc(u64),
    /// Frees the memory allocated by this event.
    Free(usize),
}

fn program(seed: u64) -> (Vec<Event>, u64) {
    let mut random = Random::new(seed);
    let largest = random.pick(&[4 * MIB, 30 * MIB, 200 * MIB]);
    let (mut events, mut live) = (Vec::new(), Vec::new());
    let (mut live_bytes, mut peak_bytes) = (0, 0);
    for _ in 0..STEPS_COUNT {
        if live.is_empty() || random.below(16) < 9 {
            let most = random.pick(&[64 << 10, MIB, largest, largest]);
            let bytes = 1 + random.below(most);
            live.push((events.len(), bytes));
            events.push(Event::Alloc(bytes));
            live_bytes += bytes;
            peak_bytes = peak_bytes.max(live_bytes);
        } else {
            let (number, bytes) = live.swap_remove(random.below(live.len() as u64) as usize);
            events.push(Event::Free(number));
            live_bytes -= bytes;
        }
    }
    (events, peak_bytes)
}

/// Returns whether the program completes within this limit.
fn completes(events: &[Event], limit_bytes: u64, knows_room: bool) -> bool {
    let policy = Policy { limit_bytes: Some(limit_bytes), ..Policy::default() };
    let mut allocator = Allocator::new(policy);
    allocator.set_capacity(knows_room.then_some(limit_bytes), true);
    let (mut live, mut end) = (BTreeMap::new(), Address(2 * MIB));
    for (number, event) in events.iter().enumerate() {
        match *event {
            Event::Alloc(bytes) => match alloc(&mut allocator, bytes, &mut end) {
                Some(block) => {
                    live.insert(number, block);
                }
                None => return false,
            },
            Event::Free(number) => {
                let block: Allocation = live[&number];
                allocator.free(block.block, ReuseCondition::Everywhere);
            }
        }
    }
    true
}

fn alloc(allocator: &mut Allocator, bytes: u64, end: &mut Address) -> Option<Allocation> {
    let mut request = Request::new(bytes, Requester::Context);
    loop {
        match allocator.poll(&mut request) {
            Step::Done(allocation) => return Some(allocation),
            Step::OutOfMemory => return None,
            Step::Release(_) => {}
            Step::Reserve { bytes } => {
                allocator.reserved(&mut request, *end, bytes);
                end.0 += bytes.next_multiple_of(2 * MIB);
            }
            step => panic!("{step:?} without streams and arenas"),
        }
    }
}

/// Returns the number of programs that fail at a limit above one at which they complete. Also
/// returns the number that need more than 1/50, plus 4 MiB, above the bytes that they hold.
fn search(knows_room: bool) -> (u64, u64) {
    let (mut odd_count, mut greedy_count) = (0, 0);
    for seed in 0..PROGRAMS_COUNT {
        let (events, peak_bytes) = program(seed);
        let limit = |number: u64| peak_bytes + 2 * MIB + peak_bytes * 2 * number / LIMITS_COUNT;
        let done: Vec<bool> =
            (0..LIMITS_COUNT).map(|number| completes(&events, limit(number), knows_room)).collect();
        let first = done.iter().position(|done| *done).expect("three times as much is enough");
        odd_count += u64::from(done[first..].contains(&false));
        greedy_count +=
            u64::from(!completes(&events, peak_bytes + peak_bytes / 50 + 4 * MIB, knows_room));
    }
    (odd_count, greedy_count)
}

#[test]
fn more_memory_rarely_makes_a_program_fail() {
    let (without, with) = (search(false), search(true));
    println!("without the room {without:?}, with it {with:?} of {PROGRAMS_COUNT}");
    // The current counts; without the capacity they are 22 and 323. They may only shrink.
    assert!(with.0 <= 5 && with.1 <= 66, "{with:?}");
}
