//! Where an interrupted thread is in the code, and whether it may hold a lock there that the writer
//! needs.

use core::ffi::{c_int, c_void};
use core::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::seccomp;
use crate::snapshots::stop::threads::own_number;

/// Code ranges in which a thread may hold the loader's lock or one of the library's.
static HOLDING: OnceLock<[Range<u64>; 4]> = OnceLock::new();

/// Finds the code ranges, outside any handler.
pub(crate) fn prepare() {
    HOLDING.get_or_init(|| {
        // SAFETY: asks for the address at which the kernel put the loader; 0 without one.
        let loader = unsafe { libc::getauxval(libc::AT_BASE) };
        let places = [
            prepare as *const () as u64,
            libc::getpid as *const () as u64,
            _Unwind_Backtrace as *const () as u64,
            loader,
        ];
        places.map(cachealloc_stacks::object_range)
    });
}

unsafe extern "C" {
    /// The function of libgcc, whose unwinder walks the loader's list.
    fn _Unwind_Backtrace(each: *const c_void, data: *mut c_void) -> c_int;
}

/// The thread that is inside `abort`, or 0. The C library lets only one in at a time.
static ABORTING: AtomicI32 = AtomicI32::new(0);

/// Notes that the calling thread is inside `abort`. It never runs on, even if it may hold
/// something: when the handler returns, `abort` ends the process, with the snapshot incomplete.
pub(crate) fn aborts() {
    ABORTING.store(own_number(), Ordering::Relaxed);
}

/// Returns whether the interrupted thread may hold a lock that the writer needs, and can run on to
/// release it. `ours`: only the library's locks count.
pub(super) fn may_hold(context: *const c_void, ours: bool) -> bool {
    if ABORTING.load(Ordering::Relaxed) == own_number() {
        return false;
    }
    if seccomp::is_new() {
        return false; // the system call may be forbidden, and no other thread was stopped
    }
    let Some(ranges) = HOLDING.get() else { return true };
    let (place, stack) = interrupted_at(context);
    ranges[0].contains(&place)
        || has_caller_in(&ranges[0], stack)
        // The C library makes no system call while it holds the loader's lock.
        || (!ours && ranges.iter().any(|range| range.contains(&place)) && !is_system_call(place))
}

/// Returns whether the stack contains a return address in this range, judging by its words. A hook
/// may be anywhere, also in a function of the C library or in the driver. In doubt it returns
/// `true`.
fn has_caller_in(range: &Range<u64>, stack: u64) -> bool {
    const CHUNKS_MAX: u64 = 16;
    let mut words = [0u64; 64];
    let bytes = size_of_val(&words);
    for chunk in 0..CHUNKS_MAX {
        let from = stack.wrapping_add(chunk * bytes as u64);
        let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
        let remote = libc::iovec { iov_base: from as *mut c_void, iov_len: bytes };
        // SAFETY: the kernel reads for us, and reports how much is readable.
        let read = unsafe {
            let number = libc::getpid();
            libc::syscall(libc::SYS_process_vm_readv, number, &local, 1, &remote, 1, 0)
        };
        let Ok(read) = usize::try_from(read) else { return chunk == 0 };
        if words[..read / size_of::<u64>()].iter().any(|word| range.contains(word)) {
            return true;
        }
        if read < bytes {
            return false;
        }
    }
    false
}

/// Returns whether the code at this address makes a system call, or has just made one.
#[cfg(target_arch = "x86_64")]
fn is_system_call(place: u64) -> bool {
    let code = (place - 2) as *const [u8; 2];
    // SAFETY: in the code of a loaded object, which can be read, and not at its start.
    unsafe { code.read() == [0x0f, 0x05] || code.wrapping_add(1).read() == [0x0f, 0x05] }
}

/// Returns whether the code at this address makes a system call, or has just made one.
#[cfg(target_arch = "aarch64")]
fn is_system_call(place: u64) -> bool {
    const SVC_0: u32 = 0xd400_0001;
    let code = (place - 4) as *const u32;
    // SAFETY: in the code of a loaded object, which can be read, and not at its start.
    unsafe { code.read() == SVC_0 || code.wrapping_add(1).read() == SVC_0 }
}

/// Returns the next instruction, and the top of the stack.
#[cfg(target_arch = "x86_64")]
fn interrupted_at(context: *const c_void) -> (u64, u64) {
    // SAFETY: the kernel passed it to the handler.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let register = |name: c_int| context.uc_mcontext.gregs[name as usize] as u64;
    (register(libc::REG_RIP), register(libc::REG_RSP))
}

/// Returns the next instruction, and the top of the stack.
#[cfg(target_arch = "aarch64")]
fn interrupted_at(context: *const c_void) -> (u64, u64) {
    // SAFETY: the kernel passed it to the handler.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    (context.uc_mcontext.pc, context.uc_mcontext.sp)
}
