//! The terminal while the screen is on it, and the signals that must not leave it so.

use std::io;

use nix::sys::signal::{SigSet, Signal, raise};
use ratatui::DefaultTerminal;

use crate::failure::Failure;
use crate::processes::{Disposition, Process};

/// Another screen than the shell's, and keys at once and without an echo, until this value goes.
pub(super) struct Screen(pub DefaultTerminal);

impl Screen {
    pub(super) fn begin() -> Result<Screen, Failure> {
        ratatui::try_init().map(Screen).map_err(|error| {
            Failure::new(format!("cannot draw on this terminal: {error}"))
                .next("--once prints one table")
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.0.show_cursor(); // a terminal that is gone shows nothing
        let _ = ratatui::try_restore();
    }
}

/// What would end or stop the process, but for those that it was told to ignore: blocked, and
/// waited for. Call before there is another thread.
pub(in super::super) fn block_signals() -> SigSet {
    let own = Process(std::process::id());
    let mut signals = SigSet::empty();
    for signal in
        [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP]
    {
        if own.disposition(signal as i32) != Some(Disposition::Ignored) {
            signals.add(signal);
        }
    }
    let _ = signals.thread_block(); // it fails for no set of signals that there are
    signals
}

/// Returns when the shell has brought us back.
pub(super) fn stop_here() -> io::Result<()> {
    Ok(raise(Signal::SIGSTOP)?)
}
