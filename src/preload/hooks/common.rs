//! What every hooked call gets, by its class and columns: marks around a submission, one more try
//! after an out-of-memory error, and the wait that a teardown owes to earlier frees.

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::functions::Function;
use crate::hooks::beside;
use crate::runtime::stats::{self, Count, Wait};
use crate::runtime::thread::{self, Thread};
use crate::runtime::{LEDGER, agents, bypass, captures, debts, release, widen};

/// The hook of functions that need no other.
#[inline(always)]
pub fn pass(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    if function.teardown {
        debts::pay_all(Wait::Teardown);
    }
    if function.submits() {
        submit(function, function.host_memory, real)
    } else {
        retried(function, real)
    }
}

/// A call that puts work into the driver. `look`: the host could see its effect without
/// synchronising.
#[inline(always)]
pub fn submit(function: &'static Function, look: bool, real: impl Fn() -> CuResult) -> CuResult {
    agents::watch_submission();
    let lane = thread::with(Thread::lane);
    LEDGER.begin(look, lane);
    widen(Rule::SkipNeedsEnded);
    widen(Rule::CoverNeedsSeen);
    widen(Rule::LookMarksBothSides);
    let code = retried(function, real);
    LEDGER.end(look, lane);
    code
}

/// The real call, and once more if memory that we hold was what it lacked.
#[inline(always)]
pub fn retried(function: &'static Function, real: impl Fn() -> CuResult) -> CuResult {
    retried_mut(function, &mut || real())
}

/// As `retried`, for a call that keeps something of its answer.
#[inline(always)]
pub fn retried_mut(function: &'static Function, real: &mut impl FnMut() -> CuResult) -> CuResult {
    let code = real();
    let may_retry = function.oom_retry || !rule_holds(Rule::RetryAsListed);
    if code == OUT_OF_MEMORY && may_retry && made_room(function) {
        stats::count(Count::Retries);
        return real();
    }
    code
}

/// As `make_room`, under a guard of its own where the hook has none here.
#[cold]
pub fn made_room(function: &'static Function) -> bool {
    if thread::with(|thread| thread.inside.get()) {
        return make_room();
    }
    let mut made = false;
    beside(function, || {
        made = make_room();
    });
    made
}

/// Gives back what is free in every context of the current device. False: there was nothing, or
/// a second call is not safe because something captures.
#[cold]
pub fn make_room() -> bool {
    if captures::any() && rule_holds(Rule::RetryNotInCapture) {
        return false;
    }
    let before = stats::value(Count::SegmentsReleased);
    let mut device = 0;
    let device = (api::ctx_get_device(&mut device) == SUCCESS).then_some(device);
    let code = release::everything_free(device, true);
    code == SUCCESS && stats::value(Count::SegmentsReleased) != before
}
