//! The list of driver functions, expanded from `functions.csv` by `build.rs`: properties and indices.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// The class of a driver function (column `class`; see `functions.csv`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Own,
    Translate,
    Lifecycle,
    Capture,
    Submit,
    Order,
    Sync,
    Record,
    Pass,
}

/// Where a call names a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamAt {
    Nowhere,
    Argument(u8),
    /// In the memory an argument points to, at an offset in bytes.
    Inside {
        argument: u8,
        offset: u8,
    },
}

/// A function of ours, of any signature.
pub(crate) type Export = unsafe extern "C" fn();

/// One of our exports, as the program sees it.
pub(crate) struct Exported {
    pub address: Export,
    pub door: &'static Door,
}

/// What an export jumps through: its first instructions are the same for all, and where its calls go is decided at the
/// first (`interpose::doors`). The assembly in `interpose::doors` knows where the fields lie.
#[repr(C)]
pub(crate) struct Door {
    /// Where calls go. At first to what decides that.
    pub target: AtomicPtr<c_void>,
    /// Our function.
    pub body: AtomicPtr<c_void>,
}

/// One row of the list.
pub(crate) struct Function {
    pub id: usize,
    /// Name in the driver's export table.
    pub symbol: &'static CStr,
    /// Name by which `cuGetProcAddress` finds it.
    pub base: &'static str,
    /// The version from which on that finds this one; 0: none is known.
    pub version: i32,
    /// Stream `NULL` is the calling thread's own default stream.
    pub per_thread: bool,
    pub class: Class,
    /// The stream to which it adds work that a capture could take.
    pub stream: StreamAt,
    /// May fail with out of memory, and may be called again after freeing.
    pub oom_retry: bool,
    /// An asynchronous copy that reads or writes host memory.
    pub host_memory: bool,
    /// Ends the life of something that work in flight may use.
    pub teardown: bool,
    /// Our symbol for it, if it has a hook.
    pub export: Option<Exported>,
}

impl Function {
    /// Our function itself, for calls of ours: past what others have put in front of it.
    pub(crate) fn body(&self) -> Option<Export> {
        let body = self.export.as_ref()?.door.body.load(Ordering::Relaxed);
        // SAFETY: a door's body is a function, and never null; the caller gives its signature.
        Some(unsafe { core::mem::transmute::<*mut c_void, Export>(body) })
    }

    /// Whether a call submits work, or an order between works (docs/ordering.md 6).
    pub(crate) const fn submits(&self) -> bool {
        matches!(self.class, Class::Submit | Class::Order)
    }
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));
