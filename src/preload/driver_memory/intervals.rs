//! What a call of the program takes of its device that nothing else counts, as the difference of what is in use before
//! and after it.
//!
//! Note [Intervals]. Between the two readings of a window there is nothing that another row has: where a counted call ran
//! meanwhile, by any thread (`driver/changes`), the window is *missed*, and said to be; what pools and graphs have reserved is
//! read with what is in use, and taken off. Windows of several threads that overlap are one, from the first reading to the last: else
//! each would have what the other took. No lock is held meanwhile: a launch may wait for what another thread launches.
//!
//! Managed memory comes to the device when a kernel touches it, with no call; once there is some, every window is missed.
//! So is one in a capture. Another process that takes memory in a window cannot be told apart.

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
/// The open windows of each device.
static OPEN: Mutex<[Open; DEVICES_MAX]> = Mutex::new([Open::NONE; DEVICES_MAX]);

#[derive(Clone, Copy)]
struct Open {
    count: u32,
    /// How often one was opened or closed.
    steps: u64,
    /// Before the first of them; None: they are missed.
    before: Option<Reading>,
    /// There was more than one.
    are_several: bool,
}

/// What is in use on a device at a moment when no counted call was under way.
#[derive(Clone, Copy)]
struct Reading {
    changes: u64,
    in_use_bytes: u64,
    /// Of these, by pools and graphs.
    reserved_bytes: u64,
}

/// A call is being measured.
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
    /// Opens one on the device of the current context. None: it is not recorded. `ends`: the call gives memory back.
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

    /// The call has returned.
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

/// One that its hook gave up makes the others of its time missed.
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
    /// Others go on, and the last of them has its difference.
    Others,
    Missed,
    /// In bytes, and whether it is that of several calls.
    Difference(i64, bool),
}

/// None: counted memory comes or goes, or the difference would not be the driver's own.
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
