//! Launches of kernels, graphs and host functions. A launch is the hottest call of most programs.
//! Its hook costs two additions and a few loads, which check whether caching is on, whether a
//! stream captures, whether the host can see the work, and whether a second context exists.

#[cfg(target_arch = "x86_64")]
pub(crate) mod short;

use core::ffi::c_void;
use core::ptr::null_mut;

use cachealloc_core::order::VisibleCause;
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_statistics::breakdown::Component;

use crate::driver::sys::{
    CuCode, CuResult, GRAPH_INSTANTIATE_UPLOAD, GraphHandle,
    LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION, LaunchAttribute, LaunchConfig, StreamHandle, result,
};
use crate::driver::{api, table};
use crate::driver_memory::first_uses;
use crate::driver_memory::first_uses::Use;
use crate::functions::{Function, Launches};
use crate::graphs::{graph_memory, open_captures, pool_life};
use crate::hooks::common;
use crate::hooks::{Real, beside, capture, is_accepted, out_of_memory, stream_of, taking};
use crate::ordering::{
    before_submission, captures, communication, kernels, observers, pinned, programmatic_launch,
};
use crate::process::bypass;
use crate::process::bypass::Failing;
use crate::record;
use crate::serving::refused_call;
use crate::serving::refused_call::MayBeCaptured;
use crate::state::barriers::LEDGER;
use crate::state::inflight_releases;
use crate::state::under_way::Waiter;

/// `cuLaunchKernel(function, grid x y z, block x y z, shared bytes, stream, void **params, void
/// **extra)`.
#[inline(always)]
pub(crate) fn kernel(
    function: &'static Function,
    kernel: usize,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    real: impl Real,
) -> CuResult {
    launch(function, kernel, params, extra, real)
}

/// `cuLaunchCooperativeKernel`: has the arguments of `cuLaunchKernel` without `extra`.
#[inline(always)]
pub(crate) fn cooperative(
    function: &'static Function,
    kernel: usize,
    params: *mut *mut c_void,
    real: impl Real,
) -> CuResult {
    launch(function, kernel, params, null_mut(), real)
}

/// `cuLaunchKernelEx(const CUlaunchConfig *config, function, params, extra)`.
#[inline(always)]
pub(crate) fn kernel_ex(
    function: &'static Function,
    config: *const LaunchConfig,
    kernel: usize,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    real: impl Real,
) -> CuResult {
    if programmatic_launch::watched()
        && let Some(mut attributes) = in_full_order(function, config)
    {
        // SAFETY: `in_full_order` has just read it.
        let mut config = unsafe { *config };
        config.attrs = attributes.as_mut_ptr().cast();
        config.numAttrs = attributes.len() as u32;
        let ordered = || {
            let stream =
                before_submission::named(config.hStream as StreamHandle, function.per_thread);
            before_submission::before_submit(stream);
            // SAFETY: this hook serves all its forms; the arguments are the program's.
            unsafe { api::launch_kernel_ex(function.id, &config, kernel, params, extra) }
        };
        let code = launch(function, kernel, params, extra, ordered);
        if code.is_err() {
            still_needs_order(stream_of(function, config.hStream as usize));
        }
        return code;
    }
    launch(function, kernel, params, extra, real)
}

/// Notes that the driver has refused a launch in full order: the next one must be in that order.
#[cold]
fn still_needs_order(stream: StreamHandle) {
    if captures::maybe() && captures::is_capturing(stream) {
        open_captures::needs_full_order(stream);
    } else if let Ok(id) = api::stream_get_id(stream) {
        programmatic_launch::block_given(id);
    }
}

/// Returns replacement attributes for a launch that may start before its predecessor ends, if it
/// must not (`ordering::programmatic_launch`).
#[cold]
fn in_full_order(
    function: &'static Function,
    config: *const LaunchConfig,
) -> Option<Vec<LaunchAttribute>> {
    // SAFETY: null, or the program's struct, valid for the call, and its array of attributes.
    let (config, attributes) = unsafe {
        let config = config.as_ref()?;
        let first = config.attrs.cast::<LaunchAttribute>();
        let count = if first.is_null() { 0 } else { config.numAttrs as usize };
        (config, if count == 0 { &[] } else { core::slice::from_raw_parts(first, count) })
    };
    let early = |attribute: &LaunchAttribute| {
        attribute.id == LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION && attribute.value[0] as u32 != 0
    };
    attributes.iter().find(|attribute| early(attribute))?;
    let stream = stream_of(function, config.hStream as usize);
    let in_order =
        || Some(attributes.iter().filter(|attribute| !early(attribute)).copied().collect());
    // A capturing stream must not be asked for its id.
    if captures::maybe() && captures::is_capturing(stream) {
        return if open_captures::takes_full_order(stream) { in_order() } else { None };
    }
    if programmatic_launch::allowed(api::stream_get_id(stream).ok()?) { None } else { in_order() }
}

/// Searches the arguments with which a node of a graph launches a kernel. The launch of the graph
/// is visible in any case.
pub(crate) fn search(
    function: &'static Function,
    kernel: usize,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) {
    let unknown = !LEDGER.visible.every_kernel() && (pinned::any() || communication::any());
    if unknown && bypass::is_caching() {
        is_visible(function, kernel, params, extra);
    }
}

/// A launch whose arguments were set by earlier calls, or are in an array of structs.
pub(crate) fn untyped(function: &'static Function, real: impl Real) -> CuResult {
    let pinned = pinned::any();
    let visible = pinned || communication::any() || LEDGER.visible.every_kernel();
    let code = common::submit(function, visible, real);
    if pinned && is_accepted(code) && rule_holds(Rule::UnknownArgumentsStay) {
        beside(function, || observers::visible(VisibleCause::UnknownArguments));
    }
    code
}

/// A host function, which runs on the host.
pub(crate) fn always_visible(function: &'static Function, real: impl Real) -> CuResult {
    common::submit(function, host_functions_are_visible(), real)
}

fn host_functions_are_visible() -> bool {
    rule_holds(Rule::HostFunctionsAreVisible)
}

/// `cuGraphInstantiate*(CUgraphExec *executable, CUgraph graph, ...)`.
pub(crate) fn graph_instantiate(
    function: &'static Function,
    executable: *mut usize,
    graph: GraphHandle,
    real: impl Real,
) -> CuResult {
    let code = taking::around(function, Component::Objects, || common::retried(function, real));
    if code.is_ok() && !executable.is_null() {
        beside(function, || {
            // SAFETY: the driver has just written it.
            graph_memory::instantiated(unsafe { *executable }, graph);
        });
    }
    code
}

/// `cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph,
/// CUDA_GRAPH_INSTANTIATE_PARAMS *)`, whose flags may also request an upload.
pub(crate) fn graph_instantiate_with(
    function: &'static Function,
    executable: *mut usize,
    graph: GraphHandle,
    params: *const u64,
    real: impl Real,
) -> CuResult {
    // SAFETY: null, or the program's struct, which begins with the flags.
    let flags = unsafe { params.as_ref() }.copied().unwrap_or(0);
    let uploads = flags & GRAPH_INSTANTIATE_UPLOAD != 0;
    if uploads && rule_holds(Rule::UploadMakesRoom) {
        beside(function, || make_room_on(graph_memory::graph_lacks_room_on(graph)));
    }
    let code = graph_instantiate(function, executable, graph, real);
    if uploads && code.is_ok() && !executable.is_null() && graph_memory::any() {
        // SAFETY: the driver has just written it.
        graph_memory::launched(unsafe { *executable });
    }
    code
}

/// `cuGraphLaunch(executable, stream)`, which fails on a capturing stream. A graph may contain host
/// functions and copies of any kind.
#[inline(always)]
pub(crate) fn graph_launch(
    function: &'static Function,
    executable: usize,
    real: impl Real,
) -> CuResult {
    with_graph_memory(function, executable, host_functions_are_visible(), real)
}

/// `cuGraphUpload(executable, stream)`: does the preparation that the first launch would do.
pub(crate) fn graph_upload(
    function: &'static Function,
    executable: usize,
    real: impl Real,
) -> CuResult {
    with_graph_memory(function, executable, false, real)
}

#[inline(always)]
fn with_graph_memory(
    function: &'static Function,
    executable: usize,
    look: bool,
    real: impl Real,
) -> CuResult {
    if !graph_memory::any() {
        return common::submit_to(function, look, MayBeCaptured::No, real);
    }
    with_room(function, executable, look, real)
}

/// Submits a graph that may need memory.
#[inline(never)]
fn with_room(
    function: &'static Function,
    executable: usize,
    look: bool,
    real: impl Real,
) -> CuResult {
    beside(function, || make_room_on(graph_memory::lacks_room_on(executable)));
    let code = common::submit_to(function, look, MayBeCaptured::No, real);
    if code.is_ok() {
        graph_memory::launched(executable);
    }
    code
}

/// Releases cached memory before the driver allocates the memory of a graph: what the driver has
/// allocated when it finds the device too full is lost.
fn make_room_on(devices: Vec<i32>) {
    for device in devices {
        let arrivals = &mut inflight_releases::arrivals();
        refused_call::make_room(Some(device), Waiter::StandsStill, arrivals);
    }
}

/// `cuGraphExecDestroy(executable)`.
pub(crate) fn graph_destroy(
    function: &'static Function,
    executable: usize,
    real: impl Real,
) -> CuResult {
    let end = || match graph_memory::any() {
        true => graph_memory::end_by(executable, || ended(function, real)),
        false => ended(function, real),
    };
    if record::is_on() {
        beside(function, || {
            if let Ok(id) = api::ctx_get_id(0) {
                first_uses::forget_graph(executable, id);
            }
        });
    }
    taking::around_end(function, Component::Objects, end)
}

/// `cuGraphDestroy(graph)`: may free memory of the graph's capture.
pub(crate) fn graph_end(
    function: &'static Function,
    graph: GraphHandle,
    real: impl Real,
) -> CuResult {
    graph_memory::graph_end_by(graph, || ended(function, real))
}

fn ended(function: &'static Function, real: impl Real) -> CuResult {
    let code = real();
    beside(function, pool_life::graph_ended);
    code
}

/// `cuGraphExecUpdate(executable, graph, ...)`: releases the previous graph of the executable,
/// perhaps while a launch runs.
pub(crate) fn graph_update(function: &'static Function, real: impl Real) -> CuResult {
    pool_life::executable_updated();
    let code = common::retried(function, real);
    if code.is_ok() {
        beside(function, pool_life::graph_ended);
    }
    code
}

/// `cuDeviceGraphMemTrim(device)`.
pub(crate) fn graph_trim(_function: &'static Function, real: impl Real) -> CuResult {
    let code = real();
    if graph_memory::any() {
        graph_memory::trimmed();
    }
    code
}

#[inline(always)]
fn launch(
    function: &'static Function,
    kernel: usize,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    real: impl Real,
) -> CuResult {
    let mut visible = LEDGER.visible.every_kernel();
    if !visible && (pinned::any() || communication::any()) {
        visible = is_visible(function, kernel, params, extra);
    }
    common::submit(function, visible, real)
}

/// Handles a launch that may need more than the plain path (`gate::launches_are_plain`). Returns
/// `None` if the launch is plain after all, otherwise its result, of which a failure is already
/// reported. A launch that is measured or watched is made through its entry point, so that the
/// compiler inlines the others as if there were none.
///
/// # Safety
///
/// `words` must be the program's arguments of this function.
#[cold]
pub(crate) unsafe fn special(function: &'static Function, words: &[usize]) -> Option<CuResult> {
    let call = |launch: Launch| {
        let mut all = [0; 11];
        all.iter_mut().zip(words).for_each(|(place, word)| *place = *word);
        let [a, b, c, d, e, f, g, h, i, j, k] = all;
        // SAFETY: a launch takes at most eleven words, and ignores those it does not take. The
        // arguments are the caller's promise.
        result(unsafe { launch(a, b, c, d, e, f, g, h, i, j, k) })
    };
    if !bypass::is_caching() {
        before_submission::flush_all();
        // SAFETY: the real function, as above.
        let done = call(unsafe { table::real(function.id) });
        return Some(done.or_else(|error| out_of_memory::answered(function, words, error)));
    }
    let again = || {
        let export = function.body().expect("only exported functions get here");
        // SAFETY: our export of this function, as above.
        call(unsafe { core::mem::transmute::<unsafe extern "C" fn(), Launch>(export) })
    };
    if record::is_on()
        && let Some(code) = first(function, words, again)
    {
        return Some(code);
    }
    if bypass::has_failures(Failing::Call)
        && let Some(code) = out_of_memory::watched(function, words, again)
    {
        return Some(code);
    }
    if captures::maybe() {
        // SAFETY: the caller's promise.
        unsafe { capture::submits(function, words) };
    }
    None
}

/// Makes and measures a first launch. Returns `None` if it is not the first of this kernel or graph
/// in its context.
fn first(
    function: &'static Function,
    words: &[usize],
    again: impl FnOnce() -> CuResult,
) -> Option<CuResult> {
    let launches = function.launches?;
    let what = match launches {
        Launches::Kernel { .. } => Use::Launch,
        Launches::Graph { .. } => Use::Graph,
    };
    let window = taking::first_launch(function, launches.handle(words), what)?;
    let code = again();
    taking::launched(function, what, window);
    Some(code)
}

#[rustfmt::skip]
type Launch = unsafe extern "C" fn(
    usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize,
) -> CuCode;

#[cold]
fn is_visible(
    function: &'static Function,
    kernel: usize,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> bool {
    let mut visible = true;
    beside(function, || {
        // SAFETY: the program's own argument arrays, valid for the launch by the driver's contract.
        visible = unsafe {
            kernels::is_visible(kernel, params.cast_const().cast(), extra.cast_const().cast())
        };
    });
    visible
}
