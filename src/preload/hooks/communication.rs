//! Calls that pass memory to other processes by handles, and calls that create and destroy these
//! handles. Each is an observer, unless a communication library makes it for its own use
//! (`ordering/communication.rs`).

use cachealloc_core::order::Observer;

use crate::driver::sys::CuResult;
use crate::functions::Function;
use crate::hooks::{Real, beside, common, is_accepted};
use crate::ordering::{communication, observers};
use crate::process::bypass;

/// `cuMemExportToShareableHandle(void *shareable, handle, type, flags)`.
pub(crate) fn export(function: &'static Function, handle: usize, real: impl Real) -> CuResult {
    shared(function, || communication::is_own(handle as u64), real)
}

/// `cuMemImportFromShareableHandle(handle *, void *shareable, type)`.
pub(crate) fn import(function: &'static Function, real: impl Real) -> CuResult {
    shared(function, || true, real)
}

/// `cuMulticastBindMem(multicast, .., handle, ..)`: binds memory of a device to an object shared by
/// several devices.
pub(crate) fn bind(
    function: &'static Function,
    multicast: usize,
    handle: usize,
    real: impl Real,
) -> CuResult {
    let own = || [multicast, handle].iter().all(|&one| communication::is_own(one as u64));
    shared(function, own, real)
}

/// Runs a call that shares memory. `own`: if a library makes the call, it does so for its own use.
fn shared(function: &'static Function, own: impl FnOnce() -> bool, real: impl Real) -> CuResult {
    let mut is_own = false;
    beside(function, || is_own = communication::is_for_itself() && own());
    let code = common::pass(function, real);
    if is_accepted(code) && !is_own {
        beside(function, || observers::observe(Observer::Ipc));
    }
    code
}

/// Returns whether a communication library makes the present call for its own use. Inside another
/// hook the caller is unknown, and nothing is exempt.
pub(crate) fn makes_for_itself(function: &'static Function) -> bool {
    let mut own = false;
    beside(function, || own = communication::is_for_itself());
    own
}

/// `cuMulticastCreate(handle *, const CUmulticastObjectProp *)`.
pub(crate) fn multicast(
    function: &'static Function,
    handle: *mut usize,
    real: impl Real,
) -> CuResult {
    let code = common::retried(function, real);
    if code.is_ok() && bypass::is_caching() && !handle.is_null() {
        // SAFETY: the driver has just written it.
        let handle = unsafe { *handle };
        beside(function, || {
            if communication::is_for_itself() {
                communication::made(handle as u64);
            }
        });
    }
    code
}

/// `cuMemRelease(handle)`: the memory stays as long as it is mapped.
pub(crate) fn release(function: &'static Function, handle: usize, real: impl Real) -> CuResult {
    communication::released_by(handle as u64, || common::pass(function, real))
}

/// `cuMemAddressReserve(address *, bytes, ..)`.
pub(crate) fn reserve(function: &'static Function, bytes: usize, real: impl Real) -> CuResult {
    let code = common::retried(function, real);
    if is_accepted(code) && bypass::is_caching() {
        beside(function, || communication::reserved(bytes));
    }
    code
}
