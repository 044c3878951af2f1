//! The decision for one free: what must happen before the block may be handed out again.
//!
//! | the program freed | ordered, exclusive | not exclusive | strict | relaxed |
//! |---|---|---|---|---|
//! | a context block by `cuMemFree` | barrier; wait if visible to the host | wait | wait | park |
//! | an async block by `cuMemFree` | park | park | park | park |
//! | any block by `cuMemFreeAsync` | tag | tag | tag | tag |
//!
//! In every cell, the block is published at once if the counters prove that there is nothing to
//! wait for. Without the barrier calls, and during a capture, the driver itself performs every
//! wait, in `relaxed` too: no context event can be recorded there for a pending free.

use crate::rules::{Rule, rule_holds};

/// The guarantees of the driver's own free that are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// All three guarantees, by a barrier instead of a wait wherever that cannot be noticed.
    #[default]
    Ordered,
    /// All three guarantees, by a wait in every free.
    Strict,
    /// Only "no reuse while in use".
    Relaxed,
}

/// The inputs of the route decision, known at the start of a free. Read once: the counters must
/// have been read inside the free (`Ledger::facts`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeState {
    /// The guarantees that are kept.
    pub mode: Mode,
    /// Whether a barrier may replace the wait (`Exclusive::is_exclusive` of the block's context).
    pub exclusive: bool,
    /// Whether a stream of the process captures (`Captures::is_empty` is false).
    pub capturing: bool,
    /// Whether the driver has `cuCtxRecordEvent` and `cuCtxWaitEvent`.
    pub barrier_calls: bool,
    /// Whether no driver call is legal here, because the driver runs a callback of the library.
    /// This does not include the program's own free inside a host function: that gets the driver's
    /// error 800 on the ordinary route.
    pub in_driver_callback: bool,
    /// Whether everything submitted is ordered before a barrier of the block's context.
    pub ordered_quiet: bool,
    /// Whether the host has waited for everything submitted.
    pub waited_quiet: bool,
    /// Whether the host has waited for everything that it could see.
    pub visible_quiet: bool,
    /// Whether the counters see every submission.
    pub elision: bool,
}

/// The action that a `cuMemFree` must take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Nothing: the block is free for any request at once.
    Publish,
    /// Make a barrier of the block's context, then publish.
    Barrier,
    /// Record an event after all work of the block's context, wait for it on the host, then
    /// publish. No other call has to be ordered after it: the free returns when that work is
    /// complete.
    Wait,
    /// Let the driver wait: free a sentinel with the real `cuMemFree`, then publish.
    WaitNatively,
    /// Record a context event, do not wait; publish once it is complete.
    ParkOnEvent,
    /// Make no driver call now. The first ordinary call that may records one context event for
    /// every free parked this way, and *no wait*: a barrier would order streams that the driver
    /// does not order. A wait for the whole context that starts after this has the same effect.
    ParkForBarrier,
}

/// The action that a `cuMemFreeAsync` must take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamRoute {
    /// Nothing: the block is free for any request at once.
    Publish,
    /// Free for its stream at once, for other requests once an event recorded there now is
    /// complete.
    Tag,
    /// Make no driver call now, see `Route::ParkForBarrier`.
    ParkForBarrier,
}

/// Returns the route of a `cuMemFree` of a block made by `cuMemAlloc`. In the driver it waits for
/// the context's earlier work.
pub fn free_context_block(facts: &FreeState) -> Route {
    if facts.in_driver_callback {
        return Route::ParkForBarrier;
    }
    // Whatever the mode and the observers: the driver's own free would not wait.
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

/// Returns the route of a `cuMemFree` of a block made by `cuMemAllocAsync`. In the driver it does
/// not wait, so no mode waits. A barrier would make other streams wait for work that they do not
/// wait for in the driver.
pub fn free_async_block_plainly(facts: &FreeState) -> Route {
    if !rule_holds(Rule::FreeOfStreamBlockIsPending) {
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

/// Returns the route of a `cuMemFreeAsync` of either kind of block on a stream that does not
/// capture. `elsewhere`: the stream belongs to another context than the block.
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

/// Returns whether nothing in flight can use the block, or all such work is ordered before
/// everything to come. No event is then needed to determine when the block is free.
///
/// A barrier proves this in `ordered` only; in `relaxed` none is made, and in `strict` each is also
/// awaited.
fn nothing_in_use(facts: &FreeState) -> bool {
    let ordered = facts.mode == Mode::Ordered && can_barrier(facts) && facts.ordered_quiet;
    facts.elision && (facts.waited_quiet || ordered)
}

fn can_barrier(facts: &FreeState) -> bool {
    facts.exclusive && can_record(facts)
}

/// Returns whether a context event can be recorded. It completes on the host, so it is also correct
/// in a process that is not exclusive.
fn can_record(facts: &FreeState) -> bool {
    facts.barrier_calls && !captures_forbid(facts)
}

fn captures_forbid(facts: &FreeState) -> bool {
    facts.capturing && rule_holds(Rule::CaptureWaitsInDriver)
}
