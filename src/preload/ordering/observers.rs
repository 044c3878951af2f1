//! Observers: what reaches the memory past the barriers of its context (docs/ordering.md 3), and
//! what the host can see (4). Each first observation waits for the pending barriers before the call
//! proceeds, or returns.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use cachealloc_core::order::{Observer, UntrackedSubmission, VisibleCause};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::c_library::objects;
use crate::driver::api;
use crate::driver::sys::{
    ContextHandle, DEVICE_CONCURRENT_MANAGED_ACCESS, DEVICE_PAGEABLE_MEMORY_ACCESS,
};
use crate::gate;
use crate::gate::Condition;
use crate::lock::lock;
use crate::log;
use crate::ordering::{across, elision, pending};
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::statistics::waits::Wait;

/// Contexts that were made or retained and are alive.
static SEEN: Mutex<Vec<SeenContext>> = Mutex::new(Vec::new());
/// Number of these contexts, readable without the lock.
static SEEN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A context of the program, identified by id: the handle is reused before the call that ended the
/// context has returned.
#[derive(Clone, Copy)]
pub(crate) struct SeenContext {
    pub id: u64,
    pub handle: ContextHandle,
    /// Device whose primary context it is; `None` if the program created it.
    pub primary_of: Option<i32>,
}

/// Records an observer. Returns once no barrier is pending that it could see past. If the program
/// orders its contexts itself, barriers that other threads' frees have left elsewhere may remain.
pub(crate) fn observe(observer: Observer) {
    if across::is_kept_by_program(observer) {
        return;
    }
    let mut waited = false;
    while LEDGER.note_observer(observer) {
        pending::wait_all(Wait::Observer);
        let all = !pending::is_left_to_others();
        if all {
            LEDGER.exclusive.waited();
        }
        if !core::mem::replace(&mut waited, true) {
            log::info(format_args!(
                "{observer:?} seen: frees wait, as without the library, from now on"
            ));
        }
        // The next observer waits in its turn.
        if !all {
            return;
        }
    }
}

/// Makes every kernel count as able to write what the host reads, from now on.
pub(crate) fn visible(cause: VisibleCause) {
    gate::set(Condition::EveryKernelVisible);
    if LEDGER.note_visible(cause) {
        log::info(format_args!(
            "{cause:?} seen: frees wait while a kernel is in flight from now on"
        ));
    }
}

/// Attributes a submission to its context. Called by each submission while more than one context
/// may submit.
#[inline]
pub(crate) fn watch_submission() {
    if are_submissions_watched() {
        watch_submission_slow();
    }
}

/// Returns whether more than one context may submit. Ask after the submission was counted.
#[inline(always)]
pub(crate) fn are_submissions_watched() -> bool {
    gate::watches_submissions(Ordering::Relaxed)
}

#[cold]
fn watch_submission_slow() {
    if across::is_promised() {
        gate::watch_submissions(false);
        return;
    }
    if LEDGER.exclusive.observers() == 0
        && let Ok(id) = api::ctx_get_id(0)
        && LEDGER.exclusive.submits(id)
    {
        observe(Observer::SecondContext);
    }
}

/// Whether a stream was created while submissions were not watched.
static STREAMS: AtomicBool = AtomicBool::new(false);

/// Notes that a stream is about to be created in the current context. Copies, fills and launches
/// work on it even while another context is current (measured), so it counts as a submission of its
/// context.
pub(crate) fn watch_stream() {
    STREAMS.store(true, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    watch_submission();
}

/// Notes a context that was made or retained. From the second one on, submissions are watched.
/// Returns `true` if it is new.
pub(crate) fn note_context(context: SeenContext) -> bool {
    let mut seen = lock(&SEEN);
    if seen.iter().any(|seen| seen.id == context.id) {
        return false;
    }
    seen.push(context);
    SEEN_COUNT.store(seen.len(), Ordering::Release);
    if seen.len() < 2 || gate::watches_submissions(Ordering::Relaxed) || across::is_promised() {
        return true;
    }
    // Unwatched submissions belong to the first context. If a thread counts its submission just
    // now, and checks whether it is watched, either that thread sees the watch or this one sees the
    // count.
    gate::watch_submissions(true);
    fence(Ordering::SeqCst);
    let unwatched = LEDGER.submitted.begun() > 0 || STREAMS.load(Ordering::SeqCst);
    let second = unwatched && LEDGER.exclusive.submits(seen[0].id);
    drop(seen);
    if second {
        observe(Observer::SecondContext);
    }
    true
}

/// Returns all contexts that were made or retained and are alive.
pub(crate) fn contexts_seen() -> Vec<SeenContext> {
    lock(&SEEN).clone()
}

/// Returns whether `cuCtxCreate` created it.
pub(crate) fn is_explicit(id: u64) -> bool {
    lock(&SEEN).iter().any(|seen| seen.id == id && seen.primary_of.is_none())
}

/// Forgets a context that has ended.
pub(crate) fn forget_context(id: u64) {
    let mut seen = lock(&SEEN);
    seen.retain(|seen| seen.id != id);
    SEEN_COUNT.store(seen.len(), Ordering::Release);
}

/// Records what the devices and the process reveal at once. Called after `cuInit`.
pub(crate) fn inspect_devices() {
    let Ok(count) = api::device_get_count() else { return };
    watch_no_more(count);
    for device in 0..count {
        if api::device_get_attribute(DEVICE_PAGEABLE_MEMORY_ACCESS, device) == Ok(1) {
            visible(VisibleCause::PageableAccess);
        }
        if api::device_get_attribute(DEVICE_CONCURRENT_MANAGED_ACCESS, device) == Ok(0) {
            visible(VisibleCause::NoConcurrentManaged);
        }
    }
    if !api::has_context_barrier() {
        observe(Observer::NoBarrierCalls);
    }
    inspect_libraries();
}

/// Stops watching submissions: with one device there is only one context until a second is created.
/// Every CUDA runtime of the process initializes the driver, so later calls leave earlier
/// observations in force.
fn watch_no_more(devices_count: i32) {
    static FIRST: AtomicBool = AtomicBool::new(true);
    let seen = lock(&SEEN);
    let first = FIRST.swap(false, Ordering::Relaxed) && seen.len() < 2;
    if devices_count == 1 && (first || !rule_holds(Rule::SecondInitForgetsNothing)) {
        gate::watch_submissions(false);
    }
}

/// Libraries that give device memory to other hardware. Each has the beginning of the name of the
/// device file without which it cannot: PyTorch and NCCL load some of them on every machine. EFA
/// and RoCE use ibverbs; the connection manager's file beside theirs exists without any card.
const RDMA: [(&str, &str); 7] = [
    ("libibverbs.so", "/dev/infiniband/uverbs"),
    ("libcufile.so", "/dev/nvidia-fs"),
    ("libgdrapi.so", "/dev/gdrdrv"),
    // Omni-Path, with its own library and as a provider inside libfabric.
    ("libpsm2.so", "/dev/hfi1"),
    ("libfabric.so", "/dev/hfi1"),
    // Slingshot.
    ("libcxi.so", "/dev/cxi"),
    // BXI.
    ("libportals.so", "/dev/bxi"),
];

/// Libraries that submit work past the library's hooks.
const BYPASSING: [&str; 5] = [
    "libnvoptix.so",
    "libnvidia-encode.so",
    "libnvcuvid.so",
    "libnvidia-opticalflow.so",
    // `libnvidia-ngx-*.so` of its features, and `libnvidia-ngx.so`.
    "libnvidia-ngx",
];

/// Checks the loaded objects if any were loaded since the last check. Called at the start and where
/// memory is reserved: such a library works on memory that it was given.
pub(crate) fn inspect_libraries() {
    /// Number of changes at the last check.
    static CHECKED: AtomicU64 = AtomicU64::new(u64::MAX);
    let changes = objects::changes();
    if CHECKED.load(Ordering::Acquire) == changes {
        return;
    }
    if RDMA.iter().any(|(library, device)| is_loaded(library) && exists(device)) {
        observe(Observer::RdmaLibrary);
    }
    if BYPASSING.iter().any(|library| is_loaded(library)) {
        visible(VisibleCause::UnknownArguments);
        elision::note(
            UntrackedSubmission::BypassingLibrary,
            "a loaded library submits work that cachealloc does not observe",
        );
    }
    CHECKED.store(changes, Ordering::Release);
}

/// Returns whether a device file's name begins with this; also `true` if there is a folder that
/// cannot be listed.
fn exists(path: &str) -> bool {
    let (folder, begin) = path.rsplit_once('/').unwrap_or(("/", path));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
    };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| name.as_encoded_bytes().starts_with(begin.as_bytes()))
}

fn is_loaded(library: &str) -> bool {
    let mut found = false;
    objects::for_each(|info| {
        if !info.dlpi_name.is_null() {
            // SAFETY: the loader's own C string, valid during the callback.
            let name = unsafe { core::ffi::CStr::from_ptr(info.dlpi_name) };
            found |= name.to_str().is_ok_and(|name| name.contains(library));
        }
        found
    });
    found
}

/// Returns whether the program has made or retained several contexts that are alive.
#[inline]
pub(crate) fn has_several_contexts() -> bool {
    SEEN_COUNT.load(Ordering::Relaxed) > 1
}

/// Returns how many contexts a caller may need to distinguish.
pub(crate) fn context_count() -> usize {
    contexts::all().count().max(SEEN_COUNT.load(Ordering::Acquire))
}
