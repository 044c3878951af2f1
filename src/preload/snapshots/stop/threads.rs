//! The threads of the process, as the kernel lists them, and the signal that stops them.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicI32, Ordering};

use crate::process::library_thread::set_mask;
use crate::process::watchdog;
use crate::snapshots::stop::PULSE;
use crate::{apart, seccomp};

/// The signal that glibc uses for `setuid` in all threads: outside the sets that a program can
/// block.
const SIGNAL: c_int = 33;
const SA_RESTORER: usize = 0x0400_0000;

/// The kernel's layout, on both architectures.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// Installs the handler of `SIGNAL`. The C library refuses to change this signal's action, and only
/// it knows how to return from a handler: that part is copied from the action of the signal that
/// came.
pub(super) fn take_signal(came: c_int, handler: Handler) {
    let mut action = KernelAction::default();
    let size = size_of::<u64>();
    let none = null_mut::<KernelAction>();
    // SAFETY: actions as the kernel knows them; the handler lives as long as the library, which is
    // never unloaded.
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, came, none, &raw mut action, size);
        let flags = (libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK) as usize;
        action.flags = flags | action.flags & SA_RESTORER;
        action.handler = handler as *const () as usize;
        action.mask = u64::MAX;
        libc::syscall(libc::SYS_rt_sigaction, SIGNAL, &raw const action, none, size);
    }
}

pub(super) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Consumes the signals that came meanwhile. The kernel keeps each of them, and they would stop
/// this thread at once.
pub(super) fn forget_signals() {
    let set = 1u64 << (SIGNAL - 1);
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let none = null_mut::<c_void>();
    // SAFETY: valid pointers; sets are 8 bytes for the kernel.
    let one = || unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, &set, none, &at_once, 8usize) };
    while one() == i64::from(SIGNAL) {}
}

/// A buffer for part of the thread list, used only by the leader.
struct ListBuffer(UnsafeCell<[u64; 1024]>);
// SAFETY: only the one leader uses it.
unsafe impl Sync for ListBuffer {}
static LIST_BUFFER: ListBuffer = ListBuffer(UnsafeCell::new([0; 1024]));

/// All threads but the leader, the writer and its delegate.
pub(super) struct Others {
    pub count: u32,
    /// The thread at the requested place in the kernel's list.
    pub chosen: Option<i32>,
}

/// Sends the signal to each of these threads once; a thread in the handler has it blocked. Returns
/// `None` if the kernel does not list the threads.
pub(super) fn stop_others(own: i32, place: u32) -> Option<Others> {
    let (writer, delegate) = (watchdog::writer_number(), apart::delegate_number());
    const FOLDER: &CStr = c"/proc/self/task";
    if seccomp::is_new() {
        return None;
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let folder = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, FOLDER.as_ptr(), flags) };
    if folder < 0 {
        return None;
    }
    let room = LIST_BUFFER.0.get().cast::<u8>();
    let mut others = Others { count: 0, chosen: None };
    loop {
        // SAFETY: the buffer is the leader's, and of this size.
        let read =
            unsafe { libc::syscall(libc::SYS_getdents64, folder, room, size_of::<[u64; 1024]>()) };
        let mut at = 0;
        while at < read {
            // SAFETY: the kernel wrote whole entries, each with its length and a C string in it.
            let (length, name) = unsafe {
                let entry = room.add(at as usize).cast::<libc::dirent64>();
                ((*entry).d_reclen, CStr::from_ptr((&raw const (*entry).d_name).cast()))
            };
            at += i64::from(length);
            let Some(number) = number_of(name) else { continue };
            if ![own, writer, delegate].contains(&number) {
                // SAFETY: a signal to a thread of this process, or to none.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, SIGNAL) };
                if others.count == place {
                    others.chosen = Some(number);
                }
                others.count += 1;
            }
        }
        if read <= 0 {
            break;
        }
    }
    // SAFETY: the library opened the descriptor.
    unsafe { libc::syscall(libc::SYS_close, folder) };
    Some(others)
}

fn number_of(name: &CStr) -> Option<i32> {
    core::str::from_utf8(name.to_bytes()).ok()?.parse().ok()
}

pub(super) fn own_number() -> i32 {
    // SAFETY: asks the kernel for a number.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Interrupts the calling thread a moment from now, wherever it is then. Returns `false` if that is
/// not possible.
pub(super) fn interrupt_soon(own: i32) -> bool {
    static TIMER: AtomicI32 = AtomicI32::new(-1);
    // SAFETY: all-zero is valid for both; the timer is the kernel's, and goes with the process.
    unsafe {
        let mut timer = TIMER.load(Ordering::Relaxed);
        if timer == -1 {
            let mut event: libc::sigevent = core::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = own;
            let clock = libc::CLOCK_MONOTONIC;
            if libc::syscall(libc::SYS_timer_create, clock, &raw mut event, &raw mut timer) != 0 {
                return false;
            }
            TIMER.store(timer, Ordering::Relaxed);
        }
        let mut when: libc::itimerspec = core::mem::zeroed();
        when.it_value.tv_nsec = PULSE.as_nanos() as _;
        libc::syscall(libc::SYS_timer_settime, timer, 0, &raw const when, null::<c_void>()) == 0
    }
}

pub(super) fn block_all() -> u64 {
    set_mask(u64::MAX)
}
