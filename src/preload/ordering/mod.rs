//! What a free has to wait for, and which observers its barrier does not order. Here: the state of every
//! context, and of the process.

pub(crate) mod across;
pub(crate) mod barrier;
pub(crate) mod before_submission;
pub(crate) mod captures;
pub(crate) mod communication;
pub(crate) mod deferred_wait;
pub(crate) mod elision;
pub(crate) mod kernels;
pub(crate) mod legacy_stream;
pub(crate) mod native_wait;
pub(crate) mod observers;
pub(crate) mod orphaned_barriers;
pub(crate) mod pending;
pub(crate) mod pinned;
pub(crate) mod programmatic_launch;
pub(crate) mod real_frees;
pub(crate) mod submissions;

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use cachealloc_core::order::{BarrierNumber, Ledger};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::contexts::events::EventRef;
use crate::driver::sys::DevicePointer;
use crate::lock::lock;

/// What was submitted, what the host may see, and which observers exist.
pub(crate) static LEDGER: Ledger = Ledger::new();

/// Whether submissions must be attributed to contexts: more than one context may submit. Else they are those of the only one.
static WATCH: AtomicBool = AtomicBool::new(true);

/// In tests that break a rule, gives another thread time to expose it.
#[inline(always)]
pub(crate) fn widen(rule: Rule) {
    if !rule_holds(rule) {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

/// The newest barrier of a context and its event.
#[derive(Default)]
pub(crate) struct LastBarrier(Mutex<Last>);

#[derive(Default)]
struct Last {
    barrier: Option<Barrier>,
    /// Number of barriers made so far.
    count: u64,
}

type Barrier = (BarrierNumber, EventRef);

impl LastBarrier {
    /// The event whose completion completes barrier `number` and all before it.
    pub(crate) fn event(&self, number: BarrierNumber) -> Option<EventRef> {
        self.since(number).map(|(_, event)| event)
    }

    /// The barrier of this number, or a later one, and its event.
    fn since(&self, number: BarrierNumber) -> Option<Barrier> {
        lock(&self.0).barrier.clone().filter(|(last, _)| *last >= number)
    }

    /// The newest event, whatever its number: what is free now, and leaves, comes behind it.
    pub(crate) fn newest(&self) -> Option<EventRef> {
        self.newest_barrier().map(|(_, event)| event)
    }

    /// As `newest`, with its number.
    pub(crate) fn newest_barrier(&self) -> Option<(BarrierNumber, EventRef)> {
        lock(&self.0).barrier.clone()
    }

    /// How many barriers were made. 0 while another thread holds the lock: for the table at exit.
    pub(crate) fn count(&self) -> u64 {
        self.0.try_lock().map_or(0, |last| last.count)
    }

    /// The context has ended.
    pub(crate) fn forget(&self) {
        lock(&self.0).barrier = None;
    }

    #[inline]
    fn file(&self, number: BarrierNumber, event: EventRef) {
        let mut last = lock(&self.0);
        last.count += 1;
        if last.barrier.as_ref().is_none_or(|(last, _)| *last < number) {
            last.barrier = Some((number, event));
        }
    }
}

/// Allocations of the driver that exist to be freed.
#[derive(Default)]
pub(crate) struct Sentinels(Mutex<Vec<DevicePointer>>);
