//! The interpreter of this process: its functions, its version, and whether its frames can be read.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::layout::{Frames, Layout, of_version};
use crate::{Lookup, Status, debug_offsets};

/// An interpreter of a known version. Never freed once found.
pub(crate) struct Interpreter {
    pub layout: Layout,
    pub code_type: u64,
    pub text_type: u64,
    pub bytes_type: u64,
    /// Type of frames that are objects; 0 if frames are not objects.
    pub frame_type: u64,
    version: (u8, u8, u8),
    is_initialized: unsafe extern "C" fn() -> c_int,
    thread_state: unsafe extern "C" fn() -> *mut c_void,
    main: unsafe extern "C" fn() -> *mut c_void,
}

/// Result of `start`; null until there is an interpreter.
static FOUND: AtomicPtr<Verdict> = AtomicPtr::new(null_mut());
/// The same interpreter once `self_check` has accepted its frames; null before, and forever if the
/// check failed.
static PROVEN: AtomicPtr<Interpreter> = AtomicPtr::new(null_mut());

enum Verdict {
    Known(Box<Interpreter>),
    Refused { version: String, why: &'static str },
}

/// Looks for an interpreter. Cheap to repeat while there is none (a program may load one later);
/// does nothing once one has been found.
pub fn start(lookup: Lookup) -> Status {
    if FOUND.load(Ordering::Acquire).is_null()
        && let Some(verdict) = look(lookup)
    {
        publish(null_mut(), verdict);
    }
    status()
}

pub fn status() -> Status {
    match found() {
        None => Status::NoPython,
        Some(Verdict::Known(interpreter)) => Status::On { version: interpreter.version },
        Some(Verdict::Refused { version, why }) => {
            Status::Unsupported { version: version.clone(), why }
        }
    }
}

/// Returns the interpreter if its frames have been found to match its layout.
#[inline]
pub(crate) fn proven() -> Option<&'static Interpreter> {
    // SAFETY: null or leaked by `publish`.
    unsafe { PROVEN.load(Ordering::Acquire).as_ref() }
}

/// Returns the interpreter unless it has been rejected.
pub(crate) fn known() -> Option<&'static Interpreter> {
    match found()? {
        Verdict::Known(interpreter) => Some(interpreter),
        Verdict::Refused { .. } => None,
    }
}

/// Records that the first walk succeeded.
pub(crate) fn accept(interpreter: &'static Interpreter) {
    PROVEN.store((interpreter as *const Interpreter).cast_mut(), Ordering::Release);
}

/// Records that the first walk found invalid frames: frames are not read from now on.
pub(crate) fn refuse(interpreter: &'static Interpreter, why: &'static str) {
    let (major, minor, micro) = interpreter.version;
    let version = format!("{major}.{minor}.{micro}");
    publish(FOUND.load(Ordering::Acquire), Verdict::Refused { version, why });
}

impl Interpreter {
    /// Returns the calling thread's state, or `None` if the thread never ran Python or the
    /// interpreter is shutting down.
    ///
    /// It needs no lock: the function reads a thread-local slot, and treats a process in which the
    /// slot is not set up like one in which it is empty. However, an interpreter that shuts down
    /// frees the states of remaining threads without clearing their slots. Before that it reports
    /// that it is no longer initialized, so this is checked first. A thread that checks just before
    /// that moment and walks just after it cannot be protected: the interpreter would respect no
    /// lock.
    #[inline]
    pub(crate) fn thread_state(&self) -> Option<u64> {
        // SAFETY: resolved by its name; takes no arguments, and may be called at any time from any
        // thread.
        if unsafe { (self.is_initialized)() } == 0 {
            return None;
        }
        // SAFETY: the same holds for this function.
        let state = unsafe { (self.thread_state)() } as u64;
        (state != 0).then_some(state)
    }

    /// Returns the main interpreter of the process.
    #[inline]
    pub(crate) fn main(&self) -> u64 {
        // SAFETY: resolved by its name; takes no arguments, and reads one word.
        unsafe { (self.main)() as u64 }
    }
}

fn found() -> Option<&'static Verdict> {
    // SAFETY: null or leaked by `publish`.
    unsafe { FOUND.load(Ordering::Acquire).as_ref() }
}

/// Publishes the verdict. The previous one is leaked, because other threads may use it
/// indefinitely; this happens at most twice in a process.
fn publish(before: *mut Verdict, verdict: Verdict) {
    let fresh = Box::into_raw(Box::new(verdict));
    if FOUND.compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: made above, and not yet shared.
        drop(unsafe { Box::from_raw(fresh) });
    }
}

/// Examines the interpreter. Returns `None` if there is none.
fn look(lookup: Lookup) -> Option<Verdict> {
    let get_version = function(lookup, c"Py_GetVersion")?;
    // SAFETY: resolved by its name; returns a text that lives forever, also before the interpreter
    // is initialized.
    let text = unsafe {
        let get_version: unsafe extern "C" fn() -> *const c_char =
            core::mem::transmute(get_version);
        CStr::from_ptr(get_version())
    };
    let text = text.to_string_lossy();
    let refused = |why| {
        let version = text.split(" (").next().unwrap_or_default().to_owned();
        Some(Verdict::Refused { version, why })
    };
    let Some(version) = release(&text) else {
        return refused("it is not a release");
    };
    let shared = text.contains("free-threading");
    let layout = match version {
        (3, ..13, _) if shared => Err("it says two things about its lock"),
        (3, ..13, _) => of_version(3, version.1).ok_or("only CPython 3.9 and later are known"),
        (3, ..) => published_layout(lookup, version, shared),
        _ => Err("only CPython 3.9 and later are known"),
    };
    let layout = match layout {
        Ok(layout) => layout,
        Err(why) => return refused(why),
    };
    match interpreter(lookup, layout, version) {
        Some(interpreter) => Some(Verdict::Known(Box::new(interpreter))),
        None => refused("it does not export what it should"),
    }
}

/// Returns the layout that the interpreter publishes. `shared`: its version text says that it was
/// built without the interpreter's lock.
fn published_layout(
    lookup: Lookup,
    version: (u8, u8, u8),
    shared: bool,
) -> Result<Layout, &'static str> {
    let runtime = lookup(c"_PyRuntime");
    if runtime.is_null() {
        return Err("it does not publish its offsets");
    }
    // SAFETY: a static object of some hundred thousand bytes, aligned for words; its start does not
    // change after the program is linked.
    let words = unsafe { runtime.cast::<[u64; debug_offsets::WORDS_COUNT]>().read() };
    let layout = debug_offsets::layout((version.0, version.1), &words)?;
    match debug_offsets::is_shared(&words) == shared {
        true => Ok(layout),
        false => Err("it says two things about its lock"),
    }
}

fn interpreter(lookup: Lookup, layout: Layout, version: (u8, u8, u8)) -> Option<Interpreter> {
    let object = |name| function(lookup, name).map(|address| address as u64);
    let frame_type = match layout.frames {
        Frames::Objects { .. } => object(c"PyFrame_Type")?,
        Frames::Internal(_) => 0,
    };
    let is_initialized = function(lookup, c"Py_IsInitialized")?;
    let thread_state = function(lookup, c"PyGILState_GetThisThreadState")?;
    let main = function(lookup, c"PyInterpreterState_Main")?;
    Some(Interpreter {
        layout,
        code_type: object(c"PyCode_Type")?,
        text_type: object(c"PyUnicode_Type")?,
        bytes_type: object(c"PyBytes_Type")?,
        frame_type,
        version,
        // SAFETY: the function of this name has this type in every version of the table.
        is_initialized: unsafe {
            core::mem::transmute::<*const c_void, unsafe extern "C" fn() -> c_int>(is_initialized)
        },
        // SAFETY: the same holds for this function.
        thread_state: unsafe {
            core::mem::transmute::<*const c_void, unsafe extern "C" fn() -> *mut c_void>(
                thread_state,
            )
        },
        // SAFETY: the same holds for this function.
        main: unsafe {
            core::mem::transmute::<*const c_void, unsafe extern "C" fn() -> *mut c_void>(main)
        },
    })
}

fn function(lookup: Lookup, name: &CStr) -> Option<*const c_void> {
    let address = lookup(name);
    (!address.is_null()).then_some(address)
}

/// Parses the numbers at the start of a version text. Returns `None` for alphas and betas, whose
/// layout may still change.
fn release(text: &str) -> Option<(u8, u8, u8)> {
    let mut numbers = text.split(' ').next()?.trim_end_matches('+').splitn(3, '.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    let micro = numbers.next()?.split("rc").next()?.parse().ok()?;
    Some((major, minor, micro))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(
            release("3.10.13 (main, May  9 2026, 10:00:00) [GCC 12.2.0]"),
            Some((3, 10, 13))
        );
        assert_eq!(release("3.13.0rc2+ (main) [GCC]"), Some((3, 13, 0)));
        assert_eq!(release("3.15.0a1 (main) [GCC]"), None);
        assert_eq!(release("3.14.0b4+ (main) [GCC]"), None);
        assert_eq!(release("2.7.18 (default) [GCC]"), Some((2, 7, 18)));
    }

    #[test]
    fn a_process_without_python_is_no_error() {
        assert_eq!(start(|_| core::ptr::null()), Status::NoPython);
        assert_eq!(crate::capture(&mut [0; 8]), crate::Captured::default());
    }
}
