//! Asynchronous copies, fills and memory operations: submissions that the host can see if one of
//! their operands is pinned memory (hazards 1, 2 and 28). From pageable memory the driver has
//! taken the bytes, or put them there, when the call returns.

use cachealloc_core::order::Agent;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::{CuResult, MEMORY_TYPE_ARRAY, MEMORY_TYPE_HOST, Memcpy2d, Memcpy3d};
use crate::functions::Function;
use crate::hooks::{beside, common};
use crate::runtime::{LEDGER, agents, bypass, pinned};

/// Whether memory at this address lets the host see the work: pinned, or, with a device that
/// reads pageable memory, any.
#[inline]
fn host_sees(address: usize) -> bool {
    LEDGER.visible.every_kernel()
        || pinned::contains(address) && rule_holds(Rule::PinnedOperandsLook)
}

#[inline]
fn submit(
    function: &'static Function,
    look: impl FnOnce() -> bool,
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    let look = (pinned::any() || LEDGER.visible.every_kernel()) && look();
    common::submit(function, look, real)
}

/// `(destination, source, ...)`, each of any kind under unified addressing.
pub fn destination_source(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    submit(function, || host_sees(words[0]) || host_sees(words[1]), real)
}

/// `(device, host source, ...)`.
pub fn host_source(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    destination_source(function, words, real)
}

/// `(host destination, device or array, ...)`.
pub fn host_destination(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    destination_source(function, words, real)
}

/// `(array, offset, host source, ...)`.
pub fn array_host_source(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    submit(function, || host_sees(words[2]), real)
}

/// `(destination, ...)`: fills.
pub fn destination(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    submit(function, || host_sees(words[0]), real)
}

/// `(stream, address, value, flags)`: the device writes a word that somebody may poll.
pub fn stream_value(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    submit(function, || host_sees(words[1]), real)
}

/// Whether an operand of a copy that a struct describes is seen by the host. The kinds of memory
/// are read as numbers: the program may have written any.
macro_rules! operands_seen {
    ($copy:expr) => {{
        let copy = $copy;
        if copy.is_null() {
            true
        } else {
            // SAFETY: the program's struct, valid for the call.
            unsafe {
                let source = (&raw const (*copy).srcMemoryType).cast::<u32>().read();
                let target = (&raw const (*copy).dstMemoryType).cast::<u32>().read();
                operand_seen(source, (*copy).srcHost as usize, (*copy).srcDevice)
                    || operand_seen(target, (*copy).dstHost as usize, (*copy).dstDevice)
            }
        }
    }};
}

/// `(const CUDA_MEMCPY2D *, stream)`.
pub fn two_dimensional(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    submit(function, || operands_seen!(words[0] as *const Memcpy2d), real)
}

/// `(const CUDA_MEMCPY3D *, stream)`.
pub fn three_dimensional(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    submit(function, || operands_seen!(words[0] as *const Memcpy3d), real)
}

/// `cuMemcpyPeer[Async](destination, context, source, context, ...)` and their 3D forms: work of
/// two contexts, which a barrier of one does not order (hazard 27).
pub fn peer(function: &'static Function, words: &[usize], real: impl Fn() -> CuResult) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    if words.len() < PEER_WORDS_MIN || words[1] != words[3] {
        beside(function, || agents::show(Agent::SecondContext));
    }
    submit(function, || true, real)
}

/// Below that the contexts stand in a struct.
const PEER_WORDS_MIN: usize = 5;

/// Operands in arrays of structs, or of kinds not looked at: any pinned memory counts.
pub fn unknown_operands(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    submit(function, || true, real)
}

/// Another process or API learns that earlier work is done.
pub fn external_signal(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    common::submit(function, true, real)
}

fn operand_seen(kind: u32, host: usize, device: u64) -> bool {
    match kind {
        MEMORY_TYPE_HOST => host_sees(host),
        MEMORY_TYPE_ARRAY => false,
        _ => host_sees(device as usize),
    }
}
