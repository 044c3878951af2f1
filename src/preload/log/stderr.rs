//! Tracks which file stderr is. A program may close descriptors that it does not know, and the next
//! file or socket that it opens gets number 2: messages must not go there. The library therefore
//! identifies the file by device and inode: what stderr is when the process begins, and then what
//! the program itself puts there (`interpose::redirect`). No messages are written while number 2 is
//! another file or closed.
//!
//! Before CUDA is started, a child that shares the program's memory (`vfork`) cannot be told from
//! one that has a copy, so a file that either puts there is accepted. From then on, only files that
//! this process puts there are.

use core::mem::zeroed;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::identity;

/// Maximum number of remembered files that were put there before CUDA was started.
const PUT_MAX: usize = 8;
const NONE: File = (0, 0);

/// A file, or `NONE`.
struct Known {
    device: AtomicU64,
    inode: AtomicU64,
}

static STDERR: Known = Known::new();
static IS_NOTED: AtomicBool = AtomicBool::new(false);
static IS_SETTLED: AtomicBool = AtomicBool::new(false);
static PUT: [Known; PUT_MAX] = [const { Known::new() }; PUT_MAX];
static PUT_COUNT: AtomicUsize = AtomicUsize::new(0);

type File = (u64, u64);

impl Known {
    const fn new() -> Known {
        Known { device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    fn set(&self, (device, inode): File) {
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
    }

    fn is(&self, (device, inode): File) -> bool {
        self.device.load(Ordering::Relaxed) == device && self.inode.load(Ordering::Relaxed) == inode
    }
}

/// Notes which file stderr is, when the process or the library's part in it begins.
pub(crate) fn note() {
    if !IS_NOTED.swap(true, Ordering::Relaxed) {
        STDERR.set(present().unwrap_or(NONE));
    }
}

/// Notes that the program has put a file there.
pub(crate) fn is_put() {
    if identity::is_foreign() {
        return;
    }
    note();
    let Some(file) = present() else { return };
    if IS_SETTLED.load(Ordering::Relaxed) {
        STDERR.set(file);
    } else if !is_known(file) {
        PUT[PUT_COUNT.fetch_add(1, Ordering::Relaxed) % PUT_MAX].set(file);
    }
}

/// Fixes which file stderr is, when CUDA is started in this process.
pub(crate) fn settle() {
    note();
    STDERR.set(present().filter(|file| is_known(*file)).unwrap_or(NONE));
    IS_SETTLED.store(true, Ordering::Relaxed);
}

/// Whether messages could be written when that was last checked. Makes no system call.
pub(crate) fn was_there() -> bool {
    !STDERR.is(NONE)
}

/// Whether messages can be written now.
pub(crate) fn is_there() -> bool {
    note();
    present().is_some_and(is_known)
}

fn is_known(file: File) -> bool {
    let was_put = || PUT.iter().any(|put| put.is(file));
    STDERR.is(file) || !IS_SETTLED.load(Ordering::Relaxed) && was_put()
}

/// Returns the file that has number 2. Uses the system call, because the C library's name for it
/// differs by version.
fn present() -> Option<File> {
    // SAFETY: a place for the answer, of the kernel's layout; this thread's own errno is restored.
    unsafe {
        let errno = *libc::__errno_location();
        let mut about: libc::stat = zeroed();
        let code = libc::syscall(libc::SYS_fstat, libc::STDERR_FILENO, &raw mut about);
        *libc::__errno_location() = errno;
        #[allow(clippy::unnecessary_cast)] // the types differ between machines
        (code == 0).then_some((about.st_dev as u64, about.st_ino as u64))
    }
}
