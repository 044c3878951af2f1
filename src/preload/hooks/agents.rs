//! Calls that show somebody who can reach the memory past the barriers of its context: other
//! processes, network cards, graphics. The call waits for the pending barrier, then goes on.

use cachealloc_core::order::Agent;

use crate::driver::sys::{CuResult, INVALID_VALUE};
use crate::functions::Function;
use crate::hooks::{beside, common};
use crate::log;
use crate::runtime::extents::{self, Place};
use crate::runtime::{agents, bypass};

#[inline]
fn shown(function: &'static Function, agent: Agent, real: impl Fn() -> CuResult) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    beside(function, || agents::show(agent));
    common::pass(function, &[], real)
}

/// `cuIpcGetMemHandle(handle, pointer)`. The driver would succeed on a block inside a segment and
/// hand out the segment's handle, and the importer would read the wrong bytes (measured): such a
/// block is refused. A block at the start of its segment has the right handle.
pub fn ipc_get(
    function: &'static Function,
    words: &[usize; 2],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let address = words[1] as u64;
    if bypass::is_on() && inside_segment(address) {
        log::warn(format_args!(
            "{}: the block at {address:#x} shares a segment and cannot be exported",
            function.base
        ));
        return INVALID_VALUE;
    }
    shown(function, Agent::Ipc, real)
}

pub fn ipc_event(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    shown(function, Agent::Ipc, real)
}

pub fn ipc_open(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    shown(function, Agent::Ipc, real)
}

/// Memory that is exported or imported by a shareable handle, or bound to a multicast object: work
/// of another process or device beside ours, which no barrier orders (hazard 5).
pub fn shared(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    shown(function, Agent::Ipc, real)
}

/// `cuMemGetHandleForAddressRange`: a dma-buf for other hardware.
pub fn address_handle(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    shown(function, Agent::AddressRangeHandle, real)
}

/// External memory and semaphores: another API works beside us.
pub fn external(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    shown(function, Agent::External, real)
}

/// Resources of a graphics API.
pub fn graphics(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    shown(function, Agent::External, real)
}

fn inside_segment(address: u64) -> bool {
    match extents::place(address) {
        Place::Foreign => false,
        Place::Inside => true,
        Place::Block(block) => block.extent.base() != address,
    }
}
