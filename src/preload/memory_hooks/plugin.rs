//! The memory hook of the whole process: the option `hook` names a library that exports its table.
//!
//! Loaded by the first call it could observe, so after CUDA has started, by a thread that holds no lock
//! of ours. Other threads meanwhile continue unobserved rather than wait: the loader's lock may be held
//! by a thread that allocates in the constructor of a library.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::c_library::dlsym;
use crate::memory_hooks::list::Hook;
use crate::memory_hooks::table::Table;
use crate::process::bypass;
use crate::{config, log};

const TABLE_NAME: &CStr = c"cachealloc_hook_table";

/// Still to be loaded.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Never freed: a thread may be calling it.
static HOOK: AtomicPtr<Hook> = AtomicPtr::new(null_mut());

/// CUDA starts, and the user wants a hook: from here on every allocation is observed.
pub(crate) fn expect() {
    if config::get().hook.is_some() {
        bypass::add_memory_hook();
        WANTED.store(true, Ordering::Release);
    }
}

pub(super) fn hook() -> Option<&'static Hook> {
    // SAFETY: null or leaked.
    unsafe { HOOK.load(Ordering::Acquire).as_ref() }
}

/// It threw: it is not called from here on. Returns its name.
pub(super) fn remove() -> String {
    let hook = HOOK.swap(null_mut(), Ordering::AcqRel);
    if hook.is_null() {
        return "of the option hook".to_string();
    }
    bypass::remove_memory_hook();
    // SAFETY: leaked; not dropped, because another thread may still be reading it.
    unsafe { (*hook).name().to_string() }
}

/// Loads it once, inside `run`.
pub(super) fn load(run: impl FnOnce(&mut dyn FnMut())) {
    if !WANTED.load(Ordering::Acquire) || !WANTED.swap(false, Ordering::AcqRel) {
        return;
    }
    let Some(path) = &config::get().hook else { return };
    run(&mut || match open(path) {
        Ok(hook) => HOOK.store(Box::into_raw(Box::new(hook)), Ordering::Release),
        Err(problem) => log::line(format_args!("hook:{path}: {problem}; ignored")),
    });
    bypass::remove_memory_hook();
}

fn open(path: &str) -> Result<Hook, String> {
    let name = CString::new(path).map_err(|_| "not a path".to_string())?;
    // SAFETY: the user named the library, and wants its constructors to run.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(format!("it cannot be loaded ({})", load_error()));
    }
    let table: *mut c_void = dlsym::real(handle, TABLE_NAME.as_ptr());
    if table.is_null() {
        load_error(); // clears our error, which the program would find
        return Err("it exports no cachealloc_hook_table".to_string());
    }
    // SAFETY: what it exports under this name is such a table; its name is null or a C string.
    unsafe {
        let Some(copy) = Table::read(table.cast()) else {
            return Err("its cachealloc_hook_table has an unknown version".to_string());
        };
        Ok(Hook::new(copy, copy.name(), table.cast()))
    }
}

fn load_error() -> String {
    // SAFETY: null, or a C string until this thread's next call of the loader.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "no reason given".to_string();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
