//! The library's heap: the program's `malloc`, except for the writer of snapshots, and except when
//! memory runs out.
//!
//! Note [Heap]. Rust aborts the process if an allocation fails, and stable Rust has no alternative;
//! natively the program would continue, since it checks the result of `malloc`. So an allocation of ours
//! that the system refuses is served from a reserve, and recording stops with a message: the rest needs
//! little. Lists that recording grows are grown by `try_reserve`.
//!
//! The writer allocates without bounds: names of a large library take hundreds of megabytes. If it gets
//! no more, it *gives up*: it reports that and sleeps for ever, holding no lock of the program; what it
//! allocates under such a lock it has reserved before (`Section`).
//!
//! Its memory comes from the kernel and not from `malloc`: threads of the program may have been stopped
//! inside `malloc` (`snapshots::stop`), or wait there in a signal handler, and hold its lock. Any thread
//! may free a block; the writer finds such blocks in a list. Blocks of the program's heap that the
//! writer frees wait until it has nothing else to do.
//!
//! Each block has a head that says which heap it belongs to. Only the writer touches `OWN`.

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

/// The calling thread is the writer from here on.
pub(crate) fn become_writer() {
    IS_WRITER.set(true);
}

/// Runs `body`, which allocates for the program's threads: they will grow and free what it makes, and
/// without memory it fails as they do.
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

/// The memory of this goes back, and reads as zeros from then on.
///
/// # Safety
///
/// Zeros are valid for all of it, also while another thread uses it. Nothing else lies on its pages.
pub(crate) unsafe fn return_pages<T>(of: &T) {
    const { assert!(align_of::<T>() == PAGE_BYTES) };
    // SAFETY: asks for a number.
    if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } != PAGE_BYTES as libc::c_long {
        return; // the kernel would take what lies behind it on a larger page
    }
    let start = core::ptr::from_ref(of).cast_mut().cast();
    // SAFETY: whole pages of our own, that hold nothing but this.
    unsafe { libc::madvise(start, size_of::<T>(), libc::MADV_DONTNEED) };
}

/// Zeroed memory from the system that costs nothing until touched.
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

/// What types are aligned to that lie on pages of their own.
const PAGE_BYTES: usize = 4096;

// SAFETY: each block is valid for its layout until it is freed, by whatever thread: those of the system as
// `System` promises; those of the reserve are never used again; the others are the writer's, see below.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_WRITER.get() {
            return own_alloc(layout);
        }
        let Some(whole) = with_head(layout) else { return null_mut() };
        // SAFETY: never of size 0.
        let base = unsafe { System.alloc(whole) };
        if base.is_null() { reserve_alloc(layout) } else { place(base, layout, OF_SYSTEM, 0) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !IS_WRITER.get()
            && let Some(whole) = with_head(layout)
        {
            // SAFETY: never of size 0.
            let base = unsafe { System.alloc_zeroed(whole) };
            if !base.is_null() {
                return place(base, layout, OF_SYSTEM, 0);
            }
        }
        // SAFETY: as the caller's.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: a new block of this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: a block of ours, with its head.
        let head = unsafe { &*block.sub(HEAD_BYTES).cast::<Head>() };
        match head.kind {
            OF_SYSTEM if IS_WRITER.get() && offset(layout) == HEAD_BYTES => free_later(block),
            OF_SYSTEM => {
                let base = block.wrapping_sub(offset(layout));
                if let Some(whole) = with_head(layout) {
                    // SAFETY: as it was allocated.
                    unsafe { System.dealloc(base, whole) }
                }
            }
            SMALL => free_small(block, head.class as usize),
            LARGE => {
                let bytes = mapped_bytes(layout);
                // SAFETY: a mapping of its own, of this size.
                unsafe { libc::munmap(block.sub(offset(layout)).cast(), bytes) };
            }
            // SAFETY: the section lives as long as a block in it.
            IN_SECTION => unsafe { SectionHead::let_go(head.section) },
            _ => {}
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(bytes, layout.align()) else { return null_mut() };
        // SAFETY: a block of ours, with its head.
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
            // SAFETY: as it was allocated; the head moves with it.
            let moved = unsafe { System.realloc(base, whole, new.size()) };
            if !moved.is_null() {
                return moved.wrapping_add(offset(layout));
            }
        }
        // SAFETY: a new block, of at least what is copied, and the old one as it was allocated.
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
