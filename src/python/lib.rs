//! Python stacks, read from the interpreter's own frames without its lock.
//!
//! A hook may not wait for the interpreter's lock: the thread that holds it may itself be waiting
//! for a lock of the driver that our caller holds. Nor may it touch a reference count without that
//! lock. What remains, and is enough: a thread's frames cannot change while the thread is inside
//! our call, so they can be read in place.
//!
//! * `host` finds the interpreter and says whether its version is known; `layout` is the table of
//!   where each version keeps what; newer ones publish it themselves (`published`).
//! * `memory` reads addresses, either directly or so that a wrong one is an answer, not a fault.
//!   `proof` makes the first walk of the process in the second way; only then is `walk` trusted.
//! * `walk` follows the frames, `codes` gives each code object a number and copies what `describe`
//!   will need (`text`, `lines`), because code objects die and their addresses come back.
//!
//! Limits: a thread that runs several interpreters shows the frames of one of them (before 3.12 the
//! first, then the one that runs); the others belong to another thread state, and are left out, not
//! misread. Versions that are neither in the table nor publish a layout of known shape are refused.
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

/// How the host process resolves a symbol in its global scope (`dlsym(RTLD_DEFAULT, name)`), null
/// if absent. Injected, because the library that links this crate exports `dlsym` itself.
pub type Lookup = fn(&core::ffi::CStr) -> *const core::ffi::c_void;

/// What is known about an interpreter in this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// None is loaded, so far.
    NoPython,
    /// Its frames can be read.
    On { version: (u8, u8, u8) },
    /// There is one, but its frames are not read, and this is why.
    Unsupported { version: String, why: &'static str },
}

/// How many words a capture wrote, and whether there were more frames than room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Captured {
    pub count: usize,
    pub truncated: bool,
}

/// The text of one frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// The qualified name (`Class.method`) from 3.11 on, before that the bare one.
    pub name: String,
    pub filename: String,
    pub line: u64,
}

/// The calling thread's Python frames, innermost first, one opaque word each (bit 63 set; native
/// addresses never have it). Takes no lock and touches no reference count; allocates only when a
/// code object is seen for the first time.
#[inline]
pub fn capture(out: &mut [u64]) -> Captured {
    match host::proven() {
        Some(interpreter) => walk::capture(interpreter, out),
        None => self_check::capture(out),
    }
}

/// Whether this frame is the outermost one that its C evaluation frame runs: from 3.11 on several
/// Python frames share one `_PyEval_EvalFrameDefault`; before, every frame has its own.
#[inline]
pub fn is_boundary(word: u64) -> bool {
    word::is_boundary(word)
}

/// Tells the address of each mark that stands for a boundary among the calling thread's innermost frames. The
/// interpreter's evaluation loop keeps it in its own C frame, from 3.12 on; earlier ones have none.
pub fn marks(frames_max: usize, note: impl FnMut(u64)) {
    if let Some(interpreter) = host::proven() {
        walk::marks(interpreter, frames_max, note);
    }
}

/// Text of a captured word; none for a boundary that has no frame any more, because its evaluation has left it
/// and runs finalizers, and for a frame beyond what is kept. Any time later, from any thread, even when the code object is gone.
pub fn describe(word: u64) -> Option<Described> {
    let parts = word::unpack(word)?;
    let code = codes::get(parts.code)?;
    Some(Described {
        name: code.name.clone(),
        filename: code.filename.clone(),
        line: lines::line(code, parts.offset_bytes),
    })
}
