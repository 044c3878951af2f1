//! Asynchronous copies, fills and memory operations. The host can see such a submission if one of
//! its operands is pinned memory (hazards 1, 2 and 28). With pageable memory, the driver has moved
//! the bytes when the call returns. The exceptions are batches, and calls in which the program
//! states when the source may be read (hazard 41).

use cachealloc_core::order::{Observer, VisibleCause};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::{
    ContextHandle, CuResult, MEMORY_TYPE_ARRAY, MEMORY_TYPE_HOST, Memcpy2d, Memcpy3d, Side2d,
    Side3d,
};
use crate::functions::Function;
use crate::graphs::destruction_fence;
use crate::hooks::{Real, beside, common};
use crate::ordering::{observers, pinned};
use crate::pagemap;
use crate::state::barriers::LEDGER;

/// Returns whether an operand at this address lets the host see the work: pinned memory, or any
/// memory if a device reads pageable memory.
#[inline]
fn host_sees(address: usize) -> bool {
    host_sees_range(address, address)
}

#[inline]
fn host_sees_range(first: usize, last: usize) -> bool {
    LEDGER.visible.every_kernel()
        || pinned::touches(first, last) && rule_holds(Rule::PinnedOperandsAreVisible)
}

#[inline]
fn submit(function: &'static Function, look: impl FnOnce() -> bool, real: impl Real) -> CuResult {
    let look = (pinned::any() || LEDGER.visible.every_kernel()) && look();
    common::submit(function, look, real)
}

/// A call with a destination and a source, each in any kind of memory under unified addressing.
pub(crate) fn operands(
    function: &'static Function,
    destination: usize,
    source: usize,
    real: impl Real,
) -> CuResult {
    submit(function, || host_sees(destination) || host_sees(source), real)
}

/// A synchronous call, from or to any memory.
pub(crate) fn plain(function: &'static Function, real: impl Real) -> CuResult {
    let code = common::submit(function, may_return_early(), real);
    if code.is_ok() {
        destruction_fence::work_is_over();
    }
    code
}

/// Whether a synchronous copy from or to host memory may return before the bytes have moved: the
/// driver treats managed memory as device memory (hazard 72), and perhaps virtual memory.
fn may_return_early() -> bool {
    let causes = [VisibleCause::Managed, VisibleCause::HostVirtualMemory];
    causes.into_iter().any(|cause| LEDGER.visible.has(cause))
        && rule_holds(Rule::ManagedCopiesAreVisible)
}

/// A call with one address: a fill, a word that the host may poll or reset after a wait for it
/// (hazard 67), or a copy whose other side is an array.
pub(crate) fn operand(function: &'static Function, address: usize, real: impl Real) -> CuResult {
    submit(function, || host_sees(address), real)
}

/// `cuMemcpy2D[Async](const CUDA_MEMCPY2D *[, stream])`.
pub(crate) fn two_dimensional(
    function: &'static Function,
    copy: *const Memcpy2d,
    real: impl Real,
) -> CuResult {
    let look = || {
        // SAFETY: null, or the program's struct, valid for the call.
        let copy = unsafe { copy.as_ref() };
        copy.is_none_or(|copy| {
            let shape = Shape { width: copy.width, height: copy.height, depth: 1 };
            [&copy.source, &copy.target].into_iter().any(|side| {
                let Side2d { x, y, kind, host, device, pitch, .. } = *side;
                Operand { x, y, z: 0, kind, host, device, pitch, rows: copy.height }
                    .is_seen(function, &shape)
            })
        })
    };
    submit(function, look, real)
}

/// `cuMemcpy3D[Async](const CUDA_MEMCPY3D *[, stream])`.
pub(crate) fn three_dimensional(
    function: &'static Function,
    copy: *const Memcpy3d,
    real: impl Real,
) -> CuResult {
    let look = || {
        // SAFETY: null, or the program's struct, valid for the call.
        let copy = unsafe { copy.as_ref() };
        copy.is_none_or(|copy| {
            let shape = Shape { width: copy.width, height: copy.height, depth: copy.depth };
            [&copy.source, &copy.target].into_iter().any(|side| {
                let Side3d { x, y, z, kind, host, device, pitch, height, .. } = *side;
                Operand { x, y, z, kind, host, device, pitch, rows: height }
                    .is_seen(function, &shape)
            })
        })
    };
    submit(function, look, real)
}

/// The size of a copy: bytes per row, rows per plane, planes.
struct Shape {
    width: usize,
    height: usize,
    depth: usize,
}

/// One side of a copy: its offset from an address in bytes, rows and planes, and its row and plane
/// pitch. A pitch of 0 is taken from the shape.
struct Operand {
    x: usize,
    y: usize,
    z: usize,
    kind: u32,
    host: usize,
    device: u64,
    pitch: usize,
    rows: usize,
}

impl Operand {
    /// Returns whether the host sees this side. The base address alone does not decide: it may lie
    /// outside any memory (hazard 41).
    fn is_seen(&self, function: &Function, shape: &Shape) -> bool {
        let base = match self.kind {
            MEMORY_TYPE_ARRAY => return false,
            MEMORY_TYPE_HOST if !function.is_asynchronous() => return may_return_early(),
            MEMORY_TYPE_HOST => self.host,
            _ => self.device as usize,
        };
        if !rule_holds(Rule::OffsetsCount) {
            return host_sees(base);
        }
        let pitch = if self.pitch == 0 { shape.width } else { self.pitch };
        let plane = pitch.wrapping_mul(if self.rows == 0 { shape.height } else { self.rows });
        let at = |x: usize, y: usize, z: usize| {
            let (rows, planes) = (y.wrapping_mul(pitch), z.wrapping_mul(plane));
            base.wrapping_add(x).wrapping_add(rows).wrapping_add(planes)
        };
        let last_of = |first: usize, count: usize| first.wrapping_add(count.saturating_sub(1));
        let first = at(self.x, self.y, self.z);
        let last = at(
            last_of(self.x, shape.width),
            last_of(self.y, shape.height),
            last_of(self.z, shape.depth),
        );
        host_sees_range(first, last)
    }
}

/// `cuMemcpyPeer[Async](destination, context, source, context, ..)`: work of two contexts, which a
/// barrier of one context does not order (hazard 27).
pub(crate) fn peer(
    function: &'static Function,
    to: ContextHandle,
    from: ContextHandle,
    real: impl Real,
) -> CuResult {
    if to != from {
        beside(function, || observers::observe(Observer::SecondContext));
    }
    submit(function, || true, real)
}

/// `cuMemcpy3DPeer[Async]`: handled like `peer`, with the contexts in a struct.
pub(crate) fn peer_of_struct(
    function: &'static Function,
    copy: *const Memcpy3d,
    real: impl Real,
) -> CuResult {
    // SAFETY: null, or the program's struct, valid for the call.
    match unsafe { copy.as_ref() } {
        Some(copy) => peer(function, copy.target.context, copy.source.context, real),
        // The driver refuses it.
        None => real(),
    }
}

/// Memory operations whose operands are in an array of structs or in managed memory. They count as
/// host-visible if any pinned memory exists.
pub(crate) fn unknown_operands(function: &'static Function, real: impl Real) -> CuResult {
    submit(function, || true, real)
}

/// `cuMemcpyBatchAsync(destinations, sources, sizes, count, ...)`: the copies read and write
/// pageable memory when they run. So only a batch within the library's memory is invisible to the
/// host.
pub(crate) fn batch(
    function: &'static Function,
    destinations: *const u64,
    sources: *const u64,
    count: usize,
    real: impl Real,
) -> CuResult {
    let all_ours = |list: *const u64| {
        // SAFETY: null, or the program's array of `count` addresses, valid for the call.
        !list.is_null() && (0..count).all(|index| is_ours(unsafe { *list.add(index) }))
    };
    let seen = !(all_ours(destinations) && all_ours(sources));
    common::submit(function, seen && may_be_pageable(), real)
}

/// `cuMemcpyWithAttributesAsync(destination, source, ...)`: handled as a batch of one.
pub(crate) fn with_attributes(
    function: &'static Function,
    destination: u64,
    source: u64,
    real: impl Real,
) -> CuResult {
    let seen = !(is_ours(destination) && is_ours(source));
    common::submit(function, seen && may_be_pageable(), real)
}

/// A batch, as for `batch`, with its operands in an array of structs.
pub(crate) fn batch_of_structs(function: &'static Function, real: impl Real) -> CuResult {
    common::submit(function, may_be_pageable(), real)
}

fn may_be_pageable() -> bool {
    rule_holds(Rule::BatchesAreVisible) || pinned::any() || LEDGER.visible.every_kernel()
}

/// Returns whether the address is certainly in device memory.
fn is_ours(address: u64) -> bool {
    pagemap::extent_of(address).is_some()
}

/// Signals another process or API that earlier work is done.
pub(crate) fn external_signal(function: &'static Function, real: impl Real) -> CuResult {
    common::submit(function, true, real)
}
