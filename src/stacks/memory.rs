//! Reads a stack without ever touching memory that may be unmapped.

/// A stack that is read word by word. `word` returns `None` if the address is unreadable or
/// misplaced.
pub(crate) trait Memory {
    fn word(&mut self, address: u64) -> Option<u64>;
    /// Returns whether an address is known to be on this stack, given that a lower frame of it
    /// exists.
    fn holds(&self, address: u64) -> bool;
}

/// The current stack: it is mapped from the running function to its top, so reads need no system
/// call.
pub(crate) struct StackBounds {
    floor: u64,
    bytes: u64,
}

impl StackBounds {
    /// # Safety
    ///
    /// - Memory from `floor` to `top` is readable, and stays so as long as the calling function
    ///   runs.
    pub(crate) unsafe fn new(floor: u64, top: u64) -> StackBounds {
        StackBounds { floor, bytes: top.saturating_sub(floor) }
    }
}

impl Memory for StackBounds {
    #[inline(always)]
    fn word(&mut self, address: u64) -> Option<u64> {
        // Words are aligned and so is the top: a word that starts inside also ends inside.
        if !self.holds(address) || address & 7 != 0 {
            return None;
        }
        // SAFETY: aligned, and inside the range that the caller of `new` guarantees.
        Some(unsafe { (address as *const u64).read_volatile() })
    }

    #[inline(always)]
    fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.floor) < self.bytes
    }
}

/// Any other stack (a coroutine's, a signal handler's alternate one, or one that a signal
/// interrupted). The kernel reads it, and returns an error for unmapped memory.
pub(crate) struct CheckedStack {
    window: [u64; WINDOW_WORDS],
    /// Address of the window, or `NOTHING`.
    start: u64,
    /// Whether the kernel rejects such reads here (a sandbox).
    pub refused: bool,
}

/// Small, because the walk may run on an alternate signal stack of a few kilobytes. It is a power
/// of two that divides the page size, so that a window is readable completely or not at all.
const WINDOW_WORDS: usize = 64;
const WINDOW_BYTES: u64 = WINDOW_WORDS as u64 * 8;
const NOTHING: u64 = 1;

impl CheckedStack {
    pub(crate) fn new() -> CheckedStack {
        CheckedStack { window: [0; WINDOW_WORDS], start: NOTHING, refused: false }
    }

    #[cold]
    fn load(&mut self, start: u64) -> bool {
        let local = libc::iovec {
            iov_base: self.window.as_mut_ptr().cast(),
            iov_len: size_of_val(&self.window),
        };
        let remote = libc::iovec { iov_base: start as *mut _, iov_len: local.iov_len };
        // SAFETY: the kernel writes into `window` only, and checks what it reads.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if read < 0 {
            let error = std::io::Error::last_os_error().raw_os_error();
            self.refused = matches!(error, Some(libc::EPERM | libc::ENOSYS));
        }
        let whole = read == WINDOW_BYTES as isize;
        self.start = if whole { start } else { NOTHING };
        whole
    }
}

impl Memory for CheckedStack {
    fn word(&mut self, address: u64) -> Option<u64> {
        let start = address & !(WINDOW_BYTES - 1);
        let present = address & 7 == 0 && (start == self.start || self.load(start));
        present.then(|| self.window[((address - start) / 8) as usize])
    }

    /// A further signal frame may lead to yet another stack, so no address is known to be on this
    /// one.
    fn holds(&self, _: u64) -> bool {
        false
    }
}
