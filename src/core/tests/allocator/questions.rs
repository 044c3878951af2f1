//! What the caller asks before it acts.

use cachealloc_core::{
    Address, Allocator, BlockId, EventId, Policy, PrivatePool, Ready, Request, Requester, Step,
    StreamId,
};

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

#[test]
fn only_what_its_stream_may_still_use_is_behind_it() {
    let mut allocator = Allocator::new(Policy::default());
    let stream = StreamId(1);
    let ask = |allocator: &mut Allocator| {
        served(allocator, Request::new(BYTES, Requester::Stream(stream)))
    };
    let fresh = ask(&mut allocator);
    assert!(!allocator.is_behind(fresh));
    allocator.free(fresh, Ready::OnStream { stream, event: EventId(1) });
    let used = ask(&mut allocator);
    assert!(allocator.is_behind(used));
    allocator.free(used, Ready::Everywhere);
    let over = ask(&mut allocator);
    assert!(!allocator.is_behind(over));
}

#[test]
fn pools_have_memory_until_they_are_closed() {
    let mut allocator = Allocator::new(Policy::default());
    let pool = PrivatePool(1);
    let mark = allocator.idle_mark();
    allocator.open_pool(pool, mark);
    let ordinary = served(&mut allocator, Request::new(BYTES, Requester::Context));
    assert!(!allocator.has_private_memory());
    let own = served(&mut allocator, Request::in_pool(BYTES, Requester::Context, pool));
    assert!(allocator.has_private_memory());
    allocator.free(own, Ready::Everywhere);
    allocator.end_pool(pool);
    assert!(allocator.has_private_memory());
    allocator.close_pool(pool);
    assert!(!allocator.has_private_memory());
    allocator.free(ordinary, Ready::Everywhere);
}
