//! A program that we stay beside: what is sent to us is for it, and how it ends is how we end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::kernel;

/// What others send to a program. Not those that stop and continue: they stop us, too.
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

/// Runs the program to its end. The error: it did not start.
pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let mut signals: SigSet = FORWARDED.into_iter().collect();
    signals.add(Signal::SIGCHLD);
    kernel::start_as_we_began(command, SigSet::thread_get_mask()?);
    // Before the program starts, so that none is missed.
    signals.thread_block()?;
    let arriving = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(signal) = arriving.read_signal()? {
            forward(&child, &signal);
        }
    }
}

/// What the terminal sends it sends to the program as well.
fn forward(child: &Child, signal: &nix::libc::signalfd_siginfo) {
    let from_terminal = signal.ssi_code == nix::libc::SI_KERNEL;
    let Ok(number) = Signal::try_from(signal.ssi_signo as i32) else { return };
    if number != Signal::SIGCHLD && !from_terminal {
        let _ = kill(Pid::from_raw(child.id() as i32), number); // it may have ended just now
    }
}

/// Ends as the program did: with its exit code, or by its signal.
pub fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        if let Ok(signal) = Signal::try_from(signal) {
            kernel::end_by(signal);
        }
        return ExitCode::from((128 + signal) as u8);
    }
    ExitCode::from(status.code().unwrap_or(1) as u8)
}
