//! Calls that may make the driver take memory of the device for itself, or give it back: measured while something is
//! recorded (Note [Windows] in `driver_memory/windows.rs`).

use cachealloc_statistics::account::Part;

use crate::driver::api;
use crate::driver::sys::CuResult;
use crate::driver_memory::first_uses::{self, Use};
use crate::driver_memory::taken;
use crate::driver_memory::windows::Window;
use crate::functions::Function;
use crate::hooks::beside;
use crate::record;

/// Around a call that may take some.
#[inline]
pub(crate) fn around(
    function: &'static Function,
    part: Part,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    if !record::is_on() {
        return call();
    }
    measured(function, part, || Window::open(false), call)
}

/// Around a call that gives some back, perhaps what was taken while something was recorded.
pub(crate) fn around_end(
    function: &'static Function,
    part: Part,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    if !record::is_on() && !taken::any() {
        return call();
    }
    measured(function, part, || Window::open(true), call)
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
    measured(function, part_of(Use::Code), || open_first(kernel, Use::Code), call)
}

/// Before a launch of a kernel or a graph, while something is recorded. None: it is not the first in this context.
pub(crate) fn first_launch(
    function: &'static Function,
    handle: usize,
    what: Use,
) -> Option<Window> {
    let mut window = None;
    beside(function, || window = open_first(handle, what));
    window
}

/// Behind such a launch.
pub(crate) fn launched(function: &'static Function, what: Use, window: Window) {
    beside(function, || window.close(part_of(what)));
}

fn open_first(handle: usize, what: Use) -> Option<Window> {
    let context_id = api::ctx_get_id(0).ok()?;
    if first_uses::is_first(handle, context_id, what) { Window::open(false) } else { None }
}

fn part_of(what: Use) -> Part {
    match what {
        Use::Code => Part::Modules,
        Use::Launch => Part::Launches,
        Use::Graph => Part::Objects,
    }
}

fn measured(
    function: &'static Function,
    part: Part,
    open: impl FnOnce() -> Option<Window>,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    let mut window = None;
    beside(function, || window = open());
    let code = call();
    if let Some(window) = window {
        beside(function, || window.close(part));
    }
    code
}
