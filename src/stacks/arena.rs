//! Memory for data that is never freed, directly from the system.
//!
//! The module table grows under the loader's list lock, and the program's `malloc` may call the
//! loader while it holds a lock. So the heap is not used there.

use core::ptr::null_mut;

const CHUNK_BYTES: usize = 64 << 10;

/// Allocates zeroed bytes and never frees them.
pub(crate) struct Arena {
    next: *mut u8,
    left: usize,
}

impl Arena {
    pub(crate) const fn new() -> Arena {
        Arena { next: null_mut(), left: 0 }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Option<&'static [u8]> {
        if bytes.is_empty() {
            return Some(&[]);
        }
        let place = self.take(bytes.len(), 1)?;
        // SAFETY: `place` is fresh memory of this length.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // SAFETY: just written, and never allocated again.
        Some(unsafe { core::slice::from_raw_parts(place, bytes.len()) })
    }

    pub(crate) fn value<T>(&mut self, value: T) -> Option<&'static T> {
        let place = self.take(size_of::<T>(), align_of::<T>())?.cast::<T>();
        // SAFETY: `place` is fresh memory for one aligned `T`.
        unsafe { place.write(value) };
        // SAFETY: just written, and never allocated again.
        Some(unsafe { &*place })
    }

    fn take(&mut self, bytes: usize, align: usize) -> Option<*mut u8> {
        let mut skip = self.next.align_offset(align);
        if self.left < skip.saturating_add(bytes) {
            let chunk_bytes = bytes.max(CHUNK_BYTES);
            self.next = map(chunk_bytes)?;
            self.left = chunk_bytes;
            skip = 0;
        }
        // SAFETY: `skip + bytes` of the chunk are left.
        let place = unsafe { self.next.add(skip) };
        // SAFETY: as above.
        self.next = unsafe { place.add(bytes) };
        self.left -= skip + bytes;
        Some(place)
    }
}

fn map(bytes: usize) -> Option<*mut u8> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice.
    let mapped = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    (mapped != libc::MAP_FAILED).then_some(mapped.cast())
}
