//! The head of each block, and the mappings it may lie in.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize};

#[repr(C, align(16))]
pub(super) struct Head {
    pub(super) kind: u32,
    pub(super) class: u32,
    /// Section that contains the block, for a block in a section.
    pub(super) section: *mut SectionHead,
}

pub(super) const HEAD_BYTES: usize = size_of::<Head>();
pub(super) const OF_SYSTEM: u32 = 1;
pub(super) const OF_RESERVE: u32 = 2;
pub(super) const SMALL: u32 = 3;
pub(super) const LARGE: u32 = 4;
pub(super) const IN_SECTION: u32 = 5;

/// Largest small block, including its head. Larger blocks are mappings.
pub(super) const SMALL_BYTES_MAX: usize = 64 << 10;
pub(super) const FINE_BYTES_MAX: usize = 1 << 10;
pub(super) const FINE_STEP: usize = 16;
pub(super) const FINE_COUNT: usize = FINE_BYTES_MAX / FINE_STEP;
/// Number of classes: the fine ones, and four for each power of two above them.
pub(super) const CLASSES_COUNT: usize = FINE_COUNT + 4 * 6;
pub(super) const CHUNK_BYTES: usize = 1 << 20;
pub(super) const RESERVE_BYTES: usize = 4 << 20;
/// Largest allocation that the writer may take from the reserve: it may hold a lock.
pub(super) const LITTLE_BYTES_MAX: usize = 4096;

thread_local! {
    pub(super) static IS_WRITER: Cell<bool> = const { Cell::new(false) };
}

/// Function that the writer calls when it gets no memory. It does not return.
pub(super) static GIVE_UP: AtomicPtr<()> = AtomicPtr::new(null_mut());
/// Function to call when a thread of the program got no memory for the library. It takes no lock
/// and allocates nothing.
pub(super) static NOTE_SHORT: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Returns the offset of the block from the start of its allocation.
pub(super) fn offset(layout: Layout) -> usize {
    layout.align().max(HEAD_BYTES)
}

pub(super) fn with_head(layout: Layout) -> Option<Layout> {
    let bytes = layout.size().checked_add(offset(layout))?;
    Layout::from_size_align(bytes, offset(layout)).ok()
}

pub(super) fn place(base: *mut u8, layout: Layout, kind: u32, class: usize) -> *mut u8 {
    place_in(base, layout, Head { kind, class: class as u32, section: null_mut() })
}

pub(super) fn place_in(base: *mut u8, layout: Layout, head: Head) -> *mut u8 {
    // SAFETY: the head fits before the block.
    unsafe {
        let block = base.add(offset(layout));
        block.sub(HEAD_BYTES).cast::<Head>().write(head);
        block
    }
}

pub(super) fn mapped_bytes(layout: Layout) -> usize {
    offset(layout)
        .saturating_add(layout.size())
        .checked_next_multiple_of(4096)
        .unwrap_or(usize::MAX)
}

/// Resizes a mapping, which may move.
pub(super) fn resized(block: *mut u8, layout: Layout, wanted: Layout) -> Option<*mut u8> {
    let (before, after) = (mapped_bytes(layout), mapped_bytes(wanted));
    let base = block.wrapping_sub(offset(layout)).cast();
    // SAFETY: a separate mapping, of this size; it may move.
    let moved = unsafe { libc::mremap(base, before, after, libc::MREMAP_MAYMOVE) };
    (moved != libc::MAP_FAILED).then(|| moved.cast::<u8>().wrapping_add(offset(layout)))
}

pub(super) fn map(bytes: usize) -> Option<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: an anonymous mapping at an address of the kernel's choice.
    let mapped = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
    (mapped != libc::MAP_FAILED).then_some(mapped.cast())
}

#[repr(C, align(16))]
pub(super) struct SectionHead {
    pub(super) next: usize,
    pub(super) end: usize,
    pub(super) bytes: usize,
    /// Live blocks, plus 1 while the section is open.
    pub(super) blocks: AtomicUsize,
}
