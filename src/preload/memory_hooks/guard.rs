//! The call into a memory hook. A hook may unwind, by a C++ exception or the end of its thread.
//! That must not reach the Rust frames that called it, where the process would abort. So a few
//! instructions with their own personality routine make the call and catch everything.

use core::ffi::{c_int, c_void};

use crate::c_library::dlsym;
use crate::memory_hooks::table::Callback;

/// How a hook left without returning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unwind {
    ByException,
    /// `pthread_exit`. The thread continues, because the frames that called the hook belong to the
    /// library.
    ByThreadExit,
}

/// Calls a hook with these words. A function with fewer parameters ignores the rest.
pub(super) fn call(callback: Callback, words: &[usize; 6]) -> Option<Unwind> {
    // SAFETY: the owner of the table promises functions of the header's signatures, which take up
    // to six integers or pointers; whatever unwinds out of it ends in the instructions below.
    let caught = unsafe { cachealloc_call_memory_hook(callback, words) };
    if caught.exception.is_null() {
        return None;
    }
    if caught.forced != 0 {
        return Some(Unwind::ByThreadExit);
    }
    finish(caught.exception);
    Some(Unwind::ByException)
}

#[repr(C)]
struct Caught {
    exception: *mut Exception,
    forced: usize,
}

/// `_Unwind_Exception`.
#[repr(C)]
struct Exception {
    class: u64,
    cleanup: *const c_void,
}

unsafe extern "C" {
    fn cachealloc_call_memory_hook(callback: Callback, words: &[usize; 6]) -> Caught;
    fn cachealloc_memory_hook_left();
    fn _Unwind_SetIP(context: *mut c_void, address: usize);
    fn _Unwind_SetGR(context: *mut c_void, register: c_int, value: usize);
    fn _Unwind_DeleteException(exception: *mut Exception);
}

const SEARCH_PHASE: c_int = 1;
const FORCED: c_int = 8;
const HANDLER_FOUND: c_int = 6;
const INSTALL_CONTEXT: c_int = 7;

/// Called by the unwinder at the frame of `cachealloc_call_memory_hook`.
extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    exception: *mut Exception,
    context: *mut c_void,
) -> c_int {
    if actions & SEARCH_PHASE != 0 {
        return HANDLER_FOUND;
    }
    // SAFETY: the unwinder's own context; registers 0 and 1 carry the two words of a result.
    unsafe {
        _Unwind_SetGR(context, 0, exception as usize);
        _Unwind_SetGR(context, 1, usize::from(actions & FORCED != 0));
        _Unwind_SetIP(context, cachealloc_memory_hook_left as *const () as usize);
    }
    INSTALL_CONTEXT
}

/// Ends an exception that was caught.
fn finish(exception: *mut Exception) {
    const LANGUAGE: u64 = 0xff_ffff << 8;
    const CPP: u64 = u64::from_be_bytes(*b"\0\0\0\0C++\0");
    const RUST: u64 = u64::from_be_bytes(*b"MOZ\0RUST");
    // SAFETY: the unwinder's exception; its first words are the same in every language.
    unsafe {
        let class = (*exception).class;
        // A foreign Rust runtime aborts the process if its panic is deleted: it is leaked.
        let done = class == RUST || class & LANGUAGE == CPP && finish_cpp(exception);
        if !done {
            _Unwind_DeleteException(exception);
        }
    }
}

/// Ends an exception as `catch (...) {}` does, because the C++ library counts exceptions that are
/// thrown and not caught. Returns `false` if the throwing library cannot be found.
///
/// # Safety
///
/// `exception` must be an exception of a C++ library that was thrown and is not caught.
unsafe fn finish_cpp(exception: *mut Exception) -> bool {
    // SAFETY: the cleanup lies in the library that threw, which is found by its address and is
    // loaded; every C++ library has both functions, with these signatures.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr((*exception).cleanup, &mut info) == 0 {
            return false;
        }
        let library = libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return false;
        }
        let begin = dlsym::real(library, c"__cxa_begin_catch".as_ptr());
        let end = dlsym::real(library, c"__cxa_end_catch".as_ptr());
        if !begin.is_null() && !end.is_null() {
            let begin: extern "C" fn(*mut Exception) -> *mut c_void = core::mem::transmute(begin);
            let end: extern "C" fn() = core::mem::transmute(end);
            begin(exception);
            end();
        }
        libc::dlclose(library);
        !begin.is_null() && !end.is_null()
    }
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".text",
    ".hidden cachealloc_call_memory_hook",
    ".globl cachealloc_call_memory_hook",
    ".hidden cachealloc_memory_hook_left",
    ".globl cachealloc_memory_hook_left",
    ".balign 16",
    "cachealloc_call_memory_hook:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, {personality}", // 0x1b: four bytes, relative to their place
    "endbr64",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rax, rdi",
    "mov r10, rsi",
    "mov rdi, [r10]",
    "mov rsi, [r10 + 8]",
    "mov rdx, [r10 + 16]",
    "mov rcx, [r10 + 24]",
    "mov r8, [r10 + 32]",
    "mov r9, [r10 + 40]",
    "call rax",
    "xor eax, eax",
    "xor edx, edx",
    "cachealloc_memory_hook_left:", // reached by the unwinder, with rax and rdx set
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    personality = sym personality,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".text",
    ".hidden cachealloc_call_memory_hook",
    ".globl cachealloc_call_memory_hook",
    ".hidden cachealloc_memory_hook_left",
    ".globl cachealloc_memory_hook_left",
    ".balign 16",
    "cachealloc_call_memory_hook:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, {personality}",
    "hint #34",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset w29, -16",
    ".cfi_offset w30, -8",
    "mov x29, sp",
    ".cfi_def_cfa w29, 16",
    "mov x16, x0",
    "mov x17, x1",
    "ldp x0, x1, [x17]",
    "ldp x2, x3, [x17, #16]",
    "ldp x4, x5, [x17, #32]",
    "blr x16",
    "mov x0, #0",
    "mov x1, #0",
    "cachealloc_memory_hook_left:",
    "mov sp, x29",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa sp, 0",
    "ret",
    ".cfi_endproc",
    personality = sym personality,
);
