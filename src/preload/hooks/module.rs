//! Modules and libraries: loading one may need device memory, and unloading one ends memory that
//! kernels use.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;

use cachealloc_core::order::VisibleCause;
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_statistics::breakdown::Component;

use crate::driver::api;
use crate::driver::sys::{CuResult, POINTER_IS_MANAGED};
use crate::driver_memory::first_uses::USES;
use crate::functions::Function;
use crate::hooks::{Real, common, guarded, taking};
use crate::ordering::kernels;
use crate::ordering::kernels::KERNELS;
use crate::ordering::{observers, pending, real_frees};
use crate::record;
use crate::statistics::waits::Wait;

/// `CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES`, `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`: sizes that the driver
/// overwrites with the size it used.
const JIT_LOG_SIZES: [u32; 2] = [4, 6];
const JIT_OPTIONS_MAX: usize = 64;

/// `cuModuleLoad*`, and calls that may load code whose loading was deferred.
pub(crate) fn loads(function: &'static Function, real: impl Real) -> CuResult {
    taking::around(function, Component::Modules, || common::retried(function, real))
}

/// `cuModuleGetFunction(function *, module, name)`. Only the first call with this name is measured,
/// since some programs look a function up before each launch.
pub(crate) fn looks_up(
    function: &'static Function,
    module: usize,
    name: usize,
    real: impl Real,
) -> CuResult {
    if !record::is_on() {
        return common::retried(function, real);
    }
    uses(function, module ^ hash(name as *const c_char), real)
}

/// `cuLogs*(...)`: the program reads what the driver refuses.
pub(crate) fn reads_log(function: &'static Function, real: impl Real) -> CuResult {
    let code = common::pass(function, real);
    if code.is_ok() {
        kernels::log_is_read();
    }
    code
}

/// Returns the FNV-1a hash of a C string, or 0 for a null pointer.
fn hash(name: *const c_char) -> usize {
    if name.is_null() {
        return 0;
    }
    // SAFETY: the program's name, which the driver reads as well.
    let name = unsafe { CStr::from_ptr(name) };
    let step = |hash: usize, byte: &u8| (hash ^ *byte as usize).wrapping_mul(0x0100_0000_01b3);
    name.to_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A call that needs the code of this kernel, whatever kind of handle names it.
pub(crate) fn uses(function: &'static Function, kernel: usize, real: impl Real) -> CuResult {
    taking::around_first(function, kernel, || common::retried(function, real))
}

/// `cuModuleLoadDataEx(module, image, count, options, values)` and `cuLibraryLoad*(library, code,
/// options, values, count, ...)`. The log buffer sizes among the option values are input and
/// output: a retry must see what the program wrote (hazard 22).
pub(crate) fn load_data(
    function: &'static Function,
    count: u32,
    options: *mut u32,
    values: *mut *mut c_void,
    real: impl Real,
) -> CuResult {
    let count = (count as usize).min(JIT_OPTIONS_MAX);
    let mut saved = [null_mut(); JIT_OPTIONS_MAX];
    let has_options = !options.is_null() && !values.is_null();
    let count = if has_options { count } else { 0 };
    for (index, saved) in saved[..count].iter_mut().enumerate() {
        // SAFETY: the program's arrays have `count` entries each.
        *saved = unsafe { *values.add(index) };
    }
    let restore = || {
        for (index, saved) in saved[..count].iter().enumerate() {
            // SAFETY: as above; only values that the driver itself overwrote are restored.
            unsafe {
                let restored = rule_holds(Rule::RetryRestoresSizes);
                if restored && JIT_LOG_SIZES.contains(&*options.add(index)) {
                    *values.add(index) = *saved;
                }
            }
        }
    };
    let mut again = false;
    let mut load = || {
        if core::mem::replace(&mut again, true) {
            restore();
        }
        real()
    };
    taking::around(function, Component::Modules, || common::retried_mut(function, &mut load))
}

/// `cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, module, name)`, `cuLibraryGetGlobal`.
/// Before this call the host cannot know the address of a module's variable. Through a managed
/// variable it sees what kernels write (hazard 1).
pub(crate) fn global(
    function: &'static Function,
    address: *mut u64,
    module: usize,
    name: usize,
    real: impl Real,
) -> CuResult {
    let code = looks_up(function, module, name, real);
    if code.is_err() || address.is_null() {
        return code;
    }
    guarded(
        function,
        || {
            // SAFETY: the driver has just written it.
            let address = unsafe { *address };
            let managed = api::pointer_get_attribute(POINTER_IS_MANAGED, address);
            if managed.is_ok_and(|managed| managed != 0) {
                observers::visible(VisibleCause::Managed);
            }
            code
        },
        || code,
    )
}

/// `cuModuleUnload(module)`, `cuLibraryUnload(library)`.
pub(crate) fn unload(function: &'static Function, real: impl Real) -> CuResult {
    pending::wait_all(Wait::Teardown);
    KERNELS.forget_all();
    USES.forget_all();
    taking::around_end(function, Component::Modules, || real_frees::announced_end(real))
}
