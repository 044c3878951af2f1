//! The part of the C interface that the model reads: result codes, handles, structures.

#![allow(non_camel_case_types)]

/// Result code of a driver function, when it is not success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub i32);

pub type Outcome<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $value:literal),+ $(,)?) => {
        impl Code { $(pub const $name: Code = Code($value);)+ }
        pub const CODE_NAMES: &[(i32, &str)] =
            &[(0, "CUDA_SUCCESS\0"), $(($value, concat!("CUDA_ERROR_", stringify!($name), "\0"))),+];
    };
}

codes! {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    PEER_ACCESS_UNSUPPORTED = 217,
    FILE_NOT_FOUND = 301,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    LOSSY_QUERY = 402,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    CONTEXT_IS_DESTROYED = 709,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_MERGE = 902,
    STREAM_CAPTURE_UNMATCHED = 903,
    STREAM_CAPTURE_UNJOINED = 904,
    STREAM_CAPTURE_ISOLATION = 905,
    STREAM_CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    STREAM_CAPTURE_WRONG_THREAD = 908,
    GRAPH_EXEC_UPDATE_FAILURE = 910,
    STREAM_DETACHED = 917,
    GRAPH_RECAPTURE_FAILURE = 918,
}

/// An opaque handle: context, stream, event, function, graph, node.
pub type Handle = u64;
pub type DevicePtr = u64;
pub type LogCallback = unsafe extern "C" fn(u64, u32, *const u8, usize);
pub type HostFn = Option<unsafe extern "C" fn(*mut u8)>;
/// Gets the program's data, a node, its parameters before and now, and a status.
pub type RecaptureCallback = Option<
    unsafe extern "C" fn(u64, Handle, *const GraphNodeParams, *const GraphNodeParams, u32) -> i32,
>;
pub type StreamCallback = Option<unsafe extern "C" fn(Handle, i32, *mut u8)>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchAttribute {
    pub id: u32,
    pub pad: u32,
    pub value: [u64; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: Handle,
    pub attributes: *const LaunchAttribute,
    pub attribute_count: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy2D {
    pub src_x: usize,
    pub src_y: usize,
    pub src_type: u32,
    pub src_host: u64,
    pub src_device: DevicePtr,
    pub src_array: Handle,
    pub src_pitch: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_type: u32,
    pub dst_host: u64,
    pub dst_device: DevicePtr,
    pub dst_array: Handle,
    pub dst_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// One side of a 3D copy; the peer form has a context where this one has a reserved word.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Side3D {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub lod: usize,
    pub kind: u32,
    pub host: u64,
    pub device: DevicePtr,
    pub array: Handle,
    pub context: u64,
    pub pitch: usize,
    pub height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy3D {
    pub src: Side3D,
    pub dst: Side3D,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// One side of a copy in a batch: either a pointer, the bytes of a row, the rows of a plane, and a
/// hint, or an array and the offset in it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Operand3D {
    pub kind: u32,
    pub place: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchCopy3D {
    pub src: Operand3D,
    pub dst: Operand3D,
    pub extent: [usize; 3],
    pub access_order: u32,
    pub flags: u32,
}

/// Kernel node parameters: the first 56 bytes are the first version, the rest came with 12.0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelNodeParams {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub params: *const *const u8,
    pub extra: *const *const u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemsetNodeParams {
    pub dst: DevicePtr,
    pub pitch: usize,
    pub value: u32,
    pub element_bytes: u32,
    pub width: usize,
    pub height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostNodeParams {
    pub function: HostFn,
    pub data: *mut u8,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

impl Location {
    pub const NONE: u32 = 0;
    pub const DEVICE: u32 = 1;
    /// Three kinds.
    pub const ON_HOST: std::ops::RangeInclusive<u32> = 2..=4;
    /// A part of a device: the first byte of `id` is the device's number, the second the part's.
    pub const LOCALITY_DOMAIN: u32 = 6;

    pub fn on(device: usize) -> Location {
        Location { kind: Location::DEVICE, id: device as i32 }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AccessDescription {
    pub location: Location,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolProperties {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
    pub security: u64,
    pub bytes_max: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocNodeParams {
    pub pool: PoolProperties,
    pub access: *const AccessDescription,
    pub access_count: usize,
    pub bytes: usize,
    pub address: DevicePtr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ConditionalNodeParams {
    pub handle: u64,
    pub kind: u32,
    pub size: u32,
    /// Where the driver keeps the handles of the bodies.
    pub bodies: *const Handle,
    pub context: Handle,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocationProperties {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
    pub metadata: u64,
    pub flags: [u8; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GraphNodeParams {
    pub kind: u32,
    pub reserved: [i32; 3],
    pub body: [u64; 29],
    pub reserved_end: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct InstantiateParams {
    pub flags: u64,
    pub upload_stream: Handle,
    pub error_node: Handle,
    pub result: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct EdgeData {
    pub bytes: [u8; 8],
}

#[repr(C)]
pub struct UpdateResult {
    pub result: u32,
    pub error_node: Handle,
    pub error_from_node: Handle,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchMemOp {
    pub operation: u32,
    pub address: DevicePtr,
    pub value: u64,
    pub flags: u32,
    pub alias: u64,
    pub pad: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArrayDescription {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: u32,
    pub channels: u32,
    pub flags: u32,
}

/// What a context shares with graphics (`CUctxCreateParams`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ContextParams {
    pub affinity: u64,
    pub affinity_count: i32,
    pub graphics: u64,
}

/// The command list that gets the work of a stream (`CUstreamCigParam`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CommandList {
    pub kind: u32,
    pub list: u64,
}

/// `CUDA_LAUNCH_PARAMS`, of a launch on several devices.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchParams {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: Handle,
    pub params: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchMemOpNodeParams {
    pub context: Handle,
    pub count: u32,
    pub list: u64,
    pub flags: u32,
}

/// `CUDA_EXT_SEM_SIGNAL_NODE_PARAMS`, and that of a wait.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SemaphoreNodeParams {
    pub semaphores: u64,
    pub params: u64,
    pub count: u32,
}

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS`, and that of a wait.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SemaphoreParams {
    pub value: u64,
    pub reserved: [u64; 8],
    pub flags: u32,
    pub reserved_end: [u32; 17],
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, with a descriptor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExternalMemory {
    pub kind: u32,
    pub handle: [u64; 2],
    pub bytes: u64,
    pub flags: u32,
    pub reserved: [u32; 17],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExternalBuffer {
    pub offset: u64,
    pub bytes: u64,
    pub flags: u32,
    pub reserved: [u32; 17],
}

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`, with a descriptor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExternalSemaphore {
    pub kind: u32,
    pub handle: [u64; 2],
    pub flags: u32,
    pub reserved: [u32; 17],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MulticastProperties {
    pub devices_count: u32,
    pub bytes: usize,
    pub handle_types: u64,
    pub flags: u64,
}

/// `CUlogicalEndpointProp`: the device of one, or the number of devices of several.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EndpointProperties {
    pub kind: u32,
    pub devices: i32,
    pub bytes: u64,
    pub handle_types: u32,
    pub flags: u32,
}

/// `CUmemDecompressParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Decompression {
    pub src_bytes: u64,
    pub dst_bytes: u64,
    pub written_bytes: u64,
    pub src: u64,
    pub dst: u64,
    pub algorithm: u32,
    pub padding: [u32; 5],
}

/// One side of a copy over a fabric: a pointer and a hint, or an endpoint and an offset.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FabricOperand {
    pub kind: u32,
    pub place: [u64; 2],
}

/// `CUDA_FABRIC_COPY_BATCH_OP`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FabricCopy {
    pub src: FabricOperand,
    pub dst: FabricOperand,
    pub bytes: u64,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub [u8; 64]);

// The sizes that these structures have in the headers of CUDA 13.5, and had in all before it.
const _: () = assert!(size_of::<AccessDescription>() == 12);
const _: () = assert!(size_of::<AllocationProperties>() == 32);
const _: () = assert!(size_of::<AllocNodeParams>() == 120);
const _: () = assert!(size_of::<ArrayDescription>() == 40);
const _: () = assert!(size_of::<BatchCopy3D>() == 112);
const _: () = assert!(size_of::<BatchMemOpNodeParams>() == 32);
const _: () = assert!(size_of::<BatchMemOp>() == 48);
const _: () = assert!(size_of::<CommandList>() == 16);
const _: () = assert!(size_of::<ConditionalNodeParams>() == 32);
const _: () = assert!(size_of::<ContextParams>() == 24);
const _: () = assert!(size_of::<Copy2D>() == 128);
const _: () = assert!(size_of::<Copy3D>() == 200);
const _: () = assert!(size_of::<Decompression>() == 64);
const _: () = assert!(size_of::<EdgeData>() == 8);
const _: () = assert!(size_of::<EndpointProperties>() == 24);
const _: () = assert!(size_of::<ExternalBuffer>() == 88);
const _: () = assert!(size_of::<ExternalMemory>() == 104);
const _: () = assert!(size_of::<ExternalSemaphore>() == 96);
const _: () = assert!(size_of::<FabricCopy>() == 64);
const _: () = assert!(size_of::<GraphNodeParams>() == 256);
const _: () = assert!(size_of::<HostNodeParams>() == 16);
const _: () = assert!(size_of::<InstantiateParams>() == 32);
const _: () = assert!(size_of::<KernelNodeParams>() == 56);
const _: () = assert!(size_of::<LaunchAttribute>() == 72);
const _: () = assert!(size_of::<LaunchConfig>() == 56);
const _: () = assert!(size_of::<LaunchParams>() == 56);
const _: () = assert!(size_of::<Location>() == 8);
const _: () = assert!(size_of::<MemsetNodeParams>() == 40);
const _: () = assert!(size_of::<MulticastProperties>() == 32);
const _: () = assert!(size_of::<PoolProperties>() == 88);
const _: () = assert!(size_of::<SemaphoreNodeParams>() == 24);
const _: () = assert!(size_of::<SemaphoreParams>() == 144);
const _: () = assert!(size_of::<UpdateResult>() == 24);
