//! The table of a memory hook, laid out as in C (`cachealloc_hook` in `include/cachealloc.h`).

use core::ffi::{CStr, c_char};

/// The events that hooks observe, in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    AllocPre,
    AllocPost,
    MallocPre,
    MallocPost,
    FreePre,
    FreePost,
}

const EVENTS: usize = 6;

/// One of six signatures, which differ in the number of words.
pub(super) type Callback = unsafe extern "C" fn();

/// A later version may be longer: `size` is the length of this one.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Table {
    size: usize,
    name: *const c_char,
    data: *mut core::ffi::c_void,
    callbacks: [Option<Callback>; EVENTS],
}

// SAFETY: what it points to is the program's, and handed back to it only.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Event {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Event::AllocPre => "alloc_preprocess",
            Event::AllocPost => "alloc_postprocess",
            Event::MallocPre => "malloc_preprocess",
            Event::MallocPost => "malloc_postprocess",
            Event::FreePre => "free_preprocess",
            Event::FreePost => "free_postprocess",
        }
    }
}

impl Table {
    /// A copy of the program's table. None: it is shorter than any version.
    ///
    /// # Safety
    ///
    /// `table` is null, or points to a table as long as its `size` says.
    pub(crate) unsafe fn read(table: *const Table) -> Option<Table> {
        // SAFETY: the caller's promise: there is a `size` at least, and then the rest of it.
        unsafe {
            let long_enough =
                !table.is_null() && (&raw const (*table).size).read() >= size_of::<Table>();
            long_enough.then(|| table.read())
        }
    }

    /// For messages.
    ///
    /// # Safety
    ///
    /// The table is as its owner gave it, just now.
    pub(crate) unsafe fn name(&self) -> String {
        if self.name.is_null() {
            return "unnamed".to_string();
        }
        // SAFETY: the owner promises a C string.
        unsafe { CStr::from_ptr(self.name) }.to_string_lossy().into_owned()
    }

    pub(crate) fn callback(&self, event: Event) -> Option<(Callback, usize)> {
        self.callbacks[event as usize].map(|callback| (callback, self.data as usize))
    }
}
