//! The exported `dlsym`. It tail-jumps to the real one for everything that is not ours, so that
//! the real one sees the true caller: `RTLD_NEXT` and `RTLD_DEFAULT` depend on the caller, and so
//! does the text of `dlerror`.
//!
//! Called by every program, also before any constructor and from inside memory allocators that
//! initialise themselves: no allocation, no lock, no thread-local with a destructor here.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;

use crate::c_library::dlsym::{self, real};
use crate::driver::table;
use crate::interpose::substitute;
use crate::process::bypass;

/// What the naked entry does next: hand out `address`, or jump to the real `dlsym`.
#[repr(C)]
pub(crate) struct Picked {
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
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "mov rdx, [rsp]", // the return address: the caller
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
        real = sym dlsym::REAL,
    )
}

/// # Safety
///
/// As the C library's `dlsym`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset w29, -32",
        ".cfi_offset w30, -24",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "mov x2, x30", // the return address: the caller
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
        real = sym dlsym::REAL,
    )
}

/// Decides what a look-up gets. Runs in front of every `dlsym` of the process.
extern "C" fn pick(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> Picked {
    dlsym::find(); // before anything jumps through it
    if name.is_null() || !looks_like_driver(name) {
        return PASS;
    }
    // With us as the caller, `RTLD_NEXT` means what the global scope has behind us: natively the
    // program would get that, whether it asks for the first or the next definition.
    let address = real(handle, name);
    if is_own_export(address) || (address.is_null() && handle == libc::RTLD_NEXT) {
        return unseen(handle, name, caller, address);
    }
    if address.is_null() || bypass::is_switched_off() {
        return PASS; // the real one fails again, with the true caller's message
    }
    driver_function(address, name).map_or(PASS, answer)
}

/// The look-up found our own export, or would if it were passed on. Without us the program would
/// get what stands behind us or in the caller's own scope, or nothing: a machine without CUDA
/// must not seem to have a `cuInit`.
fn unseen(
    handle: *mut c_void,
    name: *const c_char,
    caller: *const c_void,
    address: *mut c_void,
) -> Picked {
    if !address.is_null() && !real(libc::RTLD_NEXT, name).is_null() {
        return answer(address); // what stands behind us gets the call from us
    }
    let pseudo = handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT;
    let local = if pseudo { in_scope_of(caller, name) } else { null_mut() };
    if local.is_null() || is_own_export(local) {
        if !exports(name) {
            return PASS; // which cannot find anything of ours
        }
        real(libc::RTLD_NEXT, name); // fails, and leaves the text for `dlerror`
        return answer(null_mut());
    }
    match driver_function(local, name) {
        Some(ours) => answer(ours),
        None if handle == libc::RTLD_DEFAULT => answer(local),
        None => PASS,
    }
}

/// What the caller's own library and those that it needs define: what a plugin sees of a driver
/// that was loaded for it alone. Seldom: only where the global scope has no driver.
#[cold]
fn in_scope_of(caller: *const c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: all-zero is a valid Dl_info, and dladdr only fills it in.
    let mut place: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: the address is only looked up, not read.
    if unsafe { libc::dladdr(caller, &mut place) } == 0 || place.dli_fname.is_null() {
        return null_mut();
    }
    // SAFETY: a C string of the loader; NOLOAD loads nothing. For the program itself the name is
    // not that of a library, and nothing is found.
    let library = unsafe { libc::dlopen(place.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return null_mut();
    }
    let address = real(library, name);
    // SAFETY: gives back what dlopen counted; the caller keeps its library alive.
    unsafe { libc::dlclose(library) };
    address
}

/// Our pointer in place of the driver's; `None` where it is not the driver's, or has no hook.
fn driver_function(address: *mut c_void, name: *const c_char) -> Option<*mut c_void> {
    if !table::load() {
        return None;
    }
    substitute::for_address(address, name)
}

/// As characters of C, which are signed on one processor and not on another.
const CAPITALS: core::ops::RangeInclusive<c_char> = b'A' as c_char..=b'Z' as c_char;

/// `cu` and an upper-case letter. `name` is a C string: the program's promise to `dlsym`.
fn looks_like_driver(name: *const c_char) -> bool {
    // SAFETY: reads stop at the first mismatch, so never behind the terminator.
    unsafe {
        *name == b'c' as c_char
            && *name.add(1) == b'u' as c_char
            && CAPITALS.contains(&*name.add(2))
    }
}

fn is_own_export(address: *mut c_void) -> bool {
    our_exports().any(|(_, export)| export == address)
}

fn exports(name: *const c_char) -> bool {
    // SAFETY: a C string: the program's promise to `dlsym`.
    let name = unsafe { CStr::from_ptr(name) };
    our_exports().any(|(symbol, _)| symbol == name)
}

fn our_exports() -> impl Iterator<Item = (&'static CStr, *mut c_void)> {
    let functions = crate::functions::FUNCTIONS.iter();
    functions.filter_map(|f| f.export.map(|export| (f.symbol, export as *mut c_void)))
}
