//! The few calls of the kernel that no safe wrapper offers, and all the `unsafe` of the command.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, raise};

/// The head of a live file, for the kernel's futex calls only. Nothing here looks into it: somebody
/// may cut the file short, and then a look ends the process by SIGBUS, while the kernel says EFAULT.
pub struct Page {
    address: *mut u8,
    bytes: usize,
}

impl Page {
    pub fn map(file: &File, bytes: usize) -> io::Result<Page> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; `drop` takes it away.
        let address =
            unsafe { libc::mmap(null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Page { address: address.cast(), bytes })
    }

    /// Adds 1 to a word, and wakes one who sleeps on it.
    pub fn ring(&self, offset: usize) -> io::Result<()> {
        let word = self.word(offset);
        // What `FUTEX_WAKE_OP` does to its second word: add, the number 1.
        const ADD_1: u32 = (libc::FUTEX_OP_ADD as u32) << 28 | 1 << 12;
        // SAFETY: the kernel changes a word of the mapping, or says that it cannot.
        let done = unsafe {
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE_OP, 1, 0usize, word, ADD_1)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sleeps while a word has this value, until somebody wakes us, or for so long.
    pub fn sleep(&self, offset: usize, value: u32, longest: Duration) {
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

/// Has the program that this command starts begin with these signals blocked, and no others: it would
/// inherit ours.
pub fn start_with(command: &mut Command, blocked: SigSet) {
    // SAFETY: the closure makes one system call, which is allowed after a fork.
    unsafe { command.pre_exec(move || Ok(blocked.thread_set_mask()?)) };
}

/// Ends this process by the default action of a signal, as it has ended another one; without a core
/// file, because that would be about us. Returns where the signal does not end it.
pub fn end_by(signal: Signal) {
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
