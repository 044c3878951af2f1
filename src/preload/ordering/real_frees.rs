//! Real frees: the driver's own `cuMemFree`, of the program's memory or the library's, and other
//! calls that wait like it: the end of pinned memory, arrays, modules.
//!
//! A waiting real free holds its context, and barriers block there too (measured). A blocked
//! barrier would hold the barrier lock, and with it the begin of a capture. On the plain driver
//! nothing blocks that, and its thread may be the one that ends the kernel (hazard 32). So a real
//! free announces itself, and waits for a running barrier. From then on until it returns, no
//! barrier of the context is begun: a free that would make one uses a real free too, and queues as
//! on the plain driver. Nor does a request that holds a lock ask the driver for a segment
//! (`cache/miss/growth.rs`).

use std::sync::atomic::Ordering;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::config;
use crate::driver::api;
use crate::driver::sys::CuResult;
use crate::lock::lock;
use crate::state::contexts;
use crate::state::contexts::Context;

/// Runs a real free of memory of the current context. The caller must not hold the barrier lock.
pub(crate) fn announced(call: impl FnOnce() -> CuResult) -> CuResult {
    // Where nothing is cached, no call of the library would wait for this one.
    if config::caches_nothing() {
        return call();
    }
    let _announced = contexts::known(0).map(Announced::new);
    call()
}

/// Runs a real free of memory that belongs to the context with this id, or to the current one if it
/// is 0. The driver holds the context of the memory.
pub(crate) fn announced_in(owner: u64, call: impl FnOnce() -> CuResult) -> CuResult {
    if owner == 0 || config::caches_nothing() || !rule_holds(Rule::OwnersFreeIsAnnounced) {
        return announced(call);
    }
    let _announced = contexts::find(owner).map(Announced::new);
    call()
}

/// Runs the end of an object that work of the current context may use: an array, a module.
pub(crate) fn announced_end(call: impl FnOnce() -> CuResult) -> CuResult {
    if rule_holds(Rule::TeardownIsAnnounced) { announced(call) } else { call() }
}

/// Runs the end of pinned memory, which belongs to every context.
pub(crate) fn announced_everywhere(call: impl FnOnce() -> CuResult) -> CuResult {
    let holds = !config::caches_nothing() && rule_holds(Rule::TeardownIsAnnounced);
    let contexts = contexts::all().filter(|_| holds);
    let _announced: Vec<_> = contexts.map(Announced::new).collect();
    call()
}

/// Creates the streams with which other calls release memory beside a real free, if the context has
/// memory to release: while a real free holds the context, the driver creates none. Not earlier,
/// because where the driver places memory seems to depend on which streams exist.
#[inline(always)]
fn prepare(context: &Context) {
    if !context.release_streams.are_ready.load(Ordering::Relaxed) {
        create_streams(context);
    }
}

#[cold]
fn create_streams(context: &Context) {
    // Another thread may end a context that is not the current one.
    let is_current = api::is_current(context.memory_owner.handle, context.memory_owner.id);
    let open = if is_current { None } else { context.keep_open_soon() };
    if !is_current && open.is_none() {
        return;
    }
    let may_release = lock(&context.allocator).reserved_bytes() > 0;
    if may_release && rule_holds(Rule::ReleaseStreamsAreReady) {
        let create = || {
            context.release_streams.create();
            Ok(())
        };
        let _ = api::relaxed(|| context.enter(create)); // tried again before the next one
    }
}

/// Returns whether a barrier of the context would block. The caller must hold the barrier lock.
#[inline]
pub(crate) fn any(context: &Context) -> bool {
    context.real_frees.load(Ordering::Acquire) != 0
}

struct Announced(&'static Context);

impl Announced {
    fn new(context: &'static Context) -> Announced {
        prepare(context);
        context.real_frees.fetch_add(1, Ordering::AcqRel);
        // A thread that took the barrier lock earlier has not seen the announcement.
        drop(lock(&context.barrier_lock));
        Announced(context)
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let announced = self.0.real_frees.fetch_sub(1, Ordering::Release);
        debug_assert_ne!(announced, 0, "more real frees have ended than begun");
    }
}
