//! Fallback when the cache cannot grow: the driver's own allocation for a request, and its result.

use cachealloc_core::{Request, Requester};

use crate::cache::arenas;
use crate::cache::blocks::Call;
use crate::cache::miss::growth::{Growth, driver_alloc};
use crate::cache::release;
use crate::cache::retry::wait_for_frees;
use crate::driver::sys::{CuError, CuResult};
use crate::driver_memory::limits;
use crate::driver_memory::table;
use crate::driver_memory::table::{Key, Served};
use crate::state::under_way::Waiter;
use crate::statistics::counters;
use crate::statistics::counters::Count;

/// Makes the final attempt, after this context has released everything. The other contexts of the
/// device may hold more, so they release it too. Then the library asks the driver for exactly what
/// the program requested, and returns the driver's result.
pub(super) fn final_attempt(growth: &mut Growth, request: &Request, call: Call) -> CuResult<u64> {
    let context = growth.context;
    if !may_be_the_driver_s(request) {
        return Err(CuError::OUT_OF_MEMORY);
    }
    arenas::drop_spare(context);
    growth.let_go(|| {
        wait_for_frees(context, Waiter::StandsStill);
        release::everything_free(Some(context.device), Waiter::StandsStill)
    })??;
    ask_driver(growth, request, call)
}

/// Returns the driver's own allocation and result. The cache does not own such memory.
pub(super) fn ask_driver(growth: &mut Growth, request: &Request, call: Call) -> CuResult<u64> {
    let context = growth.context;
    if !may_be_the_driver_s(request) {
        return Err(CuError::OUT_OF_MEMORY);
    }
    let Some(claim) = limits::claim(context.device, request.bytes()) else {
        counters::count(Count::RefusedByLimit);
        return Err(CuError::OUT_OF_MEMORY);
    };
    counters::count(Count::PassedToDriver);
    let bytes = request.bytes();
    growth.before(bytes, call)?;
    let allocated = driver_alloc(growth, bytes, Waiter::StandsStill);
    growth.after(bytes, allocated.unwrap_or(0))?;
    let pointer = allocated?;
    let served = Served {
        device: context.device,
        bytes,
        context_id: context.id,
        stack: call.stack,
        claimed_bytes: claim.keep(),
        ..Served::default()
    };
    table::enter(Key::Memory(pointer), served);
    Ok(pointer)
}

/// Returns whether the driver may serve the request: not if the memory is freed on a stream, or if
/// a capture may free it.
fn may_be_the_driver_s(request: &Request) -> bool {
    request.requester() == Requester::Context && request.private().is_none()
}
