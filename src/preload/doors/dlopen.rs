//! The exported `dlopen` and `dlmopen`. They look at the flags and tail-jump to the real ones, which
//! must see the true caller: its namespace, and the folders in which it looks for libraries.
//!
//! Every program comes through here, also before CUDA and in constructors: for ordinary flags two
//! tests and a jump, and nothing else. With `RTLD_DEEPBIND` a library prefers the functions of the libraries that it
//! needs to everybody's, so its calls reach the driver past us, and `runtime::deep` is told.
//!
//! What is opened in a namespace of its own is no concern of ours. It gets a driver of its own
//! there, a second copy with contexts and memory of its own: natively no free here waits for that.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};

use libc::{RTLD_DEEPBIND, RTLD_NOLOAD};

use crate::doors::c_library::{DLMOPEN, DLOPEN};
use crate::runtime::deep;

/// The namespace of the program; `LM_ID_BASE`.
const BASE: c_long = 0;

const _: () = assert!(RTLD_DEEPBIND == 1 << 3, "the assembly tests this bit");

/// # Safety
///
/// As the C library's `dlopen`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "jz 2f",
        "test esi, 8",
        "jnz 2f",
        "jmp rax",
        "2: push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {opening}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 3f",
        "jmp rax",
        "3: ret",
        ".cfi_endproc",
        real = sym DLOPEN,
        opening = sym opening,
    )
}

/// # Safety
///
/// As the C library's `dlmopen`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmopen(
    namespace: c_long,
    file: *const c_char,
    flags: c_int,
) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "jz 2f",
        "test edx, 8",
        "jnz 2f",
        "jmp rax",
        "2: push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "call {opening}",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 3f",
        "jmp rax",
        "3: ret",
        ".cfi_endproc",
        real = sym DLMOPEN,
        opening = sym opening_in,
    )
}

/// # Safety
///
/// As the C library's `dlopen`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "adrp x16, {real}",
        "ldr x16, [x16, #:lo12:{real}]",
        "cbz x16, 2f",
        "tbnz w1, #3, 2f",
        "br x16",
        "2: stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset w29, -32",
        ".cfi_offset w30, -24",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "bl {opening}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore w29",
        ".cfi_restore w30",
        "cbz x16, 3f",
        "br x16",
        "3: mov x0, xzr",
        "ret",
        ".cfi_endproc",
        real = sym DLOPEN,
        opening = sym opening,
    )
}

/// # Safety
///
/// As the C library's `dlmopen`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmopen(
    namespace: c_long,
    file: *const c_char,
    flags: c_int,
) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "adrp x16, {real}",
        "ldr x16, [x16, #:lo12:{real}]",
        "cbz x16, 2f",
        "tbnz w2, #3, 2f",
        "br x16",
        "2: stp x29, x30, [sp, #-48]!",
        ".cfi_def_cfa_offset 48",
        ".cfi_offset w29, -48",
        ".cfi_offset w30, -40",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "mov x29, sp",
        "bl {opening}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldr x2, [sp, #32]",
        "ldp x29, x30, [sp], #48",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore w29",
        ".cfi_restore w30",
        "cbz x16, 3f",
        "br x16",
        "3: mov x0, xzr",
        "ret",
        ".cfi_endproc",
        real = sym DLMOPEN,
        opening = sym opening_in,
    )
}

/// The first call, or one that binds deep. Answers the real `dlopen`.
extern "C" fn opening(file: *const c_char, flags: c_int) -> *mut c_void {
    look(BASE, file, flags);
    DLOPEN.address()
}

extern "C" fn opening_in(namespace: c_long, file: *const c_char, flags: c_int) -> *mut c_void {
    look(namespace, file, flags);
    DLMOPEN.address()
}

/// The program itself (no file), and what is there already, is bound by now.
fn look(namespace: c_long, file: *const c_char, flags: c_int) {
    let binds = flags & (RTLD_DEEPBIND | RTLD_NOLOAD) == RTLD_DEEPBIND;
    if namespace == BASE && !file.is_null() && binds {
        // SAFETY: a C string: the program's promise to `dlopen`.
        deep::opens(unsafe { CStr::from_ptr(file) });
    }
}
