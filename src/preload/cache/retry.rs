//! Decides whether a refused request of the cache should be retried.

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Request, Requester};

use crate::cache::release;
use crate::cache::stream_frees;
use crate::driver::sys::CuResult;
use crate::state::contexts::Context;
use crate::state::inflight_releases;
use crate::state::under_way::{Waiter, to_the_end};

/// State that may have changed since a request was refused.
#[derive(Debug)]
pub(crate) struct Retry {
    arrivals: u64,
    streams_awaited: bool,
}

impl Retry {
    /// Reads the state before the first try.
    pub(crate) fn now() -> Retry {
        Retry { arrivals: inflight_releases::arrivals(), streams_awaited: false }
    }

    /// Waits for memory, and returns whether the request should be retried. Without the library, a
    /// request fails only if its memory is in use while it is made. So it is retried as long as
    /// memory has been released since, from any cache, at any request. The caller must not hold the
    /// growth lock.
    pub(crate) fn memory_arrived(
        &mut self,
        context: &'static Context,
        request: &Request,
    ) -> CuResult<bool> {
        if !rule_holds(Rule::ReleasedMemoryIsRetried) {
            return Ok(false);
        }
        wait_for_frees(context, waiter(request));
        release::everything_free(Some(context.device), waiter(request))?;
        let arrivals = awaited_for(context, request);
        if core::mem::replace(&mut self.arrivals, arrivals) != arrivals {
            return Ok(true);
        }
        let of_stream = matches!(request.requester(), Requester::Stream(_));
        let may_wait = of_stream && request.private().is_none();
        Ok(may_wait
            && !core::mem::replace(&mut self.streams_awaited, true)
            && stream_frees::wait_for_streams(context, request.bytes()))
    }
}

/// Waits for frees in progress. On the plain driver, such a free holds the context, and its memory
/// is available when it returns. A call that stands still there waits as long as that takes.
pub(crate) fn wait_for_frees(context: &Context, waiter: Waiter) {
    if waiter == Waiter::StandsStill || !rule_holds(Rule::OnlyReturnedFreesAreAwaited) {
        context.frees_under_way.wait(to_the_end());
    }
}

/// Waits for in-flight releases (`inflight_releases::awaited_by`), as far as this request may.
pub(crate) fn awaited_for(context: &Context, request: &Request) -> u64 {
    inflight_releases::awaited_by(context.device, waiter(request))
}

/// Returns how the request waits. On the plain driver, a request for memory of the context stands
/// still while a free holds the context.
pub(crate) fn waiter(request: &Request) -> Waiter {
    match request.requester() {
        Requester::Context => Waiter::StandsStill,
        Requester::Stream(_) => Waiter::GoesOn,
    }
}
