//! Memory that the writer reserves before it takes a lock of the program. While a section is open,
//! the writer's allocations come from it.

use core::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::heap::head::*;
use crate::heap::own::OWN;

/// An open section: while it lives, the writer's allocations come from reserved memory.
pub(crate) struct Section(*mut SectionHead);

impl Section {
    /// Opens a section. Returns `None` if there is not enough memory. Only the writer needs a
    /// section; other threads get an empty one.
    pub(crate) fn open(bytes: usize) -> Option<Section> {
        if !IS_WRITER.get() {
            return Some(Section(null_mut()));
        }
        let bytes =
            bytes.checked_add(size_of::<SectionHead>())?.checked_next_multiple_of(1 << 16)?;
        let base = map(bytes)?;
        let section = base.cast::<SectionHead>();
        let (next, end) = (base as usize + size_of::<SectionHead>(), base as usize + bytes);
        let blocks = AtomicUsize::new(1);
        // SAFETY: fresh memory of this size; this is the writer.
        unsafe {
            section.write(SectionHead { next, end, bytes, blocks });
            (*OWN.0.get()).section = section;
        }
        Some(Section(section))
    }
}

/// Runs `body`, whose allocations outlive the open section.
pub(crate) fn beside_section<T>(body: impl FnOnce() -> T) -> T {
    if !IS_WRITER.get() {
        return body();
    }
    let own = OWN.0.get();
    // SAFETY: this is the writer.
    let section = unsafe { core::mem::replace(&mut (*own).section, null_mut()) };
    let result = body();
    // SAFETY: this is the writer.
    unsafe { (*own).section = section };
    result
}

impl Drop for Section {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: this is the writer, and the section was opened.
            unsafe {
                (*OWN.0.get()).section = null_mut();
                SectionHead::let_go(self.0);
            }
        }
    }
}

impl SectionHead {
    /// # Safety
    ///
    /// - The caller must be one of those that are counted.
    pub(super) unsafe fn let_go(section: *mut SectionHead) {
        // SAFETY: the caller is counted, so the section exists.
        let (last, bytes) =
            unsafe { ((*section).blocks.fetch_sub(1, Ordering::AcqRel) == 1, (*section).bytes) };
        if last {
            // SAFETY: nothing in it is used any longer.
            unsafe { libc::munmap(section.cast(), bytes) };
        }
    }
}
