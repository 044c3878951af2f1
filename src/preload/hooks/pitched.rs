//! `cuMemAllocPitch`, which `cudaMallocPitch` and `cudaMalloc3D` call.

use cachealloc_core::Requester;

use crate::cache::pitches;
use crate::cache::pitches::Rows;
use crate::cache::{alloc, fill};
use crate::contexts::lookup;
use crate::driver::sys::{CuError, CuResult};
use crate::functions::Function;
use crate::hooks::common;
use crate::hooks::common::ObservedKind;
use crate::hooks::{Real, beside, driver_memory, guarded_with};
use crate::process::bypass;
use crate::state::thread::Thread;
use crate::{config, memory_hooks};

/// The request of the program, and its places for the results.
#[derive(Clone, Copy)]
struct Request {
    pointer: *mut u64,
    pitch: *mut usize,
    width_bytes: usize,
    rows_count: usize,
    element_bytes: u32,
}

/// `cuMemAllocPitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned
/// element)`. Served like `cuMemAlloc` if the pitch is known; otherwise by the driver, which also
/// checks the arguments.
pub(crate) fn alloc(
    function: &'static Function,
    pointer: *mut u64,
    pitch: *mut usize,
    width_bytes: usize,
    rows_count: usize,
    element_bytes: u32,
    real: impl Real,
) -> CuResult {
    let request = Request { pointer, pitch, width_bytes, rows_count, element_bytes };
    if !bypass::is_fast_path()
        && bypass::is_caching()
        && let Some(code) = common::observed_malloc(
            function,
            &request.words(),
            request.asked_bytes(),
            ObservedKind::Memory,
        )
    {
        return code;
    }
    // While a stream captures, the driver refuses the call.
    let cacheable = bypass::keeps_other_kinds() && !config::caches_nothing();
    if !cacheable || pointer.is_null() || pitch.is_null() || rows_count == 0 {
        return by_driver(function, request, real);
    }
    let mut served = None;
    let body = |thread: &Thread| {
        served = from_cache(thread, request);
        Ok(())
    };
    let _ = guarded_with(function, body, || Ok(()));
    match served {
        // Caching ended during the call: the error is the library's, not the driver's.
        Some(Err(_)) if !bypass::is_caching() => by_driver(function, request, real),
        Some(code) => code,
        None => by_driver(function, request, real),
    }
}

/// Serves the request from the cache. Returns `None` if the driver has not reported the pitch yet.
fn from_cache(thread: &Thread, request: Request) -> Option<CuResult> {
    let context = lookup::current().ok()?;
    let pitch_bytes = pitches::pitch_of(request.of(context.device))?;
    let bytes = (pitch_bytes as u64).checked_mul(request.rows_count as u64)?;
    let allocated = alloc::allocate(thread, context, bytes, Requester::Context, 0);
    let answer = match allocated {
        Ok(address) => {
            fill::prepare(context, address, bytes, None);
            Some(address)
        }
        // The driver writes the pitch here too (measured).
        Err(CuError::OUT_OF_MEMORY) => Some(0),
        Err(_) => None,
    };
    if let Some(address) = answer {
        // SAFETY: the program's places for the two, which are not null.
        unsafe {
            request.pointer.write(address);
            request.pitch.write(pitch_bytes);
        }
    }
    Some(allocated.map(|_| ()))
}

fn by_driver(function: &'static Function, request: Request, real: impl Real) -> CuResult {
    let Request { pointer, pitch, .. } = request;
    let code = driver_memory::around(function, &request.words(), || {
        let ask = || common::retried(function, real);
        // SAFETY: the driver writes there.
        unsafe { memory_hooks::around_driver(request.asked_bytes(), pointer, ask) }
    });
    if code.is_ok() && bypass::is_caching() {
        // SAFETY: the driver has just written it.
        let pitch_bytes = unsafe { pitch.read() };
        let learn = || {
            let context = lookup::current().ok();
            context.into_iter().for_each(|c| pitches::learn(request.of(c.device), pitch_bytes));
        };
        beside(function, learn);
    }
    code
}

impl Request {
    fn words(&self) -> [usize; 5] {
        let Request { pointer, pitch, width_bytes, rows_count, element_bytes } = *self;
        [pointer as usize, pitch as usize, width_bytes, rows_count, element_bytes as usize]
    }

    /// Number of bytes requested, without the padding that the pitch adds to each row.
    fn asked_bytes(&self) -> u64 {
        (self.width_bytes as u64).saturating_mul(self.rows_count as u64)
    }

    fn of(&self, device: i32) -> Rows {
        let Request { width_bytes, element_bytes, .. } = *self;
        Rows { device, width_bytes, element_bytes }
    }
}
