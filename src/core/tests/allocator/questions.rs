//! Queries that the caller makes before it acts.

use cachealloc_core::policy::REQUEST_BYTES_MAX;
use cachealloc_core::{
    Address, Allocator, BlockId, EventId, Policy, PrivatePool, Request, Requester, ReuseCondition,
    Step, StreamId,
};
use cachealloc_options::parse;

const BYTES: u64 = 12 << 20;

fn served(allocator: &mut Allocator, mut request: Request) -> BlockId {
    loop {
        match allocator.poll(&mut request) {
            Step::Done(allocation) => return allocation.block,
            Step::Reserve { bytes } => {
                let end = allocator.segments().map(|segment| segment.base.0 + segment.bytes).max();
                allocator.reserved(&mut request, Address(end.unwrap_or(1 << 30)), bytes);
            }
            Step::QueryEvents => {}
            step => panic!("{step:?}"),
        }
    }
}

fn served_on(allocator: &mut Allocator, stream: StreamId) -> BlockId {
    served(allocator, Request::new(BYTES, Requester::Stream(stream)))
}

#[test]
fn only_memory_in_use_is_ordered_after_its_stream() {
    let mut allocator = Allocator::new(Policy::default());
    let stream = StreamId(1);
    let ask = |allocator: &mut Allocator| served_on(allocator, stream);
    let fresh = ask(&mut allocator);
    assert!(!allocator.is_behind(fresh));
    allocator.free(fresh, ReuseCondition::OnStream { stream, event: EventId(1) });
    let used = ask(&mut allocator);
    assert!(allocator.is_behind(used));
    allocator.free(used, ReuseCondition::Everywhere);
    let over = ask(&mut allocator);
    assert!(!allocator.is_behind(over));
}

/// A block that was reused in its capture, or has left it, needs no event.
#[test]
fn pool_is_over_where_all_uses_of_it_have_events() {
    let mut allocator = Allocator::new(Policy::default());
    let pool = PrivatePool(1);
    let mark = allocator.idle_mark();
    allocator.open_pool(pool, mark);
    let ask = |allocator: &mut Allocator| {
        served(allocator, Request::in_pool(BYTES, Requester::Context, pool))
    };
    let [first, second, third] = [0; 3].map(|_| ask(&mut allocator));
    allocator.free(first, ReuseCondition::NextBarrier);
    assert!(!allocator.is_over(pool));
    assert!(allocator.waits_with_pool_until_events(first));
    assert!(allocator.is_over(pool));
    allocator.free(second, ReuseCondition::NextBarrier);
    assert!(!allocator.is_over(pool));
    // Memory that both have used is as unknown as the part that is.
    [first, second].into_iter().for_each(|block| allocator.reuse(block, None));
    assert!(!allocator.is_over(pool));
    assert!(!allocator.waits_with_pool_until_events(second));
    allocator.end_pool(pool);
    allocator.free(third, ReuseCondition::NextBarrier);
    assert!(!allocator.waits_with_pool_until_events(third));
    allocator.close_pool(pool);
    allocator.check();
}

/// The caller itself writes memory that nothing uses, before the program gets it.
#[test]
fn unused_memory_waits_for_its_caller_s_work() {
    let mut allocator = Allocator::new(Policy::default());
    let (stream, written, all) = (StreamId(1), EventId(1), EventId(2));
    let ready = ReuseCondition::OnStream { stream: StreamId::of_caller(written), event: written };
    let block = served_on(&mut allocator, stream);
    assert_eq!(allocator.is_now_behind(block, written), None);
    assert!(allocator.is_behind(block));
    let behind = allocator.free(block, ReuseCondition::After { event: all });
    let behind = behind.expect("the caller's work");
    assert_eq!(behind.ready(), ready);
    let waiting = allocator.wait_of(block).expect("it waits");
    allocator.wait_only_behind(waiting, behind);
    assert!(allocator.is_waiting(ready, behind.made()));
    allocator.wait_completed(ready, behind.made());
    assert_eq!(served(&mut allocator, Request::new(BYTES, Requester::Context)), block);
    allocator.check();
}

#[test]
fn pools_have_memory_until_they_are_closed() {
    let mut allocator = Allocator::new(Policy::default());
    let pool = PrivatePool(1);
    let mark = allocator.idle_mark();
    assert!(!allocator.has_pools());
    allocator.open_pool(pool, mark);
    assert!(allocator.has_pools());
    let ordinary = served(&mut allocator, Request::new(BYTES, Requester::Context));
    assert!(!allocator.has_private_memory());
    let own = served(&mut allocator, Request::in_pool(BYTES, Requester::Context, pool));
    assert!(allocator.has_private_memory());
    allocator.free(own, ReuseCondition::Everywhere);
    allocator.end_pool(pool);
    assert!(allocator.has_private_memory());
    assert!(allocator.has_pools());
    allocator.close_pool(pool);
    assert!(!allocator.has_private_memory() && !allocator.has_pools());
    allocator.free(ordinary, ReuseCondition::Everywhere);
}

/// The recorder asks for completed pending frees, and gets each once, between its first and its
/// last query.
#[test]
fn completed_pending_frees_are_reported_while_requested() {
    let mut allocator = Allocator::new(Policy::default());
    let mut event = 0;
    let mut pends = |allocator: &mut Allocator| {
        event += 1;
        let block = served(allocator, Request::new(BYTES - event, Requester::Context));
        allocator.free(block, ReuseCondition::After { event: EventId(event) });
        allocator.events_completed(&[EventId(event)]);
        BYTES - event
    };
    let told = |allocator: &mut Allocator| {
        let completed = allocator.take_completed();
        completed.iter().map(|completed| completed.requested_bytes).collect::<Vec<_>>()
    };
    pends(&mut allocator);
    assert_eq!(told(&mut allocator), []);
    allocator.report_completed();
    let both = [pends(&mut allocator), pends(&mut allocator)];
    allocator.report_completed();
    assert_eq!(told(&mut allocator), both);
    assert_eq!(told(&mut allocator), []);
    pends(&mut allocator);
    allocator.forget_completed();
    pends(&mut allocator);
    assert_eq!(told(&mut allocator), []);
}

/// The block waited for a stream, long before the capture began.
#[test]
fn captures_adopt_only_segments_without_other_uses() {
    let mut allocator = Allocator::new(Policy::default());
    let (pool, stream, event) = (PrivatePool(1), StreamId(1), EventId(1));
    let bytes = 7 << 20;
    let ordinary = served(&mut allocator, Request::new(bytes, Requester::Stream(stream)));
    allocator.free(ordinary, ReuseCondition::OnStream { stream, event });
    allocator.events_completed(&[event]);
    let mark = allocator.idle_mark();
    allocator.open_pool(pool, mark);
    let own = served(&mut allocator, Request::in_pool(bytes, Requester::Context, pool));
    let segment = allocator.segments().next().expect("one segment");
    assert_eq!((allocator.segments().count(), segment.private), (1, Some(pool)));
    allocator.free_unused(own);
    assert!(allocator.is_over(pool));
    assert!(allocator.open_unused(segment.base, |_, _| false), "the capture uses none of it");
    allocator.check();
}

#[test]
fn a_segment_is_found_by_each_of_its_addresses_and_no_other() {
    let mut allocator = Allocator::new(Policy::default());
    served(&mut allocator, Request::new(BYTES, Requester::Context));
    let base = allocator.segments().next().expect("one segment").base.0;
    let found = |address| allocator.segment_around(Address(address)).map(|found| found.base.0);
    for inside in [base, base + 1, base + BYTES - 1] {
        assert_eq!(found(inside), Some(base));
    }
    for outside in [0, base - 1, base + BYTES, base + 2 * BYTES, u64::MAX] {
        assert_eq!(found(outside), None);
    }
}

#[test]
fn a_policy_rounds_where_a_power_of_two_has_divisions() {
    for (text, rounds) in [("", false), (":1", false), (":2", true), (":[256:1,>:8]", true)] {
        let text = if text.is_empty() { "" } else { &format!("roundup_power2_divisions{text}") };
        assert_eq!(parse(text).0.policy.rounds_to_divisions(), rounds, "{text}");
    }
}

/// The context's memory was released with it, in as many calls as there were segments.
#[test]
fn a_context_that_has_ended_holds_nothing() {
    let mut allocator = Allocator::new(Policy::default());
    for bytes in [BYTES, 2 * BYTES, 512] {
        served(&mut allocator, Request::new(bytes, Requester::Context));
    }
    let before = allocator.stats();
    let mut stats = before.clone();
    stats.end();
    assert_eq!(stats.num_device_free, before.num_device_free + 3);
    for (left, had) in [
        (&stats.segment, &before.segment),
        (&stats.reserved_bytes, &before.reserved_bytes),
        (&stats.allocated_bytes, &before.allocated_bytes),
    ] {
        assert_eq!((left.all.current, left.small.current, left.large.current), (0, 0, 0));
        assert_eq!((left.all.freed, left.all.peak), (had.all.allocated, had.all.peak));
    }
}

/// The caller asks which memory leaves only after it has taken out the free memory.
#[test]
fn released_segments_are_not_released_twice() {
    let mut allocator = Allocator::new(Policy::default());
    let ask = |allocator: &mut Allocator| {
        let block = served(allocator, Request::new(BYTES, Requester::Context));
        allocator.export(block);
        block
    };
    let [free, waits] = [(); 2].map(|()| ask(&mut allocator));
    let event = EventId(1);
    allocator.free(waits, ReuseCondition::OnStream { stream: StreamId(1), event });
    allocator.free(free, ReuseCondition::Everywhere);
    assert_eq!(allocator.release_free().len(), 1);
    allocator.events_completed(&[event]);
    assert_eq!(allocator.take_retired().len(), 1);
    assert_eq!(allocator.segments().count(), 0);
    assert!(allocator.take_retired().is_empty());
}

#[test]
fn the_driver_is_asked_for_whatever_a_device_could_have() {
    let policy = Policy::default();
    assert_eq!(policy.block_bytes(REQUEST_BYTES_MAX), Some(REQUEST_BYTES_MAX));
    assert_eq!(policy.block_bytes(REQUEST_BYTES_MAX + 1), None);
    assert_eq!(policy.block_bytes(u64::MAX), None);
}

/// One division does not round to the next power of two: PyTorch's condition is more than one.
#[test]
fn single_division_has_no_effect() {
    let bytes = 9 << 20;
    for divisions in [0, 1] {
        let policy = Policy { roundup_power2_divisions: [divisions; 16], ..Policy::default() };
        assert_eq!(policy.block_bytes(bytes + 1), Some(bytes + 512), "{divisions}");
    }
}

/// The rest of a block must fit the word in which callers keep it.
#[test]
fn rounding_to_a_division_adds_less_than_two_gib() {
    const GIB: u64 = 1 << 30;
    let policy = Policy { roundup_power2_divisions: [2; 16], ..Policy::default() };
    assert_eq!(policy.block_bytes(10 * GIB + 512), Some(12 * GIB));
    assert_eq!(policy.block_bytes(10 * GIB), Some(10 * GIB));
    assert_eq!(policy.block_bytes(9 * GIB - 1), Some(9 * GIB));
}

/// However many streams there are, each finds all blocks that it has freed, including the last.
#[test]
fn each_of_many_streams_has_what_it_freed() {
    let mut allocator = Allocator::new(Policy::default());
    let streams = || (0..200).map(StreamId);
    for _ in 0..2 {
        for stream in streams() {
            let ask = || Request::new(BYTES, Requester::Stream(stream));
            let blocks = [(); 3].map(|()| served(&mut allocator, ask()));
            for (number, block) in (0..).zip(blocks) {
                let event = EventId(3 * stream.0 + number);
                allocator.free(block, ReuseCondition::OnStream { stream, event });
            }
        }
        allocator.check();
        let reserved_count = allocator.stats().num_device_alloc;
        for stream in streams() {
            let ask = || Request::new(BYTES, Requester::Stream(stream));
            let blocks = [(); 3].map(|()| served(&mut allocator, ask()));
            allocator.check();
            for block in blocks {
                allocator.free(block, ReuseCondition::Everywhere);
            }
        }
        assert_eq!(allocator.stats().num_device_alloc, reserved_count);
    }
}

#[test]
fn bytes_that_streams_have_freed() {
    let mut allocator = Allocator::new(Policy::default());
    let stream = StreamId(1);
    let ask = |allocator: &mut Allocator| served_on(allocator, stream);
    let (kept, freed) = (ask(&mut allocator), ask(&mut allocator));
    assert_eq!(allocator.freed_on_streams_bytes(), 0);
    allocator.free(freed, ReuseCondition::OnStream { stream, event: EventId(1) });
    assert_eq!(allocator.freed_on_streams_bytes(), BYTES);
    allocator.free(kept, ReuseCondition::OnStream { stream, event: EventId(2) });
    assert_eq!(allocator.freed_on_streams_bytes(), 2 * BYTES);
}
