//! Memory of arenas that requests in flight have asked for. Other requests may be polled meanwhile:
//! an observer of a driver call may allocate itself.

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    Address, Allocation, Allocator, Mapping, Policy, Pool, Request, Requester, Step,
};

const ARENA: u64 = 1 << 44;

fn with_arena() -> Allocator {
    let mut allocator = Allocator::new(Policy { expandable_segments: true, ..Policy::default() });
    allocator.add_arena(Pool::Large, Address(ARENA), 64 * MIB);
    allocator
}

fn asks(allocator: &mut Allocator, request: &mut Request) -> Vec<Mapping> {
    let Step::Map(mappings) = allocator.poll(request) else { panic!("{request:?}") };
    allocator.check();
    mappings
}

fn gets(allocator: &mut Allocator, request: &mut Request) -> Allocation {
    allocator.mapped(request);
    allocator.check();
    let Step::Done(allocation) = allocator.poll(request) else { panic!("{request:?}") };
    allocation
}

fn range(mappings: &[Mapping]) -> (u64, u64) {
    let end = mappings.last().expect("a mapping").end();
    ((mappings[0].base.0 - ARENA) / MIB, (end.0 - ARENA) / MIB)
}

#[test]
fn arriving_memory_is_not_a_hole() {
    for first_comes_first in [true, false] {
        let mut allocator = with_arena();
        let [mut one, mut two] = [6, 4].map(|mib| Request::new(mib * MIB, Requester::Context));
        assert_eq!(range(&asks(&mut allocator, &mut one)), (0, 6));
        assert_eq!(range(&asks(&mut allocator, &mut two)), (6, 10));
        let [one, two] = match first_comes_first {
            true => [&mut one, &mut two].map(|request| gets(&mut allocator, request)),
            false => {
                let two = gets(&mut allocator, &mut two);
                [gets(&mut allocator, &mut one), two]
            }
        };
        assert_eq!([one.address.0, two.address.0], [ARENA, ARENA + 6 * MIB]);
    }
}

#[test]
fn memory_that_fails_to_arrive_is_a_hole_again() {
    let mut allocator = with_arena();
    let [mut one, mut two, mut three] =
        [6, 4, 6].map(|mib| Request::new(mib * MIB, Requester::Context));
    asks(&mut allocator, &mut one);
    asks(&mut allocator, &mut two);
    allocator.reserve_failed(&mut one);
    allocator.check();
    assert_eq!(range(&asks(&mut allocator, &mut three)), (0, 6));
    assert_eq!(gets(&mut allocator, &mut two).address.0, ARENA + 6 * MIB);
    assert_eq!(gets(&mut allocator, &mut three).address.0, ARENA);
}

/// A request includes a free block in its count, and another request takes the block. Afterwards no
/// block is counted.
#[test]
fn counted_memory_is_taken_by_another_request() {
    let mut allocator = with_arena();
    let mut kept = Request::new(4 * MIB, Requester::Context);
    asks(&mut allocator, &mut kept);
    let kept = gets(&mut allocator, &mut kept);
    allocator.free(kept.block, cachealloc_core::ReuseCondition::Everywhere);
    let mut large = Request::new(10 * MIB, Requester::Context);
    assert_eq!(range(&asks(&mut allocator, &mut large)), (4, 10));
    let taken = allocator.hit(&Request::new(3 * MIB, Requester::Context)).expect("it is free");
    assert_eq!(taken.address.0, ARENA);
    allocator.mapped(&mut large);
    assert_eq!(range(&asks(&mut allocator, &mut large)), (10, 20));
    assert_eq!(gets(&mut allocator, &mut large).address.0, ARENA + 3 * MIB);
}
