//! Shows progress: a bar on stderr, only if that is a terminal, and only once the work has taken a
//! second.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use cachealloc_text::{cut, plain};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Cuts and escapes a file name, which is untrusted.
fn shown(what: &str) -> String {
    plain(&cut(what, LETTERS_MAX)).into_owned()
}

const LETTERS_MAX: usize = 200;
const QUIET_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    /// Whether the decision to draw the bar is still pending.
    waits: bool,
}

// Only other subcommands have work of known length.
#[allow(dead_code)]
impl Progress {
    /// Starts work described by `what`, of `steps` steps (bytes, entries).
    pub(crate) fn new(what: &str, steps: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {percent:>3} %  {eta}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(shown(what));
        Progress { bar, begun: Instant::now(), waits: std::io::stderr().is_terminal() }
    }

    /// Starts a wait of unknown length.
    pub(crate) fn waiting(what: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_message(shown(what));
        Progress { bar, begun: Instant::now(), waits: std::io::stderr().is_terminal() }
    }

    /// Redraws the bar of a wait.
    pub(crate) fn tick(&mut self) {
        self.show_if_due();
        self.bar.tick();
    }

    /// Sets the number of finished steps. Cheap enough to call every few thousand of them.
    pub(crate) fn set(&mut self, done: u64) {
        self.show_if_due();
        self.bar.set_position(done);
    }

    fn show_if_due(&mut self) {
        if self.waits && self.begun.elapsed() >= QUIET_FOR {
            self.waits = false;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    /// Removes the bar from the screen.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
