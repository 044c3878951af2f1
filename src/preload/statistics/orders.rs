//! Orders of the user's other processes (`statistics/orders`), received through the file of the live
//! statistics (`live`). The writer's thread carries them out, so no thread of the program waits. What
//! needs the driver it leaves to the scavenger, which never waits for work of the program there.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cachealloc_statistics::orders::Order;

use crate::driver_memory::{limits, measured};
use crate::process::bypass;
use crate::process::patience::Patience;
use crate::snapshots::recording;
use crate::trim::{gifts, scavenger};
use crate::{contexts, heap};

/// Carries an order out, or returns the `errno` of the reason. None: the bytes were no order.
pub(crate) fn obey(order: Option<Order>) -> u32 {
    if !bypass::is_caching() {
        return libc::ENOTSUP as u32;
    }
    let Some(order) = order else { return libc::EINVAL as u32 };
    // What is recorded belongs on the heap of the program's threads.
    let obeyed = heap::as_others(|| catch_unwind(AssertUnwindSafe(|| carry_out(order))));
    obeyed.unwrap_or(Err(libc::EIO)).map_or_else(|errno| errno as u32, |()| 0)
}

fn carry_out(order: Order) -> Result<(), i32> {
    match order {
        Order::Record(change) => {
            known(change.device.flatten())?;
            recording::change(change, Patience::GivesUp)
        }
        Order::Trim { device } => {
            known(device)?;
            scavenger::trim(device)
        }
        Order::Measure => scavenger::measure(),
        Order::Note { device, said } => {
            known(Some(device))?;
            measured::note(device, said);
            Ok(())
        }
        // The answer is all that it asks for.
        Order::Offer { .. } => Ok(()),
        Order::Give { gpu, mebibytes } => gifts::order(gpu, mebibytes),
        Order::Limit { device, bytes } => {
            known(device)?;
            limits::set_by_order(device, bytes)
        }
    }
}

/// A device named must be one that the process uses: the driver is not asked.
fn known(device: Option<i32>) -> Result<(), i32> {
    let known = device.is_none_or(|device| contexts::all().any(|it| it.device == device));
    if known { Ok(()) } else { Err(libc::ENODEV) }
}
