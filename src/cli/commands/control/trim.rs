//! `cachealloc trim`: makes a running program release unused memory to the device.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cachealloc_statistics::control::ControlCommand;
use clap::Args;

use crate::commands::Result;
use crate::commands::control::Target;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::show::bytes;

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Release the free memory in the cache of a running program.
///
/// Memory returns to the device once earlier GPU work has finished and no stream is capturing. No
/// thread of the program waits for it.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let session = arguments.target.find()?;
    let before = session.statistics()?.trims;
    let device = arguments.target.device;
    session.give(ControlCommand::Trim { device }, "nothing was released")?;
    let asked = session.statistics()?.trims.asked;
    let process = session.process.0;
    let mut waiting = Progress::waiting(&format!("waiting for process {process}"));
    loop {
        waiting.tick();
        let now = session.statistics()?.trims;
        let given = bytes(now.bytes.saturating_sub(before.bytes));
        if now.done.wrapping_sub(asked) as i32 >= 0 {
            drop(waiting);
            crate::commands::print(&format!("process {process} released {given}\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() >= session.deadline {
            drop(waiting);
            let seconds = session.timeout.as_secs();
            return Err(Failure::new(format!(
                "process {process} released {given} within {seconds} s, but not everything"
            ))
            .next(
                "the rest follows once earlier GPU work has finished and no stream is capturing",
            ));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
