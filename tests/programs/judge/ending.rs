//! When a run of the judge ends: after its time, or on a signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub struct Ending {
    until: Option<Instant>,
}

static TOLD: AtomicBool = AtomicBool::new(false);

impl Ending {
    /// Ends the run after this many seconds (0 for never), and in any case on SIGTERM or SIGINT.
    /// The findings so far are then summarized.
    pub fn after(seconds: u64) -> Ending {
        let handler = on_signal as extern "C" fn(i32);
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: the handler only stores a flag.
            unsafe { libc::signal(signal, handler as libc::sighandler_t) };
        }
        Ending { until: (seconds > 0).then(|| Instant::now() + Duration::from_secs(seconds)) }
    }

    pub fn never() -> Ending {
        Ending { until: None }
    }

    pub fn has_come(self) -> bool {
        TOLD.load(Ordering::SeqCst) || self.until.is_some_and(|until| Instant::now() > until)
    }
}

extern "C" fn on_signal(_signal: i32) {
    TOLD.store(true, Ordering::SeqCst);
}
