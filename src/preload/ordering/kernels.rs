//! Decides whether the host sees a kernel's work (docs/ordering.md 4), by the library that launches
//! it, and by its arguments, whose bytes are searched for addresses of pinned memory. This happens
//! only while there is pinned memory or a communication library, and only until the first find:
//! from then on every kernel counts as visible.
//!
//! Note [Tables]. PyTorch passes tables by value to its kernels and fills only a part of them. The
//! rest is what lay on its stack: the address of pinned memory, where the program has just asked
//! for a number (`loss.item()`), though no kernel uses it. These kernels either use an entry of
//! their table or do not, and keep none. So an address there makes this launch visible, and no
//! others. An address that is an argument by itself is not left over from elsewhere, and may be
//! kept by any kernel: PyTorch's kernels for groups of products write such addresses into memory
//! (`prepare_grouped_gemm_data`).

use core::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use cachealloc_core::order::VisibleCause;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::config::environment;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult};
use crate::lists::hash::HashMap;
use crate::lists::recent::RecentTable;
use crate::lock::lock;
use crate::ordering::{communication, observers, pinned};
use crate::record::caller;
use crate::state::barriers::LEDGER;

/// A kernel with more arguments than this counts as unknown.
const ARGUMENTS_MAX: usize = 4096;

/// `CU_LAUNCH_PARAM_*` of the `extra` array.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_BUFFER_BYTES: usize = 2;

/// Libraries that follow the note, by the beginning of their file names.
const PASS_TABLES: [&str; 1] = ["libtorch_cuda"];
/// An argument of at least this many bytes is a table.
const TABLE_BYTES_MIN: usize = 256;

/// Result of searching the arguments of a launch.
enum Found {
    Nothing,
    /// An address that only this launch knows.
    InTable,
    Cause(VisibleCause),
}

/// The driver's description of one kernel. Never deallocated: another thread may be reading it
/// while its module is unloaded. A kernel that is loaded again with the same handle and arguments
/// reuses its record.
#[derive(PartialEq)]
pub(crate) struct Kernel {
    handle: usize,
    /// Argument sizes; `None` if the driver does not report them.
    sizes: Option<Box<[usize]>>,
    /// Whether a communication library was the first to launch it.
    communicates: bool,
    /// Whether one of `PASS_TABLES` was the first to launch it.
    passes_tables: bool,
}

/// The kernels looked up since handles may have been reused. The library that launched one first is
/// not known for kernels that were looked up again since.
pub(crate) static KERNELS: RecentTable<&Kernel, Kernel> = RecentTable::new();
static LOG_IS_READ: AtomicBool = AtomicBool::new(false);
/// All records ever made, by handle.
static RECORDS: Mutex<Option<HashMap<usize, Vec<&'static Kernel>>>> = Mutex::new(None);

/// Returns whether the host sees the work of this launch.
///
/// # Safety
///
/// `params` and `extra` are null or the program's arguments of a launch of `kernel`.
pub(crate) unsafe fn is_visible(
    kernel: usize,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> bool {
    // An address among its arguments concerns only the library itself: no other kernel has it.
    if communication::any() && find(kernel).communicates {
        return rule_holds(Rule::CommunicationIsVisible);
    }
    if pinned::any() {
        // SAFETY: the caller guarantees it.
        match unsafe { scan(kernel, params, extra) } {
            Found::Nothing => {}
            Found::InTable => return true,
            Found::Cause(cause) => observers::visible(cause),
        }
    }
    LEDGER.visible.every_kernel()
}

/// Searches the arguments. The caller must meet the requirements of `is_visible`.
unsafe fn scan(kernel: usize, params: *const *const c_void, extra: *const *const c_void) -> Found {
    if !rule_holds(Rule::ArgumentsAreScanned) {
        return Found::Nothing;
    }
    match (params.is_null(), extra.is_null()) {
        // SAFETY: the caller guarantees it.
        (false, _) => unsafe { scan_params(find(kernel), params) },
        // SAFETY: the caller guarantees it.
        (true, false) => unsafe { scan_extra(extra) },
        (true, true) => Found::Nothing,
    }
}

unsafe fn scan_params(kernel: &Kernel, params: *const *const c_void) -> Found {
    let Some(sizes) = &kernel.sizes else { return Found::Cause(VisibleCause::UnknownArguments) };
    let mut found = Found::Nothing;
    let look = pinned::Look::now();
    for (index, bytes) in sizes.iter().enumerate() {
        // SAFETY: the array has one pointer for each argument of the kernel, and each points to as
        // many bytes as the argument has.
        if unsafe { look.is_named_in((*params.add(index)).cast(), *bytes) } {
            let table = *bytes >= TABLE_BYTES_MIN || !rule_holds(Rule::OnlyTablesArePassed);
            if !(table && kernel.passes_tables) {
                return Found::Cause(VisibleCause::PinnedArgument);
            }
            found = Found::InTable;
        }
    }
    found
}

/// Searches `extra`, a list of name, value pairs up to a zero name.
unsafe fn scan_extra(extra: *const *const c_void) -> Found {
    let (mut buffer, mut bytes) = (core::ptr::null(), 0);
    for pair in 0..8 {
        // SAFETY: the list ends with a zero name; its values are pointers as named.
        unsafe {
            match *extra.add(2 * pair) as usize {
                EXTRA_END => break,
                EXTRA_BUFFER => buffer = *extra.add(2 * pair + 1),
                EXTRA_BUFFER_BYTES => bytes = *(*extra.add(2 * pair + 1)).cast::<usize>(),
                _ => return Found::Cause(VisibleCause::UnknownArguments),
            }
        }
    }
    // SAFETY: the program guarantees that the buffer holds this many bytes.
    let hit = !buffer.is_null() && unsafe { pinned::Look::now().is_named_in(buffer.cast(), bytes) };
    if hit { Found::Cause(VisibleCause::PinnedArgument) } else { Found::Nothing }
}

/// Returns the sizes of all arguments of a kernel, or `None` if the driver does not report them.
pub(crate) fn argument_sizes(kernel: usize) -> Option<&'static [usize]> {
    find(kernel).sizes.as_deref()
}

fn find(handle: usize) -> &'static Kernel {
    let recent = KERNELS.recent(handle);
    // SAFETY: null, or a kernel that was leaked.
    match unsafe { recent.load(Ordering::Acquire).as_ref() } {
        Some(kernel) if kernel.handle == handle => kernel,
        _ => find_slow(handle, recent),
    }
}

#[cold]
fn find_slow(handle: usize, recent: &AtomicPtr<Kernel>) -> &'static Kernel {
    let known = KERNELS.with(|kernels| kernels.get(&handle).copied());
    let kernel = known.unwrap_or_else(|| {
        let sizes = ask(handle, api::func_get_param_count, api::func_get_param_info)
            .or_else(|| ask(handle, api::kernel_get_param_count, api::kernel_get_param_info));
        let communicates = communication::may_call();
        record(Kernel { handle, sizes, communicates, passes_tables: passes_tables() })
    });
    KERNELS.with(|kernels| {
        let kernel = *kernels.entry(handle).or_insert(kernel);
        recent.store((kernel as *const Kernel).cast_mut(), Ordering::Release);
        kernel
    })
}

/// Returns whether one of `PASS_TABLES` makes the present call.
fn passes_tables() -> bool {
    let is_one = |file: &str| PASS_TABLES.iter().any(|library| file.starts_with(library));
    !rule_holds(Rule::OnlyFrameworksPassTables) || caller::library().as_deref().is_some_and(is_one)
}

/// Returns the record of a kernel. A program that unloads modules, or a library that takes and
/// drops references to the primary context, has the same kernels looked up again and again.
fn record(found: Kernel) -> &'static Kernel {
    let mut records = lock(&RECORDS);
    let same = records.get_or_insert_with(HashMap::default).entry(found.handle).or_default();
    if let Some(known) = same.iter().find(|known| ***known == found) {
        return known;
    }
    let new = Box::leak(Box::new(found));
    same.push(new);
    new
}

/// Returns the sizes of all arguments. A driver older than 13.2 does not report how many there are:
/// it refuses the query after the last one, or the first to say "no arguments" or "not such a
/// handle". The refusals are in its log, so the library does not ask while the program reads that.
fn ask(
    kernel: usize,
    count: fn(usize) -> CuResult<usize>,
    info: fn(usize, usize) -> CuResult<(usize, usize)>,
) -> Option<Box<[usize]>> {
    let size = |index| info(kernel, index).map(|(_, bytes)| bytes);
    if let Ok(count) = count(kernel) {
        return (0..count).map(size).collect::<CuResult<_>>().ok();
    }
    if is_log_read() && rule_holds(Rule::OnlySupportedQueries) {
        return None;
    }
    let mut sizes = Vec::new();
    for index in 0..ARGUMENTS_MAX {
        match size(index) {
            Ok(bytes) => sizes.push(bytes),
            Err(CuError::INVALID_VALUE) => return Some(sizes.into()),
            _ => return None,
        }
    }
    None
}

/// Notes that the program has registered a function for the driver's log.
pub(crate) fn log_is_read() {
    LOG_IS_READ.store(true, Ordering::Relaxed);
}

fn is_log_read() -> bool {
    LOG_IS_READ.load(Ordering::Relaxed) || environment::get(c"CUDA_LOG_FILE").is_some()
}
