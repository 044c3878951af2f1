//! The real functions' addresses, found once when `libcuda.so.1` is in the process.
//!
//! Found by index (`real`), for our own calls and for forwarding, and by address (`known`), for pointers
//! that the driver returns. No two exports of the driver share an address (measured on driver 580), so a
//! map from pointer to function is exact, whatever name, version and flags the program requested.
//!
//! No lock: a thread inside `dlopen` may hold the loader's lock and call us from a constructor while
//! another thread of ours waits for that lock. Concurrent threads do the same idempotent work.

use core::ffi::c_void;
use core::mem::{size_of, transmute_copy};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicUsize, Ordering};

use crate::c_library::dlsym;
use crate::driver::sys::{CuCode, CuError, code};
use crate::functions::{COUNT, FUNCTIONS, Function};

const MAP_SLOTS: usize = 4096;
const _: () = assert!(COUNT * 2 < MAP_SLOTS, "the pointer map must stay sparse");

static REAL: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];
/// Open addressing by address; an entry is a function's index plus one.
static BY_ADDRESS: [AtomicU16; MAP_SLOTS] = [const { AtomicU16::new(0) }; MAP_SLOTS];
/// How many functions were found; zero until the table is complete.
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// Whether the real driver is known.
pub(crate) fn is_loaded() -> bool {
    FOUND.load(Ordering::Acquire) != 0
}

/// Whether this driver has the function. Another thread may be filling the table: what this one does not find
/// there counts only when the table is complete.
#[inline]
pub(crate) fn has(id: usize) -> bool {
    is_there(id) || has_late(id)
}

#[inline]
fn is_there(id: usize) -> bool {
    !REAL[id].load(Ordering::Relaxed).is_null()
}

#[cold]
#[inline(never)]
fn has_late(id: usize) -> bool {
    load() && is_there(id)
}

/// The real function, or one that returns `NOT_FOUND` if this driver has none.
///
/// # Safety
///
/// `F` is the C signature of function `id`.
#[inline(always)]
pub(crate) unsafe fn real<F: Copy>(id: usize) -> F {
    // SAFETY: the caller's promise.
    if let Some(found) = unsafe { found(id) } {
        return found;
    }
    let address = find_late(id);
    // SAFETY: as there; `absent` takes no arguments and is sound to call with any in the C calling convention.
    unsafe { transmute_copy(&address) }
}

/// The real function, if it was found already.
///
/// # Safety
///
/// `F` is the C signature of function `id`.
#[inline(always)]
pub(crate) unsafe fn found<F: Copy>(id: usize) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "F must be a function pointer") };
    let address = REAL[id].load(Ordering::Relaxed);
    // SAFETY: the address is that of driver function `id`, and the caller gives its signature.
    (!address.is_null()).then(|| unsafe { transmute_copy(&address) })
}

/// A program linked against the driver calls our export before any look-up.
#[cold]
fn find_late(id: usize) -> *mut c_void {
    load();
    let address = REAL[id].load(Ordering::Relaxed);
    if address.is_null() { absent as *mut c_void } else { address }
}

extern "C" fn absent() -> CuCode {
    code(Err(CuError::NOT_FOUND))
}

/// The known function at this address of the driver.
pub(crate) fn known(address: *mut c_void) -> Option<&'static Function> {
    let mut slot = hash(address);
    loop {
        match BY_ADDRESS[slot].load(Ordering::Acquire) {
            0 => return None,
            entry => {
                let index = usize::from(entry) - 1;
                if REAL[index].load(Ordering::Relaxed) == address {
                    return Some(&FUNCTIONS[index]);
                }
            }
        }
        slot = (slot + 1) % MAP_SLOTS;
    }
}

/// Finds the driver if it is in the process. Returns whether it is known now.
pub(crate) fn load() -> bool {
    if is_loaded() {
        return true;
    }
    // SAFETY: a C string constant; NOLOAD loads nothing, so no foreign code runs. The handle is
    // kept for ever: our table points into the library.
    let handle =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return false;
    }
    let mut found = 0;
    for function in &FUNCTIONS {
        let address = dlsym::real(handle, function.symbol.as_ptr());
        if !address.is_null() {
            REAL[function.id].store(address, Ordering::Relaxed);
            remember(address, function.id);
            found += 1;
        }
    }
    FOUND.store(found, Ordering::Release);
    found != 0
}

fn remember(address: *mut c_void, id: usize) {
    let entry = id as u16 + 1;
    let mut slot = hash(address);
    loop {
        match BY_ADDRESS[slot].compare_exchange(0, entry, Ordering::Release, Ordering::Acquire) {
            Ok(_) => return,
            Err(present) if present == entry => return,
            Err(_) => slot = (slot + 1) % MAP_SLOTS,
        }
    }
}

fn hash(address: *mut c_void) -> usize {
    (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 52
}

const _: () = assert!(MAP_SLOTS == 1 << (64 - 52));
