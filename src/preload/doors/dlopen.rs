//! The exported `dlopen` and `dlmopen`. They tail-jump to the real ones, which must see the true
//! caller: its namespace, and the folders in which it looks for libraries.
//!
//! All that they are for is to be called first: no constructor of a library runs under the loader's
//! lock before `c_library` has found what it needs that lock for.

use core::ffi::{c_char, c_int, c_long, c_void};

use crate::doors::c_library::{DLMOPEN, DLOPEN};

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

/// The first call. Answers the real `dlopen`.
extern "C" fn opening(_file: *const c_char, _flags: c_int) -> *mut c_void {
    DLOPEN.address()
}

extern "C" fn opening_in(_namespace: c_long, _file: *const c_char, _flags: c_int) -> *mut c_void {
    DLMOPEN.address()
}
