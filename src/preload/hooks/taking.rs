//! Calls that may make the driver take memory of the device for itself, or give it back: measured while something is
//! recorded (Note [Intervals] in `driver_memory/intervals.rs`).

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

/// Around a call that may take some.
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

/// Around a call that gives some back, perhaps what was taken while something was recorded.
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

/// Around a call that needs the code of a kernel, the first of which in a context may take some.
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

/// Before a launch of a kernel or a graph, while something is recorded. None: it is not the first in this context.
pub(crate) fn first_launch(
    function: &'static Function,
    handle: usize,
    what: Use,
) -> Option<Interval> {
    let mut window = None;
    beside(function, || window = open_first(handle, what));
    window
}

/// Behind such a launch.
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
