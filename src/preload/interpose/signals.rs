//! Two kinds of signals that are ours beside the program's: the one that asks for a snapshot, and,
//! while something is recorded, those whose default action ends the process.
//!
//! The program must not notice. What it installs, before or after us, is kept as its own view: a
//! question gets that as the answer, and our handler calls its handler. A signal of the second kind
//! is ours only while the program leaves it at the default action, which we carry out once the
//! snapshot is written. A signal that the program ignores stays ignored, of either kind: that is
//! what the programs inherit that it starts.
//!
//! Whoever goes past us to the kernel is right: our view counts only while our handler is there.
//!
//! A handler of ours leaves word for the writer (`snapshots::triggers`), and stops the program where the
//! signal is a deadly one (`snapshots::stop`): it takes no lock, allocates nothing, and keeps `errno`. Signals reach us only after CUDA was started; before, and in
//! a forked child, the program is alone with them.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use libc::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_ERR, SIG_IGN,
};

use crate::c_library::{BSD_SIGNAL, SIGACTION, SIGNAL, SSIGNAL, SYSV_SIGNAL, SYSV_SIGNAL_RESERVED};
use crate::identity;
use crate::snapshots::triggers;

/// Those whose default action ends the process and that a snapshot may still precede. Not those of
/// a crash in the program's code: a core file shall show the crash, not us.
const TERMINATING: [c_int; 16] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];
const SIGNALS_MAX: usize = 65;
/// A flag that the C library adds to what the program asks for, on x86-64.
const SA_RESTORER: c_int = 0x0400_0000;

/// What we know of one signal.
struct Held {
    /// Ours to handle; none of the rest counts before.
    held: AtomicBool,
    /// Whether it asks for a snapshot (else it ends the process).
    asks: AtomicBool,
    /// The program's own view: what it last installed.
    handler: AtomicUsize,
    flags: AtomicI32,
    mask_low: AtomicUsize,
    /// Guards changes of the view, with all signals blocked.
    busy: AtomicBool,
}

static HELD: [Held; SIGNALS_MAX] = [const {
    Held {
        held: AtomicBool::new(false),
        asks: AtomicBool::new(false),
        handler: AtomicUsize::new(SIG_DFL),
        flags: AtomicI32::new(0),
        mask_low: AtomicUsize::new(0),
        busy: AtomicBool::new(false),
    }
}; SIGNALS_MAX];

/// Takes the signal that asks for a snapshot. Call once, when CUDA was started.
pub fn hold_asking(signal: c_int) {
    take(signal, true);
}

/// Takes those that end the process. Call once, when the writer is ready for them.
pub fn hold_deadly() {
    TERMINATING.into_iter().filter(|signal| held(*signal).is_none()).for_each(|signal| {
        take(signal, false);
    });
}

/// Carries the default action of a signal out: ends the process as it would have ended.
pub fn end_by(signal: c_int) {
    // SAFETY: plain calls with valid arguments; the default action needs no memory of ours.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = SIG_DFL;
        real_sigaction(signal, &action, null_mut());
        // To this thread: a core file then shows where it was.
        let thread = libc::syscall(libc::SYS_gettid);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal);
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, null_mut());
    }
}

fn take(signal: c_int, asks: bool) {
    let held = &HELD[signal as usize];
    held.alone(|| {
        let Some(mut wanted) = in_kernel(signal) else { return };
        held.asks.store(asks, Ordering::Relaxed);
        held.keep(&wanted);
        held.held.store(true, Ordering::Release);
        while held.is_in_front(&wanted) {
            // SAFETY: all-zero is a valid place for the answer.
            let mut replaced: libc::sigaction = unsafe { zeroed() };
            if held.put(signal, &wanted, &mut replaced) != 0
                || replaced.sa_sigaction == ours()
                || replaced.sa_sigaction == wanted.sa_sigaction
            {
                break;
            }
            // Another thread did not know yet that the signal is ours, and was faster.
            wanted = replaced;
            held.keep(&wanted);
            if !held.is_in_front(&wanted) {
                held.install(signal, &wanted);
            }
        }
    });
}

impl Held {
    fn keep(&self, action: &libc::sigaction) {
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.mask_low.store(low_word(&action.sa_mask), Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }

    /// What the program believes is installed.
    fn view(&self, signal: c_int) -> libc::sigaction {
        // SAFETY: all-zero is a valid action.
        let mut action: libc::sigaction = unsafe { in_kernel(signal).unwrap_or_else(|| zeroed()) };
        self.show_view(&mut action);
        action
    }

    /// Where the action is ours, puts the program's view in its place.
    fn show_view(&self, action: &mut libc::sigaction) {
        if action.sa_sigaction == ours() {
            action.sa_sigaction = self.handler.load(Ordering::Acquire);
            action.sa_flags = self.flags.load(Ordering::Relaxed);
            set_low_word(&mut action.sa_mask, self.mask_low.load(Ordering::Relaxed));
        }
    }

    /// Whether our handler stands before this action of the program. Before one for a single time
    /// because of what comes after it.
    fn is_in_front(&self, wanted: &libc::sigaction) -> bool {
        match wanted.sa_sigaction {
            SIG_DFL => true,
            SIG_IGN => false,
            _ => self.asks.load(Ordering::Relaxed) || wanted.sa_flags & SA_RESETHAND != 0,
        }
    }

    /// Puts into the kernel what the program's view asks for: its own action, or ours in front.
    fn install(&self, signal: c_int, wanted: &libc::sigaction) -> c_int {
        self.put(signal, wanted, null_mut())
    }

    fn put(
        &self,
        signal: c_int,
        wanted: &libc::sigaction,
        replaced: *mut libc::sigaction,
    ) -> c_int {
        let mut action = *wanted;
        if self.is_in_front(wanted) {
            action.sa_sigaction = ours();
            // A call that the signal interrupts goes on, unless the program said otherwise.
            let default = wanted.sa_sigaction == SIG_DFL;
            let flags =
                if default { SA_RESTART | SA_ONSTACK } else { wanted.sa_flags & !SA_RESETHAND };
            action.sa_flags = flags | SA_SIGINFO;
        }
        // SAFETY: a complete action, and null or a place for the answer; the handler lives as long as
        // the library, which is never unloaded.
        unsafe { real_sigaction(signal, &action, replaced) }
    }

    /// The kernel and the C library have their own say in flags and mask.
    fn learn(&self, signal: c_int) {
        if let Some(now) = in_kernel(signal) {
            self.flags.fetch_or(now.sa_flags & SA_RESTORER, Ordering::Relaxed);
            self.mask_low.store(low_word(&now.sa_mask), Ordering::Relaxed);
        }
    }

    /// The program's action for a signal that came. One for a single time is over with that.
    fn due(&self) -> usize {
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
    fn alone<T>(&self, body: impl FnOnce() -> T) -> T {
        // SAFETY: the sets are filled by the calls; the mask is put back.
        unsafe {
            let mut all: libc::sigset_t = zeroed();
            let mut before: libc::sigset_t = zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            while self.busy.swap(true, Ordering::Acquire) {
                // Under a real-time policy `sched_yield` gives way only to equals.
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

/// `sigaction` of a signal that we hold: the program's view changes, ours stays in front.
fn change(
    held: &Held,
    signal: c_int,
    action: Option<libc::sigaction>,
    old: Option<&mut libc::sigaction>,
) -> c_int {
    if !identity::is_ours() {
        return change_in_child(held, signal, action, old);
    }
    held.alone(|| {
        let before = held.view(signal);
        if let Some(mut action) = action {
            // Somebody asked the kernel, and puts back what it said.
            held.show_view(&mut action);
            held.keep(&action);
            let code = held.install(signal, &action);
            if code != 0 {
                held.keep(&before);
                return code;
            }
            held.learn(signal);
        }
        if let Some(old) = old {
            *old = before;
        }
        0
    })
}

/// Our handler. Runs in whatever thread the kernel chose.
extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let held = &HELD[signal as usize];
    let action = held.due();
    // SAFETY: this thread's own errno.
    let errno = unsafe { *libc::__errno_location() };
    let ours = identity::is_ours();
    if held.asks.load(Ordering::Relaxed) {
        if ours {
            triggers::from_signal();
        } else if action == SIG_DFL {
            // A forked child has no snapshot to write: the signal means what it always meant.
            end_by(signal);
        }
    } else if action == SIG_DFL {
        if ours {
            triggers::end_from_signal(signal, context);
        } else {
            end_by(signal);
        }
    }
    if action != SIG_DFL && action != SIG_IGN {
        // SAFETY: the program installed this address as a handler. As the kernel does, all get all
        // three arguments; those that want one look at one.
        unsafe {
            let function: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                core::mem::transmute(action);
            function(signal, info, context);
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn held(signal: c_int) -> Option<&'static Held> {
    let held = HELD.get(usize::try_from(signal).ok()?)?;
    held.held.load(Ordering::Acquire).then_some(held)
}

fn ours() -> usize {
    handler as *const () as usize
}

fn in_kernel(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: a zeroed action is a valid place for the answer.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: valid pointers.
    (unsafe { real_sigaction(signal, null(), &mut action) } == 0).then_some(action)
}

/// In a child, which has its own signals and perhaps our memory: only what it sees is changed.
fn change_in_child(
    held: &Held,
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
        held.show_view(&mut before);
        *old = before;
    }
    code
}

/// `signal` and its kin: a handler with these flags; answers the one before.
fn set_handler(held: &Held, signal: c_int, handler: usize, flags: c_int) -> usize {
    if handler == SIG_ERR {
        // SAFETY: this thread's own errno.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return SIG_ERR;
    }
    // SAFETY: all-zero is a valid action.
    let (mut action, mut old): (libc::sigaction, libc::sigaction) = unsafe { zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    if flags & SA_RESTART != 0 {
        // SAFETY: the set is ours. BSD's `signal` blocks the signal while it is handled.
        unsafe { libc::sigaddset(&mut action.sa_mask, signal) };
    }
    if change(held, signal, Some(action), Some(&mut old)) == 0 { old.sa_sigaction } else { SIG_ERR }
}

/// # Safety
///
/// As the C library's `sigaction`.
unsafe fn real_sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the real function with the caller's arguments.
    unsafe { exported::real(signal, action, old) }
}

/// The symbols in front of the C library's.
mod exported {
    use super::*;

    /// # Safety
    ///
    /// As `sigaction`.
    pub unsafe fn real(
        number: c_int,
        action: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int {
        let Some(real) = SIGACTION.get() else { return -1 };
        // SAFETY: the real function with the caller's arguments.
        unsafe { real(number, action, old) }
    }

    redhook::hook! {
        unsafe fn sigaction(
            number: c_int,
            action: *const libc::sigaction,
            old: *mut libc::sigaction
        ) -> c_int => program_sigaction {
            match held(number) {
                // SAFETY: null, or the program's own structures, as `sigaction` wants them.
                Some(held) => unsafe { change(held, number, action.as_ref().copied(), old.as_mut()) },
                // SAFETY: the program's own arguments.
                None => unsafe { real(number, action, old) },
            }
        }
    }

    /// By any of its names, which the C library has for two functions.
    macro_rules! by_other_names {
        ($($name:ident => $ours:ident: $real:ident, $flags:expr;)*) => {$(
            redhook::hook! {
                unsafe fn $name(number: c_int, handler: usize) -> usize => $ours {
                    match held(number) {
                        Some(held) => set_handler(held, number, handler, $flags),
                        // SAFETY: the program's own arguments.
                        None => $real.get().map_or(SIG_ERR, |real| unsafe { real(number, handler) }),
                    }
                }
            }
        )*};
    }

    by_other_names! {
        signal => program_signal: SIGNAL, SA_RESTART;
        bsd_signal => program_bsd_signal: BSD_SIGNAL, SA_RESTART;
        ssignal => program_ssignal: SSIGNAL, SA_RESTART;
        sysv_signal => program_sysv_signal: SYSV_SIGNAL, SA_RESETHAND | SA_NODEFER;
        __sysv_signal => program_sysv_signal_2: SYSV_SIGNAL_RESERVED, SA_RESETHAND | SA_NODEFER;
    }
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
