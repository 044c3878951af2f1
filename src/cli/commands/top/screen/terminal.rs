//! The terminal while the screen is on it, and the signals that must not leave it in that state.

use std::io;

use nix::sys::signal::{SigSet, Signal, raise};
use ratatui::DefaultTerminal;

use crate::failure::Failure;
use crate::processes::{Disposition, Process};

/// The terminal's alternate screen, with unbuffered keys and no echo, until this value is dropped.
pub(super) struct Screen(pub DefaultTerminal);

impl Screen {
    pub(super) fn begin() -> Result<Screen, Failure> {
        ratatui::try_init().map(Screen).map_err(|error| {
            Failure::new(format!("cannot draw on this terminal: {error}"))
                .next("print one table with --once")
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.0.show_cursor(); // fails only if the terminal is gone
        let _ = ratatui::try_restore();
    }
}

/// Blocks the signals that would end or stop the process, so that they can be waited for. Leaves
/// out those that the process was started to ignore. Call before other threads exist.
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
    let _ = signals.thread_block(); // never fails for valid signals
    signals
}

/// Stops the process. Returns when the shell has resumed it.
pub(super) fn stop_here() -> io::Result<()> {
    Ok(raise(Signal::SIGSTOP)?)
}
