//! What one context keeps for memory that returns to the driver.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{IdleEpoch, Segment};

use crate::driver::sys::StreamHandle;
use crate::lock::lock;
use crate::state::events::EventRef;
use crate::state::thread_cache::ListsSeen;

/// The streams on which memory is returned.
#[derive(Default)]
pub(crate) struct ReleaseStreams {
    pub now: ReleaseStream,
    pub behind_events: ReleaseStream,
}

#[derive(Default)]
pub(crate) struct ReleaseStream {
    /// 0 before its first use.
    pub handle: Mutex<StreamHandle>,
    /// Memory was freed on it that the device gets only when the stream is synchronized: all its frees
    /// may be over, and still no request can use their memory (measured).
    pub uncollected: AtomicBool,
    /// Held from the check whether the stream is idle until its memory is collected, and while waits are
    /// added to it: collecting must not wait for those. None of these calls waits for work.
    pub collecting: Mutex<()>,
}

/// The scavenger's state in one context.
#[derive(Default)]
pub(crate) struct Idle {
    /// Held during a pass, also while it is in the driver.
    pub pass: Mutex<Pass>,
    /// The context is about to end.
    pub held_off: AtomicU32,
    /// Another process requested what is free.
    pub trim_wanted: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Pass {
    /// What is idle since then is to go back.
    pub due: Option<IdleEpoch>,
    /// Marks of some passes, oldest first, and what must complete first.
    pub completing: VecDeque<(IdleEpoch, Option<EventRef>)>,
    /// All work with the memory that was free at this mark is over.
    pub complete: Option<IdleEpoch>,
    pub lists_seen: ListsSeen,
    /// Where memory is returned; 0 before its first use.
    pub stream: StreamHandle,
    /// Segments that the driver has refused so far.
    pub refused: Vec<Segment>,
    /// An open request for what is free.
    pub trim: Option<TrimScope>,
}

/// What to return on request: what was freed when the request came.
pub(crate) enum TrimScope {
    /// Not examined yet.
    All,
    /// Some of it is free only when these are complete.
    Behind(Vec<EventRef>),
    /// What was free before this mark.
    Before(IdleEpoch),
}

/// No pass of the scavenger is in the context while this lives.
pub(crate) struct PauseGuard<'a>(&'a Idle);

impl Idle {
    /// Call before the driver is asked to end the context.
    pub(crate) fn pause(&self) -> PauseGuard<'_> {
        self.held_off.fetch_add(1, Ordering::SeqCst);
        if rule_holds(Rule::EndHoldsScavengerOff) {
            drop(lock(&self.pass));
        }
        PauseGuard(self)
    }

    /// What is free goes back at the next visit, or as soon as the work with it is over (`trim`).
    pub(crate) fn want_trim(&self) {
        self.trim_wanted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_held_off(&self) -> bool {
        self.held_off.load(Ordering::SeqCst) > 0 && rule_holds(Rule::EndHoldsScavengerOff)
    }
}

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        self.0.held_off.fetch_sub(1, Ordering::SeqCst);
    }
}
