//! Driver events, counted and reused. An event returns to the pool only when nothing refers to its
//! recording any more: a wait on an event that was recorded again would wait for work submitted
//! after the free in question, perhaps indefinitely (hazards 10 and 29).

use core::mem::ManuallyDrop;
use core::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use cachealloc_core::EventId;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::{CuError, CuResult, EVENT_DISABLE_TIMING, EventHandle};
use crate::lock::lock;
use crate::state::thread::Thread;

/// Most events alive at once in one context; beyond it, frees wait instead.
const EVENTS_MAX: u32 = 65_536;

/// Number of ids assigned. Ids are never reused, since two events must not share one.
static NUMBERED: AtomicU32 = AtomicU32::new(0);

/// Every event by its number: table n holds 2^n of them.
static ALL: [OnceLock<Box<[AtomicPtr<Event>]>>; u32::BITS as usize] =
    [const { OnceLock::new() }; u32::BITS as usize];

/// Creates an event. The context must be current.
pub(crate) type CreateEvent = fn() -> CuResult<EventHandle>;

/// The events of one context.
#[derive(Default)]
pub(crate) struct Events {
    free: Mutex<Vec<&'static Event>>,
    created: AtomicU32,
    /// Whether the context has ended: its events must not reach the driver.
    dead: AtomicBool,
}

/// One driver event. Never deallocated: a thread may hold a reference at any time.
pub(crate) struct Event {
    handle: EventHandle,
    /// Number among the events of the process: a block may wait for another context's event.
    number: u32,
    references: AtomicU32,
    /// Number of times it was taken; written only by the thread that takes it.
    recordings: AtomicU32,
    owner: &'static Events,
}

/// A counted reference to one recording of an event.
pub(crate) struct EventRef(&'static Event);

impl Events {
    /// Returns an event to record. If none is free, one is created; `enter` makes the context
    /// current.
    #[inline]
    pub(crate) fn take(
        &'static self,
        thread: &Thread,
        enter: impl FnOnce(CreateEvent) -> CuResult<EventHandle>,
    ) -> CuResult<EventRef> {
        let event = match self.spare_of(thread) {
            Some(event) => event,
            None => self.take_pooled(enter)?,
        };
        event.references.store(1, Ordering::Relaxed);
        event
            .recordings
            .store(event.recordings.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        Ok(EventRef(event))
    }

    #[cold]
    fn take_pooled(
        &'static self,
        enter: impl FnOnce(CreateEvent) -> CuResult<EventHandle>,
    ) -> CuResult<&'static Event> {
        let pooled = lock(&self.free).pop();
        match pooled {
            Some(event) => Ok(event),
            None => self.create(enter),
        }
    }

    /// Returns the event kept by this thread, if it belongs to this context.
    #[inline]
    fn spare_of(&self, thread: &Thread) -> Option<&'static Event> {
        // SAFETY: null, or an event kept by `EventRef::keep`; events are leaked.
        let spare = unsafe { thread.spare_event.replace(null()).as_ref() }?;
        if core::ptr::eq(spare.owner, self) {
            return Some(spare);
        }
        spare.is_free();
        None
    }

    /// Marks the events as dead: they ended with their context.
    pub(crate) fn context_ended(&self) {
        self.dead.store(true, Ordering::Release);
    }

    #[cold]
    fn create(
        &'static self,
        enter: impl FnOnce(CreateEvent) -> CuResult<EventHandle>,
    ) -> CuResult<&'static Event> {
        let number = NUMBERED.fetch_add(1, Ordering::Relaxed);
        if self.created.fetch_add(1, Ordering::Relaxed) >= EVENTS_MAX {
            self.created.fetch_sub(1, Ordering::Relaxed);
            return Err(CuError::OUT_OF_MEMORY);
        }
        let handle = enter(|| api::event_create(EVENT_DISABLE_TIMING))
            .inspect_err(|_| _ = self.created.fetch_sub(1, Ordering::Relaxed))?;
        let event = Box::leak(Box::new(Event {
            handle,
            number,
            references: AtomicU32::new(0),
            recordings: AtomicU32::new(0),
            owner: self,
        }));
        let (table, index) = place(number);
        let fresh = || (0..1_usize << table).map(|_| AtomicPtr::default()).collect();
        ALL[table].get_or_init(fresh)[index].store(event, Ordering::Release);
        Ok(event)
    }
}

fn place(number: u32) -> (usize, usize) {
    let place = number as usize + 1;
    let table = place.ilog2() as usize;
    (table, place - (1 << table))
}

/// Adds a reference to a recording that has one, and keeps it as the recording's number.
#[inline]
pub(crate) fn keep(id: EventId) {
    if let Some(event) = ManuallyDrop::new(EventRef::of(id)).as_ref() {
        core::mem::forget(event.clone());
    }
}

/// Returns the event of this recording, unless it has been recorded again. Call while something
/// refers to the recording.
pub(crate) fn known(id: EventId) -> Option<EventRef> {
    let event = ManuallyDrop::new(EventRef::of(id)?);
    (event.id() == id).then(|| EventRef::clone(&event))
}

/// Returns the reference that `keep` stored.
#[inline]
pub(crate) fn take_kept(id: EventId) -> Option<EventRef> {
    EventRef::of(id)
}

impl Event {
    /// Makes the event available: nothing refers to its recording any more.
    #[cold]
    fn is_free(&'static self) {
        lock(&self.owner.free).push(self);
    }
}

impl EventRef {
    #[inline]
    pub(crate) fn handle(&self) -> EventHandle {
        self.0.handle
    }

    /// Returns the core's id for this recording, which is never used for another.
    pub(crate) fn id(&self) -> EventId {
        let recordings = self.0.recordings.load(Ordering::Relaxed);
        EventId(u64::from(recordings) << 32 | u64::from(self.0.number))
    }

    /// Returns the event without counting the reference.
    fn of(id: EventId) -> Option<EventRef> {
        let (table, index) = place(id.0 as u32);
        let event = ALL[table].get()?[index].load(Ordering::Acquire);
        // SAFETY: null, or an event; events are leaked.
        unsafe { event.as_ref() }.map(EventRef)
    }

    /// Waits until the recorded work has completed. A dead context has no work.
    pub(crate) fn synchronize(&self) -> CuResult {
        if self.is_dead() { Ok(()) } else { api::event_synchronize(self.handle()) }
    }

    /// Returns `Ok` once the recorded work has completed, and `NOT_READY` before.
    pub(crate) fn query(&self) -> CuResult {
        if self.is_dead() { Ok(()) } else { api::event_query(self.handle()) }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.owner.dead.load(Ordering::Acquire)
    }

    /// Drops the reference. If it was the last one, the thread keeps the event for its next
    /// barrier, so a thread that frees repeatedly takes no lock for its events.
    #[inline]
    pub(crate) fn keep(self, thread: &Thread) {
        let last = self.0.references.load(Ordering::Acquire) == 1;
        if last && thread.spare_event.get().is_null() {
            thread.spare_event.set(self.into_raw());
        }
    }

    /// Turns the reference into a word, for a thread-local without a destructor.
    #[inline]
    pub(crate) fn into_raw(self) -> *const Event {
        let event: *const Event = self.0;
        core::mem::forget(self);
        event
    }

    /// Restores a reference from `into_raw`.
    ///
    /// # Safety
    ///
    /// `event` came from `into_raw` and is restored once.
    pub(crate) unsafe fn from_raw(event: *const Event) -> EventRef {
        // SAFETY: events are leaked, so the reference stays valid; `into_raw` left the count to
        // this caller.
        EventRef(unsafe { &*event })
    }
}

impl Clone for EventRef {
    #[inline]
    fn clone(&self) -> EventRef {
        if rule_holds(Rule::EventNotReused) {
            self.0.references.fetch_add(1, Ordering::Relaxed);
        }
        EventRef(self.0)
    }
}

impl Drop for EventRef {
    #[inline]
    fn drop(&mut self) {
        let references = self.0.references.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(references != 0 || !rule_holds(Rule::EventNotReused), "a reference too many");
        if references == 1 {
            self.0.is_free();
        }
    }
}
