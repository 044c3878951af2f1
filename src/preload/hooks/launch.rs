//! Kernels, graphs, host functions. A launch is the hottest call of most programs: two additions
//! around it, and one load each for "could the host see it?" and "is there a second context?".

use core::ffi::c_void;

use crate::driver::sys::CuResult;
use crate::functions::Function;
use crate::hooks::{common, guarded};
use crate::runtime::{LEDGER, bypass, kernels, pinned};

/// `cuLaunchKernel(function, grid x y z, block x y z, shared bytes, stream, params, extra)`;
/// `cuLaunchCooperativeKernel` is the same without `extra`.
#[inline(always)]
pub fn kernel<const N: usize>(
    function: &'static Function,
    words: &[usize; N],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let extra = if N > 10 { words[N - 1] } else { 0 };
    launch(function, words[0], words[9], extra, real)
}

/// `cuLaunchKernelEx(const CUlaunchConfig *config, function, params, extra)`.
#[inline(always)]
pub fn kernel_ex(
    function: &'static Function,
    words: &[usize; 4],
    real: impl Fn() -> CuResult,
) -> CuResult {
    launch(function, words[1], words[2], words[3], real)
}

/// Launches whose arguments were set by earlier calls, or lie in an array of structs.
pub fn untyped(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    common::submit(function, pinned::any() || LEDGER.visible.every_kernel(), real)
}

/// Host functions run on the host; graphs may hold them, and copies of any kind.
pub fn always_visible(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    common::submit(function, true, real)
}

#[inline(always)]
fn launch(
    function: &'static Function,
    kernel: usize,
    params: usize,
    extra: usize,
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    if pinned::any() && !LEDGER.visible.every_kernel() {
        look_at_arguments(function, kernel, params, extra);
    }
    common::submit(function, LEDGER.visible.every_kernel(), real)
}

#[cold]
fn look_at_arguments(function: &'static Function, kernel: usize, params: usize, extra: usize) {
    let scan = || {
        // SAFETY: the program's own argument arrays, valid for the launch by the driver's contract.
        unsafe {
            kernels::scan(kernel, params as *const *const c_void, extra as *const *const c_void)
        };
        0
    };
    guarded(function, scan, || 0);
}
