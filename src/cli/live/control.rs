//! Sends control commands to a running process through its statistics file.
//! `cachealloc_statistics::page` describes the protocol.

use std::io;
use std::time::{Duration, Instant};

use cachealloc_statistics::control::ControlCommand;
use cachealloc_statistics::sender::{self, Receiver, Sent, Words};

use super::{Live, Problem};
use crate::kernel::Page;

/// Reason why a control command was not carried out.
#[derive(Debug)]
pub(crate) enum Refusal {
    Problem(Problem),
    /// Another sender holds the lock.
    Others,
    /// The process has begun to carry it out but does not finish.
    Unfinished,
    /// The process refused, with this `errno`.
    No(i32),
}

impl Live {
    /// Sends a control command to the process and waits for it. If the process does not begin to
    /// carry it out, the command is withdrawn.
    pub(crate) fn order(&self, order: ControlCommand, deadline: Instant) -> Result<(), Refusal> {
        let receiver = Until { live: self, deadline };
        let sent = sender::send(&self.file, &self.page, &receiver, &order);
        match sent.map_err(|error| Refusal::Problem(Problem::Refused(error)))?.0 {
            Sent::Done => Ok(()),
            Sent::Refused(errno) => Err(Refusal::No(errno)),
            Sent::Others => Err(Refusal::Others),
            Sent::Unfinished => Err(Refusal::Unfinished),
            Sent::Silent => Err(Refusal::Problem(Problem::Silent)),
            Sent::Ended => Err(Refusal::Problem(Problem::Ended)),
            Sent::OtherLayout => Err(Refusal::Problem(Problem::OtherLayout)),
        }
    }
}

struct Until<'a> {
    live: &'a Live,
    deadline: Instant,
}

impl Receiver for Until<'_> {
    fn has_ended(&self) -> bool {
        self.live.has_ended()
    }

    fn is_stopped(&self) -> bool {
        self.live.process.is_stopped()
    }

    fn timeout(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Words for Page {
    fn wake(&self, offset: usize) -> io::Result<()> {
        Page::wake(self, offset)
    }

    fn sleep(&self, offset: usize, value: u32, longest: Duration) {
        Page::sleep(self, offset, value, longest);
    }
}
