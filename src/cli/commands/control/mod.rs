//! Shared parts of the subcommands that change a running program: the target process, the timeout,
//! and the errors if the program does not comply. Afterwards the commands print the state that the
//! program reports.

pub(crate) mod limit;
pub(crate) mod record;
pub(crate) mod trim;

use std::time::{Duration, Instant};

use cachealloc_statistics::control::ControlCommand;
use clap::Args;

use crate::commands::Result;
use crate::failure::Failure;
use crate::live::{self, Live, Problem, Refusal, Statistics};
use crate::processes::{Process, number};

#[derive(Args)]
pub(crate) struct Target {
    /// Process under the library.
    #[arg(value_name = "PID", value_parser = number)]
    process: u32,
    /// Apply to this device only, numbered as in the program.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..64))]
    pub device: Option<i32>,
    /// Time to wait for the program.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
}

/// A program that accepts control commands.
pub(crate) struct ControlSession {
    pub process: Process,
    pub live: Live,
    pub deadline: Instant,
    pub timeout: Duration,
}

impl Target {
    pub(crate) fn find(&self) -> Result<ControlSession> {
        ControlSession::of(Process(self.process), as_timeout(self.timeout))
    }
}

/// Converts seconds to a timeout. Larger values are cut to about 34 years.
pub(crate) fn as_timeout(seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(1 << 30))
}

impl ControlSession {
    pub(crate) fn of(process: Process, timeout: Duration) -> Result<ControlSession> {
        let live = Live::of(process).map_err(|problem| live::explain(process, &problem))?;
        Ok(ControlSession { process, live, deadline: Instant::now() + timeout, timeout })
    }

    /// Sends a control command. `what` describes the state of the program if it does not begin to
    /// carry it out.
    pub(crate) fn give(&self, order: ControlCommand, what: &str) -> Result<()> {
        self.live.order(order, self.deadline).map_err(|refusal| self.explain(refusal, order, what))
    }

    /// Returns the program's current statistics.
    pub(crate) fn statistics(&self) -> Result<Statistics> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let answer = self.live.statistics(false, left.max(Duration::from_secs(1)));
        answer.map_err(|problem| live::explain(self.process, &problem))
    }

    fn explain(&self, refusal: Refusal, order: ControlCommand, what: &str) -> Failure {
        let Process(id) = self.process;
        match refusal {
            Refusal::Problem(problem @ Problem::Silent) => {
                live::explain(self.process, &problem).also(what)
            }
            Refusal::Problem(problem) => live::explain(self.process, &problem),
            Refusal::Others => Failure::new(format!("another command is controlling process {id}"))
                .next("try again when that command has finished"),
            Refusal::Unfinished => {
                Failure::new(format!("process {id} did not finish in {} s", self.timeout.as_secs()))
                    .next(format!("check the outcome with: cachealloc stats {id}"))
            }
            Refusal::No(libc::ENODEV) => {
                let device = match order {
                    ControlCommand::Record(change) => change.device.flatten(),
                    ControlCommand::Trim { device } | ControlCommand::Limit { device, .. } => {
                        device
                    }
                    ControlCommand::Note { device, .. } => Some(device),
                    ControlCommand::Measure
                    | ControlCommand::Offer { .. }
                    | ControlCommand::Give { .. } => None,
                };
                Failure::new(format!(
                    "process {id} has no context on device {}",
                    device.unwrap_or_default()
                ))
                .next(format!("list its devices with: cachealloc stats {id}"))
            }
            Refusal::No(libc::EBUSY) => Failure::new(format!(
                "process {id} is busy: one of its threads holds a lock for more than 2 s"
            ))
            .next("try again"),
            Refusal::No(libc::ENOTSUP) if matches!(order, ControlCommand::Trim { .. }) => {
                Failure::new(format!(
                    "process {id} cannot release memory: the library is disabled, or its \
                     driver is older than 11.2"
                ))
            }
            Refusal::No(libc::ENOTSUP) => {
                Failure::new(format!("the library is disabled in process {id}"))
                    .next("its messages on stderr say why")
            }
            Refusal::No(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                Failure::new(format!("process {id} refused: {error}"))
            }
        }
    }
}
