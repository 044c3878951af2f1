//! Says where a program is stuck, and where it crashes, before the signal ends the process as usual:
//! the driver of a GPU has crashes of its own, which the judge recognizes by their place
//! (`driver_crashes.rs`).

use std::ffi::{CStr, c_int, c_void};
use std::io::Write;
use std::time::Duration;

/// Starts the line on stderr that names the place.
pub const CRASHED: &str = "judge: crashed at ";
const FRAMES_MAX: usize = 40;
/// Makes a thread write its frames.
const STACK: c_int = libc::SIGQUIT;
/// A thread writes its frames within this time, or is stuck beyond help.
const PATIENCE: Duration = Duration::from_millis(100);

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Handles each signal of a crash once, and requests for the frames of a thread.
pub fn name_the_place() {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGABRT] {
        handle(signal, on_crash, libc::SA_RESETHAND);
    }
    handle(STACK, on_request, libc::SA_RESTART);
    let mut frame = std::ptr::null_mut();
    // SAFETY: one frame fits. The first call loads the unwinder, which a handler must not do.
    unsafe { libc::backtrace(&mut frame, 1) };
}

fn handle(signal: c_int, handler: Handler, flags: c_int) {
    // SAFETY: zeros are a valid action, with an empty mask. The handler has the signature that
    // SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// Lets each thread of a process of the judge write its frames to stderr, one after the other.
pub fn write_stacks_of(process: u32) {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return };
    let names = threads.filter_map(|thread| thread.ok()?.file_name().into_string().ok());
    for thread in names.filter_map(|name| name.parse::<i32>().ok()) {
        // SAFETY: no memory is involved.
        unsafe { libc::syscall(libc::SYS_tgkill, process as i32, thread, STACK) };
        std::thread::sleep(PATIENCE);
    }
}

extern "C" fn on_request(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: no memory is involved.
    let thread = unsafe { libc::gettid() };
    write_with_frames(|rest| writeln!(rest, "judge: thread {thread} is here:"));
}

extern "C" fn on_crash(signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the state of the interrupted thread.
    let at = unsafe { instruction_of(&*context.cast::<libc::ucontext_t>()) };
    write_with_frames(|rest| match place_of(at) {
        Some((file, offset)) => writeln!(rest, "{CRASHED}{file}+{offset:#x}"),
        None => writeln!(rest, "{CRASHED}an unknown place"),
    });
    // SAFETY: no memory is involved. The handler is reset: this ends the process once it has
    // returned.
    unsafe { libc::raise(signal) };
}

/// Writes this line and the frames of the current thread to stderr.
fn write_with_frames(say: impl FnOnce(&mut &mut [u8]) -> std::io::Result<()>) {
    let mut line = [0; 512];
    let mut rest = &mut line[..];
    let _ = say(&mut rest); // a longer line ends early
    let left = rest.len();
    let length = line.len() - left;
    let mut frames = [std::ptr::null_mut(); FRAMES_MAX];
    // SAFETY: the buffers are as long as stated. The process is about to end: should one of these
    // calls crash as well, it ends at once.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), length);
        let count = libc::backtrace(frames.as_mut_ptr(), FRAMES_MAX as c_int);
        libc::backtrace_symbols_fd(frames.as_ptr(), count, libc::STDERR_FILENO);
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
