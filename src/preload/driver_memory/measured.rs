//! The driver's answers about the memory of a device. The library asks when a context is created,
//! when another process requests a breakdown, and for a requested snapshot. It does not ask during
//! an allocation, nor at the end of the process, where the driver may be shutting down too.
//!
//! NVML tells how much of the memory belongs to the process. The library does not load NVML. The
//! loading thread would need the loader's lock, whose owner may be waiting for a snapshot, and the
//! process would keep the code and open files of another library. So a command that requests a
//! snapshot asks NVML and sends the answer first (`ControlCommand::Note`).
//!
//! Each question is asked in a context that is kept open meanwhile, and about pools that are kept
//! as well (`pool_devices::while_they_stay`). If the driver lacks a function or refuses, the number
//! is unknown.

use std::sync::Mutex;
use std::time::Duration;

use cachealloc_statistics::breakdown::{Component, NvmlReading};

use crate::cache::pools;
use crate::clock::Instant;
use crate::contexts::lookup;
use crate::driver::api;
use crate::driver::sys::{
    ContextHandle, CuResult, DEVICE_MULTIPROCESSOR_COUNT, DEVICE_THREADS_PER_MULTIPROCESSOR_MAX,
    GRAPH_MEMORY_RESERVED, LIMIT_MALLOC_HEAP, LIMIT_PRINTF_BUFFER, LIMIT_STACK, POOL_RESERVED,
};
use crate::driver_memory::pool_devices;
use crate::lock::lock;
use crate::ordering::observers;
use crate::process::lock_timeout::LockWait;
use crate::state::contexts;
use crate::state::contexts::Context;

/// Bytes in use on each device when its first context had been created.
static FIRST: Mutex<Vec<First>> = Mutex::new(Vec::new());
/// The driver's last answers for each device.
static LAST: Mutex<[Option<Measured>; DEVICES_MAX]> = Mutex::new([None; DEVICES_MAX]);
const DEVICES_MAX: usize = 64;
/// NVML's answer for each device, with its time.
static NOTED: Mutex<[Option<(Instant, NvmlReading)>; DEVICES_MAX]> =
    Mutex::new([None; DEVICES_MAX]);
/// Longest age of a note. An older one was for a snapshot that was not written.
const NOTED_FOR: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
struct First {
    device: i32,
    context_id: u64,
    in_use_bytes: u64,
}

/// The driver's answers for one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub at: Instant,
    pub total_bytes: u64,
    /// Bytes in use by all processes.
    pub in_use_bytes: u64,
    /// Bytes reserved by the default pool and all pools of the program.
    pub pools_reserved_bytes: u64,
    pub graphs_reserved_bytes: u64,
    /// Bytes that kernels may make the driver reserve, over all contexts.
    pub limits: [(Component, u64); 3],
}

/// Notes a new context.
pub(crate) fn context_made(id: u64, handle: ContextHandle) {
    let Ok((device, in_use_bytes)) = api::relaxed(|| within(id, handle, in_use)) else { return };
    let mut first = lock(&FIRST);
    // Under the lock: a list read earlier would lack a context of another device that was noted
    // here meanwhile.
    let alive = observers::contexts_seen();
    first.retain(|first| alive.iter().any(|seen| seen.id == first.context_id));
    if first.iter().all(|first| first.device != device) {
        first.push(First { device, context_id: id, in_use_bytes });
    }
}

/// Returns the bytes in use on this device when its first context had been created.
pub(crate) fn at_first_context(device: i32, wait: LockWait) -> Option<u64> {
    let first = wait.lock(&FIRST)?;
    let found = first.iter().find(|first| first.device == device);
    found.map(|first| first.in_use_bytes)
}

/// Returns the last answers for this device.
pub(crate) fn last(device: i32, wait: LockWait) -> Option<Measured> {
    let last = wait.lock(&LAST)?;
    *last.get(usize::try_from(device).ok()?)?
}

/// Notes what NVML reports now.
pub(crate) fn note(device: i32, nvml_reading: NvmlReading) {
    let place = usize::try_from(device).ok();
    let mut noted = lock(&NOTED);
    if let Some(noted) = place.and_then(|place| noted.get_mut(place)) {
        *noted = Some((Instant::now(), nvml_reading));
    }
}

/// Takes NVML's answer for this device, for the snapshot that it was requested for. The next
/// snapshot begins without one.
pub(crate) fn take_noted(device: i32, wait: LockWait) -> Option<NvmlReading> {
    let mut noted = wait.lock(&NOTED)?;
    let (at, nvml_reading) = noted.get_mut(usize::try_from(device).ok()?)?.take()?;
    (at.elapsed() < NOTED_FOR).then_some(nvml_reading)
}

/// Asks the driver about every device, and returns `true`. Must be called where the driver may be
/// called, with no lock of the library held. Allocates nothing: the caller may be a thread of the
/// program, and the host may be out of memory.
pub(crate) fn ask() -> bool {
    let mut all: [Option<Measured>; DEVICES_MAX] = [None; DEVICES_MAX];
    for context in contexts::all() {
        // The end of a context waits for the library, so a context that is ending is not entered.
        let open = context.keep_open();
        if open.is_none() || !lookup::is_certain(context) {
            continue;
        }
        let place = usize::try_from(context.device).ok().and_then(|device| all.get_mut(device));
        let Some(place) = place else { continue };
        let Ok(measured) = api::relaxed(|| context.enter(|| of(context))) else { continue };
        match place {
            Some(other) => {
                let sums = other.limits.iter_mut().zip(measured.limits);
                sums.for_each(|((_, sum), (_, bytes))| *sum = sum.saturating_add(bytes));
            }
            None => *place = Some(measured),
        }
    }
    let mut last = lock(&LAST);
    for (last, measured) in last.iter_mut().zip(all).filter(|(_, measured)| measured.is_some()) {
        *last = measured;
    }
    true
}

/// Measures the device of the current context.
fn of(context: &Context) -> CuResult<Measured> {
    let device = context.device;
    let (free, total) = api::mem_get_info()?;
    let [pools_reserved_bytes, graphs_reserved_bytes] = reserved(device);
    let limit = |limit| api::ctx_get_limit(limit).unwrap_or(0) as u64;
    let attribute =
        |which| api::device_get_attribute(which, device).map_or(0, |it| it.max(0) as u64);
    let threads = attribute(DEVICE_MULTIPROCESSOR_COUNT)
        .saturating_mul(attribute(DEVICE_THREADS_PER_MULTIPROCESSOR_MAX));
    Ok(Measured {
        at: Instant::now(),
        total_bytes: total as u64,
        in_use_bytes: total.saturating_sub(free) as u64,
        pools_reserved_bytes,
        graphs_reserved_bytes,
        limits: [
            (Component::LocalMemory, limit(LIMIT_STACK).saturating_mul(threads)),
            (Component::MallocHeap, limit(LIMIT_MALLOC_HEAP)),
            (Component::PrintfBuffer, limit(LIMIT_PRINTF_BUFFER)),
        ],
    })
}

/// Returns the bytes reserved by the default pool of a device with the program's pools there, and
/// by graphs.
pub(crate) fn reserved(device: i32) -> [u64; 2] {
    let reserved = |pool| api::mem_pool_get_attribute(pool, POOL_RESERVED).unwrap_or(0);
    let of_program = pool_devices::while_they_stay(device, |pools| {
        pools.iter().map(|pool| reserved(*pool)).fold(0, u64::saturating_add)
    });
    let of_default = pools::default_of(device).map_or(0, reserved);
    let of_graphs = api::device_get_graph_mem_attribute(device, GRAPH_MEMORY_RESERVED);
    [of_program.saturating_add(of_default), of_graphs.unwrap_or(0)]
}

/// Returns the current device and the bytes in use on it.
fn in_use() -> CuResult<(i32, u64)> {
    let (free, total) = api::mem_get_info()?;
    Ok((api::ctx_get_device()?, total.saturating_sub(free) as u64))
}

/// Runs `body` in a context that the library has no record of yet.
fn within<T>(id: u64, handle: ContextHandle, body: impl FnOnce() -> CuResult<T>) -> CuResult<T> {
    if api::is_current(handle, id) {
        return body();
    }
    api::ctx_push_current(handle)?;
    let result = body();
    let _ = api::ctx_pop_current();
    result
}
