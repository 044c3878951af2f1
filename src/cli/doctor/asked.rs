//! Runs a query in a separate process: the code that answers it may hang, crash, as in a broken
//! driver, or leave state in the process.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::kernel;

/// A driver that starts the devices of a large machine takes some seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the answer, or why it is missing. The caller must have only one thread.
pub(super) fn ask<T: Serialize + DeserializeOwned>(
    question: impl FnOnce() -> T,
) -> Result<T, String> {
    let (mut ours, mut theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
    let Some(child) = kernel::fork_one().map_err(|error| error.to_string())? else {
        // A lost answer counts as a missing one.
        let _ = serde_json::to_vec(&question()).map(|answer| theirs.write_all(&answer));
        kernel::end_at_once();
    };
    drop(theirs);
    let mut answer = Vec::new();
    let read = ours.set_read_timeout(Some(TIMEOUT)).and_then(|()| ours.read_to_end(&mut answer));
    if read.is_err() {
        let _ = kill(child, Signal::SIGKILL); // not waited for: it may be stuck in the kernel
        return Err(format!("no answer within {} s", TIMEOUT.as_secs()));
    }
    match waitpid(child, None) {
        Ok(WaitStatus::Signaled(_, signal, _)) => {
            Err(format!("a process that loaded it was ended by {signal}"))
        }
        _ => serde_json::from_slice(&answer)
            .map_err(|_| "a process that loaded it ended early".to_string()),
    }
}
