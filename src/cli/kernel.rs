//! Kernel calls that no safe wrapper offers. All `unsafe` code of the command is in this module.

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
/// be truncated, and a read would then end the process by SIGBUS, while the kernel returns EFAULT.
pub(crate) struct Page {
    address: *mut u8,
    bytes: usize,
}

impl Page {
    pub(crate) fn map(file: &File, bytes: usize) -> io::Result<Page> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; `drop` unmaps it.
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
        // Operation of `FUTEX_WAKE_OP` on its second word: add the number 1.
        const ADD_1: u32 = (libc::FUTEX_OP_ADD as u32) << 28 | 1 << 12;
        // SAFETY: the kernel changes a word of the mapping, or returns an error.
        let done = unsafe {
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE_OP, 1, 0usize, word, ADD_1)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sleeps while a word has this value, until woken or until `longest` has passed.
    pub(crate) fn sleep(&self, offset: usize, value: u32, longest: Duration) {
        let time = libc::timespec {
            tv_sec: longest.as_secs() as libc::time_t,
            tv_nsec: longest.subsec_nanos().into(),
        };
        // SAFETY: the kernel compares a word of the mapping, or returns an error; the time is valid
        // during the call.
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
        // SAFETY: this value's own mapping, which nothing refers to any longer.
        unsafe { libc::munmap(self.address.cast(), self.bytes) };
    }
}

/// State that std changes before `main`: whether SIGPIPE was ignored, and which of stdin, stdout
/// and stderr were closed.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static WAS_CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

// SAFETY: the loader calls the functions in this section before `main`; this one has the C ABI and
// needs nothing of std, which is not initialized then.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_STD: extern "C" fn() = note_what_std_changes;

extern "C" fn note_what_std_changes() {
    let mut pipe = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: queries only; the first writes a whole `sigaction`, and all zeros are a valid one.
    let ignored = unsafe {
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), pipe.as_mut_ptr());
        pipe.assume_init().sa_sigaction == libc::SIG_IGN
    };
    PIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
    for (descriptor, was_closed) in (0..).zip(&WAS_CLOSED) {
        // SAFETY: a query.
        was_closed
            .store(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1, Ordering::Relaxed);
    }
}

/// Makes the program that this command starts begin as this command did: with exactly these signals
/// blocked, SIGPIPE as it was, and the same descriptors closed.
pub(crate) fn inherit_start_state(command: &mut Command, blocked: SigSet) {
    let begin = move || {
        if PIPE_WAS_IGNORED.load(Ordering::Relaxed) {
            // SAFETY: sets no handler, so nothing can be called.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        for (descriptor, was_closed) in (0..).zip(&WAS_CLOSED) {
            if was_closed.load(Ordering::Relaxed) {
                // SAFETY: std opened this descriptor in place of the closed one, and nothing in the
                // program uses it.
                unsafe { libc::close(descriptor) };
            }
        }
        Ok(blocked.thread_set_mask()?)
    };
    // SAFETY: the closure makes system calls only, which are allowed after a fork.
    unsafe { command.pre_exec(begin) };
}

/// Ends this process by the default action of a signal that has ended another process. Writes no
/// core file, because it would describe this command. Returns if the signal does not end it.
pub(crate) fn end_by(signal: Signal) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a complete limit; and the default action, which uses no memory of this process.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal as libc::c_int, libc::SIG_DFL);
    }
    let mut only = SigSet::empty();
    only.add(signal);
    let _ = only.thread_unblock();
    let _ = raise(signal);
}

/// A file that is removed if a signal ends this process before this value is dropped. At most one
/// value may exist at a time.
pub(crate) struct RemovedOnSignal {
    /// Signals whose default action would have ended the process.
    handled: Vec<libc::c_int>,
}

/// Name of the file, for the handler; null if there is no file.
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
            // writes another one. A signal that the caller ignores stays ignored.
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
            // SAFETY: restores the default action.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        drop_name(REMOVED.swap(null_mut(), Ordering::SeqCst));
    }
}

fn drop_name(name: *mut libc::c_char) {
    if !name.is_null() {
        // SAFETY: `new` gave up ownership of the name; handlers run in this thread and no longer
        // see it.
        drop(unsafe { CString::from_raw(name) });
    }
}

extern "C" fn remove_and_end(signal: libc::c_int) {
    let name = REMOVED.load(Ordering::SeqCst);
    // SAFETY: calls that a handler may make; the name is valid while `REMOVED` holds it.
    unsafe {
        if !name.is_null() {
            libc::unlink(name);
        }
        libc::signal(signal, libc::SIG_DFL);
        // The signal arrives when this handler returns.
        libc::raise(signal);
    }
}

/// Forks a child in the same process group and returns its ID, or `None` in the child. The caller
/// must have only one thread.
pub(crate) fn fork_one() -> io::Result<Option<Pid>> {
    // SAFETY: the process has one thread, so no lock stays held forever in the child.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Ends this process at once, without flushing buffers: their contents belong to the parent.
pub(crate) fn end_at_once() -> ! {
    // SAFETY: a call that does not return.
    unsafe { libc::_exit(0) }
}
