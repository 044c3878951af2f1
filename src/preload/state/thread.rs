//! The library's state for each thread of the program: a hook looks it up once and passes it on. It
//! starts as a constant and has no destructor, so that a thread's first use allocates nothing. When
//! a thread ends, `assembly::lifetime` releases what it still holds.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use cachealloc_core::order::{BarrierNumber, Lane, TrackedBarrier};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::api::GetContextId;
use crate::driver::graphs::CaptureMark;
use crate::driver::sys::{CuError, StreamHandle};
use crate::gate;
use crate::process::seats;
use crate::state::events::Event;

/// The calling thread. What a hit and the free of its block use is in the first cache line.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// Set while this thread is inside a hook: calls that the driver or a tool makes meanwhile are
    /// passed on, so that no lock of the library is taken twice.
    pub inside: Cell<bool>,
    /// The thread cache that it used last, and its list in that cache (`state::thread_cache`).
    pub lists: Cell<*const c_void>,
    pub list: Cell<*const c_void>,
    /// The context that it used last, and the function that returns the id of the current one,
    /// which is `UNKNOWN` before (`contexts::lookup`).
    pub context: Cell<*const c_void>,
    pub get_context_id: Cell<GetContextId>,
    /// Where it found the segment of its last free (`pagemap`): the first level of the way, and
    /// what that led to.
    pub window: Cell<u64>,
    pub level: Cell<*const c_void>,
    /// Set while a memory hook runs in this thread: its own calls are not observed.
    pub in_memory_hook: Cell<bool>,
    /// The call being observed by memory hooks, if any.
    pub observed_call: Cell<*const c_void>,
    /// Set during a launch whose success is of interest (`hooks::out_of_memory`).
    pub launch_is_watched: Cell<bool>,
    /// The stream of its last submission during a capture (`captures::note_submission`).
    pub submits_on: Cell<Option<(u64, StreamHandle)>>,
    /// The capture that this submission went into, as it was before.
    pub captured_before: Cell<Option<CaptureMark>>,
    /// The stream that this thread asked for last (`contexts::stream_identity`).
    pub stream: Cell<Option<KnownStream>>,
    /// The id of the stream of its last free in stream order, and the last work of the legacy
    /// stream after which that stream is ordered (`ordering::legacy_stream`).
    pub joined: Cell<(u64, u64)>,
    number: Cell<u32>,
    /// Its place in tables of all threads (`seats`).
    seat: Cell<u32>,
    /// Set once the thread has ended and its holdings are released: it takes nothing any more that
    /// would have to be released.
    has_ended: Cell<bool>,
    /// Set for threads of the program; unset for the driver's thread, which runs host functions.
    is_programs: Cell<bool>,
    /// The stream of its last submission that had to wait for a barrier, and the number of that
    /// barrier (`ordering::before_submission`).
    pub behind: Cell<Option<Behind>>,
    /// The barrier of this thread's last free, and a counted reference to its event.
    pub tracked: Cell<TrackedBarrier>,
    pub tracked_event: Cell<*const Event>,
    /// An unreferenced event, kept for this thread's next barrier.
    pub spare_event: Cell<*const Event>,
}

/// A stream that is ordered after a barrier of a context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    pub context_id: u64,
    pub stream: u64,
    pub number: BarrierNumber,
}

/// A stream that the driver has identified, by numbers.
#[derive(Clone, Copy)]
pub(crate) struct KnownStream {
    pub handle: StreamHandle,
    pub id: u64,
    pub context_id: u64,
    /// Number of streams that may have ended before.
    pub ends: u64,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            inside: Cell::new(false),
            in_memory_hook: Cell::new(false),
            observed_call: Cell::new(null()),
            launch_is_watched: Cell::new(false),
            submits_on: Cell::new(None),
            captured_before: Cell::new(None),
            stream: Cell::new(None),
            joined: Cell::new((0, 0)),
            behind: Cell::new(None),
            number: Cell::new(0),
            seat: Cell::new(seats::SHARED),
            has_ended: Cell::new(false),
            lists: Cell::new(null()),
            list: Cell::new(null()),
            context: Cell::new(null()),
            get_context_id: Cell::new(GetContextId::UNKNOWN),
            window: Cell::new(u64::MAX),
            level: Cell::new(null()),
            is_programs: Cell::new(false),
            tracked: Cell::new(TrackedBarrier::new()),
            tracked_event: Cell::new(null()),
            spare_event: Cell::new(null()),
        }
    };
}

/// Runs `body` with the calling thread's record.
#[inline(always)]
pub(crate) fn with<T>(body: impl FnOnce(&Thread) -> T) -> T {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let record = if gate::record_distance() == 0 { fixed::find() } else { fixed::record() };
        // SAFETY: the thread's own record. It has no destructor, so it exists as long as the
        // thread.
        body(unsafe { &*record })
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    THREAD.with(body)
}

/// Runs `body` like `with`, where the gate has shown that records have a fixed place
/// (`gate::requests_are_plain`, `gate::frees_are_plain`).
#[inline(always)]
pub(crate) fn with_fixed<T>(body: impl FnOnce(&Thread) -> T) -> T {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as in `with`.
    return body(unsafe { &*fixed::record() });
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    with(body)
}

/// The distance of the records from the thread pointer. A thread-local variable of Rust costs a
/// call of `__tls_get_addr`, which takes ten times as long as an addition. The loader itself would
/// add the distance if the library asked for that, but then it refuses the library if it is opened
/// late instead of preloaded. So the library finds out whether its variables have a fixed distance,
/// as those of a preloaded library do.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod fixed {
    use core::arch::{asm, global_asm};
    use core::ptr::with_exposed_provenance;

    use super::{THREAD, Thread, here};
    use crate::gate;

    // Asks the loader to describe how it finds a variable of the library.
    global_asm!(
        ".pushsection .tbss,\"awT\",@nobits",
        ".globl cachealloc_described",
        ".hidden cachealloc_described",
        ".type cachealloc_described, @object",
        ".size cachealloc_described, 1",
        "cachealloc_described:",
        ".zero 1",
        ".popsection",
    );

    /// Returns the record. Its distance must be known.
    #[inline(always)]
    pub(super) fn record() -> *const Thread {
        with_exposed_provenance(here().wrapping_add(gate::record_distance()))
    }

    /// Finds the record without its distance, and notes that if all threads have the same.
    #[cold]
    pub(super) fn find() -> *const Thread {
        let record = THREAD.with(core::ptr::from_ref);
        if is_fixed() {
            gate::fix_records(record.expose_provenance().wrapping_sub(here()));
        }
        record
    }

    /// Returns whether the loader finds the library's variables by adding a number to the thread
    /// pointer. It describes each by a function and its argument. For those at a fixed distance the
    /// function does nothing but return the distance, which is the second word of the description.
    fn is_fixed() -> bool {
        const RETURNS_IT: [u8; 5] = [0x48, 0x8b, 0x40, 0x08, 0xc3];
        const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
        let description: *const *const [u8; 9];
        // SAFETY: the ABI's way to ask for it. The call changes only rax and flags, but vector
        // registers too if the library was opened late and glibc is older than 2.40. It may be what
        // makes the loader fill in the description.
        unsafe {
            asm!(
                "leaq cachealloc_described@TLSDESC(%rip), %rax",
                "movq %rax, {description}",
                "call *cachealloc_described@TLSCALL(%rax)",
                description = out(reg) description,
                out("rax") _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(att_syntax),
            );
        }
        // SAFETY: the description begins with the address of a function of the loader. The shortest
        // of these functions is followed by others, so there are as many bytes.
        let code = unsafe { (*description).read_unaligned() };
        let code = code.strip_prefix(&MARK).unwrap_or(&code);
        code.starts_with(&RETURNS_IT)
    }
}

/// The key whose destructor runs when a thread ends, or `NO_KEY` without one.
static THREAD_KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// Makes `ends` run at the end of each thread that called `watch`. Call once.
pub(crate) fn when_watched_ends(ends: extern "C" fn(*mut c_void)) {
    let mut key = 0;
    // SAFETY: the function has the wanted signature and lives as long as the library.
    if unsafe { libc::pthread_key_create(&mut key, Some(ends)) } == 0 {
        THREAD_KEY.store(key, Ordering::Release);
    }
}

/// Notes that this thread holds something to be released when it ends. Returns `false` if its end
/// will not be noticed.
pub(crate) fn watch() -> bool {
    let key = THREAD_KEY.load(Ordering::Acquire);
    // SAFETY: the key was created; the value only has to be non-null.
    key != NO_KEY && unsafe { libc::pthread_setspecific(key, core::ptr::dangling::<c_void>()) } == 0
}

/// Returns the thread pointer of the thread that owns the lane `Own` (`here`), 0 before the first
/// submission. After that thread has ended, another one may have the same thread pointer: still
/// only one at a time.
#[inline(always)]
fn owner() -> usize {
    gate::lane_owner().load(Ordering::Relaxed)
}

/// Returns the lane in which the calling thread counts.
#[inline(always)]
pub(crate) fn lane() -> Lane {
    if owner() == here() { Lane::Own } else { Lane::Shared }
}

/// Returns the lane of a submission. The first thread that submits owns the lane `Own` from then
/// on. The very first submission is counted in the shared lane, at once for all threads: a thread
/// that begins to watch finds that there has been one (`ordering::observers`).
#[inline(always)]
pub(crate) fn lane_of_submission() -> Lane {
    let here = here();
    if owner() == here {
        return Lane::Own;
    }
    // A separate load keeps the two tests apart: the owner of the lane makes only one.
    if owner() == 0 {
        choose_lane(here);
    }
    Lane::Shared
}

/// Returns the lane of a submission, or `None` before a thread owns the lane `Own`. Later calls of
/// this thread return the same.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn chosen_lane() -> Option<Lane> {
    match owner() {
        own if own == here() => Some(Lane::Own),
        0 => None,
        _ => Some(Lane::Shared),
    }
}

#[cold]
fn choose_lane(here: usize) {
    let _ = gate::lane_owner().compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns a number that no other thread has while this one lives: its thread pointer. Reading a
/// thread-local variable would be a call.
#[inline(always)]
fn here() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the ABI has the thread pointer there, and nothing changes it while the thread lives.
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register that the ABI keeps for this.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags));
    }
    pointer
}

impl Thread {
    /// Returns the lane in which this thread counts (see [`lane`]).
    #[inline]
    pub(crate) fn lane(&self) -> Lane {
        lane()
    }

    /// Returns the driver's error if this thread is inside a host function of a stream, where the
    /// driver refuses nearly every call (measured). The driver is asked until this thread is known
    /// to be the program's.
    #[inline]
    pub(crate) fn refused_inside_callback(&self) -> Option<CuError> {
        if self.is_programs.get() { None } else { self.ask_whether_inside_callback() }
    }

    #[cold]
    fn ask_whether_inside_callback(&self) -> Option<CuError> {
        let refused = api::ctx_get_id(0) == Err(CuError::NOT_PERMITTED);
        self.is_programs.set(!refused);
        (refused && rule_holds(Rule::CallbackIsAsked)).then_some(CuError::NOT_PERMITTED)
    }

    /// Returns a small number, different for threads that asked for theirs near each other.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        if self.number.get() == 0 {
            self.begin();
        }
        self.number.get() as usize
    }

    /// Returns the thread's seat, or the shared one.
    #[inline]
    pub(crate) fn seat(&self) -> u32 {
        self.seat.get()
    }

    /// Notes that this thread holds something to be released when it ends. Returns `false` if that
    /// will not be noticed: once it ends, this may be the last round of its destructors.
    pub(crate) fn watch_end(&self) -> bool {
        !self.has_ended.get() && watch()
    }

    /// Takes a seat, if the thread has none and can free it at its end. Returns whether it has one.
    pub(crate) fn take_seat(&self) -> bool {
        if self.seat.get() == seats::SHARED && self.watch_end() {
            self.seat.set(seats::take());
        }
        self.seat.get() != seats::SHARED
    }

    /// Frees the seat of an ending thread that has left nothing there. Destructors of other
    /// libraries may still call.
    pub(crate) fn leave_seat(&self) {
        self.has_ended.set(true);
        self.lists.set(null());
        seats::give_back(self.seat.replace(seats::SHARED));
    }

    /// Numbers the thread.
    #[cold]
    fn begin(&self) {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        self.number.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
}
