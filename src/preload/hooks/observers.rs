//! Calls that reveal an observer: anything that accesses the memory without waiting for the
//! barriers of its context, such as other processes (legacy IPC: `ipc.rs`), network cards or
//! graphics. Nothing accesses the memory before the call has returned. So the library notes the
//! observer once the driver has accepted the call; a refused call reveals nothing. The call returns
//! after the pending barriers of all contexts.

use cachealloc_core::order::Observer;

use crate::driver::sys::CuResult;
use crate::functions::Function;
use crate::hooks::{Real, beside, common, is_accepted};
use crate::ordering::observers;

#[inline]
pub(crate) fn observed(
    function: &'static Function,
    observer: Observer,
    real: impl Real,
) -> CuResult {
    accepted(function, observer, common::pass(function, real))
}

/// Notes the observer that a call with this result reveals, if the driver accepted it.
#[inline]
pub(crate) fn accepted(
    function: &'static Function,
    observer: Observer,
    code: CuResult,
) -> CuResult {
    if is_accepted(code) {
        beside(function, || observers::observe(observer));
    }
    code
}

/// Memory that is exported or imported by a shareable handle, or bound to a multicast object.
/// Another process or device may work on it, which no barrier orders (hazard 5).
pub(crate) fn shared(function: &'static Function, real: impl Real) -> CuResult {
    observed(function, Observer::Ipc, real)
}

/// External memory and semaphores: another API works on the same memory.
pub(crate) fn external(function: &'static Function, real: impl Real) -> CuResult {
    observed(function, Observer::External, real)
}

/// Resources of a graphics API.
pub(crate) fn graphics(function: &'static Function, real: impl Real) -> CuResult {
    observed(function, Observer::External, real)
}
