//! A capture never touches the heap, neither with known frames nor with new ones or new libraries.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_stacks::{capture, note_unload};
use common::{FRAMES_MAX, Library, build, compared};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: forwards to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

static CAPTURES: AtomicU64 = AtomicU64::new(0);

extern "C-unwind" fn quietly() {
    // The first capture determines the bounds of the thread's stack, for which libc allocates.
    capture(&mut [0], 0..0);
    let before = (ALLOCATIONS.load(Ordering::Relaxed), libc_allocations());
    let mut out = [0; FRAMES_MAX];
    let captured = capture(&mut out, 0..0);
    note_unload();
    let after = (ALLOCATIONS.load(Ordering::Relaxed), libc_allocations());
    assert!(captured.count > 3);
    assert_eq!(after, before);
    CAPTURES.fetch_add(1, Ordering::Relaxed);
    common::COMPARED.fetch_add(1, Ordering::Relaxed);
}

/// Bytes in use of libc's heap, which Rust's count does not include.
fn libc_allocations() -> usize {
    // SAFETY: no arguments.
    unsafe { libc::mallinfo2() }.uordblks
}

#[test]
fn no_capture_allocates() {
    // libc's list of fork handlers may grow once.
    note_unload();
    quietly();
    let Some(path) = build("deep.cpp", "heap", &["-O2"]) else { return };
    let library = Library::open(&path);
    for shape in ["plain", "big", "realigned", "virtuals", "sorted", "mixed", "exceptions"] {
        compared(|| library.run(shape, 12, quietly));
    }
    library.close();
    quietly();
    std::thread::spawn(|| quietly()).join().unwrap();
    assert!(CAPTURES.load(Ordering::Relaxed) >= 10);
}
