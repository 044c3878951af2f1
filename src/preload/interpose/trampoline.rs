//! Stubs: replacements for addresses that have no export.
//!
//! Functions that the list does not know (from a newer driver) are passed through with every
//! register and the stack untouched, since their signatures are unknown. The first call of each is
//! logged and ends the skipping of barriers: it may have submitted work that was not counted
//! (docs/ordering.md 6).
//!
//! A function of the library gets a stub if calls of its export go to another library (`doors`).

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::functions::COUNT;
use crate::log;
use crate::ordering::elision;

/// Number of stubs. Further unknown functions are handed out directly, and counted as called from
/// the start.
const STUBS: usize = 512;
const STUB_BYTES: usize = 32;
/// Place in a stub of the code after its jump.
const FIRST_CALL: usize = 20;

/// The word through which a stub jumps, which its assembly expects to come first. Both are null
/// until the stub is handed out: what the loader need not write costs nothing at the start of a
/// process that never uses it.
#[repr(C)]
struct Door {
    /// The target of calls. At first the code after the jump, which calls `first_call`.
    target: AtomicPtr<c_void>,
    /// The function that the stub stands for.
    body: AtomicPtr<c_void>,
}

static DOORS: [Door; STUBS] =
    [const { Door { target: AtomicPtr::new(null_mut()), body: AtomicPtr::new(null_mut()) } };
        STUBS];
static NAMES: [AtomicPtr<c_char>; STUBS] = [const { AtomicPtr::new(null_mut()) }; STUBS];
static USED: AtomicUsize = AtomicUsize::new(0);

/// Returns the stub for an unknown function of the driver, or `None` if none is left.
pub(crate) fn for_unknown(address: *mut c_void, name: *const c_char) -> Option<*mut c_void> {
    let used = USED.load(Ordering::Acquire).min(STUBS);
    let leads_there = |door: &Door| door.body.load(Ordering::Acquire) == address;
    let index = match DOORS[..used].iter().position(leads_there) {
        Some(index) => index,
        None => reserve(address, name)?,
    };
    Some(stub_address(index))
}

/// Returns a stub for a function of the library.
pub(crate) fn to(body: *mut c_void) -> Option<*mut c_void> {
    let stub = for_unknown(body, c"ours".as_ptr())?;
    let index = (stub as usize - stub_address(0) as usize) / STUB_BYTES;
    DOORS[index].target.store(body, Ordering::Release);
    Some(stub)
}

fn reserve(address: *mut c_void, name: *const c_char) -> Option<usize> {
    let index = USED.fetch_add(1, Ordering::AcqRel);
    if index >= STUBS {
        USED.store(STUBS, Ordering::Relaxed);
        elision::end("no stub was left for a driver function");
        return None;
    }
    // SAFETY: `name` is the C string the program looked up; the copy is never freed.
    let copy = unsafe { libc::strdup(name) };
    NAMES[index].store(copy, Ordering::Relaxed);
    let first_call = stub_address(index).wrapping_byte_add(FIRST_CALL);
    DOORS[index].target.store(first_call, Ordering::Relaxed);
    // A thread that finds the stub by this finds its target too.
    DOORS[index].body.store(address, Ordering::Release);
    Some(index)
}

/// Handles the first call of a stub. Returns the target, which all later calls use.
pub(crate) fn first_call(index: usize) -> *mut c_void {
    let door = &DOORS[index];
    let address = door.body.load(Ordering::Acquire);
    // Before another thread can pass.
    elision::end("an unknown driver function was called");
    if door.target.swap(address, Ordering::AcqRel) == address {
        return address;
    }
    let name = NAMES[index].load(Ordering::Relaxed);
    // SAFETY: null or the library's copy of a C string.
    let name = if name.is_null() { c"?" } else { unsafe { CStr::from_ptr(name) } };
    log::warn(format_args!(
        "{}: unknown to this version; it is passed through, and no barrier is skipped from now on",
        name.to_string_lossy()
    ));
    address
}

unsafe extern "C" {
    static cachealloc_stubs: [u8; STUBS * STUB_BYTES];
}

fn stub_address(index: usize) -> *mut c_void {
    // SAFETY: the assembly below defines STUBS stubs of STUB_BYTES each.
    unsafe { (&raw const cachealloc_stubs).cast::<u8>().add(index * STUB_BYTES) as *mut c_void }
}

// Each stub begins like the exports, and jumps through its door: at first to the code after that
// jump, from which `doors` calls `first_call`.
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
    ".byte 0x48, 0x81, 0xec, 0, 0, 0, 0",
    ".byte 0x48, 0x81, 0xec, 0, 0, 0, 0",
    ".byte 0xff, 0x25", // jmp [rip + the door]
    ".long {doors} + 16 * stub_index - . - 4",
    ".byte 0x41, 0xba", // mov r10d, the number
    ".long {count} + stub_index",
    "jmp {first}",
    ".set stub_index, stub_index + 1",
    ".endr",
    count = const COUNT,
    first = sym crate::interpose::doors::first,
    doors = sym DOORS,
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
    "mov x17, x17",
    "mov x17, x17",
    "adrp x16, {doors} + 16 * stub_index",
    "ldr x16, [x16, #:lo12:{doors} + 16 * stub_index]",
    "br x16",
    "mov w17, #({count} + stub_index)",
    "b {first}",
    ".set stub_index, stub_index + 1",
    ".endr",
    count = const COUNT,
    first = sym crate::interpose::doors::first,
    doors = sym DOORS,
);
