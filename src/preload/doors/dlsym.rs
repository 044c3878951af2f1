//! The exported `dlsym`. It tail-jumps to the real one for everything that is not ours, so that
//! the real one sees the true caller: `RTLD_NEXT` and `RTLD_DEFAULT` depend on who calls, and so
//! does the text of `dlerror`.
//!
//! Called by every program, also before any constructor and from inside memory allocators that
//! initialise themselves: no allocation, no lock, no thread-local with a destructor here.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::doors::substitute;
use crate::driver::table;
use crate::runtime::bypass;

/// The real `dlsym`; set by `pick` before anything jumps through it.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// What the naked entry does next: hand out `address`, or jump to the real `dlsym`.
#[repr(C)]
pub struct Picked {
    address: *mut c_void,
    answered: usize,
}

const PASS: Picked = Picked { address: null_mut(), answered: 0 };

fn answer(address: *mut c_void) -> Picked {
    Picked { address, answered: 1 }
}

/// # Safety
///
/// As the C library's `dlsym`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {pick}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rdx, rdx",
        "jnz 2f",
        "jmp qword ptr [rip + {real}]",
        "2: ret",
        ".cfi_endproc",
        pick = sym pick,
        real = sym REAL,
    )
}

/// # Safety
///
/// As the C library's `dlsym`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset w29, -32",
        ".cfi_offset w30, -24",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "bl {pick}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore w29",
        ".cfi_restore w30",
        "cbnz x17, 2f",
        "adrp x17, {real}",
        "ldr x17, [x17, #:lo12:{real}]",
        "br x17",
        "2: mov x0, x16",
        "ret",
        ".cfi_endproc",
        pick = sym pick,
        real = sym REAL,
    )
}

/// The real `dlsym` with us as the caller: `RTLD_NEXT` then means "behind this library".
pub fn real(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let address = find_real();
    if address.is_null() {
        return null_mut();
    }
    // SAFETY: the address is the C library's dlsym.
    let function: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
        unsafe { core::mem::transmute(address) };
    function(handle, name)
}

/// Decides what a look-up gets. Runs in front of every `dlsym` of the process.
extern "C" fn pick(handle: *mut c_void, name: *const c_char) -> Picked {
    find_real();
    if name.is_null() || bypass::is_off() || !looks_like_driver(name) {
        return PASS;
    }
    let address = real(handle, name);
    if address.is_null() {
        return PASS; // the real one fails again, with the true caller's message
    }
    if is_own_export(address) {
        return own_export(name, address);
    }
    if !table::load() {
        return PASS;
    }
    match substitute::for_address(address, name) {
        Some(ours) => answer(ours),
        None => PASS,
    }
}

/// The global scope found our own export first. Without us the program would get what stands
/// behind us, or nothing: a machine without CUDA must not seem to have a `cuInit`.
fn own_export(name: *const c_char, address: *mut c_void) -> Picked {
    let behind = real(libc::RTLD_NEXT, name);
    match behind.is_null() {
        true => answer(null_mut()), // the failed look-up above has set dlerror
        false => answer(address),
    }
}

/// `cu` and an upper-case letter. `name` is a C string: the program's promise to `dlsym`.
fn looks_like_driver(name: *const c_char) -> bool {
    // SAFETY: reads stop at the first mismatch, so never behind the terminator.
    unsafe {
        *name == b'c' as c_char
            && *name.add(1) == b'u' as c_char
            && (*name.add(2) as u8).is_ascii_uppercase()
    }
}

fn is_own_export(address: *mut c_void) -> bool {
    crate::functions::FUNCTIONS
        .iter()
        .any(|function| function.export.is_some_and(|export| export as *mut c_void == address))
}

fn find_real() -> *mut c_void {
    let known = REAL.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];
    for version in VERSIONS {
        // SAFETY: constant C strings; dlvsym is not hooked by us.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            REAL.store(found, Ordering::Relaxed);
            return found;
        }
    }
    null_mut()
}
