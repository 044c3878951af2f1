//! Says where a crash happens, before the signal ends the process as usual: the driver of a GPU has
//! crashes of its own, which the judge recognizes by their place (`driver_crashes.rs`).

use std::ffi::{CStr, c_int, c_void};
use std::io::Write;

/// Starts the line on stderr that names the place.
pub const CRASHED: &str = "judge: crashed at ";
const FRAMES_MAX: usize = 40;

/// Handles SIGSEGV and SIGBUS once.
pub fn name_the_place() {
    let handler = on_crash as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: zeros are a valid action, with an empty mask. The handler has the signature that
        // SA_SIGINFO requires.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_crash(signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the state of the interrupted thread.
    let at = unsafe { instruction_of(&*context.cast::<libc::ucontext_t>()) };
    let mut line = [0; 512];
    let mut rest = &mut line[..];
    let written = match place_of(at) {
        Some((file, offset)) => writeln!(rest, "{CRASHED}{file}+{offset:#x}"),
        None => writeln!(rest, "{CRASHED}an unknown place"),
    };
    let _ = written; // a longer line ends early
    let left = rest.len();
    let length = line.len() - left;
    let mut frames = [std::ptr::null_mut(); FRAMES_MAX];
    // SAFETY: the buffers are as long as stated. The process is about to end: should one of these
    // calls crash as well, it ends at once.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), length);
        let count = libc::backtrace(frames.as_mut_ptr(), FRAMES_MAX as c_int);
        libc::backtrace_symbols_fd(frames.as_ptr(), count, libc::STDERR_FILENO);
        // The handler is reset: this ends the process once the handler has returned.
        libc::raise(signal);
    }
}

/// Returns the name of the file that contains this code, and the offset from its first mapping.
fn place_of(at: usize) -> Option<(&'static str, usize)> {
    // SAFETY: `found` is a local for the result, and its name lasts as long as the file is loaded.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let known = libc::dladdr(at as *const c_void, &mut found) != 0;
        let path =
            (known && !found.dli_fname.is_null()).then(|| CStr::from_ptr(found.dli_fname))?;
        let name = path.to_str().ok()?.rsplit('/').next()?;
        Some((name, at - found.dli_fbase as usize))
    }
}

#[cfg(target_arch = "x86_64")]
fn instruction_of(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

#[cfg(target_arch = "aarch64")]
fn instruction_of(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}
