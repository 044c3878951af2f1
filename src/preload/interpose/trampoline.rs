//! Functions that the list does not know (a newer driver): passed through with every register and
//! the stack untouched, since their signatures are unknown. The first call of each is logged and
//! ends the skipping of barriers: it may have submitted work that was not counted (docs/ordering.md 6).

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use crate::log;
use crate::ordering::elision;

/// Stubs that can be handed out; more unknown functions than this are passed bare, and counted
/// as called from the start.
const STUBS: usize = 512;
const STUB_BYTES: usize = 32;

static TARGETS: [AtomicPtr<c_void>; STUBS] = [const { AtomicPtr::new(null_mut()) }; STUBS];
/// 1 until the first call: the stub takes the slow way then.
static FRESH: [AtomicU8; STUBS] = [const { AtomicU8::new(1) }; STUBS];
static NAMES: [AtomicPtr<c_char>; STUBS] = [const { AtomicPtr::new(null_mut()) }; STUBS];
static USED: AtomicUsize = AtomicUsize::new(0);

/// The stub in front of an unknown function of the driver, or `None` when none is left.
pub(crate) fn for_unknown(address: *mut c_void, name: *const c_char) -> Option<*mut c_void> {
    let used = USED.load(Ordering::Acquire).min(STUBS);
    let present = TARGETS[..used].iter().position(|t| t.load(Ordering::Relaxed) == address);
    let index = match present {
        Some(index) => index,
        None => reserve(address, name)?,
    };
    Some(stub_address(index))
}

fn reserve(address: *mut c_void, name: *const c_char) -> Option<usize> {
    let index = USED.fetch_add(1, Ordering::AcqRel);
    if index >= STUBS {
        USED.store(STUBS, Ordering::Relaxed);
        elision::end("a driver function that no stub was left for");
        return None;
    }
    // SAFETY: `name` is the C string the program looked up; the copy lives for ever.
    let copy = unsafe { libc::strdup(name) };
    NAMES[index].store(copy, Ordering::Relaxed);
    TARGETS[index].store(address, Ordering::Release);
    Some(index)
}

/// Called by a stub the first time, with all registers saved.
extern "C" fn first_call(index: usize) {
    if FRESH[index].swap(0, Ordering::AcqRel) == 0 {
        return;
    }
    let name = NAMES[index].load(Ordering::Relaxed);
    // SAFETY: null or our own copy of a C string.
    let name = if name.is_null() { c"?" } else { unsafe { CStr::from_ptr(name) } };
    log::warn(format_args!(
        "{} is not known to this version; it is passed through, and no barrier is skipped from now on",
        name.to_string_lossy()
    ));
    elision::end("an unknown driver function was called");
}

fn stub_address(index: usize) -> *mut c_void {
    unsafe extern "C" {
        static cachealloc_stubs: [u8; STUBS * STUB_BYTES];
    }
    // SAFETY: the assembly below defines STUBS stubs of STUB_BYTES each.
    unsafe { (&raw const cachealloc_stubs).cast::<u8>().add(index * STUB_BYTES) as *mut c_void }
}

// Each stub loads its index and goes to the common part, which looks at FRESH and, the first
// time, saves every register that may carry an argument (rax too: the count of vector arguments
// of a variadic call), calls `first_call`, restores, and jumps to the target.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".text",
    ".hidden cachealloc_stubs",
    ".globl cachealloc_stubs",
    ".balign 32",
    "cachealloc_stubs:",
    ".set stub_index, 0",
    ".rept 512",
    ".balign 32",
    "endbr64",
    "mov r11d, offset stub_index",
    "jmp 2f",
    ".set stub_index, stub_index + 1",
    ".endr",
    ".balign 32",
    "2:",
    ".cfi_startproc",
    "lea r10, [rip + {fresh}]",
    "cmp byte ptr [r10 + r11], 0",
    "jne 3f",
    "4:",
    "lea r10, [rip + {targets}]",
    "jmp qword ptr [r10 + 8*r11]",
    "3:",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbp, 0",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push r8",
    "push r9",
    "push rax",
    "push r11",
    "sub rsp, 128",
    "movups [rsp], xmm0",
    "movups [rsp + 16], xmm1",
    "movups [rsp + 32], xmm2",
    "movups [rsp + 48], xmm3",
    "movups [rsp + 64], xmm4",
    "movups [rsp + 80], xmm5",
    "movups [rsp + 96], xmm6",
    "movups [rsp + 112], xmm7",
    "mov rdi, r11",
    "call {first_call}",
    "movups xmm0, [rsp]",
    "movups xmm1, [rsp + 16]",
    "movups xmm2, [rsp + 32]",
    "movups xmm3, [rsp + 48]",
    "movups xmm4, [rsp + 64]",
    "movups xmm5, [rsp + 80]",
    "movups xmm6, [rsp + 96]",
    "movups xmm7, [rsp + 112]",
    "add rsp, 128",
    "pop r11",
    "pop rax",
    "pop r9",
    "pop r8",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "jmp 4b",
    ".cfi_endproc",
    fresh = sym FRESH,
    targets = sym TARGETS,
    first_call = sym first_call,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".text",
    ".hidden cachealloc_stubs",
    ".globl cachealloc_stubs",
    ".balign 32",
    "cachealloc_stubs:",
    ".set stub_index, 0",
    ".rept 512",
    ".balign 32",
    "hint #34",
    "mov w16, #stub_index",
    "b 2f",
    ".set stub_index, stub_index + 1",
    ".endr",
    ".balign 32",
    "2:",
    ".cfi_startproc",
    "adrp x17, {fresh}",
    "add x17, x17, #:lo12:{fresh}",
    "ldrb w17, [x17, x16]",
    "cbnz w17, 3f",
    "4:",
    "adrp x17, {targets}",
    "add x17, x17, #:lo12:{targets}",
    "ldr x17, [x17, x16, lsl #3]",
    "br x17",
    "3:",
    "stp x29, x30, [sp, #-240]!",
    ".cfi_def_cfa_offset 240",
    ".cfi_offset w29, -240",
    ".cfi_offset w30, -232",
    "stp x0, x1, [sp, #16]",
    "stp x2, x3, [sp, #32]",
    "stp x4, x5, [sp, #48]",
    "stp x6, x7, [sp, #64]",
    "stp x8, x16, [sp, #80]",
    "stp q0, q1, [sp, #96]",
    "stp q2, q3, [sp, #128]",
    "stp q4, q5, [sp, #160]",
    "stp q6, q7, [sp, #192]",
    "mov x29, sp",
    "mov x0, x16",
    "bl {first_call}",
    "ldp x0, x1, [sp, #16]",
    "ldp x2, x3, [sp, #32]",
    "ldp x4, x5, [sp, #48]",
    "ldp x6, x7, [sp, #64]",
    "ldp x8, x16, [sp, #80]",
    "ldp q0, q1, [sp, #96]",
    "ldp q2, q3, [sp, #128]",
    "ldp q4, q5, [sp, #160]",
    "ldp q6, q7, [sp, #192]",
    "ldp x29, x30, [sp], #240",
    ".cfi_def_cfa_offset 0",
    "b 4b",
    ".cfi_endproc",
    fresh = sym FRESH,
    targets = sym TARGETS,
    first_call = sym first_call,
);
