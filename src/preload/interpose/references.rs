//! References that the loader has bound to the library's exports, but that mean something else
//! without the library. It precedes every other library, and the loader compares names only:
//!
//! * A library's *variables* may be named like the driver's functions that it has looked up. A
//!   store to one would go to the library's code, which cannot be written.
//! * A *weak* reference may name a function that no other library has. It is null without this
//!   library, by which a program knows that there is no CUDA.
//!
//! Each gets the value that it would have without the library. This happens when the process
//! starts, before any code of its libraries runs. It happens again when a driver function is looked
//! up after libraries were loaded: a library that keeps functions in variables looks them up first.
//! References to functions stay bound to the library (`doors`).
//!
//! The loader's list is visited with its lock held, and no other lock of the loader may be awaited
//! meanwhile. So definitions are looked up between two visits.

use core::ffi::{CStr, c_void};
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::c_library::dynamic::Dynamic;
use crate::c_library::{dlsym, objects};
use crate::driver::{libraries, table};
use crate::functions::{COUNT, FUNCTIONS, Function};

#[cfg(target_arch = "x86_64")]
mod kind {
    pub(super) const ADDRESS: u32 = 1;
    pub(super) const COPY: u32 = 5;
    /// Number of bytes of an export's code that the loader copies into a program's variable: the
    /// size of the symbol.
    pub(super) const COPIED_BYTES: usize = 7;
    pub(super) const TABLE: u32 = 6;
}
#[cfg(target_arch = "aarch64")]
mod kind {
    pub(super) const ADDRESS: u32 = 257;
    pub(super) const COPY: u32 = 1024;
    pub(super) const COPIED_BYTES: usize = 4;
    pub(super) const TABLE: u32 = 1025;
}

const PT_GNU_RELRO: u32 = 0x6474_e552;
const STB_WEAK: u8 = 2;
/// Size of a variable that holds a function.
const VARIABLE_BYTES: usize = size_of::<usize>();

/// The definition of a function's name in the global scope without the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Native {
    NotAsked,
    Function,
    Variable(usize),
    /// No definition, except that an object loaded in its own scope has a variable of the name.
    Local(usize),
    Nothing,
}

/// One reference to an export of the library.
struct Reference {
    place: usize,
    /// The addend to the symbol's address.
    addend: usize,
    function: &'static Function,
    is_copy: bool,
    is_weak: bool,
    /// The object's own definition.
    own: Option<usize>,
}

/// Corrects what was bound before the process begins.
pub(crate) fn put_right_at_start() {
    if is_any_new() {
        put_right_what_is_found();
    }
}

/// Corrects what was bound since the last call.
pub(crate) fn put_right() {
    if cachealloc_stacks::unless_forking(is_any_new) == Some(true) {
        put_right_what_is_found();
    }
}

/// Returns whether libraries were loaded since the last call, and some object refers to the
/// exports.
fn is_any_new() -> bool {
    static LAST: AtomicU64 = AtomicU64::new(u64::MAX);
    let changes = objects::changes();
    let mut any = false;
    if LAST.swap(changes, Ordering::Relaxed) != changes {
        visit(|_, _| any = true);
    }
    any
}

#[cold]
#[inline(never)]
fn put_right_what_is_found() {
    let mut natives = [Native::NotAsked; COUNT];
    visit(|info, reference| {
        let native = &mut natives[reference.function.id];
        match reference.own.filter(|own| !is_code_of(info, *own)) {
            Some(own) if !matches!(native, Native::Local(_)) => *native = Native::Local(own),
            _ if *native == Native::NotAsked => *native = Native::Nothing,
            _ => {}
        }
    });
    let mut any = false;
    for (function, native) in FUNCTIONS.iter().zip(&mut natives) {
        if *native != Native::NotAsked {
            *native = look_up(function).unwrap_or(*native);
            any |= *native != Native::Function;
        }
    }
    if any {
        visit(|info, reference| apply(info, reference, native_of(info, reference, &natives)));
    }
}

/// Looks up the definition in the global scope without the library.
fn look_up(function: &Function) -> Option<Native> {
    let found = dlsym::real(libc::RTLD_NEXT, function.symbol().as_ptr());
    let is_copy = libraries::is_copy(found);
    if found.is_null() || is_copy && !table::load() {
        None
    } else if is_copy || objects::is_code(found) {
        Some(Native::Function)
    } else {
        Some(Native::Variable(found as usize))
    }
}

/// Returns the value that a reference has without the library, or `None` if the export is right or
/// nothing better is known.
fn native_of(
    info: &libc::dl_phdr_info,
    reference: &Reference,
    natives: &[Native; COUNT],
) -> Option<usize> {
    match natives[reference.function.id] {
        Native::NotAsked | Native::Function => None,
        Native::Variable(address) => Some(address),
        Native::Local(address) => match reference.own {
            Some(own) => (!is_code_of(info, own)).then_some(own),
            None => Some(address),
        },
        // A plugin may have been loaded with its own driver; the program itself sees only the
        // global scope.
        Native::Nothing => {
            let sees_none = !table::is_loaded() || is_program(info);
            (reference.own.is_none() && reference.is_weak && sees_none).then_some(0)
        }
    }
}

/// Returns whether the object is the program's own file.
fn is_program(info: &libc::dl_phdr_info) -> bool {
    // SAFETY: null or the loader's own C string.
    info.dlpi_name.is_null() || unsafe { *info.dlpi_name == 0 }
}

fn is_code_of(info: &libc::dl_phdr_info, address: usize) -> bool {
    let code = objects::segments(info)
        .iter()
        .filter(|segment| segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0);
    code.map(|segment| objects::span(info, segment))
        .any(|(begin, end)| (begin..end).contains(&address))
}

fn apply(info: &libc::dl_phdr_info, reference: &Reference, native: Option<usize>) {
    let Some(native) = native else { return };
    let place = reference.place as *mut u8;
    if reference.is_copy {
        if native != 0 && native != reference.place {
            // SAFETY: both are variables of as many bytes as the loader would have copied without
            // the library.
            unsafe { core::ptr::copy_nonoverlapping(native as *const u8, place, VARIABLE_BYTES) };
        }
        return;
    }
    let value = if native == 0 { 0 } else { native.wrapping_add(reference.addend) };
    write(info, place.cast(), value as *mut c_void);
}

/// Writes to a place that the loader has relocated, and may have protected since.
fn write(info: &libc::dl_phdr_info, place: *mut *mut c_void, value: *mut c_void) {
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let begin = place as usize & !(page - 1);
    let mut protected = objects::segments(info).iter().filter(|part| part.p_type == PT_GNU_RELRO);
    let is_protected = protected.any(|part| {
        let (first, end) = objects::span(info, part);
        (first & !(page - 1)..end & !(page - 1)).contains(&(place as usize))
    });
    let protect = |access| {
        // SAFETY: the page lies in the object, which is loaded while its list is visited; nothing
        // else writes there.
        !is_protected || unsafe { libc::mprotect(begin as *mut c_void, page, access) } == 0
    };
    if protect(libc::PROT_READ | libc::PROT_WRITE) {
        // SAFETY: an aligned word of the object's data, which holds an address.
        unsafe { AtomicPtr::from_ptr(place) }.store(value, Ordering::Release);
        protect(libc::PROT_READ);
    }
}

/// Visits every reference to one of the exports.
fn visit(mut each: impl FnMut(&libc::dl_phdr_info, &Reference)) {
    let Some(ours) = objects::span_of_object(put_right as *const c_void) else { return };
    objects::for_each(|info| {
        let base = info.dlpi_addr as usize;
        if base != ours.0 {
            visit_object(info, ours, &mut each);
        }
        false
    });
}

fn visit_object(
    info: &libc::dl_phdr_info,
    ours: (usize, usize),
    each: &mut impl FnMut(&libc::dl_phdr_info, &Reference),
) {
    let Some(dynamic) = Dynamic::of(info) else { return };
    for relocation in dynamic.relocations() {
        let (what, number) = (relocation.r_info as u32, relocation.r_info >> 32);
        if !matches!(what, kind::ADDRESS | kind::TABLE | kind::COPY) {
            continue;
        }
        let place = (info.dlpi_addr as usize).wrapping_add(relocation.r_offset as usize);
        let addend = if what == kind::ADDRESS { relocation.r_addend as usize } else { 0 };
        let is_copy = what == kind::COPY;
        // SAFETY: the relocation's own symbol.
        let symbol = unsafe { dynamic.symbol(number as usize) };
        let function = if is_copy {
            let name = dynamic.name(symbol);
            exported(name).filter(|function| has_our_code(function, place))
        } else {
            // SAFETY: the loader has written an address there.
            let bound = unsafe { (place as *const usize).read() }.wrapping_sub(addend);
            if (ours.0..ours.1).contains(&bound) { at(bound) } else { None }
        };
        let Some(function) = function else { continue };
        let own = dynamic.address(symbol).filter(|_| !is_copy);
        let is_weak = symbol.st_info >> 4 == STB_WEAK;
        each(info, &Reference { place, addend, function, is_copy, is_weak, own });
    }
}

/// Returns the function whose export is at this address.
fn at(address: usize) -> Option<&'static Function> {
    let is_there = |function: &&Function| {
        function.door().is_some_and(|door| door.address() as usize == address)
    };
    FUNCTIONS.iter().find(is_there)
}

/// Returns the exported function of this name. Most names of variables match none.
fn exported(name: &CStr) -> Option<&'static Function> {
    if !name.to_bytes().starts_with(b"cu") {
        return None;
    }
    FUNCTIONS.iter().find(|function| function.door().is_some() && function.symbol() == name)
}

/// Returns whether the loader has copied the first bytes of the export into this variable.
fn has_our_code(function: &Function, variable: usize) -> bool {
    let Some(door) = function.door() else { return false };
    // SAFETY: the first bytes of the export's code, and of a variable that has at least a word.
    unsafe {
        let begin = |place| core::slice::from_raw_parts(place as *const u8, kind::COPIED_BYTES);
        begin(door.address() as usize) == begin(variable)
    }
}
