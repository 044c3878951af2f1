//! The top of the calling thread's own stack.
//!
//! Every capture needs it, so the result is kept in the thread: a plain thread-local without
//! destructor, because hooks also run while a thread ends.

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ops::Range;

/// Assumed size of the main thread's stack, measured from its top: the kernel places no mapping
/// closer than this.
const MAIN_STACK_BYTES: u64 = 128 << 20;
const PAGE_BYTES: u64 = 4096;

thread_local! {
    /// The thread's own stack; empty if not yet determined.
    static OWN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Returns the top of the thread's own stack if it contains this address. The top of an alternate
/// signal stack or of a coroutine's stack, which may be anywhere, is not returned. `address` must
/// be the stack pointer of a running function: it is assumed to be mapped.
#[inline(always)]
pub(crate) fn top_above(address: u64) -> Option<u64> {
    let (low, high) = OWN.get();
    if (low..high).contains(&address) { Some(high) } else { look_up(address) }
}

#[cold]
fn look_up(address: u64) -> Option<u64> {
    if OWN.get() != (0, 0) {
        return None;
    }
    let own = main_stack(address).or_else(thread_stack)?;
    OWN.set((own.start, own.end));
    own.contains(&address).then_some(own.end)
}

/// Returns the stack of the main thread. libc would read `/proc/self/maps` for it, but the dynamic
/// loader has recorded where that stack begins.
#[cfg(target_env = "gnu")]
fn main_stack(address: u64) -> Option<Range<u64>> {
    unsafe extern "C" {
        static __libc_stack_end: *const u8;
    }
    // SAFETY: written before any library's code runs, never afterwards.
    let begin = unsafe { __libc_stack_end } as u64;
    let top = begin.next_multiple_of(PAGE_BYTES);
    let range = top.saturating_sub(MAIN_STACK_BYTES)..top;
    (begin != 0 && range.contains(&address)).then_some(range)
}

#[cfg(not(target_env = "gnu"))]
fn main_stack(_: u64) -> Option<Range<u64>> {
    None
}

/// Returns the stack of a thread that libc started.
fn thread_stack() -> Option<Range<u64>> {
    // SAFETY: no arguments.
    let is_main = unsafe { libc::syscall(libc::SYS_gettid) == libc::getpid().into() };
    if is_main {
        // On a coroutine's stack, or in the child of a fork by another thread: not worth reading a
        // file.
        return None;
    }
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: fills the attributes of a live thread, this one.
    let failed =
        unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0;
    if failed {
        return None;
    }
    let mut base = core::ptr::null_mut();
    let mut bytes = 0;
    // SAFETY: filled above; released once, after its last use.
    unsafe {
        libc::pthread_attr_getstack(attributes.as_ptr(), &mut base, &mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    let base = base as u64;
    Some(base..(base + bytes as u64) & !7)
}
