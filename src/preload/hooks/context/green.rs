//! Green contexts: parts of a device with separate streams. They use the memory of the primary
//! context, to which each holds a reference.

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::contexts::stream_identity;
use crate::driver::api;
use crate::driver::sys::CuResult;
use crate::functions::Function;
use crate::hooks::context::end;
use crate::hooks::{Real, beside, common, is_accepted};
use crate::ordering::{captures, observers};
use crate::process::bypass;
use crate::state::contexts;

/// `cuGreenCtxCreate`, `cuCtxFromGreenCtx`, `cuGreenCtxStreamCreate`: a green context orders only
/// its own streams.
pub(crate) fn shows(function: &'static Function, real: impl Real) -> CuResult {
    let code = common::retried(function, real);
    if is_accepted(code) && bypass::is_caching() {
        beside(function, || observers::observe(Observer::GreenContext));
    }
    code
}

/// `cuGreenCtxDestroy(green context)`: drops a reference to the primary context, which may be the
/// last one (hazard 69).
pub(crate) fn destroy(function: &'static Function, green: usize, real: impl Real) -> CuResult {
    let mut device = None;
    // For each green context, its memory owner shows whether it has ended.
    let has_home = rule_holds(Rule::GreenIsEnteredByPrimary);
    if has_home && rule_holds(Rule::GreenHoldsPrimary) {
        beside(function, || device = device_of(green));
    }
    stream_identity::may_end();
    let code = match device {
        Some(device) => end::primary(function, device, real),
        None => common::pass(function, real),
    };
    if code.is_ok() && rule_holds(Rule::DetachedIsOver) {
        beside(function, captures::green_context_destroyed);
    }
    code
}

fn device_of(green: usize) -> Option<i32> {
    let handle = api::ctx_from_green_ctx(green).ok()?;
    if let Some(context) = contexts::known(handle) {
        return Some(context.device);
    }
    // The library was not called while this context was current. But the primary context may have
    // memory, which ends with it.
    api::ctx_push_current(handle).ok()?;
    let device = api::ctx_get_device().ok();
    let _ = api::ctx_pop_current();
    device
}
