//! [19] [52] Calls that the driver refuses, and queries of the library that fail: they have no
//! effect that the program can see.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_tests::driver::{Driver, Outcome, RELAXED, Stream};
use cachealloc_tests::functions::IpcHandle;

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, refused_calls),
    hazard!(Always, calls_about_other_pools),
    hazard!(Always, memory_of_a_part_of_a_device, machine = "SIM_DRIVER_VERSION=13040"),
    hazard!(Always, codes_of_a_lost_context),
    hazard!(Always, upload_at_instantiation, machine = "SIM_GRAPH_MEMORY_LATE=1"),
    hazard!(
        Always,
        first_use_in_a_capture,
        machine = "SIM_KERNEL_MB=100 SIM_LOCAL_MB=20 SIM_OBJECT_MB=4"
    ),
    hazard!(Always, failed_call_that_left_its_capture, ours),
    hazard!(Always, errors_beside_a_first_context, machine = "SIM_DEVICES=2"),
    hazard!(Always, errors_of_a_first_kernel),
    hazard!(Always, errors_of_a_first_counted_kernel, machine = "SIM_DRIVER_VERSION=13020"),
    hazard!(Always, errors_in_a_dump_of_the_log),
    hazard!(Always, errors_in_the_log),
];

const MIB: usize = 1 << 20;
const PINNED: u32 = 1;
/// Kinds of places.
pub const DEVICE: u32 = 1;
const HOST: u32 = 2;
const PART_OF_DEVICE: u32 = 6;

type Call<'a> = (&'a str, &'a dyn Fn() -> Outcome);

/// How the library serves the program: whether a free waits for work that the host cannot see, and
/// how many stream-ordered requests reach the driver.
#[derive(PartialEq, Debug)]
struct Served {
    free_waits: bool,
    asked: u64,
}

fn served(d: &Driver, stream: Stream) -> Outcome<Served> {
    let block = d.alloc(SMALL)?;
    d.launch("delay", stream, &[LATE])?;
    let ns = || d.virtual_ns().unwrap_or(0);
    let begun = ns();
    d.free(block)?;
    let free_waits = ns() - begun > LATE / 2;
    d.synchronize()?;
    let asked = || d.calls("cuMemAllocAsync").unwrap_or(0);
    let before = asked();
    for _ in 0..4 {
        d.free_async(d.alloc_async(BYTES, stream)?, stream)?;
    }
    d.synchronize()?;
    Ok(Served { free_waits, asked: asked() - before })
}

/// Checks that each of these calls leaves everything as it was. `wanted` tells whether the driver
/// accepts the call.
fn leave_all_as_it_was(d: &Driver, calls: &[Call], wanted: impl Fn(Outcome) -> bool) -> Verdict {
    let stream = d.stream()?;
    served(d, stream)?;
    let before = served(d, stream)?;
    for (name, call) in calls {
        let answered = call();
        if !wanted(answered) {
            return Ok(format!("FAIL, {name} answered {}", code(answered)));
        }
        let after = served(d, stream)?;
        if after != before {
            return Ok(format!("FAIL, {name}: {before:?} became {after:?}"));
        }
    }
    Ok("ok".into())
}

/// Properties of a pool or of physical memory, which start with the kind, the handle types, and the
/// kind and number of the place.
pub fn properties(place: u32, number: u32) -> [u32; 22] {
    let mut properties = [0; 22];
    properties[..4].copy_from_slice(&[PINNED, 0, place, number]);
    properties
}

fn new_pool(d: &Driver) -> Outcome<u64> {
    let (mut pool, of_device) = (0, properties(DEVICE, 0));
    call!(d, cuMemPoolCreate(&mut pool, of_device.as_ptr().cast()))?;
    Ok(pool)
}

fn default_pool(d: &Driver) -> Outcome<u64> {
    let mut pool = 0;
    call!(d, cuDeviceGetDefaultMemPool(&mut pool, 0))?;
    Ok(pool)
}

fn refused_calls(d: &Driver) -> Verdict {
    let (default, own, block) = (default_pool(d)?, new_pool(d)?, d.alloc(BYTES)?);
    let (host, device) = ([HOST, 0], [DEVICE, 0]);
    let (on_host, access) = (properties(HOST, 0), [DEVICE, 0, 3]);
    let (place, mut buffer) = (|| &raw mut *Box::leak(Box::new(0_u64)), vec![0_u8; 2 * MIB]);
    let (own_memory, on) = (buffer.as_mut_ptr() as u64, 1_u32);
    let mut exportable = 0;
    let of_device = properties(DEVICE, 0);
    call!(d, cuMemCreate(&mut exportable, 2 * MIB, of_device.as_ptr().cast(), 0))?;
    let refuses = |symbol: &str| d.fail(&format!("{symbol}@1=1"));
    if !refuses("cuMemPoolSetAttribute") {
        return Ok("no simulation".into());
    }
    let calls: [Call; 21] = [
        ("cuMemPoolSetAttribute", &|| call!(d, cuMemPoolSetAttribute(default, 1, place()))),
        ("cuMemPoolDestroy", &|| call!(d, cuMemPoolDestroy(default))),
        ("cuMemPoolSetAccess", &|| {
            refuses("cuMemPoolSetAccess");
            call!(d, cuMemPoolSetAccess(default, access.as_ptr().cast(), 1))
        }),
        ("cuMemPoolExportToShareableHandle", &|| {
            call!(d, cuMemPoolExportToShareableHandle(place().cast(), default, 1, 0))
        }),
        ("cuDeviceSetMemPool", &|| {
            refuses("cuDeviceSetMemPool");
            call!(d, cuDeviceSetMemPool(0, own))
        }),
        ("cuMemSetMemPool of a device", &|| {
            refuses("cuMemSetMemPool");
            call!(d, cuMemSetMemPool(device.as_ptr().cast(), PINNED, own))
        }),
        ("cuMemSetMemPool of the host", &|| {
            call!(d, cuMemSetMemPool(host.as_ptr().cast(), PINNED, own))
        }),
        ("cuMemGetMemPool", &|| {
            refuses("cuMemGetMemPool");
            call!(d, cuMemGetMemPool(place(), host.as_ptr().cast(), PINNED))
        }),
        ("cuMemPoolCreate", &|| {
            refuses("cuMemPoolCreate");
            call!(d, cuMemPoolCreate(place(), on_host.as_ptr().cast()))
        }),
        ("cuMemCreate", &|| {
            refuses("cuMemCreate");
            call!(d, cuMemCreate(place(), 2 * MIB, on_host.as_ptr().cast(), 0))
        }),
        ("cuMemAllocManaged", &|| {
            refuses("cuMemAllocManaged");
            call!(d, cuMemAllocManaged(place(), BYTES, 1))
        }),
        ("cuMemHostAlloc", &|| {
            refuses("cuMemHostAlloc");
            call!(d, cuMemHostAlloc(place(), SMALL, 2))
        }),
        ("cuMemHostRegister", &|| {
            refuses("cuMemHostRegister_v2");
            call!(d, cuMemHostRegister(own_memory, SMALL, 2))
        }),
        ("cuMemHostGetDevicePointer", &|| {
            call!(d, cuMemHostGetDevicePointer(place(), own_memory, 0))
        }),
        ("cuPointerSetAttribute", &|| {
            refuses("cuPointerSetAttribute");
            call!(d, cuPointerSetAttribute((&raw const on).cast(), SYNC_MEMOPS, block))
        }),
        ("cuPointerGetAttribute", &|| {
            refuses("cuPointerGetAttribute");
            call!(d, cuPointerGetAttribute(place(), P2P_TOKENS, block))
        }),
        ("cuIpcGetMemHandle", &|| {
            let mut handle = IpcHandle::default();
            refuses("cuIpcGetMemHandle");
            call!(d, cuIpcGetMemHandle(&mut handle, block))
        }),
        ("cuMemExportToShareableHandle", &|| {
            refuses("cuMemExportToShareableHandle");
            call!(d, cuMemExportToShareableHandle(place().cast(), exportable, 1, 0))
        }),
        ("cuMemGetHandleForAddressRange", &|| {
            refuses("cuMemGetHandleForAddressRange");
            call!(d, cuMemGetHandleForAddressRange(place().cast(), block, BYTES, 1, 0))
        }),
        ("cuGreenCtxCreate", &|| {
            refuses("cuGreenCtxCreate");
            call!(d, cuGreenCtxCreate(place(), 0, 0, 1))
        }),
        ("cuGetExportTable", &|| {
            let unknown = [7_u8; 16];
            refuses("cuGetExportTable");
            call!(d, cuGetExportTable(place(), unknown.as_ptr().cast()))
        }),
    ];
    leave_all_as_it_was(d, &calls, |answered| answered.is_err())
}

/// Calls about the host's pools, or about the default pool itself, do not change which pool
/// `cuMemAllocAsync` allocates from.
fn calls_about_other_pools(d: &Driver) -> Verdict {
    let (default, host, device) = (default_pool(d)?, [HOST, 0], [DEVICE, 0]);
    let host_pool = || {
        let mut pool = 0;
        call!(d, cuMemGetMemPool(&mut pool, host.as_ptr().cast(), PINNED)).map(|()| pool)
    };
    if let Err(code) = host_pool() {
        return Ok(format!("none here: {code}"));
    }
    let calls: [Call; 5] = [
        ("cuDeviceSetMemPool", &|| call!(d, cuDeviceSetMemPool(0, default))),
        ("cuMemSetMemPool of a device", &|| {
            call!(d, cuMemSetMemPool(device.as_ptr().cast(), PINNED, default))
        }),
        ("cuMemGetMemPool", &|| host_pool().map(drop)),
        ("cuMemSetMemPool of the host", &|| {
            call!(d, cuMemSetMemPool(host.as_ptr().cast(), PINNED, host_pool()?))
        }),
        ("cuMemPoolCreate", &|| {
            let (mut pool, on_host) = (0, properties(HOST, 0));
            call!(d, cuMemPoolCreate(&mut pool, on_host.as_ptr().cast()))
        }),
    ];
    leave_all_as_it_was(d, &calls, |answered| answered.is_ok())
}

/// Memory of a part of a device is device memory, which the host does not see.
fn memory_of_a_part_of_a_device(d: &Driver) -> Verdict {
    let of_part = properties(PART_OF_DEVICE, 1 << 8);
    let calls: [Call; 2] = [
        ("cuMemCreate", &|| {
            let mut made = 0;
            call!(d, cuMemCreate(&mut made, 2 * MIB, of_part.as_ptr().cast(), 0))
        }),
        ("cuMemPoolCreate", &|| {
            let (mut pool, mut block) = (0, 0);
            call!(d, cuMemPoolCreate(&mut pool, of_part.as_ptr().cast()))?;
            call!(d, cuMemAllocFromPoolAsync(&mut block, BYTES, pool, 0))
        }),
    ];
    leave_all_as_it_was(d, &calls, |answered| answered.is_ok())
}

/// The MPS server has ended the process's work, or a device outside of CUDA has failed: every later
/// call fails.
fn codes_of_a_lost_context(d: &Driver) -> Verdict {
    const FAIL: [&str; 6] = [
        "cuCtxSynchronize",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuEventRecord",
        "cuCtxRecordEvent",
        "cuMemFreeAsync",
    ];
    let mut told = Vec::new();
    for lost in [810, 911] {
        let blocks = [d.alloc(MIB)?, d.alloc(MIB)?];
        d.free(blocks[0])?;
        let all = FAIL.map(|symbol| format!("{symbol}@*={lost}"));
        if !d.fail(&all.join(",")) {
            return Ok("no simulation".into());
        }
        told.push([code(d.synchronize()), code(d.alloc(MIB)), code(d.free(blocks[1]))]);
        d.recover();
        call!(d, cuDevicePrimaryCtxReset(0))?;
        d.use_device(0)?;
    }
    Ok(format!("codes {told:?}"))
}

/// The graph gets its memory when it is instantiated; memory that it gets of a full device is lost.
fn upload_at_instantiation(d: &Driver) -> Verdict {
    const UPLOAD: u64 = 2;
    let (stream, word) = (d.stream()?, d.alloc(SMALL)?);
    fill(d, stream, word, SMALL, 1, 10)?;
    d.synchronize()?;
    let (free, _) = d.memory_info()?;
    let percent = |percent: usize| free / 100 * percent / (2 * MIB) * (2 * MIB);
    let cached = [d.alloc(percent(40))?, d.alloc(percent(40))?];
    cached.into_iter().try_for_each(|block| d.free(block))?;
    d.begin_capture(stream, RELAXED)?;
    let nodes = [d.alloc_async(percent(35), stream)?, d.alloc_async(percent(35), stream)?];
    for node in nodes {
        fill(d, stream, node, SMALL, 7, 10)?;
    }
    nodes.into_iter().try_for_each(|node| d.free_async(node, stream))?;
    let graph = d.end_capture(stream)?;
    let (mut executable, mut params) = (0, [UPLOAD, stream, 0, 0]);
    call!(d, cuGraphInstantiateWithParams(&mut executable, graph, params.as_mut_ptr()))?;
    d.launch_graph(executable, stream)?;
    d.synchronize()?;
    d.destroy_executable(executable)?;
    d.destroy_graph(graph)?;
    d.synchronize()?;
    ok_if(d.alloc(percent(90)).is_ok(), "memory was lost")
}

/// The cache holds the memory that the driver needs for the kernel's code.
fn first_use_in_a_capture(d: &Driver) -> Verdict {
    let (stream, word, kernel) = (d.stream()?, d.alloc(SMALL)?, d.kernel("late_fill")?);
    let (free, _) = d.memory_info()?;
    let mut cached = Vec::new();
    for _ in 0..7 {
        cached.push(d.alloc(free / 100 * 14)?);
    }
    cached.into_iter().try_for_each(|block| d.free(block))?;
    let mut codes = Vec::new();
    for mode in [RELAXED, 1, 0] {
        d.begin_capture(stream, mode)?;
        codes.push(code(fill(d, stream, word, SMALL, 7, 10)));
        let graph = d.end_capture(stream)?;
        let mut count = 0;
        call!(d, cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count))?;
        let executable = d.instantiate(graph)?;
        d.launch_graph(executable, stream)?;
        codes.push(count as i32);
    }
    let right = holds(d, word, SMALL, 7)?;
    Ok(format!("codes and nodes {codes:?}, kernel {}, right {right}", kernel != 0))
}

/// A launch is refused, and has added nothing to its capture: the library repeats it with memory of
/// the cache.
fn failed_call_that_left_its_capture(d: &Driver) -> Verdict {
    let (stream, word) = (d.stream()?, d.alloc(SMALL)?);
    d.free(d.alloc(24 * MIB)?)?;
    d.begin_capture(stream, RELAXED)?;
    d.fail("cuLaunchKernel@1=2");
    let launched = code(fill(d, stream, word, SMALL, 3, 0));
    let graph = d.end_capture(stream)?;
    let executable = d.instantiate(graph)?;
    d.launch_graph(executable, stream)?;
    ok_if(launched == 0 && holds(d, word, SMALL, 3)?, "the launch was not repeated")
}

/// The driver logs every refusal, and serves each of these requests without the library.
fn errors_in_the_log(d: &Driver) -> Verdict {
    logs_nothing(d, || {
        let (stream, (free, _)) = (d.stream()?, d.memory_info()?);
        let tenths = |tenths: usize| free / 10 * tenths / (2 * MIB) * (2 * MIB);
        for size in [7, 8] {
            d.free(d.alloc(tenths(size))?)?;
        }
        for size in [5, 9] {
            d.free_async(d.alloc_async(tenths(size), stream)?, stream)?;
            d.synchronize_stream(stream)?;
        }
        let (mut made, of_device) = (0, properties(DEVICE, 0));
        call!(d, cuMemCreate(&mut made, tenths(7), of_device.as_ptr().cast(), 0))?;
        call!(d, cuMemRelease(made))?;
        d.free(d.alloc(tenths(6))?)?;
        let (pool, mut block) = (new_pool(d)?, 0);
        call!(d, cuMemAllocFromPoolAsync(&mut block, tenths(7), pool, stream))?;
        d.free_async(block, stream)?;
        d.synchronize_stream(stream)
    })
}

/// A thread without a current context makes the first context of a device.
fn errors_beside_a_first_context(d: &Driver) -> Verdict {
    logs_nothing(d, || {
        let mut context = 0;
        let retain = || call!(d, cuDevicePrimaryCtxRetain(&mut context, 1));
        std::thread::scope(|scope| scope.spawn(retain).join().expect("no program panics"))
    })
}

/// While there is pinned memory, the library looks at the arguments of kernels.
fn errors_of_a_first_kernel(d: &Driver) -> Verdict {
    let (stream, block, _pinned) = (d.stream()?, d.alloc(SMALL)?, d.pinned(64)?);
    logs_nothing(d, || fill(d, stream, block, SMALL, 1, 0))
}

/// The program reads the log afterwards, from the place that it had noted before.
fn errors_in_a_dump_of_the_log(d: &Driver) -> Verdict {
    let (stream, block, _pinned) = (d.stream()?, d.alloc(SMALL)?, d.pinned(64)?);
    let (mut begin, mut text, mut bytes) = (0, [0_u8; 4096], 4096);
    if call!(d, cuLogsCurrent(&mut begin, 0)).is_err() {
        return Ok("no log".into());
    }
    fill(d, stream, block, SMALL, 1, 0)?;
    call!(d, cuLogsDumpToMemory(&mut begin, text.as_mut_ptr(), &mut bytes, 0))?;
    let text = text.split(|byte| *byte == 0).next().map(String::from_utf8_lossy);
    ok_if(text.as_deref() == Some(""), &format!("{text:?}"))
}

/// The same on a driver that reports how many arguments a kernel has.
fn errors_of_a_first_counted_kernel(d: &Driver) -> Verdict {
    errors_of_a_first_kernel(d)
}

/// Whether the driver's log stays empty meanwhile.
fn logs_nothing(d: &Driver, body: impl FnOnce() -> Outcome) -> Verdict {
    static LINES: AtomicU64 = AtomicU64::new(0);
    static FIRST: Mutex<String> = Mutex::new(String::new());
    unsafe extern "C" fn hears(_data: *mut c_void, _level: u32, text: *const u8, bytes: usize) {
        // SAFETY: the driver wrote `bytes` bytes of text there.
        let text = unsafe { std::slice::from_raw_parts(text, bytes) };
        if LINES.fetch_add(1, Ordering::Relaxed) == 0 {
            *FIRST.lock().expect("no program panics") = String::from_utf8_lossy(text).into_owned();
        }
    }
    let mut handle = 0;
    let registered = call!(d, cuLogsRegisterCallback(hears, std::ptr::null_mut(), &mut handle));
    if registered.is_err() {
        return Ok("no log".into());
    }
    body()?;
    let lines = LINES.load(Ordering::Relaxed);
    let first = FIRST.lock().expect("no program panics");
    ok_if(lines == 0, &format!("{lines} errors, first {first}"))
}

const P2P_TOKENS: u32 = 5;
const SYNC_MEMOPS: u32 = 6;
