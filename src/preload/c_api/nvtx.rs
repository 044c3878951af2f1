//! Takes over the ranges that programs and libraries push for profilers (PyTorch's `emit_nvtx`,
//! RAPIDS, Megatron, ...).
//!
//! NVTX consists of headers only. At its first call in a library it loads the library named by
//! `NVTX_INJECTION64_PATH` and calls its `InitializeInjectionNvtx2`, which puts functions into
//! NVTX's tables. `cachealloc run` sets the variable to this library if something is recorded and
//! no profiler is named. Some builds of NVTX look that function up by name alone, and find this one
//! wherever the library is preloaded. If the variable does not name this library, the call is
//! passed on.
//!
//! Ranges of all domains form one nesting for each thread. Those of `nvtxRangeStart` belong to no
//! thread, and are ignored.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::transmute;
use std::ffi::CString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::c_library::dlsym;
use crate::record::ranges;

/// Returns a table of NVTX by its number.
type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(Option<GetExportTable>) -> c_int;
/// Places where NVTX keeps its functions.
type Slots = *mut *mut *const c_void;

const NAME: &CStr = c"InitializeInjectionNvtx2";
const VARIABLE: &str = "NVTX_INJECTION64_PATH";
/// Number of the table of callbacks.
const CALLBACKS: u32 = 1;

#[repr(C)]
struct Callbacks {
    bytes: usize,
    functions_of: Option<unsafe extern "C" fn(c_int, *mut Slots, *mut c_uint) -> c_int>,
}

/// `nvtxEventAttributes_t` of version 2, which all of NVTX 3 has.
#[repr(C)]
pub(crate) struct Attributes {
    version: u16,
    bytes: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

const _: () = assert!(size_of::<Attributes>() == 48);

const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;
/// Result of a push if no tool counts depths.
const NOT_COUNTED: c_int = -2;
const WIDE_MAX: usize = 256;

/// # Safety
///
/// NVTX must be the caller, with its own function or null.
#[unsafe(export_name = "InitializeInjectionNvtx2")]
pub(crate) unsafe extern "C" fn initialize(get: Option<GetExportTable>) -> c_int {
    if !is_meant() {
        // SAFETY: a function of this name belongs to NVTX, and has the same signature.
        return next().map_or(0, |next| unsafe { next(get) });
    }
    let Some(get) = get else { return 0 };
    // SAFETY: NVTX's own function; a table lives as long as its library.
    let callbacks = unsafe { get(CALLBACKS).cast::<Callbacks>().as_ref() };
    let Some(callbacks) = callbacks.filter(|it| it.bytes >= size_of::<Callbacks>()) else {
        return 0;
    };
    let Some(functions_of) = callbacks.functions_of else { return 0 };
    let put = |module: c_int, functions: &[(usize, *const c_void)]| {
        let (mut slots, mut count): (Slots, c_uint) = (core::ptr::null_mut(), 0);
        // SAFETY: both places are local variables.
        if unsafe { functions_of(module, &mut slots, &mut count) } == 0 || slots.is_null() {
            return;
        }
        for &(number, function) in functions.iter().filter(|it| it.0 < count as usize) {
            // SAFETY: NVTX has `count` slots; each is null or a place for a function.
            if let Some(place) = unsafe { (*slots.add(number)).as_mut() } {
                *place = function;
            }
        }
    };
    // The numbers are those of NvtxCallbackIdCore and NvtxCallbackIdCore2.
    put(
        1,
        &[
            (8, push_with as *const c_void),
            (9, push as *const c_void),
            (10, push_wide as *const c_void),
            (11, pop as *const c_void),
        ],
    );
    put(
        5,
        &[
            (4, push_in_domain as *const c_void),
            (5, pop_in_domain as *const c_void),
            (10, register as *const c_void),
            (11, register_wide as *const c_void),
        ],
    );
    1
}

/// Whether the variable names this library.
fn is_meant() -> bool {
    let Some(named) = std::env::var_os(VARIABLE) else { return false };
    let id = |path: &Path| path.metadata().ok().map(|about| (about.dev(), about.ino()));
    own_path().is_some_and(|own| id(&own).is_some() && id(&own) == id(Path::new(&named)))
}

fn own_path() -> Option<PathBuf> {
    // SAFETY: zeroes are a valid `Dl_info`, which `dladdr` fills; its name is a C string while the
    // library is loaded.
    unsafe {
        let mut about: libc::Dl_info = core::mem::zeroed();
        let found = libc::dladdr(initialize as *const c_void, &mut about);
        if found == 0 || about.dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(about.dli_fname).to_bytes();
        Some(std::os::unix::ffi::OsStrExt::from_bytes(name))
            .map(|name: &std::ffi::OsStr| name.into())
    }
}

/// Returns the function of the next tool in the order of loading.
fn next() -> Option<Initialize> {
    let found = dlsym::real(libc::RTLD_NEXT, NAME.as_ptr());
    // SAFETY: null becomes `None`.
    unsafe { transmute::<*const c_void, Option<Initialize>>(found) }
}

unsafe extern "C" fn push(message: *const c_char) -> c_int {
    if !ranges::are_idle() {
        // SAFETY: NVTX's caller gives a C string.
        ranges::push(unsafe { text(message) });
    }
    NOT_COUNTED
}

unsafe extern "C" fn push_wide(message: *const u32) -> c_int {
    if !ranges::are_idle() {
        // SAFETY: NVTX's caller gives a wide string.
        ranges::push(unsafe { wide(message) }.as_bytes());
    }
    NOT_COUNTED
}

unsafe extern "C" fn push_with(attributes: *const Attributes) -> c_int {
    if ranges::are_idle() {
        return NOT_COUNTED;
    }
    // SAFETY: NVTX's caller gives null or attributes, whose message has the type that they state.
    unsafe {
        match attributes.as_ref() {
            Some(Attributes { message_type: ASCII | REGISTERED, message, .. }) => {
                ranges::push(text(message.cast()));
            }
            Some(Attributes { message_type: UNICODE, message, .. }) => {
                ranges::push(wide(message.cast()).as_bytes());
            }
            _ => ranges::push(b""),
        }
    }
    NOT_COUNTED
}

unsafe extern "C" fn push_in_domain(_: *const c_void, attributes: *const Attributes) -> c_int {
    // SAFETY: as in `push_with`.
    unsafe { push_with(attributes) }
}

extern "C" fn pop() -> c_int {
    ranges::pop();
    NOT_COUNTED
}

extern "C" fn pop_in_domain(_: *const c_void) -> c_int {
    pop()
}

/// Returns a handle for a text that is pushed often: the text, which is not freed.
unsafe extern "C" fn register(_: *const c_void, message: *const c_char) -> *const c_void {
    // SAFETY: NVTX's caller gives a C string.
    let text = unsafe { text(message) };
    CString::new(text).map_or(core::ptr::null(), |text| text.into_raw().cast_const().cast())
}

unsafe extern "C" fn register_wide(_: *const c_void, message: *const u32) -> *const c_void {
    // SAFETY: NVTX's caller gives a wide string.
    let text = unsafe { wide(message) };
    CString::new(text).map_or(core::ptr::null(), |text| text.into_raw().cast_const().cast())
}

/// # Safety
///
/// `message` must be null or a C string.
unsafe fn text<'a>(message: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's promise.
    if message.is_null() { b"" } else { unsafe { CStr::from_ptr(message) }.to_bytes() }
}

/// # Safety
///
/// `message` must be null or end in a zero.
unsafe fn wide(message: *const u32) -> String {
    let letter = |at: usize| {
        // SAFETY: by the caller's promise; nothing past a zero is read.
        let letter = if message.is_null() { 0 } else { unsafe { *message.add(at) } };
        (letter != 0).then(|| char::from_u32(letter).unwrap_or(char::REPLACEMENT_CHARACTER))
    };
    (0..WIDE_MAX).map_while(letter).collect()
}
