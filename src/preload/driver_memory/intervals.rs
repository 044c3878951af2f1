//! Measures how much uncounted device memory a call of the program takes: the difference of the
//! used memory before and after it.
//!
//! Note [Intervals]. Between the two readings of an interval nothing may change that another row
//! counts. If a counted call ran meanwhile, in any thread (`driver/changes`), the interval is
//! *missed* and counted as such. What pools and graphs have reserved is read together with the used
//! memory, and subtracted. Overlapping intervals of several threads are merged into one, from the
//! first reading to the last; otherwise each would include what the other took. No lock is held
//! during the call: a launch may wait for work that another thread launches.
//!
//! Managed memory moves to the device when a kernel touches it, without a call. Once there is some,
//! every interval is missed, as is one during a capture. Memory that another process takes during
//! an interval cannot be told apart.

use std::sync::Mutex;

use cachealloc_core::order::VisibleCause;
use cachealloc_history::StackId;
use cachealloc_statistics::breakdown::Component;

use crate::contexts::lookup;
use crate::driver::{api, changes};
use crate::driver_memory::implicit_usage;
use crate::driver_memory::implicit_usage::Row;
use crate::driver_memory::measured;
use crate::lock::lock;
use crate::ordering::captures;
use crate::process::bounds;
use crate::record;
use crate::record::capture;
use crate::state::barriers::LEDGER;
use crate::state::contexts::Context;

const DEVICES_MAX: usize = 64;
/// Open intervals of each device.
static OPEN: Mutex<[Open; DEVICES_MAX]> = Mutex::new([Open::NONE; DEVICES_MAX]);

#[derive(Clone, Copy)]
struct Open {
    count: u32,
    /// Number of times an interval was opened or closed.
    steps: u64,
    /// Reading before the first open interval, or `None` if the intervals are missed.
    before: Option<Reading>,
    /// Whether several intervals overlapped.
    are_several: bool,
}

/// Memory in use on a device at a moment without a counted call under way.
#[derive(Clone, Copy)]
struct Reading {
    changes: u64,
    in_use_bytes: u64,
    /// Bytes of these that pools and graphs have reserved.
    reserved_bytes: u64,
}

/// A call that is being measured.
#[must_use]
pub(crate) struct Interval {
    context: &'static Context,
    is_open: bool,
}

impl Open {
    const NONE: Open = Open { count: 0, steps: 0, before: None, are_several: false };

    fn leave(&mut self) {
        self.count -= 1;
        self.steps += 1;
    }
}

impl Interval {
    /// Opens an interval on the device of the current context. Returns `None` if it is not
    /// recorded. `ends` is set for calls that release memory.
    pub(crate) fn open(ends: bool) -> Option<Interval> {
        let wanted = record::is_on() || ends && implicit_usage::any();
        let context = if wanted { lookup::current().ok()? } else { return None };
        let device = usize::try_from(context.device).ok().filter(|it| *it < DEVICES_MAX)?;
        if !ends && !record::is_on_for(context.device) {
            return None;
        }
        for last in bounds::READINGS.tries().rev().map(|left| left == 0) {
            let steps = lock(&OPEN)[device].steps;
            let reading = read(context.device);
            let open = &mut lock(&OPEN)[device];
            if open.count == 0 && open.steps != steps && !last {
                continue;
            }
            if open.count == 0 {
                open.before = reading.filter(|_| open.steps == steps);
            }
            open.are_several = open.count > 0;
            open.count += 1;
            open.steps += 1;
            break;
        }
        Some(Interval { context, is_open: true })
    }

    /// Closes the interval after the call has returned.
    pub(crate) fn close(mut self, component: Component) {
        self.is_open = false;
        let Context { device, id, .. } = *self.context;
        let (taken, are_several) = match self.leave() {
            Measurement::Others => return,
            Measurement::Missed => return implicit_usage::missed(device),
            Measurement::Difference(bytes, are_several) => (bytes, are_several),
        };
        if taken == 0 {
            return;
        }
        let stack = if are_several { StackId::NONE } else { capture::of_allocation() };
        let row = Row { device, context_id: id, component, stack, bytes: taken.unsigned_abs() };
        if taken > 0 {
            implicit_usage::took(row)
        } else {
            implicit_usage::gave(row)
        }
        if self.context.is_dead() {
            implicit_usage::context_ended(id);
        }
    }

    fn leave(&self) -> Measurement {
        let device = self.context.device as usize;
        for last in bounds::READINGS.tries().rev().map(|left| left == 0) {
            let steps = lock(&OPEN)[device].steps;
            let after = read(self.context.device);
            let open = &mut lock(&OPEN)[device];
            if open.count > 1 {
                open.leave();
                return Measurement::Others;
            }
            if open.steps != steps && !last {
                continue;
            }
            let after = after.filter(|_| open.steps == steps);
            open.leave();
            let (Some(before), Some(after)) = (open.before, after) else {
                return Measurement::Missed;
            };
            if before.changes != after.changes {
                return Measurement::Missed;
            }
            let bytes = |reading: Reading| {
                (reading.in_use_bytes as i64).saturating_sub(reading.reserved_bytes as i64)
            };
            return Measurement::Difference(bytes(after) - bytes(before), open.are_several);
        }
        Measurement::Missed
    }
}

/// Dropping an interval without closing it makes the overlapping ones missed.
impl Drop for Interval {
    fn drop(&mut self) {
        if self.is_open {
            let open = &mut lock(&OPEN)[self.context.device as usize];
            open.before = None;
            open.leave();
        }
    }
}

enum Measurement {
    /// Other intervals are still open; the last of them gets the difference.
    Others,
    Missed,
    /// Difference in bytes, and whether several calls share it.
    Difference(i64, bool),
}

/// Reads a device. Returns `None` if counted memory changes meanwhile, or the difference would
/// include more than the driver's implicit usage.
fn read(device: i32) -> Option<Reading> {
    let has_managed = LEDGER.visible.causes() & 1 << VisibleCause::Managed as u32 != 0;
    if has_managed || captures::maybe() {
        return None;
    }
    for _ in bounds::READINGS.tries() {
        let Some(changes) = changes::count() else { continue };
        let reserved = || measured::reserved(device).iter().sum::<u64>();
        let (reserved_bytes, in_use, again) =
            api::relaxed(|| (reserved(), api::mem_get_info(), reserved()));
        let (free, total) = in_use.ok()?;
        let in_use_bytes = total.saturating_sub(free) as u64;
        if reserved_bytes == again && changes::count() == Some(changes) {
            return Some(Reading { changes, in_use_bytes, reserved_bytes });
        }
    }
    None
}
