//! The library's environment variables and the working directory, as they were when the process
//! began. A program may clear its environment, write its title over it, or change the directory
//! before it starts CUDA.
//!
//! A variable that was not set at that time is read later: launchers set ranks late, and Python
//! programs set options late.

use core::ffi::{CStr, c_char};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Beginnings of the names of the variables that are kept.
const KEPT: [&[u8]; 8] = [
    b"CACHEALLOC",
    b"NV_SANITIZER_INJECTION_PORT_BASE=",
    b"RANK=",
    b"OMPI_COMM_WORLD_RANK=",
    b"PMIX_RANK=",
    b"PMI_RANK=",
    b"MV2_COMM_WORLD_RANK=",
    b"SLURM_PROCID=",
];
const BYTES: usize = 8192;

/// `NAME=value` with a terminating zero, one after the other. If they do not fit, memory is mapped
/// for them.
static mut SPACE: [u8; BYTES] = [0; BYTES];
static KEEPS: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);
static mut FOLDER: [u8; libc::PATH_MAX as usize] = [0; libc::PATH_MAX as usize];
static FOLDER_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Notes the variables when the process begins.
///
/// # Safety
///
/// The caller calls this once, from the library's constructor, with the environment that the loader
/// passes to it.
pub(crate) unsafe fn note(environment: *const *const c_char) {
    let variables = || {
        (0..)
            // SAFETY: by the caller's promise, a list of C strings that ends with null.
            .map_while(|index| unsafe { (!environment.is_null()).then(|| *environment.add(index)) })
            .take_while(|text| !text.is_null())
            // SAFETY: see above.
            .filter(|text| KEPT.iter().any(|begin| unsafe { begins_with(*text, begin) }))
            // SAFETY: see above.
            .map(|text| unsafe { CStr::from_ptr(text) }.to_bytes_with_nul())
    };
    let bytes: usize = variables().map(<[u8]>::len).sum();
    let space = if bytes <= BYTES { (&raw mut SPACE).cast::<u8>() } else { map(bytes) };
    if space.is_null() {
        return;
    }
    let mut at = space;
    for text in variables() {
        // SAFETY: the space fits all of them, and no other thread reads them yet.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr(), at, text.len());
            at = at.add(text.len());
        }
    }
    KEPT_BYTES.store(bytes, Ordering::Relaxed);
    KEEPS.store(space, Ordering::Release);
    // SAFETY: the buffer has the stated size.
    let folder = unsafe { libc::getcwd((&raw mut FOLDER).cast(), libc::PATH_MAX as usize) };
    if !folder.is_null() {
        // SAFETY: the call has written a C string.
        FOLDER_BYTES.store(unsafe { libc::strlen(folder) }, Ordering::Release);
    }
}

/// Returns whether the text begins so, without reading more of it: this runs for each variable of
/// every process.
///
/// # Safety
///
/// `text` is a C string. `begin` contains no zero.
unsafe fn begins_with(text: *const c_char, begin: &[u8]) -> bool {
    let text: *const u8 = text.cast();
    // SAFETY: the first byte that differs ends the loop, and the zero at the end of the text does.
    (0..).zip(begin).all(|(index, byte)| unsafe { *text.add(index) } == *byte)
}

fn map(bytes: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, for the life of the process.
    let space = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
    if space == libc::MAP_FAILED { null_mut() } else { space.cast() }
}

/// Whether the environment can be read: the C library may not have it yet.
pub(crate) fn is_there() -> bool {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the C library's own pointer, read as a word.
    !KEEPS.load(Ordering::Acquire).is_null() || unsafe { !environ.is_null() }
}

/// Returns the value of a variable. Allocates nothing.
pub(crate) fn get(name: &CStr) -> Option<&'static CStr> {
    at_start(name).or_else(|| {
        // SAFETY: a C string; the result, if any, is one of the environment.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            (!value.is_null()).then(|| CStr::from_ptr(value))
        }
    })
}

/// Returns the value of a variable when the process began.
fn at_start(name: &CStr) -> Option<&'static CStr> {
    let space = KEEPS.load(Ordering::Acquire);
    if space.is_null() {
        return None;
    }
    // SAFETY: written before the pointer was, and not changed afterwards.
    let kept = unsafe { core::slice::from_raw_parts(space, KEPT_BYTES.load(Ordering::Relaxed)) };
    let mut texts = kept.split_inclusive(|byte| *byte == 0);
    let value = texts.find_map(|text| text.strip_prefix(name.to_bytes())?.strip_prefix(b"="))?;
    CStr::from_bytes_with_nul(value).ok()
}

/// Returns a variable as text, for values that are read rarely.
pub(crate) fn text(name: &CStr) -> Option<String> {
    get(name).map(|value| value.to_string_lossy().into_owned())
}

/// Folder in which the process was started, if it could be determined.
pub(crate) fn folder() -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = FOLDER_BYTES.load(Ordering::Acquire);
    if bytes == 0 {
        return None;
    }
    // SAFETY: written before its length was, and not changed afterwards.
    let path = unsafe { core::slice::from_raw_parts((&raw const FOLDER).cast::<u8>(), bytes) };
    Some(std::ffi::OsStr::from_bytes(path).into())
}
