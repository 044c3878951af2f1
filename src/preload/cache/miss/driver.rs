//! When the cache cannot grow: the driver's own allocation for a request, and its result.

use cachealloc_core::{Request, Requester};

use crate::cache::blocks::Call;
use crate::cache::miss::growth::Growth;
use crate::cache::room::wait_for_frees;
use crate::driver::api;
use crate::driver::sys::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::driver_memory::limits;
use crate::driver_memory::table::{self, Key, Served};
use crate::statistics::counters::{self, Count};
use crate::trim::release;

/// Everything of this context has gone back. The other contexts of the device may hold more; then the
/// driver is asked for exactly what the program requested, and its result counts.
pub(super) fn last_resort(
    growth: &mut Growth,
    request: &Request,
    call: Call,
) -> Result<u64, CuResult> {
    let context = growth.context;
    if !may_be_the_driver_s(request) {
        return Err(OUT_OF_MEMORY);
    }
    wait_for_frees(context);
    succeed(release::everything_free(Some(context.device)))?;
    ask_driver(growth, request, call)
}

/// The driver's own allocation and result; not ours to free.
pub(super) fn ask_driver(
    growth: &mut Growth,
    request: &Request,
    call: Call,
) -> Result<u64, CuResult> {
    let context = growth.context;
    if !may_be_the_driver_s(request) {
        return Err(OUT_OF_MEMORY);
    }
    let Some(claim) = limits::claim(context.device, request.bytes()) else {
        counters::count(Count::RefusedByLimit);
        return Err(OUT_OF_MEMORY);
    };
    counters::count(Count::PassedToDriver);
    let mut pointer = 0;
    let bytes = request.bytes() as usize;
    growth.before(request.bytes())?;
    let code = api::relaxed(|| context.enter(&mut || api::mem_alloc(&mut pointer, bytes)));
    growth.after(request.bytes(), if code == SUCCESS { pointer } else { 0 })?;
    match code {
        SUCCESS => {
            let served = Served {
                device: context.device,
                bytes: request.bytes(),
                context_id: context.id,
                stack: call.stack,
                claimed_bytes: claim.keep(),
                ..Served::default()
            };
            table::enter(Key::Memory(pointer), served);
            Ok(pointer)
        }
        code => Err(code),
    }
}

/// Not what is freed on a stream, nor what a capture may free.
fn may_be_the_driver_s(request: &Request) -> bool {
    request.requester() == Requester::Context && request.private().is_none()
}

pub(super) fn succeed(code: CuResult) -> Result<(), CuResult> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}
