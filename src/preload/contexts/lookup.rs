//! Finds the context of a call, and creates its record if it was not seen before.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use cachealloc_core::order::Observer;
use cachealloc_history::StackId;

use crate::assembly::{creation, end};
use crate::driver::api;
use crate::driver::api::GetContextId;
use crate::driver::sys::{ContextHandle, CuResult};
use crate::lock::lock;
use crate::state::barriers::LEDGER;
use crate::state::contexts::Context;
use crate::state::thread::Thread;
use crate::state::{contexts, registry};

/// Starts with the first context, and inspects each (`assembly::lifetime`).
static WHEN_FIRST_SEEN: OnceLock<fn()> = OnceLock::new();

/// Sets a function that is called whenever a context is first seen, with no lock of the library
/// held.
pub(crate) fn when_first_seen(seen: fn()) {
    let _ = WHEN_FIRST_SEEN.set(seen);
}

/// Returns the calling thread's current context, if it was seen before and the driver reports it at
/// once.
#[inline(always)]
pub(crate) fn seen_current(thread: &Thread) -> Option<&'static Context> {
    let Some(id) = thread.get_context_id.get().of_current() else { return first_current(thread) };
    // SAFETY: `remember` stored it before `first_current` stored that function, and contexts are
    // leaked.
    let known = unsafe { &*thread.context.get().cast::<Context>() };
    match known.living_id.load(Ordering::Acquire) == id {
        true => Some(known),
        false => remember(thread, id),
    }
}

/// Returns what `seen_current` does for a thread that has not used a context yet.
#[cold]
#[inline(never)]
fn first_current(thread: &Thread) -> Option<&'static Context> {
    let get_id = GetContextId::find()?;
    let found = remember(thread, get_id.of_current()?)?;
    thread.get_context_id.set(get_id);
    Some(found)
}

/// Returns the context with this id, if it was seen before. The thread remembers it.
#[inline(never)]
fn remember(thread: &Thread, id: u64) -> Option<&'static Context> {
    let found = contexts::find(id)?;
    thread.context.set(core::ptr::from_ref(found).cast());
    Some(found)
}

/// Returns the calling thread's current context. Errors are the driver's own (`INVALID_CONTEXT`).
#[inline(always)]
pub(crate) fn current() -> CuResult<&'static Context> {
    let id = api::ctx_get_id(0)?;
    contexts::find(id).map_or_else(|| adopt(0, id), Ok)
}

pub(crate) fn of_handle(handle: ContextHandle) -> CuResult<&'static Context> {
    let id = api::ctx_get_id(handle)?;
    contexts::find(id).map_or_else(|| adopt(handle, id), Ok)
}

/// Returns whether the context certainly exists. The library does not observe the end of a green
/// context. A primary context may also end unobserved, by a call that bypassed the hooks: the
/// driver reports whether a primary context exists without its handle, but it may be another one.
pub(crate) fn is_certain(context: &Context) -> bool {
    if LEDGER.exclusive.has_observed(Observer::GreenContext) {
        return false;
    }
    context.explicit
        || api::device_primary_ctx_get_state(context.device).is_ok_and(|(_, active)| active != 0)
            && api::ctx_get_id(context.handle) == Ok(context.id)
}

/// Records a context that is first seen. `handle` is 0 for the current one.
#[cold]
fn adopt(handle: ContextHandle, id: u64) -> CuResult<&'static Context> {
    let context = enlist(handle, id)?;
    // After unlocking: this resolves functions, and the loader's lock may be held by a thread that
    // needs this lock, in the constructor of a library that allocates.
    if let Some(seen) = WHEN_FIRST_SEEN.get() {
        seen();
    }
    Ok(context)
}

fn enlist(handle: ContextHandle, id: u64) -> CuResult<&'static Context> {
    let _growing = lock(contexts::growing());
    if let Some(context) = contexts::find(id) {
        return Ok(context);
    }
    let handle = if handle == 0 { api::ctx_get_current()? } else { handle };
    // A handle names one context at a time. So the earlier one with this handle has ended, perhaps
    // because another thread created the primary context again meanwhile.
    let earlier = contexts::all().filter(|context| context.handle == handle);
    earlier.for_each(|context| end::destroyed(context, StackId::NONE));
    let context = creation::new(handle, id);
    registry::push(context);
    Ok(context)
}
