//! Python stacks, read from the interpreter's own frames without its lock.
//!
//! A hook must not wait for the interpreter's lock: the thread that holds it may itself be waiting
//! for a driver lock that the hook's caller holds. Without that lock, a hook must not touch a
//! reference count either. One fact remains, and suffices: a thread's frames cannot change while
//! the thread is inside the hook, so they can be read in place.
//!
//! * `host` finds the interpreter and determines whether its version is known. `layout` is the
//!   table of offsets for
//!   each version; newer versions publish them (`debug_offsets`).
//! * `memory` reads addresses, either directly or so that a wrong address is an error instead of a
//!   fault. `self_check`
//!   makes the first walk of the process in the second way; only then is `walk` trusted.
//! * `walk` follows the frames. `codes` gives each code object a number and copies the data that
//!   `describe` needs
//!   later (`text`, `lines`), because code objects die and their addresses are reused.
//!
//! Limits: for a thread that runs several interpreters, only the frames of one are shown (before
//! 3.12 the first, since then the running one). The others belong to another thread state and are
//! omitted, not misread. Versions that are neither in the table nor publish a layout of known shape
//! are rejected.
#![warn(unreachable_pub)]

mod codes;
mod debug_offsets;
mod fork_lock;
mod host;
mod identity;
mod layout;
mod lines;
mod memory;
mod self_check;
mod text;
mod walk;
mod word;

pub use host::{start, status};

/// Resolves a symbol in the global scope of the host process (`dlsym(RTLD_DEFAULT, name)`). Returns
/// null if it is absent. It is injected, because the library that links this crate exports `dlsym`
/// itself.
pub type Lookup = fn(&core::ffi::CStr) -> *const core::ffi::c_void;

/// State of the interpreter in this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// No interpreter has been loaded so far.
    NoPython,
    /// Its frames can be read.
    On { version: (u8, u8, u8) },
    /// An interpreter is loaded, but its frames are not read, for this reason.
    Unsupported { version: String, why: &'static str },
}

/// Number of words that a capture wrote, and whether there were more frames than fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Captured {
    pub count: usize,
    pub truncated: bool,
}

/// The text of one frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// Qualified name (`Class.method`) from 3.11 on, before that the bare name.
    pub name: String,
    pub filename: String,
    pub line: u64,
}

/// Captures the calling thread's Python frames, innermost first, as one opaque word each. Bit 63 is
/// set, which is never the case in native addresses. Takes no lock and touches no reference count;
/// allocates only when a code object is seen for the first time.
#[inline]
pub fn capture(out: &mut [u64]) -> Captured {
    match host::proven() {
        Some(interpreter) => walk::capture(interpreter, out),
        None => self_check::capture(out),
    }
}

/// Returns whether this frame is the outermost one that its C evaluation frame runs. From 3.11 on
/// several Python frames share one `_PyEval_EvalFrameDefault`; before, every frame has its own.
#[inline]
pub fn is_boundary(word: u64) -> bool {
    word::is_boundary(word)
}

/// Reports the address of each mark that stands for a boundary among the calling thread's innermost
/// frames. From 3.12 on the interpreter's evaluation loop keeps it in its own C frame; earlier
/// versions have none.
pub fn marks(frames_max: usize, note: impl FnMut(u64)) {
    if let Some(interpreter) = host::proven() {
        walk::marks(interpreter, frames_max, note);
    }
}

/// Returns the text of a captured word. It may be called at any later time, from any thread, even
/// after the code object was freed. Returns `None` for a code object that is not kept, and for a
/// boundary without a frame, whose evaluation has left the frame and runs finalizers.
pub fn describe(word: u64) -> Option<Described> {
    let parts = word::unpack(word)?;
    let code = codes::get(parts.code)?;
    Some(Described {
        name: code.name.clone(),
        filename: code.filename.clone(),
        line: lines::line(code, parts.offset_bytes),
    })
}
