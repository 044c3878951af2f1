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

/// The kernel or graph that a call launches, by the places of its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Launches {
    Kernel { handle: u8, params: u8, extra: Option<u8> },
    Graph { handle: u8 },
}

impl Launches {
    /// Returns the handle of the kernel or graph among the arguments.
    pub(crate) fn handle(self, words: &[usize]) -> usize {
        let (Launches::Kernel { handle, .. } | Launches::Graph { handle }) = self;
        words[handle as usize]
    }
}

/// The memory that a node references that a capture makes of a call. Launches of kernels reference
/// what their own arguments point to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeReferences {
    Nothing,
    /// Addresses among the arguments of the call.
    Addresses,
    /// Perhaps anything.
    Unknown,
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
    /// The kernel or graph that the function launches. Its first launch may be measured.
    pub launches: Option<Launches>,
    pub node: NodeReferences,
    /// Whether the function may fail with out of memory, and may be called again after memory was
    /// freed.
    pub oom_retry: bool,
    /// Whether the plain driver does not let the call wait while a free of another thread holds the
    /// context (measured). An allocation of this kind fails at once; the creation of a context does
    /// not wait for events in another one.
    pub goes_on: bool,
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

    /// Returns whether a submission may still run when the call returns.
    pub(crate) const fn is_asynchronous(&self) -> bool {
        !matches!(self.stream, StreamAt::Nowhere)
    }

    /// Returns whether a call submits work, or an order between works (docs/ordering.md 6).
    pub(crate) const fn submits(&self) -> bool {
        matches!(self.class, Class::Submit | Class::Order)
    }
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));
