//! The decision for one free: what must happen before the block may be handed out again.
//!
//! | the program freed | ordered, exclusive | not exclusive | strict | relaxed |
//! |---|---|---|---|---|
//! | a context block by `cuMemFree` | barrier; wait if visible to the host | wait | wait | park |
//! | an async block by `cuMemFree` | park | park | park | park |
//! | any block by `cuMemFreeAsync` | tag | tag | tag | tag |
//!
//! And in every cell: publish at once if the marks prove that there is nothing to wait for. Without
//! the barrier calls, and during a capture, every wait is a native wait, in `relaxed` too: no
//! context event can be made there to park on.

use crate::rules::{Rule, rule_holds};

/// Which guarantees of a native free are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// All three, by a barrier instead of a wait wherever that cannot be noticed.
    #[default]
    Ordered,
    /// All three, by a wait in every free.
    Strict,
    /// Only "no reuse while in use".
    Relaxed,
}

/// What the runtime knows at the start of a free. Read once: the marks must have been read inside
/// the free (`Ledger::facts`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeState {
    /// Which guarantees are kept.
    pub mode: Mode,
    /// A barrier may stand in for the wait (`Exclusive::is_exclusive` of the block's context).
    pub exclusive: bool,
    /// A stream of the process captures (`Captures::is_empty` is false).
    pub capturing: bool,
    /// The driver has `cuCtxRecordEvent` and `cuCtxWaitEvent`, and they work on this context (false
    /// on a green context, where they may not).
    pub barrier_calls: bool,
    /// No driver call is legal here: a callback of ours, run by the driver. Not the program's own
    /// free inside a host function: that gets the driver's 800 from the ordinary route.
    pub in_driver_callback: bool,
    /// Everything submitted is behind a barrier of the block's context.
    pub ordered_quiet: bool,
    /// Everything submitted has been waited for by the host.
    pub waited_quiet: bool,
    /// Everything the host could see has been waited for by the host.
    pub visible_quiet: bool,
    /// The marks see every submission.
    pub elision: bool,
}

/// What a `cuMemFree` must do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Nothing: the block is free for any request at once.
    Publish,
    /// Barrier of the block's context, then publish.
    Barrier,
    /// Record an event behind all work of the block's context, wait for it on the host, then
    /// publish. No other call has to come behind it: the free returns when that work is over.
    Wait,
    /// Let the driver wait: free a sentinel with the real `cuMemFree`, then publish.
    WaitNatively,
    /// Record a context event, do not wait; publish once it is complete.
    ParkOnEvent,
    /// No driver call now. The first ordinary call that may records one context event for
    /// everything parked this way, and *no wait*: a barrier would order streams that natively are
    /// not ordered. A wait for the whole context that starts after this has the same effect.
    ParkForBarrier,
}

/// What a `cuMemFreeAsync` must do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamRoute {
    /// Nothing: the block is free for any request at once.
    Publish,
    /// Free for its stream at once, for other requests once an event recorded there now is
    /// complete.
    Tag,
    /// As `Route::ParkForBarrier`.
    ParkForBarrier,
}

/// `cuMemFree` of a block made by `cuMemAlloc`: natively a wait for the context's earlier work.
pub fn free_context_block(facts: &FreeState) -> Route {
    if facts.in_driver_callback {
        return Route::ParkForBarrier;
    }
    // Whatever the mode and the observers: a native free would not wait.
    if facts.elision && facts.waited_quiet {
        return Route::Publish;
    }
    match facts.mode {
        Mode::Ordered => ordered(facts),
        Mode::Strict if !rule_holds(Rule::StrictWaits) => ordered(facts),
        Mode::Strict => wait(facts),
        Mode::Relaxed if can_record(facts) => Route::ParkOnEvent,
        Mode::Relaxed => Route::WaitNatively,
    }
}

/// `cuMemFree` of a block made by `cuMemAllocAsync`: natively no wait, in no mode. A barrier would
/// make other streams wait for work that natively they need not wait for.
pub fn free_async_block_plainly(facts: &FreeState) -> Route {
    if !rule_holds(Rule::FreeOfStreamBlockParks) {
        return free_context_block(facts);
    }
    if facts.in_driver_callback {
        return Route::ParkForBarrier;
    }
    if nothing_in_use(facts) {
        return Route::Publish;
    }
    // Without a context event only a wait reveals the end, and this call must not wait.
    if can_record(facts) { Route::ParkOnEvent } else { Route::ParkForBarrier }
}

/// `cuMemFreeAsync` of either kind of block on a stream that does not capture. `elsewhere`: the
/// stream belongs to another context than the block.
///
/// A capture elsewhere does not matter: an event recorded on a stream that does not capture is
/// harmless to it (measured). Where it is not, on the legacy stream beside a blocking one that
/// captures, the driver refuses the program's own call.
pub fn free_on_stream(facts: &FreeState, elsewhere: bool) -> StreamRoute {
    if facts.in_driver_callback {
        return StreamRoute::ParkForBarrier;
    }
    let known = !elsewhere || !rule_holds(Rule::StreamElsewhereTags);
    if known && nothing_in_use(facts) || !rule_holds(Rule::AsyncTagWaitsElsewhere) {
        return StreamRoute::Publish;
    }
    match captures_forbid(facts) && !rule_holds(Rule::CaptureLeavesTags) {
        true => StreamRoute::ParkForBarrier,
        false => StreamRoute::Tag,
    }
}

fn ordered(facts: &FreeState) -> Route {
    if !can_barrier(facts) {
        return wait(facts);
    }
    // If submissions are unseen, "nothing visible in flight" is not known either.
    let visible_quiet = facts.visible_quiet && facts.elision || !rule_holds(Rule::VisibleWorkWaits);
    if !visible_quiet {
        return wait(facts);
    }
    if facts.elision && facts.ordered_quiet || !rule_holds(Rule::BarrierOnFree) {
        return Route::Publish;
    }
    Route::Barrier
}

fn wait(facts: &FreeState) -> Route {
    if can_record(facts) { Route::Wait } else { Route::WaitNatively }
}

/// Nothing in flight can use the block, or all of it is ordered before everything to come: then no
/// event is needed to determine when the block is free. A barrier proves this in `ordered` only; in
/// `relaxed` none is made, and in `strict` each is also waited for.
fn nothing_in_use(facts: &FreeState) -> bool {
    let ordered = facts.mode == Mode::Ordered && can_barrier(facts) && facts.ordered_quiet;
    facts.elision && (facts.waited_quiet || ordered)
}

fn can_barrier(facts: &FreeState) -> bool {
    facts.exclusive && can_record(facts)
}

/// A context event completes on the host, so it is correct in a process that is not exclusive too.
fn can_record(facts: &FreeState) -> bool {
    facts.barrier_calls && !captures_forbid(facts)
}

fn captures_forbid(facts: &FreeState) -> bool {
    facts.capturing && rule_holds(Rule::CaptureWaitsNatively)
}
