//! Runs a program and stays its parent: forwards the signals sent to the command, and ends as the
//! program ended.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::kernel;

/// Signals that others send to a program. Stop and continue signals are not forwarded: they also
/// stop the command.
const FORWARDED: [Signal; 13] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGURG,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    Signal::SIGWINCH,
];

/// Runs the program to its end. Returns an error if it did not start.
pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let forwarded: SigSet = FORWARDED.into_iter().collect();
    let mut signals = forwarded;
    signals.add(Signal::SIGCHLD);
    let before = SigSet::thread_get_mask()?;
    kernel::inherit_start_state(command, before);
    // Block before the program starts, so that no signal is missed.
    signals.thread_block()?;
    let status = beside(command, &signals, &forwarded);
    // The program has ended; signals are now meant for the command.
    before.thread_set_mask()?;
    status
}

fn beside(command: &mut Command, signals: &SigSet, forwarded: &SigSet) -> io::Result<ExitStatus> {
    let arriving = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut child = command.spawn()?;
    // The witness must be younger than the program: see `Witness`. Without a witness, signals sent
    // to the group arrive twice.
    let mut witness = Witness::new(forwarded).ok();
    loop {
        if let Some(status) = child.try_wait()? {
            // Discard signals sent to the whole group as the program ended, so that the command
            // still writes its report.
            while arriving.read_signal()?.is_some() {}
            return Ok(status);
        }
        let mut ready = [PollFd::new(arriving.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            polled => polled?,
        };
        while let Some(signal) = arriving.read_signal()? {
            forward(&child, &signal, witness.as_mut());
        }
    }
}

/// Forwards a signal, unless it came from the terminal or went to the whole process group: the
/// program then receives it directly.
fn forward(child: &Child, signal: &nix::libc::signalfd_siginfo, witness: Option<&mut Witness>) {
    let from_terminal = signal.ssi_code == nix::libc::SI_KERNEL;
    let Ok(number) = Signal::try_from(signal.ssi_signo as i32) else { return };
    if number == Signal::SIGCHLD {
        return;
    }
    // Ask in any case, so that the witness forgets signals already handled.
    let to_group = witness.is_some_and(|witness| witness.has_seen(number));
    if !from_terminal && !to_group {
        let _ = kill(Pid::from_raw(child.id() as i32), number); // it may have ended just now
    }
}

/// A child process in the same process group, to which nothing is sent directly. A signal it
/// receives was sent to the group, and so to the program. The signal itself does not show that.
///
/// The kernel sends to the members of a group one after the other, latest joined first. The witness
/// is younger, so it receives a signal before the command does.
struct Witness {
    stream: UnixStream,
    /// Number of the last question. A late answer to an earlier one is discarded.
    question: u8,
}

/// Time allowed for a reply, which is the witness's only work.
const TIMEOUT: Duration = Duration::from_millis(200);

impl Witness {
    /// Starts the witness. `signals` must be blocked.
    fn new(signals: &SigSet) -> io::Result<Witness> {
        let (ours, theirs) = UnixStream::pair()?;
        if kernel::fork_one()?.is_none() {
            // Close this end here, so that the witness sees end-of-file when the command ends.
            drop(ours);
            let _ = watch_group(theirs, signals); // returns when the command ends, or on an error
            kernel::end_at_once();
        }
        ours.set_read_timeout(Some(TIMEOUT))?;
        Ok(Witness { stream: ours, question: 0 })
    }

    /// Returns whether this signal came to the group since the last question.
    fn has_seen(&mut self, signal: Signal) -> bool {
        self.question = self.question.wrapping_add(1);
        let asked = self.stream.write_all(&[self.question, signal as i32 as u8]);
        let mut answer = [0; 2];
        while asked.is_ok() && self.stream.read_exact(&mut answer).is_ok() {
            if answer[0] == self.question {
                return answer[1] != 0;
            }
        }
        false
    }
}

/// Main loop of the witness: replies until the other end is closed.
fn watch_group(mut questions: UnixStream, signals: &SigSet) -> io::Result<()> {
    let arriving = SignalFd::with_flags(signals, SfdFlags::SFD_NONBLOCK)?;
    let mut seen = [0u8; 256];
    loop {
        let mut asked = [0; 2];
        questions.read_exact(&mut asked)?;
        let [question, signal] = asked;
        while let Some(came) = arriving.read_signal()? {
            seen[came.ssi_signo as usize % seen.len()] = 1;
        }
        let answer = std::mem::take(&mut seen[usize::from(signal)]);
        questions.write_all(&[question, answer])?;
    }
}

/// Ends as the program did: with its exit code, or by its signal.
pub(crate) fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        if let Ok(signal) = Signal::try_from(signal) {
            kernel::end_by(signal);
        }
        return ExitCode::from((128 + signal) as u8);
    }
    ExitCode::from(status.code().unwrap_or(1) as u8)
}
