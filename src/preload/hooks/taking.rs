//! Calls by which the driver may allocate or free device memory for itself. They are measured while
//! something is recorded (Note [Intervals] in `driver_memory/intervals.rs`).

use cachealloc_statistics::breakdown::Component;

use crate::driver::api;
use crate::driver::sys::CuResult;
use crate::driver_memory::first_uses;
use crate::driver_memory::first_uses::Use;
use crate::driver_memory::implicit_usage;
use crate::driver_memory::intervals::Interval;
use crate::functions::Function;
use crate::hooks::beside;
use crate::record;

/// Runs a call that may allocate such memory.
#[inline]
pub(crate) fn around(
    function: &'static Function,
    component: Component,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    if !record::is_on() {
        return call();
    }
    measured(function, component, || Interval::open(false), call)
}

/// Runs a call that frees such memory, perhaps memory allocated while something was recorded.
pub(crate) fn around_end(
    function: &'static Function,
    component: Component,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    if !record::is_on() && !implicit_usage::any() {
        return call();
    }
    measured(function, component, || Interval::open(true), call)
}

/// Runs a call that needs the code of a kernel. The first such call in a context may allocate
/// memory.
pub(crate) fn around_first(
    function: &'static Function,
    kernel: usize,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    if !record::is_on() {
        return call();
    }
    measured(function, component_of(Use::Code), || open_first(kernel, Use::Code), call)
}

/// Opens an interval before a launch of a kernel or a graph, while something is recorded. Returns
/// `None` if it is not the first launch in this context.
pub(crate) fn first_launch(
    function: &'static Function,
    handle: usize,
    what: Use,
) -> Option<Interval> {
    let mut window = None;
    beside(function, || window = open_first(handle, what));
    window
}

/// Closes the interval after such a launch.
pub(crate) fn launched(function: &'static Function, what: Use, window: Interval) {
    beside(function, || window.close(component_of(what)));
}

fn open_first(handle: usize, what: Use) -> Option<Interval> {
    let context_id = api::ctx_get_id(0).ok()?;
    if first_uses::is_first(handle, context_id, what) { Interval::open(false) } else { None }
}

fn component_of(what: Use) -> Component {
    match what {
        Use::Code => Component::Modules,
        Use::Launch => Component::Launches,
        Use::Graph => Component::Objects,
    }
}

fn measured(
    function: &'static Function,
    component: Component,
    open: impl FnOnce() -> Option<Interval>,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    let mut window = None;
    beside(function, || window = open());
    let code = call();
    if let Some(window) = window {
        beside(function, || window.close(component));
    }
    code
}
