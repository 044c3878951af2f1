//! Whether a refused request of the cache should be retried.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Request, Requester};

use crate::cache::stream_frees::Waiter;
use crate::cache::{departures, stream_frees};
use crate::clock::Instant;
use crate::contexts::Context;
use crate::driver::sys::CuResult;
use crate::trim::release;

/// Other threads may take what was given back for one request, repeatedly.
pub(crate) const TRIES_MAX: usize = 64;
/// How long an allocation that would fail waits for other threads' frees in progress.
const FREES_WAIT_MAX: Duration = Duration::from_secs(5);

/// What may have changed since a request was refused.
#[derive(Debug)]
pub(crate) struct Room {
    arrivals: u64,
    streams_awaited: bool,
}

impl Room {
    /// Before the first try.
    pub(crate) fn now() -> Room {
        Room { arrivals: departures::arrivals(), streams_awaited: false }
    }

    /// Natively a request fails only if its memory is in use while it is made. So it is retried as long
    /// as memory has come back since, from any cache, at any request.
    pub(crate) fn has_come(
        &mut self,
        context: &'static Context,
        request: &Request,
    ) -> CuResult<bool> {
        if !rule_holds(Rule::RoomIsTriedAgain) {
            return Ok(false);
        }
        let waiter = waiter(request);
        wait_for_frees(context, waiter);
        release::everything_free(Some(context.device), waiter)?;
        let arrivals = departures::awaited(context.device);
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

/// Natively a free in progress holds the context, and its memory is there when it returns.
pub(crate) fn wait_for_frees(context: &Context, waiter: Waiter) {
    if waiter == Waiter::GoesOn && rule_holds(Rule::RoomBehindReturnedFrees) {
        return;
    }
    let begun = Instant::now();
    while context.frees_in_progress.load(Ordering::Acquire) > 0 {
        if begun.elapsed() > FREES_WAIT_MAX {
            return;
        }
        crate::process::own_thread::sleep(Duration::from_micros(20));
    }
}

/// A request for memory of the context natively stands still while a free holds that.
pub(crate) fn waiter(request: &Request) -> Waiter {
    match request.requester() {
        Requester::Context => Waiter::StandsStill,
        Requester::Stream(_) => Waiter::GoesOn,
    }
}
