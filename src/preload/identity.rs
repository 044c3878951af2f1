//! Identifies processes: a number is reused, a number with its start time is not.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use cachealloc_statistics::page::{Owner, start_of};

/// The process in which CUDA was started; 0 before.
static STARTED_PID: AtomicU32 = AtomicU32::new(0);

/// CUDA was started in this process.
pub(crate) fn note_start() {
    STARTED_PID.store(std::process::id(), Ordering::Relaxed);
}

/// Whether CUDA was started in this process, not in its parent. Safe in signal handlers.
pub(crate) fn is_ours() -> bool {
    // SAFETY: asks the kernel for a number.
    STARTED_PID.load(Ordering::Relaxed) == unsafe { libc::getpid() } as u32
}

/// Whether this is a child of the process in which CUDA was started: nothing of ours works here.
pub(crate) fn is_foreign() -> bool {
    STARTED_PID.load(Ordering::Relaxed) != 0 && !is_ours()
}

/// The identity of a process, by its number or "self".
pub(crate) fn owner_of(process: &str) -> io::Result<Owner> {
    let folder = Path::new("/proc").join(process);
    let stat = std::fs::read(folder.join("stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    let number = stat.split(' ').next().and_then(|number| number.parse().ok());
    let (process_id, start) =
        number.zip(start_of(&stat)).ok_or_else(|| io::Error::other("/proc is not as expected"))?;
    Ok(Owner { process_id, start, namespace: std::fs::metadata(folder.join("ns/pid"))?.ino() })
}

/// Whether it has ended.
pub(crate) fn is_gone(owner: &Owner) -> bool {
    match owner_of(&owner.process_id.to_string()) {
        Ok(present) => present.start != owner.start,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Of the operating system's randomness.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
