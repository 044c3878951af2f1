//! The list of driver functions, expanded from `functions.csv` by `build.rs`: properties and
//! indices.

use core::ffi::{CStr, c_void};
use core::sync::atomic::AtomicPtr;

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

/// The word through which an export jumps. The first instructions of all exports are the same, and
/// the target of their calls is decided at the first one (`interpose::doors`). The assembly in
/// `interpose::doors` depends on the layout of the fields. See Note [Relocations].
#[repr(C)]
pub(crate) struct Door {
    /// The target of calls. At first the code that decides it.
    pub target: AtomicPtr<c_void>,
    /// Distance from this field to the library's function.
    body: i32,
    /// Distance from this field to the export, as the program sees it.
    address: i32,
}

impl Door {
    /// Returns the library's function.
    pub(crate) fn body(&self) -> *mut c_void {
        from_here(&self.body)
    }

    /// Returns the export, as the program sees it.
    pub(crate) fn address(&self) -> *mut c_void {
        from_here(&self.address)
    }
}

fn from_here(distance: &i32) -> *mut c_void {
    (&raw const *distance).wrapping_byte_offset(*distance as isize) as *mut c_void
}

/// One row of the list.
// Note [Relocations]: every process of a user's session loads the library, and few start CUDA. The
// loader adds the library's base to each address in its data, one after the other, before the
// process runs. So what exists for every function contains distances and places in one text, not
// addresses.
pub(crate) struct Function {
    pub id: usize,
    /// Where the name begins in `NAMES`.
    name: u16,
    /// Length of the name in the driver's export table.
    symbol_bytes: u8,
    /// Length of its beginning by which `cuGetProcAddress` finds it.
    base_bytes: u8,
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
}

impl Function {
    /// Returns the name in the driver's export table.
    pub(crate) fn symbol(&self) -> &'static CStr {
        let begin = usize::from(self.name);
        let text = &NAMES.as_bytes()[begin..=begin + usize::from(self.symbol_bytes)];
        // SAFETY: each name in the text is followed by a zero, and contains none.
        unsafe { CStr::from_bytes_with_nul_unchecked(text) }
    }

    /// Returns the name by which `cuGetProcAddress` finds the function.
    pub(crate) fn base(&self) -> &'static str {
        let begin = usize::from(self.name);
        &NAMES[begin..begin + usize::from(self.base_bytes)]
    }

    /// Returns the door of the exported symbol, if the function has a hook.
    pub(crate) fn door(&self) -> Option<&'static Door> {
        // SAFETY: the assembly in `tables.rs` defines them, and nothing changes them.
        let distance = unsafe { &cachealloc_door_distances[self.id] };
        // SAFETY: at any distance but 0 lies a door, which is only ever changed as the atomic that
        // it contains.
        (*distance != 0).then(|| unsafe { &*from_here(distance).cast::<Door>() })
    }

    /// Returns the function itself, for the library's calls: they bypass anything that others have
    /// patched in.
    pub(crate) fn body(&self) -> Option<Export> {
        let body = self.door()?.body();
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
