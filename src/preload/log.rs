//! Writes a line to stderr with a single `write(2)` and without allocating. Any hook may call it,
//! and a closed stderr is no error. Nothing is written to stdout, which belongs to the program.

pub(crate) mod stderr;

use core::fmt::{self, Write};
use core::ptr::null;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::thread_state::with_thread_state_saved;
use crate::{apart, config, seccomp};

/// How much is printed: the option `log`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Quiet = 0,
    Warn = 1,
    Info = 2,
}

const LINE_BYTES_MAX: usize = 1024;

static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);

pub(crate) fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether warnings are shown.
pub(crate) fn warns() -> bool {
    config::get();
    LEVEL.load(Ordering::Relaxed) >= Level::Warn as u8
}

/// Whether explanations are shown.
pub(crate) fn informs() -> bool {
    config::get();
    LEVEL.load(Ordering::Relaxed) >= Level::Info as u8
}

/// Writes something the user should act on.
pub(crate) fn warn(message: fmt::Arguments) {
    config::get(); // the option `log` may not have been read yet
    if LEVEL.load(Ordering::Relaxed) >= Level::Warn as u8 {
        line(message);
    }
}

/// Writes something that explains behaviour, shown with `log:info`.
pub(crate) fn info(message: fmt::Arguments) {
    if informs() {
        line(message);
    }
}

/// Writes `cachealloc: MESSAGE`, cut at `LINE_BYTES_MAX`, whatever the level.
pub(crate) fn line(message: fmt::Arguments) {
    let mut line = Line { bytes: [0; LINE_BYTES_MAX], used: 0 };
    let _ = write!(line, "cachealloc: {message}");
    line.used = line.used.min(LINE_BYTES_MAX - 1);
    line.bytes[line.used] = b'\n';
    raw(&line.bytes[..=line.used]);
}

/// Writes bytes to stderr unchanged. A failure cannot be reported, and the program must not notice
/// it.
pub(crate) fn raw(bytes: &[u8]) {
    if !seccomp::silences() {
        apart::with_descriptors(|| write(bytes));
    }
}

fn write(bytes: &[u8]) {
    // A seccomp filter may allow writes and nothing else.
    let may_ask = !seccomp::is_new();
    let is_there = if may_ask { stderr::is_there() } else { stderr::was_there() };
    if !is_there {
        return;
    }
    with_thread_state_saved(|| {
        for part in bytes.chunks(PART_BYTES_MAX) {
            if may_ask && !takes_more() {
                return;
            }
            // SAFETY: the buffer is valid for its length.
            unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        }
    });
}

/// Maximum bytes of one write: a pipe that polls as writable has space for this many.
const PART_BYTES_MAX: usize = libc::PIPE_BUF;
/// Longest wait for a reader. After that, the reader gets no more until it reads: the program may
/// end meanwhile, or be asked to.
const READER_WAIT_MAX_S: libc::time_t = 1;

/// Whether stderr accepts more, now or within the wait.
fn takes_more() -> bool {
    static IS_FULL: AtomicBool = AtomicBool::new(false);
    let seconds = if IS_FULL.load(Ordering::Relaxed) { 0 } else { READER_WAIT_MAX_S };
    let mut left = libc::timespec { tv_sec: seconds, tv_nsec: 0 };
    let mut about = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    loop {
        let mask = null::<libc::sigset_t>();
        // SAFETY: one entry, and a time that the kernel updates if a signal arrives. This thread's
        // own errno.
        let (code, errno) = unsafe {
            let code = libc::syscall(libc::SYS_ppoll, &raw mut about, 1, &raw mut left, mask, 8);
            (code, *libc::__errno_location())
        };
        if code == -1 && errno == libc::EINTR {
            continue;
        }
        IS_FULL.store(code == 0, Ordering::Relaxed);
        return code != 0;
    }
}

struct Line {
    bytes: [u8; LINE_BYTES_MAX],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES_MAX - 1 - self.used;
        let taken = text.len().min(room);
        self.bytes[self.used..self.used + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.used += taken;
        Ok(())
    }
}
