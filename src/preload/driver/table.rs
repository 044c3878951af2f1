//! The real functions' addresses, found once `libcuda.so.1` is in the process.
//!
//! They are found by index (`real`), for the library's own calls and for forwarding, and by address
//! (`known`), for pointers that the driver returns. No two exports of the driver share an address
//! (measured on driver 580), so a map from pointer to function is exact, whatever name, version and
//! flags the program requested.
//!
//! The addresses are those that a program without the library would get by `dlsym`. If another
//! library that follows this one wraps the driver, they may be its functions. `cuGetProcAddress`
//! may return others: if `libcuda.so.1` only leads to another file, those of that file. Both are
//! the function, and the library calls the one that `cuGetProcAddress` returns.
//!
//! There is no lock: a thread inside `dlopen` may hold the loader's lock and call the library from
//! a constructor, while another thread inside the library waits for that lock. Concurrent threads
//! do the same idempotent work.

use core::ffi::{c_char, c_void};
use core::mem::{size_of, transmute_copy};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::c_library::{dlsym, objects};
use crate::driver::libraries;
use crate::driver::sys::{CuCode, CuError, code};
use crate::functions::{COUNT, FUNCTIONS, Function, id};

const MAP_SLOTS: usize = 4096;
/// For each function: the driver's own address, the one that a lookup finds, and the one that
/// `cuGetProcAddress` returns.
const ADDRESSES_MAX: usize = 3;
const _: () = assert!(COUNT * ADDRESSES_MAX < MAP_SLOTS, "the pointer map must not be full");

pub(crate) static REAL: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];
/// Open addressing by address. An entry is an address, with a function's index in its low bits.
/// Addresses of a process have 48 bits.
static BY_ADDRESS: [AtomicU64; MAP_SLOTS] = [const { AtomicU64::new(0) }; MAP_SLOTS];
const ID_BITS: u32 = 16;
const ID_MASK: u64 = (1 << ID_BITS) - 1;
/// Number of functions found; zero until the table is complete.
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// Returns whether the real driver is known.
pub(crate) fn is_loaded() -> bool {
    FOUND.load(Ordering::Acquire) != 0
}

/// Returns whether this driver has the function. Another thread may be filling the table: a missing
/// entry counts only once the table is complete.
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

/// Returns the real function, or one that returns `NOT_FOUND` if this driver has none.
///
/// # Safety
///
/// `F` must be the C signature of function `id`.
#[inline(always)]
pub(crate) unsafe fn real<F: Copy>(id: usize) -> F {
    // SAFETY: the caller's promise.
    if let Some(found) = unsafe { found(id) } {
        return found;
    }
    let address = find_late(id);
    // SAFETY: as in `found`; `absent` takes no arguments and is sound to call with any in the C
    // calling convention.
    unsafe { transmute_copy(&address) }
}

/// Returns the real function, if it was already found.
///
/// # Safety
///
/// `F` must be the C signature of function `id`.
#[inline(always)]
pub(crate) unsafe fn found<F: Copy>(id: usize) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "F must be a function pointer") };
    let address = REAL[id].load(Ordering::Relaxed);
    // SAFETY: the address is that of driver function `id`, and the caller gives its signature.
    (!address.is_null()).then(|| unsafe { transmute_copy(&address) })
}

/// Finds a function at its first call: a program linked against the driver calls an export before
/// any lookup.
#[cold]
fn find_late(id: usize) -> *mut c_void {
    load();
    let address = REAL[id].load(Ordering::Relaxed);
    if address.is_null() { absent as *mut c_void } else { address }
}

extern "C" fn absent() -> CuCode {
    code(Err(CuError::NOT_FOUND))
}

/// Returns the known function at this address of the driver.
pub(crate) fn known(address: *mut c_void) -> Option<&'static Function> {
    let mut slot = hash(address);
    loop {
        match BY_ADDRESS[slot].load(Ordering::Acquire) {
            0 => return None,
            entry if entry >> ID_BITS == address as u64 => {
                return FUNCTIONS.get((entry & ID_MASK) as usize);
            }
            _ => slot = (slot + 1) % MAP_SLOTS,
        }
    }
}

/// Finds the driver if it is in the process. Returns whether it is known now.
pub(crate) fn load() -> bool {
    if is_loaded() {
        return true;
    }
    // SAFETY: a C string constant; NOLOAD loads nothing, so no foreign code runs. The handle is
    // never closed: the table points into the library.
    let handle =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return false;
    }
    let mut found = 0;
    for function in &FUNCTIONS {
        let own = dlsym::real(handle, function.symbol().as_ptr());
        let address = looked_up(handle, function, own);
        if !address.is_null() {
            REAL[function.id].store(address, Ordering::Relaxed);
            remember(address, function.id);
            found += 1;
        }
        if own != address && !own.is_null() {
            remember(own, function.id);
        }
        if !own.is_null() {
            libraries::note(own);
        }
    }
    FOUND.store(found, Ordering::Release);
    found != 0
}

/// Returns the address that a program without the library would get for the driver's `own`
/// function.
fn looked_up(handle: *mut c_void, function: &Function, own: *mut c_void) -> *mut c_void {
    if !dlsym::has_neighbour() {
        return own;
    }
    let mut address = dlsym::next(handle, function.symbol().as_ptr());
    if libraries::is_ours(address) {
        // The library means its own function of the name, but the loader has bound that to this
        // library's.
        address = dlsym::real(libc::RTLD_NEXT, function.symbol().as_ptr());
    }
    if address.is_null() || address == own || libraries::is_copy(address) {
        return own;
    }
    libraries::note(address);
    address
}

/// Learns the addresses that the driver itself returns for its functions. Call once it has returned
/// an unknown one: then it can be asked.
#[cold]
pub(crate) fn learn_others() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if ASKED.load(Ordering::Acquire) {
        return;
    }
    type Ask = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut i32) -> CuCode;
    // SAFETY: its signature; `absent` takes any arguments.
    let ask: Ask = unsafe { real(id::cuGetProcAddress_v2) };
    // Plain functions first: for a variant that it does not have, the driver returns the plain
    // function.
    for per_thread in [false, true] {
        for function in FUNCTIONS.iter().filter(|function| function.per_thread == per_thread) {
            let (mut address, mut status) = (null_mut(), 0);
            let name = c_string(function.base());
            let flags = if per_thread { PER_THREAD } else { LEGACY };
            // SAFETY: a C string and valid places.
            let code =
                unsafe { ask(name.as_ptr(), &mut address, function.version, flags, &mut status) };
            let is_new = !address.is_null() && known(address).is_none();
            if code == 0 && is_new && !libraries::is_ours(address) {
                libraries::note(address);
                remember(address, function.id);
                REAL[function.id].store(address, Ordering::Relaxed);
            }
        }
    }
    ASKED.store(true, Ordering::Release);
}

/// Returns the name as a C string; no name is longer than the array.
fn c_string(name: &str) -> [c_char; 64] {
    let mut text = [0; 64];
    text[..63].iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as c_char);
    text
}

const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// Returns the code that a program linked against a function of this name would call without the
/// library, in a library that follows this one, or null.
pub(crate) fn behind(function: &Function) -> *mut c_void {
    let address = dlsym::real(libc::RTLD_NEXT, function.symbol().as_ptr());
    let counts = !address.is_null()
        && (known(address).is_some() || objects::is_code(address))
        && !libraries::is_copy(address);
    if counts { address } else { null_mut() }
}

/// Returns whether calls that reach this library arrive at the function `behind`, or at the one
/// that it would call.
pub(crate) fn is_below(function: &Function, behind: *mut c_void) -> bool {
    if known(behind).is_some() {
        return true;
    }
    // A library that answers lookups itself, if it is not this one.
    let is_below = is_loaded() && libraries::contain(behind);
    if is_below {
        remember(behind, function.id);
        REAL[function.id].store(behind, Ordering::Relaxed);
    }
    is_below
}

/// Returns whether the driver's functions are in the global scope: each program that is linked
/// against it sees them.
pub(crate) fn is_global() -> bool {
    // Checked by a function that neither this library nor another copy of it has.
    let mut not_ours = FUNCTIONS.iter().filter(|function| function.door().is_none());
    not_ours.any(|function| {
        let first = dlsym::first(function.symbol().as_ptr());
        !first.is_null() && known(first).is_some()
    })
}

fn remember(address: *mut c_void, id: usize) {
    let entry = (address as u64) << ID_BITS | id as u64;
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
