//! Control commands of peer processes (`statistics/control`), received through the file of the live
//! statistics (`live`). The writer's thread executes them, so no thread of the program waits. It
//! leaves to the scavenger what needs the driver; the scavenger does not wait for work of the
//! program there.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cachealloc_statistics::control::ControlCommand;

use crate::driver_memory::{limits, measured};
use crate::heap;
use crate::process::bypass;
use crate::process::lock_timeout::LockWait;
use crate::snapshots::recording;
use crate::state::contexts;
use crate::trim::{reclaim, scavenger};

/// Executes a control command, or returns the `errno` of the reason why not. `None` stands for
/// bytes that are no command.
pub(crate) fn execute(command: Option<ControlCommand>) -> u32 {
    if !bypass::is_caching() {
        return libc::ENOTSUP as u32;
    }
    let Some(command) = command else { return libc::EINVAL as u32 };
    // Recorded data belongs on the heap of the program's threads.
    let obeyed = heap::as_others(|| catch_unwind(AssertUnwindSafe(|| carry_out(command))));
    obeyed.unwrap_or(Err(libc::EIO)).map_or_else(|errno| errno as u32, |()| 0)
}

fn carry_out(command: ControlCommand) -> Result<(), i32> {
    match command {
        ControlCommand::Record(change) => {
            known(change.device.flatten())?;
            recording::change(change, LockWait::Timeout)
        }
        ControlCommand::Trim { device } => {
            known(device)?;
            scavenger::trim(device)
        }
        ControlCommand::Measure => scavenger::measure(),
        ControlCommand::Note { device, nvml_reading } => {
            known(Some(device))?;
            measured::note(device, nvml_reading);
            Ok(())
        }
        // The sender needs nothing but the answer.
        ControlCommand::Offer { .. } => Ok(()),
        ControlCommand::Give { gpu, mebibytes } => reclaim::enqueue(gpu, mebibytes),
        ControlCommand::Limit { device, bytes } => {
            known(device)?;
            limits::set_by_order(device, bytes)
        }
    }
}

/// Checks that the process uses the given device, without asking the driver.
fn known(device: Option<i32>) -> Result<(), i32> {
    let known = device.is_none_or(|device| contexts::all().any(|it| it.device == device));
    if known { Ok(()) } else { Err(libc::ENODEV) }
}
