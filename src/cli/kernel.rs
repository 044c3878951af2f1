//! The few calls of the kernel that no safe wrapper offers, and all the `unsafe` of the command.

pub(crate) mod libraries;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, raise};
use nix::unistd::{ForkResult, Pid, fork};

/// The head of a live file, for the kernel's futex calls only. Nothing here reads it: the file may
/// be truncated, and then a read ends the process by SIGBUS, while the kernel returns EFAULT.
pub(crate) struct Page {
    address: *mut u8,
    bytes: usize,
}

impl Page {
    pub(crate) fn map(file: &File, bytes: usize) -> io::Result<Page> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; `drop` takes it away.
        let address =
            unsafe { libc::mmap(null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Page { address: address.cast(), bytes })
    }

    /// Adds 1 to a word, and wakes one sleeper on it.
    pub(crate) fn wake(&self, offset: usize) -> io::Result<()> {
        let word = self.word(offset);
        // What `FUTEX_WAKE_OP` does to its second word: add, the number 1.
        const ADD_1: u32 = (libc::FUTEX_OP_ADD as u32) << 28 | 1 << 12;
        // SAFETY: the kernel changes a word of the mapping, or says that it cannot.
        let done = unsafe {
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE_OP, 1, 0usize, word, ADD_1)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sleeps while a word has this value, until woken, or for so long.
    pub(crate) fn sleep(&self, offset: usize, value: u32, longest: Duration) {
        let time = libc::timespec {
            tv_sec: longest.as_secs() as libc::time_t,
            tv_nsec: longest.subsec_nanos().into(),
        };
        // SAFETY: the kernel compares a word of the mapping, or says that it cannot; the time is
        // valid during the call.
        unsafe {
            libc::syscall(libc::SYS_futex, self.word(offset), libc::FUTEX_WAIT, value, &time)
        };
    }

    fn word(&self, offset: usize) -> *mut u8 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        self.address.wrapping_add(offset)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing refers to any longer.
        unsafe { libc::munmap(self.address.cast(), self.bytes) };
    }
}

/// What std changes before `main`, as it was: whether SIGPIPE was ignored, and which of stdin,
/// stdout and stderr were closed.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static WAS_CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

// SAFETY: the loader calls what stands in this section before `main`; it is a function of the C ABI
// that needs nothing of std's, which is not ready then.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_STD: extern "C" fn() = note_what_std_changes;

extern "C" fn note_what_std_changes() {
    let mut pipe = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: questions only; the first writes a whole `sigaction`, of which zeros are one as well.
    let ignored = unsafe {
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), pipe.as_mut_ptr());
        pipe.assume_init().sa_sigaction == libc::SIG_IGN
    };
    PIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
    for (descriptor, was_closed) in (0..).zip(&WAS_CLOSED) {
        // SAFETY: a question.
        was_closed
            .store(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1, Ordering::Relaxed);
    }
}

/// Has the program that this command starts begin as this command did: with these signals blocked
/// and no others, SIGPIPE as it was, and closed what was closed.
pub(crate) fn inherit_start_state(command: &mut Command, blocked: SigSet) {
    let begin = move || {
        if PIPE_WAS_IGNORED.load(Ordering::Relaxed) {
            // SAFETY: no handler, which could be called.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        for (descriptor, was_closed) in (0..).zip(&WAS_CLOSED) {
            if was_closed.load(Ordering::Relaxed) {
                // SAFETY: what std opened in its place, which nothing in the program uses.
                unsafe { libc::close(descriptor) };
            }
        }
        Ok(blocked.thread_set_mask()?)
    };
    // SAFETY: the closure makes system calls only, which are allowed after a fork.
    unsafe { command.pre_exec(begin) };
}

/// Ends this process by the default action of a signal, as it has ended another one; without a core
/// file, because that would be about us. Returns if the signal does not end it.
pub(crate) fn end_by(signal: Signal) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a complete limit; and the default action, which needs nothing of ours.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal as libc::c_int, libc::SIG_DFL);
    }
    let mut only = SigSet::empty();
    only.add(signal);
    let _ = only.thread_unblock();
    let _ = raise(signal);
}

/// A file that is removed where a signal ends this process before this value goes. One at a time.
pub(crate) struct RemovedOnSignal {
    /// Those that would have ended us without more.
    handled: Vec<libc::c_int>,
}

/// The file's name, for the handler. Null: none.
static REMOVED: AtomicPtr<libc::c_char> = AtomicPtr::new(null_mut());

const ENDING: [libc::c_int; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGALRM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

impl RemovedOnSignal {
    pub(crate) fn new(path: &Path) -> io::Result<RemovedOnSignal> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        drop_name(REMOVED.swap(path.into_raw(), Ordering::SeqCst));
        let mut handled = Vec::new();
        for signal in ENDING {
            let mut before = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
            let mut handler = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: zeros are a whole `sigaction`, to which the handler is added; the kernel
            // writes another one. What the caller ignores stays ignored.
            unsafe {
                libc::sigaction(signal, std::ptr::null(), before.as_mut_ptr());
                if before.assume_init().sa_sigaction != libc::SIG_DFL {
                    continue;
                }
                let handler = handler.assume_init_mut();
                handler.sa_sigaction = remove_and_end as *const () as usize;
                libc::sigaction(signal, handler, null_mut());
            }
            handled.push(signal);
        }
        Ok(RemovedOnSignal { handled })
    }
}

impl Drop for RemovedOnSignal {
    fn drop(&mut self) {
        for &signal in &self.handled {
            // SAFETY: the default action, as it was.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        drop_name(REMOVED.swap(null_mut(), Ordering::SeqCst));
    }
}

fn drop_name(name: *mut libc::c_char) {
    if !name.is_null() {
        // SAFETY: `new` gave the name up; handlers run in this thread, and see it no longer.
        drop(unsafe { CString::from_raw(name) });
    }
}

extern "C" fn remove_and_end(signal: libc::c_int) {
    let name = REMOVED.load(Ordering::SeqCst);
    // SAFETY: calls that a handler may make; the name is valid as long as it is there.
    unsafe {
        if !name.is_null() {
            libc::unlink(name);
        }
        libc::signal(signal, libc::SIG_DFL);
        // It arrives when this returns.
        libc::raise(signal);
    }
}

/// Another process of this command, in the same process group. None: we are it. For a command that
/// has one thread.
pub(crate) fn fork_one() -> io::Result<Option<Pid>> {
    // SAFETY: we have one thread, so nothing is locked in the other process for ever.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Ends this process at once: what is buffered is another one's.
pub(crate) fn end_at_once() -> ! {
    // SAFETY: a call that does not return.
    unsafe { libc::_exit(0) }
}
