//! A deadly signal came and a snapshot is still to be written: until the process ends by the signal,
//! nothing of the program runs any more.
//!
//! Note [Stopping]. Natively the process is gone at once: no thread of it prints, answers a request or
//! removes a file any more. So the thread that got the signal stays in its handler, and sends every
//! other thread but the writer the signal that glibc keeps for `setuid`, which no program that uses
//! glibc can block; they stay in the handler of that. The other way was a copy of the process (`fork`)
//! that writes while the original dies at once. But whoever waits for the process would not find
//! the file, the end of a container takes the copy with it, and copying the page tables of a
//! process with 100 GB takes a second in which the original stands still anyway.
//!
//! A thread may be stopped with something that the writer needs. Not the heap's lock: the writer has a
//! heap of its own (`heap.rs`). What is left are our locks and the one of the loader's list. So a thread that
//! stood inside a hook of ours, in the C library or in the loader *may hold* something, and where the writer
//! lacks something these threads go on, one after the other for some 100 us, until it gets on; one of them is
//! about to let go of a lock. No other thread ever goes on.
//!
//! All of this runs in signal handlers: system calls, atomics, no lock, nothing allocated.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use crate::filter;
use crate::process::own_thread::{self, set_mask};
use crate::process::{patience, silence};

/// glibc's own, for `setuid` in all threads: outside the sets that a program can block.
const SIGNAL: c_int = 33;
const SA_RESTORER: usize = 0x0400_0000;
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// So long do threads go on that may hold something.
const PULSE: Duration = Duration::from_micros(100);

/// The thread that sees to the end; 0: there is none yet.
static CONDUCTOR: AtomicI32 = AtomicI32::new(0);
/// It lets threads stop and go on, and is not to be interrupted.
static CONDUCTS: AtomicBool = AtomicBool::new(false);
static STOPPED_COUNT: AtomicU32 = AtomicU32::new(0);
/// What stopped threads sleep on: changes when one of them shall go on, if it may hold something. One at
/// a time: of several that want the same lock, one has it whenever they are stopped.
static PULSES: AtomicU32 = AtomicU32::new(0);
static CHOSEN: AtomicI32 = AtomicI32::new(0);
/// Only those go on that may hold a lock of ours.
static OF_OURS: AtomicBool = AtomicBool::new(false);
/// Where code may hold the loader's lock or one of ours.
static HOLDING: OnceLock<[Range<u64>; 4]> = OnceLock::new();

/// What the conductor finds at each look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// What is written is written: the process ends.
    End,
    /// The writer asks in vain for a lock of ours.
    LacksLock,
    /// The writer sleeps: somebody has what it needs.
    Sleeps,
    Wait,
}

/// Makes ready, outside of any handler.
pub fn prepare() {
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
    /// libgcc's, whose unwinder visits the loader's list.
    fn _Unwind_Backtrace(each: *const c_void, data: *mut c_void) -> c_int;
}

/// For a handler: stops all threads but the writer until `look` says to end, and answers true then.
/// False: this thread goes on for a moment, for it may hold what the writer needs; it
/// comes back here. `signal`: the one that came, whose handler is ours.
pub fn conduct(signal: c_int, context: *const c_void, mut look: impl FnMut() -> Next) -> bool {
    let own = own_number();
    let first = CONDUCTOR.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst);
    if first.is_err_and(|conductor| conductor != own) {
        park(context);
        return false;
    }
    if first.is_ok() {
        patience::others_stop();
        take_signal(signal);
    }
    let mask = block_all();
    CONDUCTS.store(true, Ordering::SeqCst);
    // Whether every thread was found stopped, the ones included that were made meanwhile.
    let mut complete = false;
    let mut turn = 0;
    let ends = loop {
        if !complete {
            let stopped_count = STOPPED_COUNT.load(Ordering::SeqCst);
            complete = stop_others(own, 0).is_none_or(|all| stopped_count >= all.count);
        }
        match look() {
            Next::End => break true,
            lacks @ (Next::LacksLock | Next::Sleeps) => {
                complete = false;
                let ours = lacks == Next::LacksLock;
                OF_OURS.store(ours, Ordering::SeqCst);
                match stop_others(own, turn).and_then(|all| all.chosen) {
                    Some(chosen) => {
                        turn += 1;
                        go_on(own, chosen);
                    }
                    // All others had their turn.
                    None => {
                        turn = 0;
                        if may_hold(context, ours) && come_back(own) {
                            break false;
                        }
                        own_thread::sleep(PULSE);
                    }
                }
            }
            // Threads that the kernel holds, or that have just begun, stop a little later.
            Next::Wait => own_thread::sleep(if complete { LOOK_EVERY } else { PULSE }),
        }
    };
    CONDUCTS.store(false, Ordering::SeqCst);
    if !ends {
        set_mask(mask);
    }
    ends
}

/// Lets one thread go on for a moment, if it may hold something, and gives the writer time to take what is
/// free then.
fn go_on(own: i32, chosen: i32) {
    const LOOKS_MAX: u32 = 20;
    CHOSEN.store(chosen, Ordering::SeqCst);
    PULSES.fetch_add(1, Ordering::SeqCst);
    own_thread::wake_all(&PULSES);
    // It may have to wait for a processor first.
    for _ in 0..LOOKS_MAX {
        own_thread::sleep(PULSE);
        if CHOSEN.load(Ordering::SeqCst) == 0 {
            break;
        }
    }
    CHOSEN.store(0, Ordering::SeqCst);
    for _ in 0..LOOKS_MAX {
        let stopped_count = STOPPED_COUNT.load(Ordering::SeqCst);
        if stop_others(own, 0).is_none_or(|all| stopped_count >= all.count) {
            break;
        }
        own_thread::sleep(PULSE / 2);
    }
    own_thread::sleep(PULSE);
}

/// Stays here until the process ends; or goes on for a moment, where this thread may hold something.
pub fn park(context: *const c_void) {
    let mask = block_all();
    let own = own_number();
    STOPPED_COUNT.fetch_add(1, Ordering::SeqCst);
    loop {
        let now = PULSES.load(Ordering::SeqCst);
        let chosen = CHOSEN.compare_exchange(own, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if chosen && may_hold(context, OF_OURS.load(Ordering::SeqCst)) {
            break;
        }
        own_thread::wait(&PULSES, now, None);
    }
    STOPPED_COUNT.fetch_sub(1, Ordering::SeqCst);
    forget_signals();
    set_mask(mask);
}

/// Those that came meanwhile would stop this thread at once; the kernel keeps each of them.
fn forget_signals() {
    let set = 1u64 << (SIGNAL - 1);
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let none = null_mut::<c_void>();
    // SAFETY: valid pointers; sets are 8 bytes for the kernel.
    let one = || unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, &set, none, &at_once, 8usize) };
    while one() == i64::from(SIGNAL) {}
}

/// The handler of all threads but the writer.
extern "C" fn stop(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: this thread's own errno.
    let errno = unsafe { *libc::__errno_location() };
    let own = own_number();
    if own == silence::writer_number() {
        // It had just begun, and nobody knew it yet.
    } else if CONDUCTOR.load(Ordering::SeqCst) == own {
        if !CONDUCTS.load(Ordering::SeqCst) {
            crate::snapshots::triggers::go_on_ending(context);
        }
    } else {
        park(context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Whether the interrupted thread may hold a lock that the writer needs; `ours`: one of ours.
fn may_hold(context: *const c_void, ours: bool) -> bool {
    if filter::is_new() {
        return false; // it may not be asked for, and no other thread was stopped
    }
    let Some(ranges) = HOLDING.get() else { return true };
    let (place, stack) = interrupted_at(context);
    ranges[0].contains(&place)
        || has_caller_in(&ranges[0], stack)
        // The C library makes no system call with the loader's lock.
        || (!ours && ranges.iter().any(|range| range.contains(&place)) && !is_system_call(place))
}

/// Whether a call that began in this range is on the stack, as far as its words tell: a hook of ours may
/// be anywhere, in a function of the C library or in the driver. In doubt it is.
fn has_caller_in(range: &Range<u64>, stack: u64) -> bool {
    const CHUNKS_MAX: u64 = 16;
    let mut words = [0u64; 64];
    let bytes = size_of_val(&words);
    for chunk in 0..CHUNKS_MAX {
        let from = stack.wrapping_add(chunk * bytes as u64);
        let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
        let remote = libc::iovec { iov_base: from as *mut c_void, iov_len: bytes };
        // SAFETY: the kernel reads for us, and says how much of it is there.
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

/// Whether the code at this address makes a system call, or has just made one.
#[cfg(target_arch = "x86_64")]
fn is_system_call(place: u64) -> bool {
    let code = (place - 2) as *const [u8; 2];
    // SAFETY: in the code of a loaded object, which can be read, and not at its begin.
    unsafe { code.read() == [0x0f, 0x05] || code.wrapping_add(1).read() == [0x0f, 0x05] }
}

/// Whether the code at this address makes a system call, or has just made one.
#[cfg(target_arch = "aarch64")]
fn is_system_call(place: u64) -> bool {
    const SVC_0: u32 = 0xd400_0001;
    let code = (place - 4) as *const u32;
    // SAFETY: in the code of a loaded object, which can be read, and not at its begin.
    unsafe { code.read() == SVC_0 || code.wrapping_add(1).read() == SVC_0 }
}

/// The next instruction, and the top of the stack.
#[cfg(target_arch = "x86_64")]
fn interrupted_at(context: *const c_void) -> (u64, u64) {
    // SAFETY: what the kernel gave the handler.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let register = |name: c_int| context.uc_mcontext.gregs[name as usize] as u64;
    (register(libc::REG_RIP), register(libc::REG_RSP))
}

/// The next instruction, and the top of the stack.
#[cfg(target_arch = "aarch64")]
fn interrupted_at(context: *const c_void) -> (u64, u64) {
    // SAFETY: what the kernel gave the handler.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    (context.uc_mcontext.pc, context.uc_mcontext.sp)
}

/// As the kernel has it, on both architectures.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// The C library refuses to change this signal's action, and knows how to return from a handler: that
/// is taken from the signal that came.
fn take_signal(came: c_int) {
    let mut action = KernelAction::default();
    let size = size_of::<u64>();
    let none = null_mut::<KernelAction>();
    // SAFETY: actions as the kernel knows them; the handler lives as long as the library, which is
    // never unloaded.
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, came, none, &raw mut action, size);
        let flags = (libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK) as usize;
        action.flags = flags | action.flags & SA_RESTORER;
        action.handler = stop as *const () as usize;
        action.mask = u64::MAX;
        libc::syscall(libc::SYS_rt_sigaction, SIGNAL, &raw const action, none, size);
    }
}

/// Room for a part of the list of threads; the conductor's alone.
struct Room(UnsafeCell<[u64; 1024]>);
// SAFETY: only the one conductor uses it.
unsafe impl Sync for Room {}
static ROOM: Room = Room(UnsafeCell::new([0; 1024]));

/// All threads but the conductor and the writer.
struct Others {
    count: u32,
    /// The one of the wanted place in the kernel's list.
    chosen: Option<i32>,
}

/// Sends the signal to all of them, once each: what stands in the handler has it blocked. None where the
/// kernel does not tell which there are.
fn stop_others(own: i32, place: u32) -> Option<Others> {
    let writer = silence::writer_number();
    const FOLDER: &CStr = c"/proc/self/task";
    if filter::is_new() {
        return None;
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let folder = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, FOLDER.as_ptr(), flags) };
    if folder < 0 {
        return None;
    }
    let room = ROOM.0.get().cast::<u8>();
    let mut others = Others { count: 0, chosen: None };
    loop {
        // SAFETY: the room is the conductor's, and of this size.
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
            if number != own && number != writer {
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
    // SAFETY: our own descriptor.
    unsafe { libc::syscall(libc::SYS_close, folder) };
    Some(others)
}

fn number_of(name: &CStr) -> Option<i32> {
    core::str::from_utf8(name.to_bytes()).ok()?.parse().ok()
}

fn own_number() -> i32 {
    // SAFETY: asks the kernel for a number.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Has the calling thread interrupted a moment from now, wherever it is then. False: it cannot be.
fn come_back(own: i32) -> bool {
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

fn block_all() -> u64 {
    set_mask(u64::MAX)
}
