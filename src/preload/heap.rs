//! The library's heap: the program's `malloc`, except for the snapshot writer, and except when
//! memory runs out.
//!
//! Note [Heap]. Rust aborts the process if an allocation fails, and stable Rust has no alternative.
//! Without the library the program would continue, because it checks the result of `malloc`. So an
//! allocation of the library that the system refuses is served from a reserve, and recording stops
//! with a message; the remaining code needs little memory. Lists that grow with recording use
//! `try_reserve`.
//!
//! The writer allocates without bounds: the names of a large library take hundreds of megabytes. If
//! it gets no more, it *gives up*: it reports that and sleeps until the process ends, without
//! holding a lock of the program. Memory that it allocates under such a lock was reserved earlier
//! (`Section`).
//!
//! Its memory comes from the kernel and not from `malloc`. Threads of the program may have been
//! stopped inside `malloc` (`snapshots::stop`), or wait there in a signal handler, and hold its
//! lock. Any thread may free a block of the writer; the writer finds such blocks in a list. Blocks
//! of the program's heap that the writer frees wait until it has nothing else to do.
//!
//! Each block has a head that identifies its heap. Only the writer touches `OWN`.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use std::alloc::System;
use std::sync::atomic::Ordering;

mod head;
mod own;
mod reserve;
mod section;

use head::*;
pub(crate) use own::shrink;
use own::{class_of, free_later, free_small, own_alloc};
pub(crate) use reserve::is_short;
use reserve::reserve_alloc;
pub(crate) use section::{Section, beside_section};

pub(crate) struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// Makes the calling thread the writer.
pub(crate) fn become_writer() {
    IS_WRITER.set(true);
}

/// Runs `body`, which allocates for the program's threads. They will grow and free what it makes,
/// and without memory it fails as they do.
pub(crate) fn as_others<T>(body: impl FnOnce() -> T) -> T {
    let was_writer = IS_WRITER.replace(false);
    let result = body();
    IS_WRITER.set(was_writer);
    result
}

pub(crate) fn when_short(give_up: fn() -> !, note_short: fn()) {
    GIVE_UP.store(give_up as *mut (), Ordering::Release);
    NOTE_SHORT.store(note_short as *mut (), Ordering::Release);
}

/// Releases the memory of a value to the system. It reads as zeros afterwards.
///
/// # Safety
///
/// Zeros must be valid for the whole value, also while another thread uses it. Nothing else may lie
/// on its pages.
pub(crate) unsafe fn return_pages<T>(of: &T) {
    const { assert!(align_of::<T>() == PAGE_BYTES) };
    // SAFETY: only asks for a number.
    if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } != PAGE_BYTES as libc::c_long {
        return; // the kernel would also take what follows on a larger page
    }
    let start = core::ptr::from_ref(of).cast_mut().cast();
    // SAFETY: whole pages of the library, which hold only this value.
    unsafe { libc::madvise(start, size_of::<T>(), libc::MADV_DONTNEED) };
}

/// Maps zeroed memory, which costs nothing until touched.
pub(crate) fn map_zeroed(bytes: usize) -> Option<*mut u8> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice.
    let mapped = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (mapped != libc::MAP_FAILED).then_some(mapped.cast())
}

/// Alignment of types that lie on separate pages.
const PAGE_BYTES: usize = 4096;

// SAFETY: each block is valid for its layout until a thread frees it. Blocks of the system are as
// `System` promises, blocks of the reserve are not reused, and the others are the writer's, see
// below.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_WRITER.get() {
            return own_alloc(layout);
        }
        let Some(whole) = with_head(layout) else { return null_mut() };
        // SAFETY: the size is not 0.
        let base = unsafe { System.alloc(whole) };
        if base.is_null() { reserve_alloc(layout) } else { place(base, layout, OF_SYSTEM, 0) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !IS_WRITER.get()
            && let Some(whole) = with_head(layout)
        {
            // SAFETY: the size is not 0.
            let base = unsafe { System.alloc_zeroed(whole) };
            if !base.is_null() {
                return place(base, layout, OF_SYSTEM, 0);
            }
        }
        // SAFETY: by the caller's promise.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: a new block of this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: a block of this heap, with its head.
        let head = unsafe { &*block.sub(HEAD_BYTES).cast::<Head>() };
        match head.kind {
            OF_SYSTEM if IS_WRITER.get() && offset(layout) == HEAD_BYTES => free_later(block),
            OF_SYSTEM => {
                let base = block.wrapping_sub(offset(layout));
                if let Some(whole) = with_head(layout) {
                    // SAFETY: the layout with which it was allocated.
                    unsafe { System.dealloc(base, whole) }
                }
            }
            SMALL => free_small(block, head.class as usize),
            LARGE => {
                let bytes = mapped_bytes(layout);
                // SAFETY: a separate mapping, of this size.
                unsafe { libc::munmap(block.sub(offset(layout)).cast(), bytes) };
            }
            // SAFETY: the section lives as long as a block in it.
            IN_SECTION => unsafe { SectionHead::let_go(head.section) },
            _ => {}
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(bytes, layout.align()) else { return null_mut() };
        // SAFETY: a block of this heap, with its head.
        let Head { kind, class, .. } = unsafe { block.sub(HEAD_BYTES).cast::<Head>().read() };
        if kind == SMALL
            && bytes <= SMALL_BYTES_MAX - HEAD_BYTES
            && class_of(bytes + HEAD_BYTES).0 == class as usize
        {
            return block;
        }
        if kind == LARGE
            && bytes > SMALL_BYTES_MAX
            && let Some(moved) = resized(block, layout, wanted)
        {
            return moved;
        }
        if kind == OF_SYSTEM
            && !IS_WRITER.get()
            && let (Some(whole), Some(new)) = (with_head(layout), with_head(wanted))
        {
            let base = block.wrapping_sub(offset(layout));
            // SAFETY: the layout with which it was allocated; the head moves with it.
            let moved = unsafe { System.realloc(base, whole, new.size()) };
            if !moved.is_null() {
                return moved.wrapping_add(offset(layout));
            }
        }
        // SAFETY: a new block of at least the copied size, and the old one with its layout.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
            new
        }
    }
}
