//! Two kinds of signals that the library handles besides the program: the one that requests a
//! snapshot, and, while something is to be written at exit, those whose default action ends the
//! process.
//!
//! The program must not notice. The action that it installs, before or after the library, is kept
//! as its own view: queries return that view, and the library's handler calls the program's
//! handler. A signal of the second kind is handled only while the program leaves it at the default
//! action, which the library performs once the snapshot is written. A signal that the program
//! ignores stays ignored, of either kind: the programs that it starts inherit that.
//!
//! A handler that the program installs by a direct system call takes precedence: the view holds
//! only while the library's handler is installed.
//!
//! The library's handler posts a request to the writer (`snapshots::triggers`), and stops the
//! program if the signal is deadly (`snapshots::stop`): it takes no lock, allocates nothing, and
//! preserves `errno`. The library handles signals only after CUDA was started; before, and in a
//! forked child, the program is alone with them.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::null;
use core::sync::atomic::Ordering;

use libc::{SIG_DFL, SIG_IGN};

use crate::process::end_by_default;
use crate::snapshots::{stop, triggers};
use crate::{config, identity};

mod exported;
mod view;

use view::TakenSignal;

/// Signals whose default action ends the process and that a snapshot may still precede. Signals of
/// a crash in the program's code are excluded: a core file must show the crash, not the library.
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
static SIGNALS: [TakenSignal; SIGNALS_MAX] = [const { TakenSignal::new() }; SIGNALS_MAX];

/// Handles the signal that requests a snapshot, once CUDA was started. That signal no longer ends
/// the process; one that comes before the first context is served when there is one. Call once.
pub(crate) fn expect() {
    triggers::when_end_is_expected(take_deadly);
    if let Some(signal) = config::get().history.signal {
        take(signal, true);
    }
}

/// Takes the signals that end the process, unless the library already has them.
fn take_deadly() {
    TERMINATING.into_iter().filter(|signal| taken(*signal).is_none()).for_each(|signal| {
        take(signal, false);
    });
}

fn take(signal: c_int, asks: bool) {
    let taken = &SIGNALS[signal as usize];
    taken.alone(|| {
        let Some(mut wanted) = in_kernel(signal) else { return };
        taken.asks.store(asks, Ordering::Relaxed);
        taken.keep(&wanted);
        taken.is_ours.store(true, Ordering::Release);
        while taken.is_in_front(&wanted) {
            // SAFETY: all-zero is a valid place for the answer.
            let mut replaced: libc::sigaction = unsafe { zeroed() };
            if taken.put(signal, &wanted, &mut replaced) != 0
                || replaced.sa_sigaction == ours()
                || replaced.sa_sigaction == wanted.sa_sigaction
            {
                break;
            }
            // Another thread did not know yet that the library has the signal, and was faster.
            wanted = replaced;
            taken.keep(&wanted);
            if !taken.is_in_front(&wanted) {
                taken.install(signal, &wanted);
            }
        }
    });
}

/// Returns whether a thread of this process has sent the signal to this one, as `abort` does.
fn is_sent_by_this_process(info: *const libc::siginfo_t) -> bool {
    // SAFETY: null, or the kernel's description of the signal.
    let info = unsafe { info.as_ref() };
    // SAFETY: the description has a sender if the code says so. The other call asks for a number.
    let is_own = |info: &libc::siginfo_t| unsafe { info.si_pid() == libc::getpid() };
    info.is_some_and(|info| info.si_code == libc::SI_TKILL && is_own(info))
}

/// The library's handler. Runs in whatever thread the kernel chose.
extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let taken = &SIGNALS[signal as usize];
    let action = taken.due();
    // SAFETY: this thread's own errno.
    let errno = unsafe { *libc::__errno_location() };
    let ours = identity::is_ours();
    if taken.asks.load(Ordering::Relaxed) {
        if ours && is_meant_for_us(action) {
            triggers::from_signal();
        } else if ours {
            // The signal is for the program alone.
        } else if action == SIG_DFL {
            // A forked child has no snapshot to write: the signal keeps its usual meaning.
            end_by_default(signal);
        }
    } else if action == SIG_DFL {
        if ours {
            if signal == libc::SIGABRT && is_sent_by_this_process(info) {
                stop::aborts();
            }
            triggers::end_from_signal(signal, context);
        } else {
            end_by_default(signal);
        }
    }
    if action != SIG_DFL && action != SIG_IGN {
        // SAFETY: the program installed this address as a handler. Like the kernel, this passes all
        // three arguments to every handler; those that want one ignore the others.
        unsafe {
            let function: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                core::mem::transmute(action);
            function(signal, info, context);
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns whether a signal that may request a snapshot does so. A program with its own handler
/// uses the signal itself, unless the user has asked for recording or chosen the signal.
fn is_meant_for_us(action: usize) -> bool {
    let is_handled = action != SIG_DFL && action != SIG_IGN;
    !is_handled || config::records() || config::get().history.signal_is_chosen
}

fn taken(signal: c_int) -> Option<&'static TakenSignal> {
    let taken = SIGNALS.get(usize::try_from(signal).ok()?)?;
    taken.is_ours.load(Ordering::Acquire).then_some(taken)
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

/// # Safety
///
/// The caller must uphold the requirements of the C library's `sigaction`.
unsafe fn real_sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the real function with the caller's arguments.
    unsafe { exported::real(signal, action, old) }
}
