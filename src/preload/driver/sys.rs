//! The part of the driver's ABI that the library uses. Errors are numbers, not an enum: a newer
//! driver may return codes that no current header names. Struct layouts come from `cudarc`.

use core::fmt;
use core::num::NonZero;

pub(crate) use cudarc::driver::sys::CUlaunchConfig as LaunchConfig;

/// `CUresult`, as a C function returns it.
pub(crate) type CuCode = u32;

/// `CUresult` of a call that failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CuError(NonZero<CuCode>);

/// The result of a call. Without a value it is the driver's code, bit by bit.
pub(crate) type CuResult<T = ()> = Result<T, CuError>;

const _: () = assert!(size_of::<CuResult>() == size_of::<CuCode>());

impl CuError {
    pub(crate) const INVALID_VALUE: CuError = CuError::of(1);
    pub(crate) const OUT_OF_MEMORY: CuError = CuError::of(2);
    pub(crate) const INVALID_CONTEXT: CuError = CuError::of(201);
    pub(crate) const NOT_FOUND: CuError = CuError::of(500);
    pub(crate) const NOT_READY: CuError = CuError::of(600);
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: CuError = CuError::of(704);
    pub(crate) const PEER_ACCESS_NOT_ENABLED: CuError = CuError::of(705);
    pub(crate) const CONTEXT_IS_DESTROYED: CuError = CuError::of(709);
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: CuError = CuError::of(712);
    /// The call came from inside a host function of a stream.
    pub(crate) const NOT_PERMITTED: CuError = CuError::of(800);

    /// The green context of the stream has ended.
    pub(crate) const STREAM_DETACHED: CuError = CuError::of(917);

    const fn of(code: CuCode) -> CuError {
        CuError(NonZero::new(code).expect("0 is not an error"))
    }

    /// Returns whether a free must return the error: that of a lost context, or "not from a
    /// callback".
    pub(crate) fn is_returned_by_free(self) -> bool {
        self == CuError::NOT_PERMITTED || self.means_lost()
    }

    /// Returns whether the error means that a context is lost. Two nearby numbers concern an
    /// argument instead: 713, host memory that is not registered, and 720, a cooperative launch of
    /// too many blocks, by which programs try how many fit. With 810, the server of MPS has ended
    /// the process's use of the device; 809 only means that it serves no more contexts. 911 means
    /// that a device outside of CUDA has failed, which every later call reports too.
    pub(crate) fn means_lost(self) -> bool {
        let code = self.0.get();
        matches!(code, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 810 | 911 | 999)
    }
}

impl fmt::Display for CuError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Converts a code of the driver.
#[inline(always)]
pub(crate) fn result(code: CuCode) -> CuResult {
    NonZero::new(code).map_or(Ok(()), |code| Err(CuError(code)))
}

/// Returns the code by which a C function returns this result.
#[inline(always)]
pub(crate) fn code(result: CuResult) -> CuCode {
    result.map_or_else(|error| error.0.get(), |()| 0)
}

/// `CUdeviceptr`.
pub(crate) type DevicePointer = u64;
/// `CUcontext`; zero is the current one where the driver documents that.
pub(crate) type ContextHandle = usize;
/// `CUstream`; 0 and 1 are the legacy default stream, 2 the calling thread's default stream.
pub(crate) type StreamHandle = usize;
/// `CUevent`.
pub(crate) type EventHandle = usize;
/// `CUmemoryPool`.
pub(crate) type PoolHandle = usize;

/// `CUgraph`.
pub(crate) type GraphHandle = usize;
/// `CUgraphNode`.
pub(crate) type NodeHandle = usize;

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct EdgeData {
    pub from_port: u8,
    pub to_port: u8,
    pub kind: u8,
    pub reserved: [u8; 5],
}

/// `CUgraphNodeType`.
pub(crate) const NODE_KERNEL: u32 = 0;
pub(crate) const NODE_GRAPH: u32 = 4;
pub(crate) const NODE_MEM_ALLOC: u32 = 10;
pub(crate) const NODE_MEM_FREE: u32 = 11;

pub(crate) const STREAM_LEGACY: StreamHandle = 1;
pub(crate) const STREAM_PER_THREAD: StreamHandle = 2;
pub(crate) const STREAM_NON_BLOCKING: u32 = 1;
pub(crate) const EVENT_DISABLE_TIMING: u32 = 2;
pub(crate) const CAPTURE_MODE_GLOBAL: u32 = 0;
pub(crate) const CAPTURE_MODE_RELAXED: u32 = 2;
pub(crate) const CAPTURE_STATUS_NONE: u32 = 0;
pub(crate) const CAPTURE_STATUS_ACTIVE: u32 = 1;
pub(crate) const SET_CAPTURE_DEPENDENCIES: u32 = 1;

pub(crate) const USER_OBJECT_NO_DESTRUCTOR_SYNC: u32 = 1;
pub(crate) const GRAPH_USER_OBJECT_MOVE: u32 = 1;
pub(crate) const GRAPH_INSTANTIATE_UPLOAD: u64 = 2;

pub(crate) const HOST_ALLOC_DEVICEMAP: u32 = 2;

/// `CUmemorytype`.
pub(crate) const MEMORY_TYPE_HOST: u32 = 1;
pub(crate) const MEMORY_TYPE_ARRAY: u32 = 3;

/// One side of `CUDA_MEMCPY2D`. The kind is a number, because the program may have written any.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Side2d {
    pub x: usize,
    pub y: usize,
    pub kind: u32,
    pub host: usize,
    pub device: DevicePointer,
    pub array: usize,
    pub pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Memcpy2d {
    pub source: Side2d,
    pub target: Side2d,
    pub width: usize,
    pub height: usize,
}

/// One side of `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Side3d {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub level: usize,
    pub kind: u32,
    pub host: usize,
    pub device: DevicePointer,
    pub array: usize,
    pub context: usize,
    pub pitch: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Memcpy3d {
    pub source: Side3d,
    pub target: Side3d,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUDA_RESOURCE_DESC`, for the kinds that contain an address.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ResourceDescription {
    pub kind: u32,
    pub device: DevicePointer,
}

/// `CUresourcetype`.
pub(crate) const RESOURCE_ARRAY: u32 = 0;
pub(crate) const RESOURCE_MIPMAPPED_ARRAY: u32 = 1;
pub(crate) const RESOURCE_LINEAR: u32 = 2;
pub(crate) const RESOURCE_PITCHED: u32 = 3;

pub(crate) const DEVICE_MULTIPROCESSOR_COUNT: u32 = 16;
pub(crate) const DEVICE_INTEGRATED: u32 = 18;
pub(crate) const DEVICE_THREADS_PER_MULTIPROCESSOR_MAX: u32 = 39;
pub(crate) const DEVICE_PAGEABLE_MEMORY_ACCESS: u32 = 88;
pub(crate) const DEVICE_CONCURRENT_MANAGED_ACCESS: u32 = 89;

pub(crate) const POOL_RELEASE_THRESHOLD: u32 = 4;
pub(crate) const POOL_RESERVED: u32 = 5;
pub(crate) const POOL_USED: u32 = 7;
pub(crate) const GRAPH_MEMORY_RESERVED: u32 = 2;

pub(crate) const LIMIT_STACK: u32 = 0;
pub(crate) const LIMIT_PRINTF_BUFFER: u32 = 1;
pub(crate) const LIMIT_MALLOC_HEAP: u32 = 2;

pub(crate) const DEVICE_VMM: u32 = 102;
pub(crate) const DEVICE_RDMA_WITH_VMM: u32 = 110;

pub(crate) const ALLOCATION_PINNED: u32 = 1;
pub(crate) const ALLOCATION_MANAGED: u32 = 2;
pub(crate) const ACCESS_READ_WRITE: u32 = 3;

/// `CUmemLocation`: where memory lies, or which device has access.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Location {
    kind: i32,
    id: i32,
}

impl Location {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    const DEVICE: i32 = 1;
    /// `CU_MEM_LOCATION_TYPE_INVISIBLE` (13.2): a device that has no number in this process.
    const INVISIBLE: i32 = 5;
    /// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN` (13.4): a part of a device. The first byte of
    /// `id` is the device, the second the part.
    const LOCALITY_DOMAIN: i32 = 6;

    pub(crate) const fn on(device: i32) -> Location {
        Location { kind: Location::DEVICE, id: device }
    }

    /// Returns the device whose memory it is. Returns `None` for host memory, for a device without
    /// a number, and for an unknown kind.
    pub(crate) fn device(self) -> Option<i32> {
        match self.kind {
            Location::DEVICE => Some(self.id),
            Location::LOCALITY_DOMAIN => Some(self.id & 0xFF),
            _ => None,
        }
    }

    /// Returns whether the host may see memory there. This includes unknown kinds.
    pub(crate) fn may_be_on_host(self) -> bool {
        self.device().is_none() && self.kind != Location::INVISIBLE
    }
}

impl From<u64> for Location {
    /// Converts a word of a driver struct.
    fn from(word: u64) -> Location {
        Location { kind: word as i32, id: (word >> 32) as i32 }
    }
}

/// The first fields of `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PoolProperties {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
}

/// `CUmemAllocationProp`.
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
    pub metadata: usize,
    pub compression: u8,
    pub rdma_capable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(crate) struct AccessDescription {
    pub location: Location,
    pub flags: u32,
}

pub(crate) const POINTER_CONTEXT: u32 = 1;
pub(crate) const POINTER_DEVICE_POINTER: u32 = 3;
pub(crate) const POINTER_HOST_POINTER: u32 = 4;
pub(crate) const POINTER_P2P_TOKENS: u32 = 5;
pub(crate) const POINTER_SYNC_MEMOPS: u32 = 6;
pub(crate) const POINTER_BUFFER_ID: u32 = 7;
pub(crate) const POINTER_IS_MANAGED: u32 = 8;
pub(crate) const POINTER_IS_MAPPED: u32 = 13;
pub(crate) const POINTER_IS_LEGACY_IPC_CAPABLE: u32 = 10;
pub(crate) const POINTER_RANGE_START: u32 = 11;
pub(crate) const POINTER_RANGE_SIZE: u32 = 12;
pub(crate) const POINTER_IS_GPU_DIRECT_RDMA_CAPABLE: u32 = 15;
pub(crate) const POINTER_MEMPOOL_HANDLE: u32 = 17;
pub(crate) const POINTER_MAPPING_SIZE: u32 = 18;
pub(crate) const POINTER_MAPPING_BASE: u32 = 19;
pub(crate) const POINTER_MEMORY_BLOCK_ID: u32 = 20;
pub(crate) const POINTER_IS_HW_DECOMPRESS_CAPABLE: u32 = 21;

pub(crate) const LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

/// `CUlaunchAttribute`, with kinds and values of any driver version.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchAttribute {
    pub id: u32,
    pub padding: u32,
    pub value: [u64; 8],
}

/// `CUipcMemHandle` and `CUipcEventHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Handle64(pub [u64; 8]);

/// `CUuuid`.
pub(crate) type Uuid = [u8; 16];

/// `CUeglFrame`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EglFrame(pub [u64; EGL_FRAME_WORDS]);

/// Three plane pointers and nine 32-bit fields, padded (`cudaEGL.h`).
const EGL_FRAME_WORDS: usize = 8;
