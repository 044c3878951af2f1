//! Decides whether a call that the driver refused for lack of memory is made again.

use core::ops::Range;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::{release, retry};
use crate::config;
use crate::contexts::lookup;
use crate::driver::api;
use crate::functions::{Class, Function};
use crate::graphs::participants;
use crate::ordering::{captures, pending};
use crate::peer_reclaim::{Needed, ReclaimRequest};
use crate::process::bounds;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::inflight_releases;
use crate::state::thread;
use crate::state::under_way::Waiter;
use crate::statistics::counters;
use crate::statistics::counters::Count;

/// Whether a failed call may have become part of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MayBeCaptured {
    /// The call takes no stream, or one that does not capture.
    No,
    /// The call may be captured if any stream captures.
    Perhaps,
}

/// A call of the program that ran out of memory.
pub(crate) struct RefusedCall {
    function: &'static Function,
    captured: MayBeCaptured,
    /// The device of its memory, or the current one if that is not known.
    device: Option<i32>,
    /// Whether the memory may be on another device: that of a stream, a graph or a location among
    /// the arguments.
    may_be_elsewhere: bool,
    /// The device on which room is made; `None` for every device.
    room_on: Option<i32>,
    tries: Range<u32>,
    /// Number of arrivals read before the last try.
    seen: u64,
    reclaim: Option<ReclaimRequest>,
}

impl RefusedCall {
    /// Describes a call that was refused just now. `device` is the device of its memory, if not the
    /// current one.
    pub(crate) fn new(
        function: &'static Function,
        captured: MayBeCaptured,
        device: Option<i32>,
    ) -> RefusedCall {
        // Functions of the other classes report how much they ask for (`ChargedRequest`), and so
        // does the cache.
        let size_is_unknown = !matches!(function.class, Class::Record | Class::Own);
        let may_be_elsewhere = device.is_none();
        let device = device.or_else(|| api::ctx_get_device().ok());
        RefusedCall {
            function,
            captured,
            device,
            may_be_elsewhere,
            room_on: device,
            tries: bounds::ROOM.tries(),
            seen: inflight_releases::arrivals(),
            reclaim: size_is_unknown.then(ReclaimRequest::default),
        }
    }

    /// Makes room for the call, and returns whether it should be made again: as long as memory
    /// arrives for it, and at least once. Memory that arrived between the driver's refusal and the
    /// first check here cannot be distinguished from earlier memory.
    #[cold]
    pub(crate) fn should_be_repeated(&mut self) -> bool {
        if self.may_have_been_captured() {
            return false;
        }
        loop {
            if let Some(tries) = self.tries.next() {
                if make_room(self.room_on, self.waiter(), &mut self.seen) || tries == 0 {
                    counters::count(Count::Retries);
                    return true;
                }
                self.tries = 0..0;
            }
            if !self.looks_elsewhere() {
                break;
            }
        }
        let needed = Needed {
            device: self.device.unwrap_or(0),
            bytes: None,
            context: lookup::current().ok(),
        };
        self.reclaim.as_mut().is_some_and(|reclaim| reclaim.try_reclaim(needed))
    }

    /// Begins again with room on every device, once, if that can help.
    fn looks_elsewhere(&mut self) -> bool {
        let is_other = |context: &Context| self.room_on.is_some_and(|it| it != context.device);
        let can_help = contexts::all().any(is_other) && rule_holds(Rule::RoomOnEveryDevice);
        let looks = core::mem::take(&mut self.may_be_elsewhere) && can_help;
        if looks {
            (self.room_on, self.tries) = (None, bounds::ROOM.tries());
        }
        looks
    }

    /// Returns whether the call may have added a node to a graph, which a second call would add
    /// again.
    fn may_have_been_captured(&self) -> bool {
        let captures = || captures::any() && !thread::with(captures::is_beside);
        self.captured == MayBeCaptured::Perhaps
            && captures()
            && rule_holds(Rule::RetryNotInCapture)
            && !thread::with(participants::is_as_before)
    }

    /// Returns how the plain driver treats the call while another thread's free holds the context.
    fn waiter(&self) -> Waiter {
        if self.function.goes_on { Waiter::GoesOn } else { Waiter::StandsStill }
    }
}

/// Releases the free memory in every context of the device, or of every device if `device` is
/// `None`. Also waits for memory that other threads are releasing. `seen` is the number of arrivals
/// read before the driver was asked. Returns `false` if no more memory arrived.
#[cold]
pub(crate) fn make_room(device: Option<i32>, waiter: Waiter, seen: &mut u64) -> bool {
    if config::only_looks() {
        return false;
    }
    // Frees of the current context: on the plain driver this call would wait for them.
    if let Ok(context) = lookup::current() {
        retry::wait_for_frees(context, waiter);
    }
    // A pool of the driver keeps memory that work still uses for which earlier frees would have
    // waited.
    if rule_holds(Rule::RefusedCallWaitsForFrees) {
        pending::wait_like_request();
    }
    let code = api::relaxed(|| release::everything_free(device, waiter));
    let awaited = |device| _ = inflight_releases::awaited_by(device, waiter);
    match device {
        Some(device) => awaited(device),
        None if !rule_holds(Rule::RoomElsewhereIsAwaited) => {}
        None => contexts::all().for_each(|context| awaited(context.device)),
    }
    let arrivals = inflight_releases::arrivals();
    let more = core::mem::replace(seen, arrivals) != arrivals;
    code.is_ok() && more
}
