//! The ledger of the process, and the newest barrier of each context.

use std::sync::Mutex;

use cachealloc_core::order::{BarrierNumber, Ledger};

use crate::driver::sys::DevicePointer;
use crate::lock::lock;
use crate::state::events::EventRef;

/// Submissions, what the host may see, and which observers exist.
pub(crate) static LEDGER: Ledger = Ledger::new();

/// The newest barrier of a context and its event.
#[derive(Default)]
pub(crate) struct LastBarrier(pub Mutex<Last>);

#[derive(Default)]
pub(crate) struct Last {
    pub barrier: Option<Barrier>,
    /// Number of barriers made so far.
    pub count: u64,
}

pub(crate) type Barrier = (BarrierNumber, EventRef);

impl LastBarrier {
    /// Returns the event whose completion completes barrier `number` and all before it.
    pub(crate) fn event(&self, number: BarrierNumber) -> Option<EventRef> {
        self.since(number).map(|(_, event)| event)
    }

    /// Returns the barrier of this number, or a later one, and its event.
    pub(crate) fn since(&self, number: BarrierNumber) -> Option<Barrier> {
        lock(&self.0).barrier.clone().filter(|(last, _)| *last >= number)
    }

    /// Returns the newest event, whatever its number: memory that is free now, and released, is
    /// ordered after it.
    pub(crate) fn newest(&self) -> Option<EventRef> {
        self.newest_barrier().map(|(_, event)| event)
    }

    /// Returns the newest event with its number.
    pub(crate) fn newest_barrier(&self) -> Option<(BarrierNumber, EventRef)> {
        lock(&self.0).barrier.clone()
    }

    /// Returns how many barriers were made, or 0 while another thread holds the lock: for the table
    /// at exit.
    pub(crate) fn count(&self) -> u64 {
        self.0.try_lock().map_or(0, |last| last.count)
    }

    /// Forgets the barrier of a context that has ended.
    pub(crate) fn forget(&self) {
        lock(&self.0).barrier = None;
    }

    #[inline]
    pub(crate) fn file(&self, number: BarrierNumber, event: EventRef) {
        let mut last = lock(&self.0);
        last.count += 1;
        if last.barrier.as_ref().is_none_or(|(last, _)| *last < number) {
            last.barrier = Some((number, event));
        }
    }
}

/// Allocations of the driver that exist to be freed.
#[derive(Default)]
pub(crate) struct Sentinels(pub Mutex<Vec<DevicePointer>>);
