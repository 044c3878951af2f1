//! A signal that the library handles, and the program's view of it.

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use libc::{SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_IGN};

use crate::identity;
use crate::interpose::signals::{in_kernel, ours, real_sigaction};

/// A flag that the C library adds to the program's flags, on x86-64.
const SA_RESTORER: c_int = 0x0400_0000;

/// The library's state for one signal.
pub(super) struct TakenSignal {
    /// Set if the library handles the signal; the other fields are meaningless before.
    pub is_ours: AtomicBool,
    /// Set if the signal requests a snapshot; else it ends the process.
    pub asks: AtomicBool,
    /// The program's own view: the action that it last installed.
    pub handler: AtomicUsize,
    flags: AtomicI32,
    mask_low: AtomicUsize,
    /// Guards changes of the view, with all signals blocked.
    busy: AtomicBool,
}

impl TakenSignal {
    pub(super) const fn new() -> TakenSignal {
        TakenSignal {
            is_ours: AtomicBool::new(false),
            asks: AtomicBool::new(false),
            handler: AtomicUsize::new(SIG_DFL),
            flags: AtomicI32::new(0),
            mask_low: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
        }
    }

    pub(super) fn keep(&self, action: &libc::sigaction) {
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.mask_low.store(low_word(&action.sa_mask), Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }

    /// Returns the action that the program believes is installed.
    fn view(&self, signal: c_int) -> libc::sigaction {
        // SAFETY: all-zero is a valid action.
        let mut action: libc::sigaction = unsafe { in_kernel(signal).unwrap_or_else(|| zeroed()) };
        self.show_view(&mut action);
        action
    }

    /// Replaces the library's action, if it is that, by the program's view.
    fn show_view(&self, action: &mut libc::sigaction) {
        if action.sa_sigaction == ours() {
            action.sa_sigaction = self.handler.load(Ordering::Acquire);
            action.sa_flags = self.flags.load(Ordering::Relaxed);
            set_low_word(&mut action.sa_mask, self.mask_low.load(Ordering::Relaxed));
        }
    }

    /// Returns whether the library's handler runs before this action of the program. It also runs
    /// before a one-shot action, because of the default action that follows it.
    pub(super) fn is_in_front(&self, wanted: &libc::sigaction) -> bool {
        match wanted.sa_sigaction {
            SIG_DFL => true,
            SIG_IGN => false,
            _ => self.asks.load(Ordering::Relaxed) || wanted.sa_flags & SA_RESETHAND != 0,
        }
    }

    /// Installs in the kernel what the program's view requires: its own action, or the library's
    /// before it.
    pub(super) fn install(&self, signal: c_int, wanted: &libc::sigaction) -> c_int {
        self.put(signal, wanted, null_mut())
    }

    pub(super) fn put(
        &self,
        signal: c_int,
        wanted: &libc::sigaction,
        replaced: *mut libc::sigaction,
    ) -> c_int {
        let mut action = *wanted;
        if self.is_in_front(wanted) {
            action.sa_sigaction = ours();
            // A call that the signal interrupts continues, unless the program has decided
            // otherwise.
            let default = wanted.sa_sigaction == SIG_DFL;
            let flags =
                if default { SA_RESTART | SA_ONSTACK } else { wanted.sa_flags & !SA_RESETHAND };
            action.sa_flags = flags | SA_SIGINFO;
        }
        // SAFETY: a complete action, and null or a place for the answer; the handler lives as long
        // as the library, which is never unloaded.
        unsafe { real_sigaction(signal, &action, replaced) }
    }

    /// Reads back the flags and the mask, which the kernel and the C library may change.
    fn learn(&self, signal: c_int) {
        if let Some(now) = in_kernel(signal) {
            self.flags.fetch_or(now.sa_flags & SA_RESTORER, Ordering::Relaxed);
            self.mask_low.store(low_word(&now.sa_mask), Ordering::Relaxed);
        }
    }

    /// Returns the program's action for a signal that came. A one-shot action ends with this call.
    pub(super) fn due(&self) -> usize {
        let action = self.handler.load(Ordering::Acquire);
        let lasts = action == SIG_DFL || self.flags.load(Ordering::Relaxed) & SA_RESETHAND == 0;
        if lasts {
            return action;
        }
        let relaxed = Ordering::Relaxed;
        match self.handler.compare_exchange(action, SIG_DFL, Ordering::AcqRel, relaxed) {
            Ok(_) => action,
            Err(changed) => changed,
        }
    }

    /// Runs `body` alone: no other thread, and no handler of this thread, changes the view.
    pub(super) fn alone<T>(&self, body: impl FnOnce() -> T) -> T {
        // SAFETY: the sets are filled by the calls; the mask is restored.
        unsafe {
            let mut all: libc::sigset_t = zeroed();
            let mut before: libc::sigset_t = zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            while self.busy.swap(true, Ordering::Acquire) {
                // Under a real-time policy `sched_yield` yields only to equals.
                let short = libc::timespec { tv_sec: 0, tv_nsec: 1000 };
                libc::nanosleep(&short, null_mut());
            }
            let result = body();
            self.busy.store(false, Ordering::Release);
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
            result
        }
    }
}

/// Performs `sigaction` for a signal that the library handles: the program's view changes, and the
/// library's handler stays first.
pub(super) fn change(
    taken: &TakenSignal,
    signal: c_int,
    action: Option<libc::sigaction>,
    old: Option<&mut libc::sigaction>,
) -> c_int {
    if !identity::is_ours() {
        return change_in_child(taken, signal, action, old);
    }
    taken.alone(|| {
        let before = taken.view(signal);
        if let Some(mut action) = action {
            // The program may restore an action that it read from the kernel: the library's
            // handler.
            taken.show_view(&mut action);
            taken.keep(&action);
            let code = taken.install(signal, &action);
            if code != 0 {
                taken.keep(&before);
                return code;
            }
            taken.learn(signal);
        }
        if let Some(old) = old {
            *old = before;
        }
        0
    })
}

/// Performs `sigaction` in a child, which has its own signals and perhaps the parent's memory:
/// changes only what it sees.
fn change_in_child(
    taken: &TakenSignal,
    signal: c_int,
    action: Option<libc::sigaction>,
    old: Option<&mut libc::sigaction>,
) -> c_int {
    // SAFETY: all-zero is a valid action.
    let mut before: libc::sigaction = unsafe { zeroed() };
    let action = action.as_ref().map_or(null(), core::ptr::from_ref);
    // SAFETY: null or a complete action, and a valid place for the answer.
    let code = unsafe { real_sigaction(signal, action, &mut before) };
    if let Some(old) = old.filter(|_| code == 0) {
        taken.show_view(&mut before);
        *old = before;
    }
    code
}

/// Signals 1 to 64 are the first 8 bytes of a set on both architectures; the kernel knows no more.
fn low_word(set: &libc::sigset_t) -> usize {
    // SAFETY: a set is larger than a word, and any bytes are a word.
    unsafe { (set as *const libc::sigset_t).cast::<usize>().read_unaligned() }
}

fn set_low_word(set: &mut libc::sigset_t, word: usize) {
    // SAFETY: as above; any word is a valid set.
    unsafe { (set as *mut libc::sigset_t).cast::<usize>().write_unaligned(word) }
}
