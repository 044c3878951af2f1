//! Two kinds of signals that are ours beside the program's: the one that asks for a snapshot, and,
//! while something is to be written at exit, those whose default action ends the process.
//!
//! The program must not notice. What it installs, before or after us, is kept as its own view: a
//! question gets that as the answer, and our handler calls its handler. A signal of the second kind
//! is ours only while the program leaves it at the default action, which we carry out once the
//! snapshot is written. A signal that the program ignores stays ignored, of either kind: that is
//! what the programs inherit that it starts.
//!
//! A handler installed by a system call of the program's own counts: our view holds only while our handler
//! is there.
//!
//! Our handler posts a request to the writer (`snapshots::triggers`), and stops the program where the
//! signal is a deadly one (`snapshots::stop`): it takes no lock, allocates nothing, and keeps `errno`. Signals
//! reach us only after CUDA was started; before, and in a forked child, the program is alone with them.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::null;
use core::sync::atomic::Ordering;

use libc::{SIG_DFL, SIG_IGN};

use crate::process::end_by_default;
use crate::snapshots::triggers;
use crate::{config, identity};

mod exported;
mod view;

use view::TakenSignal;

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
static SIGNALS: [TakenSignal; SIGNALS_MAX] = [const { TakenSignal::new() }; SIGNALS_MAX];

/// CUDA was started. The signal that asks for a snapshot ends no process any more; one that comes
/// before the first context is served when there is one. Call once.
pub(crate) fn expect() {
    triggers::when_end_is_expected(take_deadly);
    if let Some(signal) = config::get().history.signal {
        take(signal, true);
    }
}

/// Takes the signals that end the process, unless they are ours already.
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
            // Another thread did not know yet that the signal is ours, and was faster.
            wanted = replaced;
            taken.keep(&wanted);
            if !taken.is_in_front(&wanted) {
                taken.install(signal, &wanted);
            }
        }
    });
}

/// Our handler. Runs in whatever thread the kernel chose.
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
            // The program's alone.
        } else if action == SIG_DFL {
            // A forked child has no snapshot to write: the signal means what it always meant.
            end_by_default(signal);
        }
    } else if action == SIG_DFL {
        if ours {
            triggers::end_from_signal(signal, context);
        } else {
            end_by_default(signal);
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

/// Whether a signal that may ask for a snapshot does. A program with a handler of its own uses the signal for itself, unless the
/// user wants to see something by it.
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
/// As the C library's `sigaction`.
unsafe fn real_sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the real function with the caller's arguments.
    unsafe { exported::real(signal, action, old) }
}
