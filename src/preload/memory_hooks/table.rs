//! The table of a memory hook, laid out as in C (`cachealloc_hook` in `include/cachealloc.h`).

use core::ffi::{CStr, c_char};
use core::mem::offset_of;

/// The events that hooks observe, in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    AllocPre,
    AllocPost,
    MallocPre,
    MallocPost,
    FreePre,
    FreePost,
    OtherAllocated,
    OtherFreed,
}

const EVENTS: usize = 8;
/// Number of events in the shortest table, that of the first headers.
const EVENTS_MIN: usize = 6;

/// Stands for several signatures, which differ in the number of words.
pub(super) type Callback = unsafe extern "C" fn();

/// The table of this version. A later version is longer, with more callbacks at its end; `size`
/// is the length.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Table {
    size: usize,
    name: *const c_char,
    data: *mut core::ffi::c_void,
    callbacks: [Option<Callback>; EVENTS],
}

// SAFETY: the pointers belong to the program, and are handed back only to it.
unsafe impl Send for Table {}
// SAFETY: as for `Send`.
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
            Event::OtherAllocated => "other_allocated",
            Event::OtherFreed => "other_freed",
        }
    }
}

impl Table {
    /// Copies the program's table, which may belong to an older or newer header. Returns `None` if
    /// it is shorter than any version.
    ///
    /// # Safety
    ///
    /// `table` must be null, or point to a table with the length given in its `size`.
    pub(crate) unsafe fn read(table: *const Table) -> Option<Table> {
        if table.is_null() {
            return None;
        }
        // SAFETY: by the caller's promise, it has at least a `size`.
        let bytes = unsafe { (&raw const (*table).size).read() };
        // A callback of which only a part lies in the table does not count.
        let head_bytes = offset_of!(Table, callbacks);
        let count = bytes.checked_sub(head_bytes)? / size_of::<Option<Callback>>();
        if count < EVENTS_MIN {
            return None;
        }
        // SAFETY: see above; the table has this many callbacks.
        unsafe {
            let name = (&raw const (*table).name).read();
            let data = (&raw const (*table).data).read();
            let mut callbacks = [None; EVENTS];
            let first = (&raw const (*table).callbacks).cast::<Option<Callback>>();
            let places = callbacks.iter_mut().enumerate().take(count);
            places.for_each(|(at, place)| *place = first.add(at).read());
            Some(Table { size: bytes, name, data, callbacks })
        }
    }

    /// Returns the name for messages.
    ///
    /// # Safety
    ///
    /// The table must be as its owner has just passed it.
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
