//! Memory goes back to the driver. Here: what is known of it in every context.

pub mod idle;
pub mod release;
pub mod scavenger;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{IdleMark, Segment};

use crate::cache::thread_cache::ListsSeen;
use crate::contexts::events::EventRef;
use crate::driver::sys::StreamHandle;
use crate::lock::lock;

/// The streams on which memory goes back.
#[derive(Default)]
pub struct ReleaseStreams {
    now: ReleaseStream,
    behind_events: ReleaseStream,
}

#[derive(Default)]
struct ReleaseStream {
    /// 0 before its first use.
    handle: Mutex<StreamHandle>,
    /// Memory was freed on it that the device does not have until somebody synchronises with it:
    /// its frees may all be over, and still no request gets their memory (measured).
    owes: AtomicBool,
    /// Held from the look whether the stream is done to the end of what brings its memory back, and while
    /// new waits go into it: who brings back must not come to wait for those. None of these calls waits
    /// for work.
    collecting: Mutex<()>,
}

/// What the scavenger knows of one context.
#[derive(Default)]
pub struct Idle {
    /// Held through a turn, also while it is in the driver.
    pass: Mutex<Pass>,
    /// Somebody is about to end the context.
    held_off: AtomicU32,
    /// Another process wants to have what is free.
    trim_wanted: AtomicBool,
}

#[derive(Default)]
struct Pass {
    /// One for each turn, the newest last.
    marks: VecDeque<IdleMark>,
    /// Some of them, oldest first, and what must be complete before they are complete.
    completing: VecDeque<(IdleMark, Option<EventRef>)>,
    /// All work with what was free at this mark is over.
    complete: Option<IdleMark>,
    lists_seen: ListsSeen,
    /// On which memory goes back; 0 before its first use.
    stream: StreamHandle,
    /// Segments that the driver would not take so far.
    refused: Vec<Segment>,
    /// Somebody wants what is free.
    trim: Option<Wanted>,
}

/// What goes back because somebody wants it: what was freed when that was said.
enum Wanted {
    /// Nobody has looked yet.
    All,
    /// Some of it is not free before these are complete.
    Behind(Vec<EventRef>),
    /// What was free before.
    Before(IdleMark),
}

/// No turn of the scavenger is in the context while this lives.
pub struct HeldOff<'a>(&'a Idle);

impl Idle {
    /// Call before the driver is asked to end the context.
    pub fn hold_off(&self) -> HeldOff<'_> {
        self.held_off.fetch_add(1, Ordering::SeqCst);
        if rule_holds(Rule::EndHoldsKeeperOff) {
            drop(lock(&self.pass));
        }
        HeldOff(self)
    }

    /// What is free goes back at the next look, or as soon as the work with it is over (`trim`).
    pub fn want_trim(&self) {
        self.trim_wanted.store(true, Ordering::SeqCst);
    }

    fn is_held_off(&self) -> bool {
        self.held_off.load(Ordering::SeqCst) > 0 && rule_holds(Rule::EndHoldsKeeperOff)
    }
}

impl Drop for HeldOff<'_> {
    fn drop(&mut self) {
        self.0.held_off.fetch_sub(1, Ordering::SeqCst);
    }
}
