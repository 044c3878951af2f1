//! The list of driver functions, expanded from `functions.csv` by `build.rs`: properties and indices.

use core::ffi::CStr;

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

/// The address of one of our exports, of any signature.
pub(crate) type Export = unsafe extern "C" fn();

/// One row of the list.
pub(crate) struct Function {
    pub id: usize,
    /// Name in the driver's export table.
    pub symbol: &'static CStr,
    /// Name by which `cuGetProcAddress` finds it.
    pub base: &'static str,
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
    pub export: Option<Export>,
}

impl Function {
    /// Whether a call submits work, or an order between works (docs/ordering.md 6).
    pub(crate) const fn submits(&self) -> bool {
        matches!(self.class, Class::Submit | Class::Order)
    }
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));
