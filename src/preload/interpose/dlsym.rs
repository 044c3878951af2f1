//! The exported `dlsym`. It tail-jumps to the real one for every symbol that is not the library's,
//! so that the real one sees the true caller: `RTLD_NEXT` and `RTLD_DEFAULT` depend on the caller,
//! and so does the text of `dlerror`.
//!
//! Every program calls it, also before any constructor and from inside memory allocators that
//! initialize themselves. So this code uses no allocation, no lock, and no thread-local with a
//! destructor.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;

use crate::c_library::dlsym;
use crate::c_library::dlsym::real;
use crate::c_library::objects;
use crate::driver::{libraries, table};
use crate::interpose::scope::in_scope_of;
use crate::interpose::{doors, references, substitute};
use crate::process::bypass;

/// The naked entry's next step: return `address`, or jump to the real `dlsym`.
#[repr(C)]
pub(crate) struct Picked {
    address: *mut c_void,
    answered: usize,
}

const PASS: Picked = Picked { address: null_mut(), answered: 0 };

fn answer(address: *mut c_void) -> Picked {
    if !address.is_null() {
        // Clears the error of the library's own lookups.
        // SAFETY: no pointer into what it frees is kept.
        unsafe { libc::dlerror() };
    }
    Picked { address, answered: 1 }
}

/// # Safety
///
/// The caller must uphold the requirements of the C library's `dlsym`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        ".byte 0x48, 0x81, 0xec, 0, 0, 0, 0", // sub rsp, 0: patchers can move it (`doors`)
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
        real = sym dlsym::NEXT,
    )
}

/// # Safety
///
/// The caller must uphold the requirements of the C library's `dlsym`.
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
        real = sym dlsym::NEXT,
    )
}

/// Decides the result of a lookup. Runs before every `dlsym` of the process.
extern "C" fn pick(handle: *mut c_void, name: *const c_char, caller: *mut c_void) -> Picked {
    dlsym::find(); // before anything jumps through it
    if name.is_null() || !looks_like_driver(name) || dlsym::is_asked_by_us() {
        return PASS;
    }
    references::put_right();
    let is_loaded = table::load();
    if libraries::contain(caller) {
        return past_us(handle, name);
    }
    // With this library as the caller, `RTLD_NEXT` means the first definition in the global scope
    // after this library. The program would get that without the library, whether it asks for the
    // first or the next definition.
    let address = dlsym::next(handle, name);
    if handle == libc::RTLD_DEFAULT && is_in_front(dlsym::first(name)) {
        return PASS; // the real one finds the next definition itself
    }
    if libraries::is_ours(address) || (address.is_null() && handle == libc::RTLD_NEXT) {
        return unseen(handle, name, caller, address);
    }
    if address.is_null() || bypass::is_switched_off() || !is_loaded {
        return PASS; // the real one fails again, with the true caller's message
    }
    if handle == libc::RTLD_NEXT && table::known(address).is_none() {
        return behind_the_caller(address, name, caller).map_or(PASS, answer);
    }
    substitute::for_address(address, name).map_or(PASS, answer)
}

/// Looks up a name that does not exist, which leaves the text for `dlerror`. A copy of this library
/// has the name, but no versions.
fn leave_error(name: *const c_char, is_copy: bool) {
    if is_copy {
        // SAFETY: C strings.
        unsafe { libc::dlvsym(libc::RTLD_NEXT, name, c"CUDA".as_ptr()) };
    } else {
        real(libc::RTLD_NEXT, name);
    }
}

/// Returns whether the definition that the program sees first belongs to another library, loaded
/// before this one.
fn is_in_front(first: *mut c_void) -> bool {
    !first.is_null() && !libraries::is_ours(first) && !libraries::contain(first)
}

/// Looks up a symbol for a library that follows this one, for that library's own use.
fn past_us(handle: *mut c_void, name: *const c_char) -> Picked {
    if handle != libc::RTLD_DEFAULT || !libraries::is_ours(real(handle, name)) {
        return PASS;
    }
    answer(real(libc::RTLD_NEXT, name))
}

/// Handles a next definition that is not the driver's. If it is the caller's own, the caller passes
/// calls on, as this library does. It wants the driver's function, which every program sees that is
/// linked against the driver.
#[cold]
fn behind_the_caller(
    address: *mut c_void,
    name: *const c_char,
    caller: *mut c_void,
) -> Option<*mut c_void> {
    let (begin, end) = objects::span_of_object(address)?;
    if !(begin..end).contains(&(caller as usize)) || !table::is_global() {
        return None;
    }
    // SAFETY: a C string: the program's promise to `dlsym`.
    let name = unsafe { CStr::from_ptr(name) };
    let function = crate::functions::FUNCTIONS.iter().find(|function| function.symbol() == name)?;
    table::has(function.id).then(|| doors::handed_out(function)).flatten()
}

/// Handles a lookup that found this library's export, or would if it were passed on. Without the
/// library the program would get the next definition, one in the caller's own scope, or nothing: a
/// machine without CUDA must not seem to have a `cuInit`.
fn unseen(
    handle: *mut c_void,
    name: *const c_char,
    caller: *mut c_void,
    address: *mut c_void,
) -> Picked {
    let behind = real(libc::RTLD_NEXT, name);
    let is_copy = libraries::is_copy(behind);
    if !address.is_null() && !behind.is_null() && !is_copy {
        // The next definition gets its calls from this library; a variable of this name is not
        // handled here.
        return answer(if objects::is_code(behind) { address } else { behind });
    }
    if !address.is_null() && is_copy && table::load() && table::is_global() {
        return answer(address);
    }
    let pseudo = handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT;
    let local = if pseudo { in_scope_of(caller, name) } else { null_mut() };
    if local.is_null() || libraries::is_ours(local) {
        if !exports(name) {
            return PASS; // the real one cannot find an export of the library
        }
        leave_error(name, is_copy);
        return answer(null_mut());
    }
    match substitute::for_address(local, name) {
        Some(ours) => answer(ours),
        None if handle == libc::RTLD_DEFAULT => answer(local),
        None => PASS,
    }
}

/// Upper-case letters as characters of C, which are signed on one processor and not on another.
const CAPITALS: core::ops::RangeInclusive<c_char> = b'A' as c_char..=b'Z' as c_char;

/// Returns whether the name begins with `cu` and an upper-case letter. `name` is a C string: the
/// program's promise to `dlsym`.
fn looks_like_driver(name: *const c_char) -> bool {
    // SAFETY: reads stop at the first mismatch, so never past the terminator.
    unsafe {
        *name == b'c' as c_char
            && *name.add(1) == b'u' as c_char
            && CAPITALS.contains(&*name.add(2))
    }
}

fn exports(name: *const c_char) -> bool {
    // SAFETY: a C string: the program's promise to `dlsym`.
    let name = unsafe { CStr::from_ptr(name) };
    let mut functions = crate::functions::FUNCTIONS.iter();
    functions.any(|function| function.door().is_some() && function.symbol() == name)
}
