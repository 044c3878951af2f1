//! The first instructions of the functions that a program gets in place of the driver's: the
//! exports, and stubs for functions that the list does not know (`trampoline`). Each jumps through
//! its own word, called its door.
//!
//! * Tools that want to see frees (UCX, libfabric) write a jump over the first instructions of the
//!   driver's functions and move those elsewhere. They can move few kinds of instructions, and the
//!   compiler may begin a function with any. So a door begins with instructions that all of them
//!   know and that do nothing. They are as long as the longest of the tools' jumps.
//! * The target of an export's calls is decided at the first call. A program may be linked against
//!   a library with functions of these names: a stub that loads the driver later, or a tool that
//!   counts calls. Without this library the program calls that library, and with this one loaded
//!   before it, it still does. Driver functions that that library calls in turn go through this
//!   library.
//!
//! The symbol's size covers the first instruction only. The rest follows it, but a program's own
//! variable of the name, into which the loader copies as many bytes, must not be smaller: the
//! loader would report that on stderr.
//!
//! On x86-64 the known instruction is `sub rsp, 0` with its long operand, twice; on aarch64 these
//! are moves, `adrp` and `ldr`.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::driver::table;
use crate::functions::{COUNT, Export, FUNCTIONS, Function};
use crate::interpose::{scope, trampoline};
use crate::process::bypass;

/// The target of calls to the export of a function.
struct Way {
    to: *mut c_void,
    /// Whether that is final.
    lasts: bool,
}

/// Returns the pointer to hand out for the function: the export, unless calls to that go elsewhere.
pub(crate) fn handed_out(function: &'static Function) -> Option<*mut c_void> {
    let door = function.door()?;
    let body = door.body();
    let target = door.target.load(Ordering::Acquire);
    let to = if target == body { target } else { settle(function, null_mut()) };
    if to == body { Some(door.address()) } else { trampoline::to(body) }
}

/// Handles the first call through a door, with the caller's arguments saved. Returns the target.
extern "C" fn first_call(number: usize, caller: *mut c_void) -> *mut c_void {
    let Some(function) = FUNCTIONS.get(number) else {
        return trampoline::first_call(number - COUNT);
    };
    let to = settle(function, caller);
    settle_all();
    // Clears the error of the library's own lookups.
    // SAFETY: no pointer into what it frees is kept.
    unsafe { libc::dlerror() };
    to
}

/// Decides the targets of all functions once there is a driver. A later first call may be one that
/// must not wait for the loader, whose lock a constructor holds.
fn settle_all() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if table::is_loaded() && !DONE.swap(true, Ordering::Relaxed) {
        for function in &FUNCTIONS {
            settle(function, null_mut());
        }
    }
}

/// Decides the target of an export's calls.
fn settle(function: &'static Function, caller: *mut c_void) -> *mut c_void {
    let Some(door) = function.door() else { return null_mut() };
    let way = way_of(function, door.body(), caller);
    if way.lasts {
        door.target.store(way.to, Ordering::Release);
    }
    way.to
}

fn way_of(function: &'static Function, body: *mut c_void, caller: *mut c_void) -> Way {
    let is_loaded = table::load();
    let behind = table::behind(function);
    let is_past_us = bypass::is_switched_off() || !table::is_below(function, behind);
    if !behind.is_null() && is_past_us {
        return Way { to: behind, lasts: true };
    }
    if is_loaded {
        return Way { to: body, lasts: true };
    }
    // The global scope has no such function, and there is no driver: the caller may have been
    // loaded with its own library.
    let local = scope::code_in_scope_of(caller, function.symbol().as_ptr());
    Way { to: if local.is_null() { body } else { local }, lasts: false }
}

/// Defines the word through which an export jumps, and where its code is: a `functions::Door`. The
/// doors of the hottest functions have a section of their own, and so share cache lines: those of
/// an allocation and of its free, which follows it, share one, which the first one begins.
macro_rules! door {
    ($name:ident, $section:literal, $align:literal) => {
        concat!(
            concat!(".pushsection .data.cachealloc_doors", $section, ", \"aw\"\n"),
            concat!(".balign ", $align, "\n"),
            concat!(".globl cachealloc_door_", stringify!($name), "\n"),
            concat!(".hidden cachealloc_door_", stringify!($name), "\n"),
            concat!("cachealloc_door_", stringify!($name), ":\n"),
            ".quad 2b\n",
            ".long {body} - .\n",
            ".long 3b - .\n",
            ".popsection"
        )
    };
}
pub(crate) use door;

/// Defines the export `$name` of function number `$id`, its door in the section of this name, at a
/// multiple of this number of bytes, and the path to `$body`.
macro_rules! export_door {
    ($name:ident, $id:expr, $body:path) => {
        $crate::interpose::doors::export_door!($name, $id, $body, "", 16);
    };
    ($name:ident, $id:expr, $body:path, $section:literal, $align:literal) => {
        /// # Safety
        ///
        /// The caller must uphold the requirements of the driver function of this name.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "3:",
                ".byte 0x48, 0x81, 0xec, 0, 0, 0, 0",
                ".subsection 1",
                ".byte 0x48, 0x81, 0xec, 0, 0, 0, 0",
                concat!("jmp qword ptr [rip + cachealloc_door_", stringify!($name), "]"),
                "2:",
                "mov r10d, {id}",
                "jmp {first}",
                $crate::interpose::doors::door!($name, $section, $align),
                ".subsection 0",
                id = const $id,
                first = sym $crate::interpose::doors::first,
                body = sym $body,
            )
        }

        /// # Safety
        ///
        /// The caller must uphold the requirements of the driver function of this name.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "3:",
                "mov x17, x17",
                ".subsection 1",
                "mov x17, x17",
                "mov x17, x17",
                concat!("adrp x16, cachealloc_door_", stringify!($name)),
                concat!("ldr x16, [x16, #:lo12:cachealloc_door_", stringify!($name), "]"),
                "br x16",
                "2:",
                "mov w17, #{id}",
                "b {first}",
                $crate::interpose::doors::door!($name, $section, $align),
                ".subsection 0",
                id = const $id,
                first = sym $crate::interpose::doors::first,
                body = sym $body,
            )
        }
    };
}
pub(crate) use export_door;

/// Saves every register that may carry an argument (rax too: the count of vector arguments of a
/// variadic call), calls `first_call` with the number in r10, restores them, and jumps to the
/// result.
///
/// # Safety
///
/// Must be jumped to from a door, with the caller's stack and arguments.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn first() {
    core::arch::naked_asm!(
        ".cfi_startproc",
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
        "push r10",
        "sub rsp, 128",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "mov rdi, r10",
        "mov rsi, [rbp + 8]", // the return address: the caller
        "call {first_call}",
        "mov r11, rax",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "add rsp, 128",
        "pop r10",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "jmp r11",
        ".cfi_endproc",
        first_call = sym first_call,
    )
}

/// Does the same on aarch64, with the number in w17.
///
/// # Safety
///
/// Must be jumped to from a door, with the caller's stack and arguments.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn first() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-240]!",
        ".cfi_def_cfa_offset 240",
        ".cfi_offset w29, -240",
        ".cfi_offset w30, -232",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "str x8, [sp, #80]",
        "stp q0, q1, [sp, #96]",
        "stp q2, q3, [sp, #128]",
        "stp q4, q5, [sp, #160]",
        "stp q6, q7, [sp, #192]",
        "mov x29, sp",
        "mov w0, w17",
        "mov x1, x30", // the return address: the caller
        "bl {first_call}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldr x8, [sp, #80]",
        "ldp q0, q1, [sp, #96]",
        "ldp q2, q3, [sp, #128]",
        "ldp q4, q5, [sp, #160]",
        "ldp q6, q7, [sp, #192]",
        "ldp x29, x30, [sp], #240",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore w29",
        ".cfi_restore w30",
        "br x16",
        ".cfi_endproc",
        first_call = sym first_call,
    )
}

const _: Export = first;
