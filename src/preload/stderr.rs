//! Which file stderr is. Programs close descriptors that they do not know, and the next file or socket that they open gets
//! number 2: no place for messages. So the file is known by its device and inode: what it is when the process begins,
//! and then what the program itself puts there (`interpose::redirect`). While the number is another file's, or none's,
//! there are no messages.
//!
//! Before CUDA is started, a child that has the program's memory (`vfork`) cannot be told from one that has a copy:
//! what either puts there is a file for messages. From then on only what this process puts there is.

use core::mem::zeroed;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::identity;

/// Files that were put there before CUDA was started.
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

/// The process begins, or our part in it.
pub(crate) fn note() {
    if !IS_NOTED.swap(true, Ordering::Relaxed) {
        STDERR.set(present().unwrap_or(NONE));
    }
}

/// The program has put a file there.
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

/// CUDA was started in this process.
pub(crate) fn settle() {
    note();
    STDERR.set(present().filter(|file| is_known(*file)).unwrap_or(NONE));
    IS_SETTLED.store(true, Ordering::Relaxed);
}

/// Whether the number was a place for messages when that was looked at last. Asks nothing.
pub(crate) fn was_there() -> bool {
    !STDERR.is(NONE)
}

/// Whether the number is a place for messages now.
pub(crate) fn is_there() -> bool {
    note();
    present().is_some_and(is_known)
}

fn is_known(file: File) -> bool {
    let was_put = || PUT.iter().any(|put| put.is(file));
    STDERR.is(file) || !IS_SETTLED.load(Ordering::Relaxed) && was_put()
}

/// The file that has the number. By the system call: what the C library calls it differs by version.
fn present() -> Option<File> {
    // SAFETY: a place for the answer, of the kernel's layout; and this thread's own errno, which is put back.
    unsafe {
        let errno = *libc::__errno_location();
        let mut about: libc::stat = zeroed();
        let code = libc::syscall(libc::SYS_fstat, libc::STDERR_FILENO, &raw mut about);
        *libc::__errno_location() = errno;
        #[allow(clippy::unnecessary_cast)] // of different types on different machines
        (code == 0).then_some((about.st_dev as u64, about.st_ino as u64))
    }
}
