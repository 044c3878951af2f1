//! What a piece of work costs: the bytes that were allocated at once, and its time on a processor. Both of this
//! thread alone, so tests may run beside each other.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn add(bytes: usize) {
    // Threads that end have none any longer, and do no work of ours.
    let _ = NOW.try_with(|now| {
        now.set(now.get().wrapping_add(bytes));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

fn remove(bytes: usize) {
    // What another thread allocated may be freed here: never below nothing.
    let _ = NOW.try_with(|now| now.set(now.get().saturating_sub(bytes)));
}

// SAFETY: the system's allocator does the work, and is asked exactly what we are asked.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        remove(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Both may be there for a moment.
        add(bytes);
        remove(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub peak_bytes: usize,
    pub time: Duration,
}

pub fn cost<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let before = NOW.get();
    PEAK.set(before);
    let begun = processor_time();
    let result = work();
    let time = processor_time().saturating_sub(begun);
    (result, Cost { peak_bytes: PEAK.get().saturating_sub(before), time })
}

fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a whole `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
