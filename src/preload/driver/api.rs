//! Calls of the real driver. They never go through the library's exports: the addresses come from
//! `table`.
//!
//! The caller must pass handles that the driver returned and that are alive; it gets the driver's
//! own error. Optional functions are checked for presence (`table::has`): an absent one returns
//! `NOT_FOUND` and does nothing.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

use crate::driver::sys::*;
use crate::driver::{changes, table};
use crate::functions::id;

/// The inferred type of an argument, given by the function's parameters.
macro_rules! of_argument {
    ($argument:expr) => {
        _
    };
}

/// The type of a call's results.
macro_rules! results {
    ($one:ty) => {
        $one
    };
    ($($each:ty),*) => {
        ($($each),*)
    };
}

/// Each call is `name(parameters) -> (results) = symbol(arguments)`; it returns what the driver
/// writes.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident($($p:ident: $t:ty),*) $(-> ($($out:ident: $of:ty),+))? = $symbol:ident($($argument:expr),*);
    )*) => {$(
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($p: $t),*) -> CuResult<results!($($($of),+)?)> {
            $($(let mut $out: $of = 0;)+)?
            // SAFETY: the signature is that of the driver's header for this symbol; references
            // are valid for the call; handles are the caller's promise.
            let code = unsafe {
                table::real::<unsafe extern "C" fn($(of_argument!($argument)),*) -> CuCode>(id::$symbol)(
                    $($argument),*
                )
            };
            result(code).map(|()| ($($($out),+)?))
        }
    )*};
}

calls! {
    /// The id of the context, or of the current one for handle 0: never reused in a process.
    ctx_get_id_raw(context: ContextHandle) -> (id: u64) = cuCtxGetId(context, &mut id);
    ctx_get_current() -> (context: ContextHandle) = cuCtxGetCurrent(&mut context);
    ctx_push_current(context: ContextHandle) = cuCtxPushCurrent_v2(context);
    ctx_pop_current() -> (context: ContextHandle) = cuCtxPopCurrent_v2(&mut context);
    ctx_from_green_ctx(green: usize) -> (context: ContextHandle) =
        cuCtxFromGreenCtx(&mut context, green);
    ctx_enable_peer_access(peer: ContextHandle, flags: u32) = cuCtxEnablePeerAccess(peer, flags);
    ctx_get_device() -> (device: i32) = cuCtxGetDevice(&mut device);
    ctx_synchronize() = cuCtxSynchronize();
    /// Captures the work of all streams of the context; invalidates captures of the context.
    ctx_record_event(context: ContextHandle, event: EventHandle) = cuCtxRecordEvent(context, event);
    /// All later work of the context waits for the event; invalidates captures of the context.
    ctx_wait_event(context: ContextHandle, event: EventHandle) = cuCtxWaitEvent(context, event);
    driver_get_version() -> (version: i32) = cuDriverGetVersion(&mut version);
    event_create(flags: u32) -> (event: EventHandle) = cuEventCreate(&mut event, flags);
    event_query(event: EventHandle) = cuEventQuery(event);
    event_synchronize(event: EventHandle) = cuEventSynchronize(event);
    event_record(event: EventHandle, stream: StreamHandle) = cuEventRecord(event, stream);
    stream_create(flags: u32) -> (stream: StreamHandle) = cuStreamCreate(&mut stream, flags);
    stream_destroy(stream: StreamHandle) = cuStreamDestroy_v2(stream);
    stream_wait_event(stream: StreamHandle, event: EventHandle, flags: u32) =
        cuStreamWaitEvent(stream, event, flags);
    stream_query(stream: StreamHandle) = cuStreamQuery(stream);
    stream_synchronize(stream: StreamHandle) = cuStreamSynchronize(stream);
    stream_get_id_raw(stream: StreamHandle) -> (id: u64) = cuStreamGetId(stream, &mut id);
    stream_get_flags(stream: StreamHandle) -> (flags: u32) = cuStreamGetFlags(stream, &mut flags);
    stream_get_ctx(stream: StreamHandle) -> (context: ContextHandle) =
        cuStreamGetCtx(stream, &mut context);
    stream_is_capturing(stream: StreamHandle) -> (status: u32) =
        cuStreamIsCapturing(stream, &mut status);
    /// Exchanges `mode` with the previous mode.
    thread_exchange_capture_mode(mode: &mut u32) = cuThreadExchangeStreamCaptureMode(mode);
    ipc_close_mem_handle(pointer: DevicePointer) = cuIpcCloseMemHandle(pointer);
    mem_get_address_range(at: DevicePointer) -> (base: DevicePointer, bytes: usize) =
        cuMemGetAddressRange_v2(&mut base, &mut bytes, at);
    mem_alloc_raw(bytes: usize) -> (pointer: DevicePointer) = cuMemAlloc_v2(&mut pointer, bytes);
    mem_free_raw(pointer: DevicePointer) = cuMemFree_v2(pointer);
    mem_host_alloc(bytes: usize, flags: u32) -> (pointer: usize) =
        cuMemHostAlloc(&mut pointer, bytes, flags);
    mem_free_host(pointer: usize) = cuMemFreeHost(pointer);
    mem_free_async(pointer: DevicePointer, stream: StreamHandle) = cuMemFreeAsync(pointer, stream);
    /// Reserves addresses without memory.
    mem_address_reserve(bytes: usize, alignment: usize, wish: DevicePointer, flags: u64)
        -> (base: DevicePointer) = cuMemAddressReserve(&mut base, bytes, alignment, wish, flags);
    mem_address_free(base: DevicePointer, bytes: usize) = cuMemAddressFree(base, bytes);
    mem_create_raw(bytes: usize, properties: &AllocationProperties, flags: u64) -> (handle: u64) =
        cuMemCreate(&mut handle, bytes, properties, flags);
    mem_release_raw(handle: u64) = cuMemRelease(handle);
    mem_map(base: DevicePointer, bytes: usize, offset: usize, handle: u64, flags: u64) =
        cuMemMap(base, bytes, offset, handle, flags);
    mem_unmap_raw(base: DevicePointer, bytes: usize) = cuMemUnmap(base, bytes);
    mem_set_access(base: DevicePointer, bytes: usize, accesses: &[AccessDescription]) =
        cuMemSetAccess(base, bytes, accesses.as_ptr(), accesses.len());
    memset_d8_async(pointer: DevicePointer, value: u8, bytes: usize, stream: StreamHandle) =
        cuMemsetD8Async(pointer, value, bytes, stream);
    mem_get_info() -> (free_bytes: usize, total_bytes: usize) =
        cuMemGetInfo_v2(&mut free_bytes, &mut total_bytes);
    device_get_attribute(attribute: u32, device: i32) -> (value: i32) =
        cuDeviceGetAttribute(&mut value, attribute, device);
    device_total_mem(device: i32) -> (bytes: usize) = cuDeviceTotalMem_v2(&mut bytes, device);
    device_get_count() -> (count: i32) = cuDeviceGetCount(&mut count);
    /// Writes the name with a terminating 0, at most `places` bytes.
    device_get_name(name: &mut [u8; 64], places: i32, device: i32) =
        cuDeviceGetName(name, places, device);
    /// Writes an address such as `0000:01:00.0` with a terminating 0, at most `places` bytes.
    device_get_pci_bus_id(address: &mut [u8; 32], places: i32, device: i32) =
        cuDeviceGetPCIBusId(address, places, device);
    /// Writes the id of the whole GPU, also if the device is a part of it.
    device_get_uuid_of_whole(uuid: &mut Uuid, device: i32) = cuDeviceGetUuid(uuid, device);
    /// Writes the id of the part of a GPU, if the device is one (MIG).
    device_get_uuid_of_part(uuid: &mut Uuid, device: i32) = cuDeviceGetUuid_v2(uuid, device);
    device_get_default_mem_pool(device: i32) -> (pool: PoolHandle) =
        cuDeviceGetDefaultMemPool(&mut pool, device);
    /// Returns the pool from which `cuMemAllocAsync` allocates.
    device_get_mem_pool(device: i32) -> (pool: PoolHandle) =
        cuDeviceGetMemPool(&mut pool, device);
    mem_pool_get_attribute(pool: PoolHandle, attribute: u32) -> (value: u64) =
        cuMemPoolGetAttribute(pool, attribute, &mut value);
    device_get_graph_mem_attribute(device: i32, attribute: u32) -> (value: u64) =
        cuDeviceGetGraphMemAttribute(device, attribute, &mut value);
    /// Returns a limit of the current context.
    ctx_get_limit(limit: u32) -> (bytes: usize) = cuCtxGetLimit(&mut bytes, limit);
    device_primary_ctx_get_state(device: i32) -> (flags: u32, active: i32) =
        cuDevicePrimaryCtxGetState(device, &mut flags, &mut active);
    device_primary_ctx_retain(device: i32) -> (context: ContextHandle) =
        cuDevicePrimaryCtxRetain(&mut context, device);
    device_primary_ctx_release(device: i32) = cuDevicePrimaryCtxRelease_v2(device);
    func_get_param_count(function: usize) -> (count: usize) =
        cuFuncGetParamCount(function, &mut count);
    kernel_get_param_count(kernel: usize) -> (count: usize) =
        cuKernelGetParamCount(kernel, &mut count);
    func_get_param_info(function: usize, index: usize) -> (offset: usize, bytes: usize) =
        cuFuncGetParamInfo(function, index, &mut offset, &mut bytes);
    kernel_get_param_info(kernel: usize, index: usize) -> (offset: usize, bytes: usize) =
        cuKernelGetParamInfo(kernel, index, &mut offset, &mut bytes);
    graph_create(flags: u32) -> (graph: GraphHandle) = cuGraphCreate(&mut graph, flags);
    graph_destroy(graph: GraphHandle) = cuGraphDestroy(graph);
    graph_instantiate(graph: GraphHandle, flags: u64) -> (executable: usize) =
        cuGraphInstantiateWithFlags(&mut executable, graph, flags);
    graph_launch(executable: usize, stream: StreamHandle) = cuGraphLaunch(executable, stream);
    graph_exec_destroy(executable: usize) = cuGraphExecDestroy(executable);
    graph_node_get_type(node: NodeHandle) -> (kind: u32) = cuGraphNodeGetType(node, &mut kind);
    graph_child_graph(node: NodeHandle) -> (child: GraphHandle) =
        cuGraphChildGraphNodeGetGraph(node, &mut child);
    pointer_get_attribute(attribute: u32, pointer: DevicePointer) -> (data: u64) =
        cuPointerGetAttribute(&mut data, attribute, pointer);
}

/// Calls that read or write memory of the program, or memory that the caller names.
macro_rules! calls_with_pointers {
    ($($(#[$doc:meta])* $name:ident($($p:ident: $t:ty),*) = $symbol:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// The pointers must be valid for the driver's use, as its header describes.
        pub(crate) unsafe fn $name($($p: $t),*) -> CuResult {
            // SAFETY: the signature is that of the driver's header for this symbol; the pointers
            // are the caller's promise.
            result(unsafe {
                table::real::<unsafe extern "C" fn($($t),*) -> CuCode>(id::$symbol)($($p),*)
            })
        }
    )*};
}

calls_with_pointers! {
    /// Writes the results of `mem_get_address_range` into the places of a program, each of which
    /// may be null.
    mem_get_address_range_into(base: *mut DevicePointer, bytes: *mut usize, at: DevicePointer) =
        cuMemGetAddressRange_v2;
    /// `handle` is the place of a program.
    mem_get_handle_for_address_range(
        handle: *mut c_void, at: DevicePointer, bytes: usize, kind: u32, flags: u64
    ) = cuMemGetHandleForAddressRange;
    /// Writes to the host after the call has returned.
    memcpy_dtoh_async(host: *mut u8, pointer: DevicePointer, bytes: usize, stream: StreamHandle) =
        cuMemcpyDtoHAsync_v2;
    /// `kinds` and `data` are a program's arrays of `count` entries.
    pointer_get_attributes(
        count: u32, kinds: *const u32, data: *const *mut u64, pointer: DevicePointer
    ) = cuPointerGetAttributes;
}

pub(crate) fn mem_alloc(bytes: usize) -> CuResult<DevicePointer> {
    changes::during(|| mem_alloc_raw(bytes))
}

pub(crate) fn mem_free(pointer: DevicePointer) -> CuResult {
    changes::during(|| mem_free_raw(pointer))
}

/// Creates memory without addresses.
pub(crate) fn mem_create(bytes: usize, of: &AllocationProperties, flags: u64) -> CuResult<u64> {
    changes::during(|| mem_create_raw(bytes, of, flags))
}

pub(crate) fn mem_release(handle: u64) -> CuResult {
    changes::during(|| mem_release_raw(handle))
}

/// Unmaps memory. The driver waits for nothing (measured).
pub(crate) fn mem_unmap(base: DevicePointer, bytes: usize) -> CuResult {
    changes::during(|| mem_unmap_raw(base, bytes))
}

/// `cuCtxGetId`, if the driver has it.
#[derive(Clone, Copy)]
pub(crate) struct GetContextId(
    unsafe extern "C" fn(ContextHandle, &mut MaybeUninit<u64>) -> CuCode,
);

impl GetContextId {
    /// A function that returns an error.
    pub(crate) const UNKNOWN: GetContextId = {
        unsafe extern "C" fn unknown(_: ContextHandle, _: &mut MaybeUninit<u64>) -> CuCode {
            code(Err(CuError::NOT_FOUND))
        }
        GetContextId(unknown)
    };

    pub(crate) fn find() -> Option<GetContextId> {
        // SAFETY: the signature is that of the driver's header for this symbol.
        unsafe { table::found(id::cuCtxGetId) }.map(GetContextId)
    }

    /// Returns the id of the current context, if the driver accepts the call. Does what
    /// `ctx_get_id` does, in as few instructions as possible.
    #[inline(always)]
    pub(crate) fn of_current(self) -> Option<u64> {
        let mut id = MaybeUninit::uninit();
        // SAFETY: 0 is the current context; the reference is valid for the call.
        let code = unsafe { (self.0)(0, &mut id) };
        // SAFETY: the driver has accepted the call, and so has written the id.
        (code == 0).then(|| unsafe { id.assume_init() })
    }
}

/// Calls `cuCtxGetId`. Drivers before 12.0 lack it; there the handle serves as the id.
#[inline]
pub(crate) fn ctx_get_id(context: ContextHandle) -> CuResult<u64> {
    if table::has(id::cuCtxGetId) {
        return ctx_get_id_raw(context);
    }
    match if context == 0 { ctx_get_current()? } else { context } {
        0 => Err(CuError::INVALID_CONTEXT),
        handle => Ok(handle as u64),
    }
}

/// Returns whether this is the current context. Asks for the id only where the handle is the same:
/// without a current context the driver would log an error.
pub(crate) fn is_current(handle: ContextHandle, id: u64) -> bool {
    ctx_get_current() == Ok(handle) && ctx_get_id(0) == Ok(id)
}

/// Returns whether stream ids are unique. Before driver 12.0, every thread's own default stream has
/// the same handle, and handles are reused.
pub(crate) fn has_stream_ids() -> bool {
    table::has(id::cuStreamGetId)
}

/// Calls `cuStreamGetId`. Drivers before 12.0 lack it; there the handle serves as the id.
#[inline]
pub(crate) fn stream_get_id(stream: StreamHandle) -> CuResult<u64> {
    if has_stream_ids() { stream_get_id_raw(stream) } else { Ok(stream as u64) }
}

/// Returns the nodes of a graph.
pub(crate) fn graph_get_nodes(graph: GraphHandle) -> CuResult<Vec<NodeHandle>> {
    let mut count = 0;
    let ask = |nodes: *mut NodeHandle, count: &mut usize| {
        // SAFETY: the signature is that of the driver's header; `nodes` is null or has `count`
        // places.
        result(unsafe {
            table::real::<unsafe extern "C" fn(GraphHandle, *mut NodeHandle, &mut usize) -> CuCode>(
                id::cuGraphGetNodes,
            )(graph, nodes, count)
        })
    };
    ask(null_mut(), &mut count)?;
    let mut nodes = vec![0; count];
    if count != 0 {
        ask(nodes.as_mut_ptr(), &mut count)?;
    }
    Ok(nodes)
}

/// Returns the device, the size and the address of the allocation that a memory node of a graph
/// makes on a device.
pub(crate) fn graph_mem_alloc_node(node: NodeHandle) -> Option<(i32, u64, u64)> {
    const PARAMS_WORDS: usize = 15;
    const LOCATION_WORD: usize = 1;
    const BYTES_WORD: usize = 13;
    const ADDRESS_WORD: usize = 14;
    let mut params = [0; PARAMS_WORDS];
    // SAFETY: the driver writes a `CUDA_MEM_ALLOC_NODE_PARAMS`, of this size in all versions.
    let code = unsafe {
        table::real::<unsafe extern "C" fn(NodeHandle, &mut [u64; PARAMS_WORDS]) -> CuCode>(
            id::cuGraphMemAllocNodeGetParams,
        )(node, &mut params)
    };
    let device = Location::from(params[LOCATION_WORD]).device()?;
    result(code).is_ok().then_some((device, params[BYTES_WORD], params[ADDRESS_WORD]))
}

/// Calls `cuLaunchKernelEx`, in the form that the program called.
///
/// # Safety
///
/// `id` must be one of its forms. Everything but the attributes must be the program's arguments.
pub(crate) unsafe fn launch_kernel_ex(
    id: usize,
    config: &LaunchConfig,
    kernel: usize,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    type Launch =
        unsafe extern "C" fn(&LaunchConfig, usize, *mut *mut c_void, *mut *mut c_void) -> CuCode;
    // SAFETY: the signature is that of the driver's header; the arguments are the caller's promise.
    result(unsafe { table::real::<Launch>(id)(config, kernel, params, extra) })
}

/// Calls `cuIpcOpenMemHandle`, in the version that the program called.
///
/// # Safety
///
/// `id` must be one of its versions.
pub(crate) unsafe fn ipc_open_mem_handle(
    id: usize,
    handle: Handle64,
    flags: u32,
) -> CuResult<DevicePointer> {
    type Open = unsafe extern "C" fn(&mut DevicePointer, Handle64, u32) -> CuCode;
    let mut pointer = 0;
    // SAFETY: the signature is that of the driver's header, the same for both versions.
    let code = unsafe { table::real::<Open>(id)(&mut pointer, handle, flags) };
    result(code).map(|()| pointer)
}

/// Returns whether the driver has the context-wide barrier (12.5 and later).
pub(crate) fn has_context_barrier() -> bool {
    table::has(id::cuCtxRecordEvent) && table::has(id::cuCtxWaitEvent)
}

/// Returns the thread's capture mode, which determines the calls that captures forbid.
pub(crate) fn capture_mode() -> u32 {
    let relaxed = Relaxed::begin();
    relaxed.before.unwrap_or(CAPTURE_MODE_RELAXED)
}

/// Runs `body` with this thread in relaxed capture mode, and restores the mode. In that mode the
/// library's calls neither fail because of a capture nor end it (measured: `cuMemAlloc`,
/// `cuMemFree`, event queries and records on streams that do not capture).
pub(crate) fn relaxed<T>(body: impl FnOnce() -> T) -> T {
    let _relaxed = Relaxed::begin();
    body()
}

/// The previous mode, or `None` if this driver has none.
struct Relaxed {
    before: Option<u32>,
}

impl Relaxed {
    fn begin() -> Relaxed {
        let mut mode = CAPTURE_MODE_RELAXED;
        let exchanged = thread_exchange_capture_mode(&mut mode).is_ok();
        Relaxed { before: exchanged.then_some(mode) }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(mut mode) = self.before {
            let _ = thread_exchange_capture_mode(&mut mode);
        }
    }
}
