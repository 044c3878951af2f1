//! The memory hook of the whole process: the option `hook` names a library that exports its table.
//!
//! The library is loaded by the first call that it could observe, so after CUDA has started, by a
//! thread that holds no lock of cachealloc. Other threads continue unobserved meanwhile and do not
//! wait: a thread that allocates in the constructor of a library may hold the loader's lock.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::c_library::dlsym;
use crate::memory_hooks::list::Hook;
use crate::memory_hooks::table::Table;
use crate::{config, gate, log};

const TABLE_NAME: &CStr = c"cachealloc_hook_table";

/// Whether the hook has yet to be loaded.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The loaded hook. It is not freed, because a thread may be calling it.
static HOOK: AtomicPtr<Hook> = AtomicPtr::new(null_mut());

/// Observes every allocation from now on, if the user wants a hook, when CUDA starts.
pub(crate) fn expect() {
    if config::get().hook.is_some() {
        gate::add_memory_hook();
        WANTED.store(true, Ordering::Release);
    }
}

pub(super) fn hook() -> Option<&'static Hook> {
    // SAFETY: null or leaked.
    unsafe { HOOK.load(Ordering::Acquire).as_ref() }
}

/// Removes the hook, which threw. Returns its name.
pub(super) fn remove() -> String {
    let hook = HOOK.swap(null_mut(), Ordering::AcqRel);
    if hook.is_null() {
        return "of the option hook".to_string();
    }
    gate::remove_memory_hook();
    // SAFETY: leaked; it is not dropped, because another thread may still be reading it.
    unsafe { (*hook).name().to_string() }
}

/// Loads the hook once, inside `run`.
pub(super) fn load(run: impl FnOnce(&mut dyn FnMut())) {
    if !WANTED.load(Ordering::Acquire) || !WANTED.swap(false, Ordering::AcqRel) {
        return;
    }
    let Some(path) = &config::get().hook else { return };
    run(&mut || match open(path) {
        Ok(hook) => HOOK.store(Box::into_raw(Box::new(hook)), Ordering::Release),
        Err(problem) => log::line(format_args!("hook:{path}: {problem}; ignored")),
    });
    gate::remove_memory_hook();
}

fn open(path: &str) -> Result<Hook, String> {
    let name = CString::new(path).map_err(|_| "not a path".to_string())?;
    // SAFETY: the user named the library, and wants its constructors to run.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(format!("cannot be loaded ({})", load_error()));
    }
    let table: *mut c_void = dlsym::real(handle, TABLE_NAME.as_ptr());
    if table.is_null() {
        load_error(); // clears the library's error, which the program would see
        return Err("exports no cachealloc_hook_table".to_string());
    }
    // SAFETY: the export of this name is such a table; its name is null or a C string.
    unsafe {
        let Some(copy) = Table::read(table.cast()) else {
            return Err("cachealloc_hook_table has an unknown version".to_string());
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
