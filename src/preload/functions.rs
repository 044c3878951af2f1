//! The list of driver functions, expanded from `functions.csv` by `build.rs`: properties and
//! indices.

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

/// The place of the stream in a call's arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamAt {
    Nowhere,
    Argument(u8),
    /// In the memory that an argument points to, at an offset in bytes.
    Inside {
        argument: u8,
        offset: u8,
    },
}

/// A function of the library, of any signature.
pub(crate) type Export = unsafe extern "C" fn();

/// An export, as the program sees it.
pub(crate) struct Exported {
    pub address: Export,
    pub door: &'static Door,
}

/// The word through which an export jumps. The first instructions of all exports are the same, and
/// the target of their calls is decided at the first one (`interpose::doors`). The assembly in
/// `interpose::doors` depends on the layout of the fields.
#[repr(C)]
pub(crate) struct Door {
    /// The target of calls. At first the code that decides it.
    pub target: AtomicPtr<c_void>,
    /// The library's function.
    pub body: AtomicPtr<c_void>,
}

/// One row of the list.
pub(crate) struct Function {
    pub id: usize,
    /// Name in the driver's export table.
    pub symbol: &'static CStr,
    /// Name by which `cuGetProcAddress` finds it.
    pub base: &'static str,
    /// The version from which on `cuGetProcAddress` finds this function, or 0 if unknown.
    pub version: i32,
    /// Whether stream `NULL` means the calling thread's default stream.
    pub per_thread: bool,
    pub class: Class,
    /// The stream to which the function adds work that a capture could take.
    pub stream: StreamAt,
    /// Whether the function may fail with out of memory, and may be called again after memory was
    /// freed.
    pub oom_retry: bool,
    /// Whether the function is an asynchronous copy that reads or writes host memory.
    pub host_memory: bool,
    /// Whether the function ends the life of something that work in flight may use.
    pub teardown: bool,
    /// The exported symbol, if the function has a hook.
    pub export: Option<Exported>,
}

impl Function {
    /// Returns the function itself, for the library's calls: they bypass anything that others have
    /// patched in.
    pub(crate) fn body(&self) -> Option<Export> {
        let body = self.export.as_ref()?.door.body.load(Ordering::Relaxed);
        // SAFETY: a door's body is a function, and never null; the caller gives its signature.
        Some(unsafe { core::mem::transmute::<*mut c_void, Export>(body) })
    }

    /// Returns whether a call submits work, or an order between works (docs/ordering.md 6).
    pub(crate) const fn submits(&self) -> bool {
        matches!(self.class, Class::Submit | Class::Order)
    }
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));
