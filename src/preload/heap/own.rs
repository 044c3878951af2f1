//! The writer's blocks: size classes in chunks that come from the kernel.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::heap::head::*;
use crate::heap::reserve::reserve_take;
use crate::lists::intrusive_stack::{IntrusiveStack, Linked};

pub(super) struct Own {
    free: [*mut Free; CLASSES_COUNT],
    chunk: *mut u8,
    chunk_left: usize,
    pub(super) section: *mut SectionHead,
}

/// A free block. The link lies in the block's memory.
struct Free {
    next: *mut Free,
}

impl Linked for Free {
    unsafe fn next(this: *mut Free) -> *mut *mut Free {
        // SAFETY: valid, by the caller's promise.
        unsafe { &raw mut (*this).next }
    }
}

pub(super) struct OwnCell(pub(super) UnsafeCell<Own>);
// SAFETY: only the writer uses it.
unsafe impl Sync for OwnCell {}
pub(super) static OWN: OwnCell = OwnCell(UnsafeCell::new(Own {
    free: [null_mut(); CLASSES_COUNT],
    chunk: null_mut(),
    chunk_left: 0,
    section: null_mut(),
}));
/// The writer's blocks that other threads have freed.
static GIVEN_BACK: IntrusiveStack<Free> = IntrusiveStack::new();

/// Returns the class of a block with its head, and the block size of that class.
pub(super) fn class_of(bytes: usize) -> (usize, usize) {
    if bytes <= FINE_BYTES_MAX {
        let class = bytes.div_ceil(FINE_STEP);
        return (class - 1, class * FINE_STEP);
    }
    let power = (bytes - 1).ilog2() as usize;
    let step = 1 << (power - 2);
    let quarter = (bytes - (1 << power)).div_ceil(step);
    let class = FINE_COUNT + (power - FINE_BYTES_MAX.ilog2() as usize) * 4 + quarter - 1;
    (class, (1 << power) + quarter * step)
}

pub(super) fn own_alloc(layout: Layout) -> *mut u8 {
    // SAFETY: this is the writer.
    let own = unsafe { &mut *OWN.0.get() };
    let block = if !own.section.is_null() {
        own.in_section(layout)
    } else if layout.align() > HEAD_BYTES || layout.size() > SMALL_BYTES_MAX - HEAD_BYTES {
        map(mapped_bytes(layout)).map(|base| place(base, layout, LARGE, 0))
    } else {
        own.small(layout)
    };
    let give_up = GIVE_UP.load(Ordering::Acquire);
    let is_little = layout.size() <= LITTLE_BYTES_MAX;
    match block.or_else(|| if is_little { reserve_take(layout) } else { None }) {
        Some(block) => block,
        None if give_up.is_null() => null_mut(),
        // SAFETY: `when_short` stored a function of this signature.
        None => unsafe { core::mem::transmute::<*mut (), fn() -> !>(give_up)() },
    }
}

impl Own {
    fn small(&mut self, layout: Layout) -> Option<*mut u8> {
        let (class, bytes) = class_of(layout.size() + HEAD_BYTES);
        if self.free[class].is_null() {
            self.take_given_back();
        }
        let free = self.free[class];
        if !free.is_null() {
            // SAFETY: a free block of this class.
            self.free[class] = unsafe { (*free).next };
            return Some(place(free.cast::<u8>().wrapping_sub(HEAD_BYTES), layout, SMALL, class));
        }
        if self.chunk_left < bytes {
            self.chunk = map(CHUNK_BYTES)?;
            self.chunk_left = CHUNK_BYTES;
        }
        let base = self.chunk;
        self.chunk = base.wrapping_add(bytes);
        self.chunk_left -= bytes;
        Some(place(base, layout, SMALL, class))
    }

    fn take_given_back(&mut self) {
        let mut next = GIVEN_BACK.take_all();
        while !next.is_null() {
            let block = next;
            // SAFETY: a free block with its head.
            unsafe {
                next = (*block).next;
                let class = (*block.cast::<u8>().sub(HEAD_BYTES).cast::<Head>()).class as usize;
                (*block).next = self.free[class];
                self.free[class] = block;
            }
        }
    }

    fn in_section(&mut self, layout: Layout) -> Option<*mut u8> {
        let section = self.section;
        // SAFETY: the section is open.
        let head = unsafe { &mut *section };
        let base = head.next.next_multiple_of(offset(layout));
        let end = base.checked_add(offset(layout))?.checked_add(layout.size())?;
        if end > head.end {
            return None;
        }
        head.next = end;
        head.blocks.fetch_add(1, Ordering::Relaxed);
        let head = Head { kind: IN_SECTION, class: 0, section };
        Some(place_in(base as *mut u8, layout, head))
    }
}

pub(super) fn free_small(block: *mut u8, class: usize) {
    let block = block.cast::<Free>();
    if IS_WRITER.get() {
        // SAFETY: this is the writer; every block of a class has space for a pointer.
        unsafe {
            let own = &mut *OWN.0.get();
            (*block).next = own.free[class];
            own.free[class] = block;
        }
        return;
    }
    // SAFETY: the block is free, and its class has space for a pointer.
    unsafe { GIVEN_BACK.push(block) };
}

/// Blocks of the program's heap that the writer has freed, chained by the head's field for
/// sections.
static LATER: AtomicPtr<Head> = AtomicPtr::new(null_mut());

pub(super) fn free_later(block: *mut u8) {
    let head = block.wrapping_sub(HEAD_BYTES).cast::<Head>();
    // SAFETY: the head of a block that is free; only the writer uses the chain.
    unsafe { (*head).section = LATER.load(Ordering::Relaxed).cast() };
    LATER.store(head, Ordering::Relaxed);
}

/// Frees the blocks of the program's heap that the writer has dropped. Only the writer may call
/// this, when it may wait for `malloc`.
pub(crate) fn shrink() {
    let mut next = LATER.swap(null_mut(), Ordering::Relaxed);
    while !next.is_null() {
        let head = next;
        // SAFETY: see `free_later`; the system's blocks of this alignment come from `malloc`, and
        // begin with the head.
        unsafe {
            next = (*head).section.cast();
            libc::free(head.cast());
        }
    }
}
