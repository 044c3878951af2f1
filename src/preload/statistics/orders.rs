//! What another process of the user has this one do (`statistics/orders`), by the file that the
//! statistics go through (`live`). The writer's thread carries it out, so no thread of the program waits; what
//! needs the driver it leaves to the scavenger, which never waits there for work of the program's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cachealloc_statistics::orders::Order;

use crate::driver_memory::limits;
use crate::process::bypass;
use crate::process::patience::Patience;
use crate::snapshots::recording;
use crate::trim::scavenger;
use crate::{contexts, heap};

/// Carries an order out, or answers the `errno` that says why not. None: what stood there is no order.
pub fn obey(order: Option<Order>) -> u32 {
    if !bypass::is_on() {
        return libc::ENOTSUP as u32;
    }
    let Some(order) = order else { return libc::EINVAL as u32 };
    // What is recorded lives in the heap of the program's threads.
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
        Order::Limit { device, bytes } => {
            known(device)?;
            limits::set_by_order(device, bytes)
        }
    }
}

/// A device that is named must be one that the process uses: the driver is not asked which there are.
fn known(device: Option<i32>) -> Result<(), i32> {
    let known = device.is_none_or(|device| contexts::all().any(|it| it.device == device));
    if known { Ok(()) } else { Err(libc::ENODEV) }
}
