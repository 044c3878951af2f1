//! Calls of the real driver. Never through our own exports: the addresses come from `table`.
//!
//! The caller must pass handles that the driver gave out and that are alive; it gets the driver's own
//! code. Optional functions are checked for presence (`table::has`): an absent one returns `NOT_FOUND`
//! and does nothing.

use crate::driver::sys::*;
use crate::driver::table;
use crate::functions::id;

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $symbol:ident($($p:ident: $t:ty),*);)*) => {$(
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($p: $t),*) -> CuResult {
            let function =
                table::real::<unsafe extern "C" fn($($t),*) -> CuResult>(id::$symbol);
            // SAFETY: the signature is that of the driver's header for this symbol; references
            // are valid for the call; handles are the caller's promise.
            unsafe { function($($p),*) }
        }
    )*};
}

calls! {
    /// The id of the context, or of the current one for handle 0: never reused in a process.
    ctx_get_id_raw = cuCtxGetId(context: ContextHandle, id: &mut u64);
    ctx_get_current = cuCtxGetCurrent(context: &mut ContextHandle);
    ctx_push_current = cuCtxPushCurrent_v2(context: ContextHandle);
    ctx_pop_current = cuCtxPopCurrent_v2(context: &mut ContextHandle);
    ctx_enable_peer_access = cuCtxEnablePeerAccess(peer: ContextHandle, flags: u32);
    ctx_get_device = cuCtxGetDevice(device: &mut i32);
    ctx_synchronize = cuCtxSynchronize();
    /// Captures the work of all streams of the context; kills captures of the context.
    ctx_record_event = cuCtxRecordEvent(context: ContextHandle, event: EventHandle);
    /// All later work of the context waits for the event; kills captures of the context.
    ctx_wait_event = cuCtxWaitEvent(context: ContextHandle, event: EventHandle);
    driver_get_version = cuDriverGetVersion(version: &mut i32);
    event_create = cuEventCreate(event: &mut EventHandle, flags: u32);
    event_query = cuEventQuery(event: EventHandle);
    event_synchronize = cuEventSynchronize(event: EventHandle);
    event_record = cuEventRecord(event: EventHandle, stream: StreamHandle);
    stream_create = cuStreamCreate(stream: &mut StreamHandle, flags: u32);
    stream_destroy = cuStreamDestroy_v2(stream: StreamHandle);
    stream_wait_event = cuStreamWaitEvent(stream: StreamHandle, event: EventHandle, flags: u32);
    stream_query = cuStreamQuery(stream: StreamHandle);
    stream_synchronize = cuStreamSynchronize(stream: StreamHandle);
    stream_get_id_raw = cuStreamGetId(stream: StreamHandle, id: &mut u64);
    stream_get_ctx = cuStreamGetCtx(stream: StreamHandle, context: &mut ContextHandle);
    stream_is_capturing = cuStreamIsCapturing(stream: StreamHandle, status: &mut u32);
    thread_exchange_capture_mode = cuThreadExchangeStreamCaptureMode(mode: &mut u32);
    ipc_close_mem_handle = cuIpcCloseMemHandle(pointer: DevicePointer);
    mem_get_address_range =
        cuMemGetAddressRange_v2(base: &mut DevicePointer, bytes: &mut usize, at: DevicePointer);
    /// `base` and `bytes` are written for the program, each null or valid.
    mem_get_address_range_into =
        cuMemGetAddressRange_v2(base: usize, bytes: usize, at: DevicePointer);
    /// `handle` is written for the program.
    mem_get_handle_for_address_range = cuMemGetHandleForAddressRange(
        handle: usize, at: DevicePointer, bytes: usize, kind: u32, flags: u64
    );
    mem_alloc = cuMemAlloc_v2(pointer: &mut DevicePointer, bytes: usize);
    mem_free = cuMemFree_v2(pointer: DevicePointer);
    mem_host_alloc = cuMemHostAlloc(pointer: &mut usize, bytes: usize, flags: u32);
    mem_free_host = cuMemFreeHost(pointer: usize);
    mem_free_async = cuMemFreeAsync(pointer: DevicePointer, stream: StreamHandle);
    /// Addresses without memory.
    mem_address_reserve = cuMemAddressReserve(
        base: &mut DevicePointer, bytes: usize, alignment: usize, wish: DevicePointer, flags: u64
    );
    mem_address_free = cuMemAddressFree(base: DevicePointer, bytes: usize);
    /// Memory without addresses.
    mem_create =
        cuMemCreate(handle: &mut u64, bytes: usize, properties: &AllocationProperties, flags: u64);
    mem_release = cuMemRelease(handle: u64);
    mem_map = cuMemMap(base: DevicePointer, bytes: usize, offset: usize, handle: u64, flags: u64);
    /// Waits for nothing (measured).
    mem_unmap = cuMemUnmap(base: DevicePointer, bytes: usize);
    /// `accesses` is the address of an array of `count` entries.
    mem_set_access =
        cuMemSetAccess(base: DevicePointer, bytes: usize, accesses: usize, count: usize);
    memset_d8_async =
        cuMemsetD8Async(pointer: DevicePointer, value: u8, bytes: usize, stream: StreamHandle);
    memcpy_dtoh_async = cuMemcpyDtoHAsync_v2(
        host: usize, pointer: DevicePointer, bytes: usize, stream: StreamHandle
    );
    mem_get_info = cuMemGetInfo_v2(free_bytes: &mut usize, total_bytes: &mut usize);
    device_get_attribute = cuDeviceGetAttribute(value: &mut i32, attribute: u32, device: i32);
    device_total_mem = cuDeviceTotalMem_v2(bytes: &mut usize, device: i32);
    device_get_count = cuDeviceGetCount(count: &mut i32);
    device_get_name = cuDeviceGetName(name: &mut [u8; 64], room: i32, device: i32);
    device_get_default_mem_pool = cuDeviceGetDefaultMemPool(pool: &mut PoolHandle, device: i32);
    mem_pool_get_attribute =
        cuMemPoolGetAttribute(pool: PoolHandle, attribute: u32, value: &mut u64);
    device_primary_ctx_get_state =
        cuDevicePrimaryCtxGetState(device: i32, flags: &mut u32, active: &mut i32);
    device_primary_ctx_retain =
        cuDevicePrimaryCtxRetain(context: &mut ContextHandle, device: i32);
    device_primary_ctx_release = cuDevicePrimaryCtxRelease_v2(device: i32);
    func_get_param_info =
        cuFuncGetParamInfo(function: usize, index: usize, offset: &mut usize, bytes: &mut usize);
    graph_create = cuGraphCreate(graph: &mut GraphHandle, flags: u32);
    graph_destroy = cuGraphDestroy(graph: GraphHandle);
    graph_instantiate =
        cuGraphInstantiateWithFlags(executable: &mut usize, graph: GraphHandle, flags: u64);
    graph_launch = cuGraphLaunch(executable: usize, stream: StreamHandle);
    graph_exec_destroy = cuGraphExecDestroy(executable: usize);
    graph_node_get_type = cuGraphNodeGetType(node: NodeHandle, kind: &mut u32);
    graph_child_graph = cuGraphChildGraphNodeGetGraph(node: NodeHandle, child: &mut GraphHandle);
    /// `kinds` and `data` are the program's arrays of `count` entries.
    pointer_get_attribute =
        cuPointerGetAttribute(data: &mut u64, attribute: u32, pointer: DevicePointer);
    pointer_get_attributes =
        cuPointerGetAttributes(count: u32, kinds: usize, data: usize, pointer: DevicePointer);
    kernel_get_param_info =
        cuKernelGetParamInfo(kernel: usize, index: usize, offset: &mut usize, bytes: &mut usize);
}

/// `cuCtxGetId`; before driver 12.0, which lacks it, the handle serves as the id.
#[inline]
pub(crate) fn ctx_get_id(context: ContextHandle, id: &mut u64) -> CuResult {
    if table::has(id::cuCtxGetId) {
        return ctx_get_id_raw(context, id);
    }
    let mut handle = context;
    let code = if handle == 0 { ctx_get_current(&mut handle) } else { SUCCESS };
    if code == SUCCESS && handle == 0 {
        return INVALID_CONTEXT;
    }
    *id = handle as u64;
    code
}

/// Whether stream ids are unique: before driver 12.0 the handle of every thread's own default stream is
/// the same, and handles are reused.
pub(crate) fn has_stream_ids() -> bool {
    table::has(id::cuStreamGetId)
}

/// `cuStreamGetId`; before driver 12.0, which lacks it, the handle serves as the id.
#[inline]
pub(crate) fn stream_get_id(stream: StreamHandle, id: &mut u64) -> CuResult {
    if has_stream_ids() {
        return stream_get_id_raw(stream, id);
    }
    *id = stream as u64;
    SUCCESS
}

/// Writes up to `count` nodes of a graph; without `nodes`, returns their number in `count`.
pub(crate) fn graph_get_nodes(
    graph: GraphHandle,
    nodes: Option<&mut [NodeHandle]>,
    count: &mut usize,
) -> CuResult {
    let function = table::real::<
        unsafe extern "C" fn(GraphHandle, *mut NodeHandle, &mut usize) -> CuResult,
    >(id::cuGraphGetNodes);
    let first = nodes.map_or(core::ptr::null_mut(), |nodes| {
        *count = nodes.len();
        nodes.as_mut_ptr()
    });
    // SAFETY: the signature is that of the driver's header; `count` is the length of the array.
    unsafe { function(graph, first, count) }
}

/// The bytes that a memory node of a graph allocates.
pub(crate) fn graph_mem_alloc_node_bytes(node: NodeHandle) -> Option<u64> {
    const PARAMS_WORDS: usize = 15;
    const BYTES_WORD: usize = 13;
    let mut params = [0; PARAMS_WORDS];
    let function = table::real::<
        unsafe extern "C" fn(NodeHandle, &mut [u64; PARAMS_WORDS]) -> CuResult,
    >(id::cuGraphMemAllocNodeGetParams);
    // SAFETY: the driver writes a `CUDA_MEM_ALLOC_NODE_PARAMS`, of this size in all versions.
    let code = unsafe { function(node, &mut params) };
    (code == SUCCESS).then_some(params[BYTES_WORD])
}

/// `cuLaunchKernelEx`, in the form that the program called.
pub(crate) fn launch_kernel_ex(
    id: usize,
    config: &LaunchConfig,
    kernel: usize,
    params: usize,
    extra: usize,
) -> CuResult {
    let function =
        table::real::<unsafe extern "C" fn(&LaunchConfig, usize, usize, usize) -> CuResult>(id);
    // SAFETY: the signature is that of the driver's header; the arguments are the program's.
    unsafe { function(config, kernel, params, extra) }
}

/// `cuIpcOpenMemHandle`, in the version that the program called.
pub(crate) fn ipc_open_mem_handle(
    id: usize,
    pointer: &mut DevicePointer,
    handle: Handle64,
    flags: u32,
) -> CuResult {
    let function =
        table::real::<unsafe extern "C" fn(&mut DevicePointer, Handle64, u32) -> CuResult>(id);
    // SAFETY: the signature is that of the driver's header, the same for both versions.
    unsafe { function(pointer, handle, flags) }
}

/// Whether the driver has the context-wide barrier (12.5 and later).
pub(crate) fn has_context_barrier() -> bool {
    table::has(id::cuCtxRecordEvent) && table::has(id::cuCtxWaitEvent)
}

/// The thread's capture mode, which says which calls captures forbid.
pub(crate) fn capture_mode() -> u32 {
    let mut mode = CAPTURE_MODE_RELAXED;
    let exchanged = thread_exchange_capture_mode(&mut mode) == SUCCESS;
    let found = mode;
    if exchanged {
        thread_exchange_capture_mode(&mut mode);
    }
    found
}

/// Runs `body` with this thread in relaxed capture mode, in which our own calls neither fail because of
/// a capture nor end it (measured: `cuMemAlloc`, `cuMemFree`, event queries and records on streams that
/// do not capture), and restores the mode.
pub(crate) fn relaxed<T>(body: impl FnOnce() -> T) -> T {
    let mut mode = CAPTURE_MODE_RELAXED;
    let exchanged = thread_exchange_capture_mode(&mut mode) == SUCCESS;
    let result = body();
    if exchanged {
        thread_exchange_capture_mode(&mut mode);
    }
    result
}
