//! The only place where an out-of-memory result of a hook leads to the report, whatever the call
//! requested. Derives the request from the call's arguments.

use std::hash::{DefaultHasher, Hash, Hasher};

use cachealloc_history::OomKind;

use crate::driver::sys::{AllocationProperties, CuError, CuResult};
use crate::functions::{Function, id};
use crate::hooks::beside;
use crate::hooks::driver_memory::array_bytes;
use crate::out_of_memory;
use crate::out_of_memory::noted::Success;
use crate::out_of_memory::{Request, told};
use crate::process::bypass;
use crate::process::bypass::Failing;
use crate::state::thread;
use crate::thread_state::without_cancellation;

/// Notes that a function called with these arguments returns this error to the program.
#[cold]
#[inline(never)]
pub(crate) fn answered(function: &'static Function, words: &[usize], error: CuError) -> CuResult {
    if error == CuError::OUT_OF_MEMORY && !bypass::is_switched_off() {
        thread::with(|thread| {
            // A call that memory hooks observe is repeated from within, and a call inside a memory
            // hook belongs to that hook.
            let is_within = !thread.observed_call.get().is_null() || thread.in_memory_hook.get();
            if !is_within {
                // The report's system calls must not be points at which the program's thread is
                // cancelled.
                without_cancellation(|| {
                    beside(function, || out_of_memory::happened(thread, request(function, words)));
                });
            }
        });
    }
    Err(error)
}

/// Notes that this function has given the program `bytes` bytes, if any allocation failed before.
#[inline]
pub(crate) fn got(function: &'static Function, bytes: u64, code: CuResult) -> CuResult {
    if code.is_ok() && bypass::has_failures(Failing::Allocation) {
        note_success(function, Success::Bytes(bytes));
    }
    code
}

/// Notes that a call with these arguments, which name no size, has succeeded, if any such call
/// failed before.
#[inline]
pub(crate) fn repeated(function: &'static Function, words: &[usize]) {
    if bypass::has_failures(Failing::Call) {
        note_success(function, Success::Call(call_number(function, words)));
    }
}

/// Makes a launch by `again`, its own entry point, and notes its success. Returns `None` within
/// that call.
#[cold]
pub(crate) fn watched(
    function: &'static Function,
    words: &[usize],
    again: impl FnOnce() -> CuResult,
) -> Option<CuResult> {
    if thread::with(|thread| thread.launch_is_watched.replace(true)) {
        return None;
    }
    let code = again();
    thread::with(|thread| thread.launch_is_watched.set(false));
    if code.is_ok() {
        repeated(function, words);
    }
    Some(code)
}

#[cold]
#[inline(never)]
fn note_success(function: &'static Function, success: Success) {
    // See `answered`.
    without_cancellation(|| {
        beside(function, || {
            thread::with(|thread| told::succeeded(thread, function.base(), success))
        });
    });
}

/// Returns a number that tells calls of a function apart: launches by the kernel or graph, others
/// by all arguments.
#[cold]
fn call_number(function: &Function, words: &[usize]) -> u64 {
    let mut hasher = DefaultHasher::new();
    match function.launches {
        Some(launches) => launches.handle(words).hash(&mut hasher),
        None => words.hash(&mut hasher),
    }
    hasher.finish()
}

/// Returns the size that a call of class `record` requested, for `got`.
pub(crate) fn asked_bytes(function: &Function, words: &[usize]) -> Option<u64> {
    request(function, words).bytes
}

fn request(function: &Function, words: &[usize]) -> Request {
    let kind = OomKind::of_function(function.base());
    let call = call_number(function, words);
    let mut request = Request { function: function.base(), kind, bytes: None, device: None, call };
    let word = |at: usize| words.get(at).map(|word| *word as u64);
    request.bytes = match kind {
        OomKind::Pitched => word(2).zip(word(3)).map(|(width, rows)| width.saturating_mul(rows)),
        // SAFETY: the program's arguments; the driver has read the descriptor.
        OomKind::Array => unsafe { bytes_of_array(function.id, words) },
        OomKind::Mapping if !function.base().starts_with("cuMem") => None,
        OomKind::Linear
        | OomKind::Managed
        | OomKind::Pooled
        | OomKind::Physical
        | OomKind::PinnedHost
        | OomKind::RegisteredHost
        | OomKind::Mapping => match function.id {
            // The 32-bit interface.
            id::cuMemAlloc | id::cuMemAllocHost => word(1).map(|word| u64::from(word as u32)),
            _ => word(1),
        },
        _ => None,
    };
    match kind {
        OomKind::Context => {
            let place = match function.base() {
                "cuCtxCreate" => words.len() - 1,
                "cuDevicePrimaryCtxRetain" => 1,
                _ => 2,
            };
            request.device = word(place).map(|word| word as i32);
        }
        OomKind::Physical => {
            let properties = words.get(2).map_or(0, |word| *word) as *const AllocationProperties;
            // SAFETY: null, or the program's struct, which the driver has read.
            if let Some(properties) = unsafe { properties.as_ref() } {
                request.device = properties.location.device();
                if properties.location.device().is_none() && properties.location.may_be_on_host() {
                    request.kind = OomKind::PhysicalHost;
                }
            }
        }
        _ => {}
    }
    request
}

/// Returns the size of the array that this call creates, if the function's arguments are known.
///
/// # Safety
///
/// The caller must uphold the requirements of `array_bytes::of`.
unsafe fn bytes_of_array(function: usize, words: &[usize]) -> Option<u64> {
    let is_known = matches!(
        function,
        id::cuArrayCreate_v2 | id::cuArray3DCreate_v2 | id::cuMipmappedArrayCreate
    );
    if !is_known || words.get(1).is_none_or(|word| *word == 0) {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { array_bytes::of(function, words) })
}
