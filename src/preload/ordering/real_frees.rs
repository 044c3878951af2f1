//! Real frees: the driver's own `cuMemFree`, of the program's memory or of ours, and what else waits like
//! it: the end of pinned memory, arrays, modules.
//!
//! While one waits it holds its context, and barriers stand still there too (measured). A barrier that
//! stood still would keep the gate, and with it whoever wants to begin a capture; natively nobody
//! keeps him, and he may be the one who ends the kernel (hazard 32). So a real free says that it
//! comes, and lets a barrier that is under way pass. From then on until it returns no barrier of the
//! context is begun: who wants one frees by a real free too, and stands in line as natively.

use std::sync::atomic::Ordering;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::contexts::{self, Context};
use crate::driver::sys::CuResult;
use crate::lock::lock;

/// Runs a real free of memory of the current context. Not with the gate held.
pub fn announced(call: impl FnOnce() -> CuResult) -> CuResult {
    let _announced = contexts::known(0).map(Announced::new);
    call()
}

/// Runs the end of something that work of the current context may use: an array, a module.
pub fn announced_end(call: impl FnOnce() -> CuResult) -> CuResult {
    if rule_holds(Rule::TeardownIsAnnounced) { announced(call) } else { call() }
}

/// As `announced_end`, for pinned memory, which is every context's.
pub fn announced_everywhere(call: impl FnOnce() -> CuResult) -> CuResult {
    let holds = rule_holds(Rule::TeardownIsAnnounced);
    let _announced: Vec<_> = contexts::all().filter(|_| holds).map(Announced::new).collect();
    call()
}

/// Whether a barrier of the context would stand still. With the gate held.
#[inline]
pub fn any(context: &Context) -> bool {
    context.real_frees.load(Ordering::Acquire) != 0
}

struct Announced(&'static Context);

impl Announced {
    fn new(context: &'static Context) -> Announced {
        context.real_frees.fetch_add(1, Ordering::AcqRel);
        // Whoever passed the gate before has not seen it.
        drop(lock(&context.gate));
        Announced(context)
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.0.real_frees.fetch_sub(1, Ordering::Release);
    }
}
