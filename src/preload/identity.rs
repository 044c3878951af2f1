//! Identifies processes. A process number is reused; a number together with its start time is not.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use cachealloc_foreign::process;
pub(crate) use cachealloc_foreign::process::Fate;
use cachealloc_statistics::page::Owner;

/// Number of the process in which CUDA was started, or 0 before.
static STARTED_PID: AtomicU32 = AtomicU32::new(0);
/// 1 in the process in which CUDA was started. A child may have the same number as its parent, as
/// the first process of a nested namespace.
static IS_STARTED_HERE: OfOneProcess<AtomicU32> = OfOneProcess(AtomicU32::new(0));

/// A value on pages that a child with a copy of the memory finds zeroed, however it was made. Zeros
/// must be valid for it.
#[repr(C, align(4096))]
pub(crate) struct OfOneProcess<T>(pub T);

impl<T> OfOneProcess<T> {
    /// Wipes the value in children from now on. Kernels before Linux 4.14, and those with larger
    /// pages, leave it unchanged.
    pub(crate) fn wipe_in_children(&'static self) {
        // SAFETY: only asks for a number.
        if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } == align_of::<Self>() as libc::c_long {
            let start = core::ptr::from_ref(self).cast_mut().cast();
            // SAFETY: whole pages of the library, which hold nothing else.
            unsafe { libc::madvise(start, size_of::<Self>(), libc::MADV_WIPEONFORK) };
        }
    }
}

/// Notes that CUDA was started in this process.
pub(crate) fn note_start() {
    IS_STARTED_HERE.wipe_in_children();
    IS_STARTED_HERE.0.store(1, Ordering::Relaxed);
    STARTED_PID.store(std::process::id(), Ordering::Relaxed);
}

/// Notes that this is a forked child.
pub(crate) fn note_fork() {
    IS_STARTED_HERE.0.store(0, Ordering::Relaxed);
}

/// Whether CUDA was started in this process, and not in its parent. Safe in signal handlers.
pub(crate) fn is_ours() -> bool {
    // SAFETY: only asks the kernel for a number, which differs in a child that shares the memory.
    let has_number = || STARTED_PID.load(Ordering::Relaxed) == unsafe { libc::getpid() } as u32;
    IS_STARTED_HERE.0.load(Ordering::Relaxed) == 1 && has_number()
}

/// Whether this is a child of the process in which CUDA was started. Nothing of the library works
/// in such a child.
pub(crate) fn is_foreign() -> bool {
    STARTED_PID.load(Ordering::Relaxed) != 0 && !is_ours()
}

/// Returns this process, by the number that it has in its own namespace.
pub(crate) fn own() -> io::Result<Owner> {
    let owner = process::owner_at(Path::new(cachealloc_foreign::own_proc()))?;
    Ok(Owner { process_id: std::process::id(), ..owner })
}

/// Returns this process, if the state of others can be determined from here.
pub(crate) fn own_to_judge() -> Option<Owner> {
    process::own().ok()
}

/// Returns what has become of the process that made the file at this path. `own` comes from
/// `own_to_judge`. A process of another namespace is `Unknown`.
pub(crate) fn fate_of(path: &Path, inode: u64, owner: &Owner, own: Option<&Owner>) -> Fate {
    if own.is_none_or(|own| own.namespace != owner.namespace) {
        return Fate::Unknown;
    }
    let folder = Path::new("/proc").join(owner.process_id.to_string());
    // The usual case: it reads no long list of mappings.
    let is_same = || process::owner_at(&folder).is_ok_and(|it| it.start == owner.start);
    if is_same() && process::living_thread(&folder).is_some() {
        return Fate::Lives;
    }
    process::fate(&folder, (path, inode), owner, || exists(owner.process_id))
}

fn exists(process: u32) -> bool {
    // SAFETY: only asks whether there is such a process.
    let code = unsafe { libc::kill(process as libc::pid_t, 0) };
    code == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Returns the effective user of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: only asks the kernel for a number.
    unsafe { libc::geteuid() }
}
