//! The driver functions that test programs call, and the ways to find them.

use std::ffi::{CString, c_void};

/// How a program finds the driver's functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// `dlsym` of one function, which returns all others, as in the CUDA runtime.
    ProcAddress,
    /// `dlsym` of every exported symbol, as in ctypes programs and JAX.
    Symbols,
}

pub struct Resolver {
    library: *mut c_void,
    get: Option<GetProcAddress>,
}

// SAFETY: the dynamic linker's handle may be used in any thread.
unsafe impl Send for Resolver {}
// SAFETY: as above.
unsafe impl Sync for Resolver {}

type GetProcAddress = unsafe extern "C" fn(*const u8, *mut *mut c_void, i32, u64, *mut u32) -> i32;

impl Resolver {
    pub fn open(lookup: Lookup) -> Result<Resolver, String> {
        // SAFETY: a C string.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err("libcuda.so.1 cannot be opened".into());
        }
        let mut resolver = Resolver { library, get: None };
        if lookup == Lookup::ProcAddress {
            let get = resolver.symbol("cuGetProcAddress_v2").ok_or("no cuGetProcAddress_v2")?;
            // SAFETY: the driver's function has this signature.
            resolver.get = Some(unsafe { std::mem::transmute::<*mut c_void, GetProcAddress>(get) });
        }
        Ok(resolver)
    }

    /// Returns an exported symbol.
    pub fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: an open library and a C string.
        let found = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// Returns the result of the driver's own look-up: a pointer and a status.
    pub fn ask(&self, name: &str, version: i32, flags: u64) -> Result<(*mut c_void, u32), i32> {
        let get = self.get.ok_or(-1)?;
        let name = CString::new(name).map_err(|_| -1)?;
        let (mut found, mut status) = (std::ptr::null_mut(), u32::MAX);
        // SAFETY: a C string and locals for the results.
        match unsafe { get(name.as_ptr().cast(), &mut found, version, flags, &mut status) } {
            0 => Ok((found, status)),
            code => Err(code),
        }
    }

    /// Finds one function, by its base name at a version, or by its symbol.
    fn find(&self, symbol: &str, base: &str, version: i32) -> Option<*mut c_void> {
        if self.get.is_none() {
            return self.symbol(symbol);
        }
        let (found, _) = self.ask(base, version, 0).ok()?;
        (!found.is_null()).then_some(found)
    }
}

/// Replaces a function that the driver does not have.
extern "C" fn missing() -> i32 {
    500
}

macro_rules! functions {
    (
        driver { $($name:ident = $symbol:literal $version:literal ($($argument:ty),*);)+ }
        simulation { $($extra:ident ($($extra_argument:ty),*) $(-> $result:ty)?;)+ }
    ) => {
        /// Pointers to the functions, as found. Missing functions return "not found".
        #[allow(non_snake_case)]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> i32,)+
            $(pub $extra: Option<unsafe extern "C" fn($($extra_argument),*) $(-> $result)?>,)+
        }

        impl Functions {
            pub fn resolve(resolver: &Resolver) -> Functions {
                Functions {
                    $($name: {
                        let found = resolver.find($symbol, stringify!($name), $version);
                        let found = found.unwrap_or(missing as *mut c_void);
                        // SAFETY: the driver's symbol has this signature; the replacement ignores
                        // its arguments.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) -> i32,
                            >(found)
                        }
                    },)+
                    $($extra: {
                        let found = resolver.symbol(stringify!($extra));
                        // SAFETY: the simulation's symbol has this signature.
                        found.map(|found| unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($extra_argument),*) $(-> $result)?,
                            >(found)
                        })
                    },)+
                }
            }

            /// Leaves out the functions that only the simulated driver has.
            pub fn forget_simulation(&mut self) {
                $(self.$extra = None;)+
            }
        }
    };
}

/// A memory handle, passed by value.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct IpcHandle(pub [u64; 8]);

type Number = u64;
type Place<T> = *mut T;
type List = *const c_void;
type HostFunction = unsafe extern "C" fn(*mut c_void);
type LogCallback = unsafe extern "C" fn(*mut c_void, u32, *const u8, usize);
type StreamCallback = unsafe extern "C" fn(Number, i32, *mut c_void);

functions! {
    driver {
        cuInit = "cuInit" 2000 (u32);
        cuDriverGetVersion = "cuDriverGetVersion" 2020 (Place<i32>);
        cuDeviceGetCount = "cuDeviceGetCount" 2000 (Place<i32>);
        cuDeviceTotalMem = "cuDeviceTotalMem_v2" 3020 (Place<usize>, i32);
        cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" 7000 (Place<Number>, i32);
        cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease_v2" 11000 (i32);
        cuDevicePrimaryCtxGetState = "cuDevicePrimaryCtxGetState" 7000 (i32, Place<u32>, Place<i32>);
        cuDevicePrimaryCtxSetFlags = "cuDevicePrimaryCtxSetFlags_v2" 11000 (i32, u32);
        cuDevicePrimaryCtxReset = "cuDevicePrimaryCtxReset_v2" 11000 (i32);
        cuCtxCreate = "cuCtxCreate_v2" 3020 (Place<Number>, u32, i32);
        cuCtxAttach = "cuCtxAttach" 2000 (Place<Number>, u32);
        cuCtxDestroy = "cuCtxDestroy_v2" 4000 (Number);
        cuCtxDetach = "cuCtxDetach" 2000 (Number);
        cuCtxSetCurrent = "cuCtxSetCurrent" 4000 (Number);
        cuCtxGetCurrent = "cuCtxGetCurrent" 4000 (Place<Number>);
        cuCtxGetId = "cuCtxGetId" 12000 (Number, Place<Number>);
        cuCtxSynchronize = "cuCtxSynchronize" 2000 ();
        cuGetExportTable = "cuGetExportTable" 3000 (Place<Number>, List);
        cuCtxRecordEvent = "cuCtxRecordEvent" 12050 (Number, Number);
        cuCtxWaitEvent = "cuCtxWaitEvent" 12050 (Number, Number);
        cuGreenCtxCreate = "cuGreenCtxCreate" 12040 (Place<Number>, Number, i32, u32);
        cuGreenCtxDestroy = "cuGreenCtxDestroy" 12040 (Number);
        cuCtxFromGreenCtx = "cuCtxFromGreenCtx" 12040 (Place<Number>, Number);
        cuGreenCtxStreamCreate = "cuGreenCtxStreamCreate" 12050 (Place<Number>, Number, u32, i32);
        cuGreenCtxWaitEvent = "cuGreenCtxWaitEvent" 12040 (Number, Number);
        cuCtxEnablePeerAccess = "cuCtxEnablePeerAccess" 4000 (Number, u32);
        cuModuleLoadData = "cuModuleLoadData" 2000 (Place<Number>, List);
        cuCtxDisablePeerAccess = "cuCtxDisablePeerAccess" 4000 (Number);
        cuModuleLoadDataEx = "cuModuleLoadDataEx" 2010 (Place<Number>, List, u32, List, List);
        cuModuleUnload = "cuModuleUnload" 2000 (Number);
        cuModuleGetGlobal = "cuModuleGetGlobal_v2" 3020 (Place<Number>, Place<usize>, Number, List);
        cuModuleGetFunction = "cuModuleGetFunction" 2000 (Place<Number>, Number, List);
        cuFuncGetParamInfo = "cuFuncGetParamInfo" 12040 (Number, usize, Place<usize>, Place<usize>);
        cuLaunchKernel = "cuLaunchKernel" 4000
            (Number, u32, u32, u32, u32, u32, u32, u32, Number, List, List);
        cuLaunchKernelEx = "cuLaunchKernelEx" 11060 (List, Number, List, List);
        cuLaunchHostFunc = "cuLaunchHostFunc" 10000 (Number, HostFunction, *mut c_void);
        cuMemAlloc = "cuMemAlloc_v2" 3020 (Place<Number>, usize);
        cuMemFree = "cuMemFree_v2" 3020 (Number);
        cuMemAllocAsync = "cuMemAllocAsync" 11020 (Place<Number>, usize, Number);
        cuMemFreeAsync = "cuMemFreeAsync" 11020 (Number, Number);
        cuMemAllocManaged = "cuMemAllocManaged" 6000 (Place<Number>, usize, u32);
        cuMemAllocPitch = "cuMemAllocPitch_v2" 3020
            (Place<Number>, Place<usize>, usize, usize, u32);
        cuArrayCreate = "cuArrayCreate_v2" 3020 (Place<Number>, List);
        cuArrayDestroy = "cuArrayDestroy" 2000 (Number);
        cuMemHostAlloc = "cuMemHostAlloc" 2020 (Place<Number>, usize, u32);
        cuMemFreeHost = "cuMemFreeHost" 2000 (Number);
        cuMemHostRegister = "cuMemHostRegister_v2" 6050 (Number, usize, u32);
        cuMemHostUnregister = "cuMemHostUnregister" 4000 (Number);
        cuMemHostGetDevicePointer = "cuMemHostGetDevicePointer_v2" 3020
            (Place<Number>, Number, u32);
        cuMemHostGetFlags = "cuMemHostGetFlags" 2030 (Place<u32>, Number);
        cuMemAddressReserve = "cuMemAddressReserve" 10020
            (Place<Number>, usize, usize, Number, Number);
        cuMemAddressFree = "cuMemAddressFree" 10020 (Number, usize);
        cuMemCreate = "cuMemCreate" 10020 (Place<Number>, usize, List, Number);
        cuMemRelease = "cuMemRelease" 10020 (Number);
        cuMemRetainAllocationHandle = "cuMemRetainAllocationHandle" 11000 (Place<Number>, Number);
        cuMemMap = "cuMemMap" 10020 (Number, usize, usize, Number, Number);
        cuMemSetAccess = "cuMemSetAccess" 10020 (Number, usize, List, usize);
        cuMemUnmap = "cuMemUnmap" 10020 (Number, usize);
        cuDeviceGetDefaultMemPool = "cuDeviceGetDefaultMemPool" 11020 (Place<Number>, i32);
        cuDeviceGetMemPool = "cuDeviceGetMemPool" 11020 (Place<Number>, i32);
        cuDeviceSetMemPool = "cuDeviceSetMemPool" 11020 (i32, Number);
        cuMemGetMemPool = "cuMemGetMemPool" 13000 (Place<Number>, List, u32);
        cuMemSetMemPool = "cuMemSetMemPool" 13000 (List, u32, Number);
        cuLogsRegisterCallback = "cuLogsRegisterCallback" 12090
            (LogCallback, *mut c_void, Place<Number>);
        cuLogsCurrent = "cuLogsCurrent" 12090 (Place<u32>, u32);
        cuLogsDumpToMemory = "cuLogsDumpToMemory" 12090 (Place<u32>, *mut u8, Place<usize>, u32);
        cuMemExportToShareableHandle = "cuMemExportToShareableHandle" 10020
            (*mut c_void, Number, u32, Number);
        cuMemPoolExportToShareableHandle = "cuMemPoolExportToShareableHandle" 11020
            (*mut c_void, Number, u32, Number);
        cuMemPoolCreate = "cuMemPoolCreate" 11020 (Place<Number>, List);
        cuMemPoolDestroy = "cuMemPoolDestroy" 11020 (Number);
        cuMemPoolGetAttribute = "cuMemPoolGetAttribute" 11020 (Number, u32, Place<Number>);
        cuMemPoolSetAttribute = "cuMemPoolSetAttribute" 11020 (Number, u32, Place<Number>);
        cuMemPoolSetAccess = "cuMemPoolSetAccess" 11020 (Number, List, usize);
        cuMemPoolTrimTo = "cuMemPoolTrimTo" 11020 (Number, usize);
        cuMemAllocFromPoolAsync = "cuMemAllocFromPoolAsync" 11020
            (Place<Number>, usize, Number, Number);
        cuIpcGetMemHandle = "cuIpcGetMemHandle" 4010 (Place<IpcHandle>, Number);
        cuIpcOpenMemHandle = "cuIpcOpenMemHandle_v2" 11000 (Place<Number>, IpcHandle, u32);
        cuIpcCloseMemHandle = "cuIpcCloseMemHandle" 4010 (Number);
        cuTexObjectCreate = "cuTexObjectCreate" 5000 (Place<Number>, List, List, List);
        cuTexObjectDestroy = "cuTexObjectDestroy" 5000 (Number);
        cuMemGetInfo = "cuMemGetInfo_v2" 3020 (Place<usize>, Place<usize>);
        cuMemGetAddressRange = "cuMemGetAddressRange_v2" 3020
            (Place<Number>, Place<usize>, Number);
        cuPointerGetAttribute = "cuPointerGetAttribute" 4000 (Place<Number>, u32, Number);
        cuPointerGetAttributes = "cuPointerGetAttributes" 7000 (u32, List, List, Number);
        cuPointerSetAttribute = "cuPointerSetAttribute" 6000 (List, u32, Number);
        cuMemGetHandleForAddressRange = "cuMemGetHandleForAddressRange" 11070
            (Place<i32>, Number, usize, u32, Number);
        cuMemcpyAsync = "cuMemcpyAsync" 4000 (Number, Number, usize, Number);
        cuMemcpyHtoD = "cuMemcpyHtoD_v2" 3020 (Number, Number, usize);
        cuMemcpyDtoH = "cuMemcpyDtoH_v2" 3020 (Number, Number, usize);
        cuMemcpy2DAsync = "cuMemcpy2DAsync_v2" 3020 (List, Number);
        cuMemcpyBatchAsync = "cuMemcpyBatchAsync" 12080
            (List, List, List, usize, List, List, usize, Place<usize>, Number);
        cuMemcpyPeerAsync = "cuMemcpyPeerAsync" 4000
            (Number, Number, Number, Number, usize, Number);
        cuMemsetD8Async = "cuMemsetD8Async" 3020 (Number, u8, usize, Number);
        cuStreamCreate = "cuStreamCreate" 2000 (Place<Number>, u32);
        cuStreamAddCallback = "cuStreamAddCallback" 5000
            (Number, StreamCallback, *mut c_void, u32);
        cuStreamDestroy = "cuStreamDestroy_v2" 4000 (Number);
        cuStreamGetId = "cuStreamGetId" 12000 (Number, Place<Number>);
        cuStreamQuery = "cuStreamQuery" 2000 (Number);
        cuStreamSynchronize = "cuStreamSynchronize" 2000 (Number);
        cuStreamWaitEvent = "cuStreamWaitEvent" 3020 (Number, Number, u32);
        cuStreamWaitValue64 = "cuStreamWaitValue64_v2" 11070 (Number, Number, Number, u32);
        cuStreamWriteValue64 = "cuStreamWriteValue64_v2" 11070 (Number, Number, Number, u32);
        cuEventCreate = "cuEventCreate" 2000 (Place<Number>, u32);
        cuEventDestroy = "cuEventDestroy_v2" 4000 (Number);
        cuEventRecord = "cuEventRecord" 2000 (Number, Number);
        cuEventQuery = "cuEventQuery" 2000 (Number);
        cuEventSynchronize = "cuEventSynchronize" 2000 (Number);
        cuEventElapsedTime = "cuEventElapsedTime" 2000 (Place<f32>, Number, Number);
        cuStreamBeginCapture = "cuStreamBeginCapture_v2" 10010 (Number, u32);
        cuStreamEndCapture = "cuStreamEndCapture" 10000 (Number, Place<Number>);
        cuStreamBeginRecaptureToGraph = "cuStreamBeginRecaptureToGraph" 13030
            (Number, u32, Number, List, List);
        cuStreamBeginCaptureToCig = "cuStreamBeginCaptureToCig" 13010 (Number, List);
        cuStreamEndCaptureToCig = "cuStreamEndCaptureToCig" 13010 (Number);
        cuStreamIsCapturing = "cuStreamIsCapturing" 10000 (Number, Place<u32>);
        cuStreamGetCaptureInfo = "cuStreamGetCaptureInfo_v2" 11030
            (Number, Place<u32>, Place<Number>, Place<Number>, Place<*const Number>, Place<usize>);
        cuThreadExchangeStreamCaptureMode = "cuThreadExchangeStreamCaptureMode" 10010 (Place<u32>);
        cuGraphClone = "cuGraphClone" 10000 (Place<Number>, Number);
        cuGraphCreate = "cuGraphCreate" 10000 (Place<Number>, u32);
        cuGraphDestroy = "cuGraphDestroy" 10000 (Number);
        cuGraphGetNodes = "cuGraphGetNodes" 10000 (Number, Place<Number>, Place<usize>);
        cuGraphAddEmptyNode = "cuGraphAddEmptyNode" 10000
            (Place<Number>, Number, List, usize);
        cuGraphInstantiate = "cuGraphInstantiate_v2" 11000
            (Place<Number>, Number, Place<Number>, *mut u8, usize);
        cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags" 11040 (Place<Number>, Number, Number);
        cuGraphExecDestroy = "cuGraphExecDestroy" 10000 (Number);
        cuGraphExecUpdate = "cuGraphExecUpdate_v2" 12000 (Number, Number, *mut u8);
        cuGraphLaunch = "cuGraphLaunch" 10000 (Number, Number);
        cuMemcpyHtoDAsync = "cuMemcpyHtoDAsync_v2" 3020 (Number, Number, usize, Number);
        cuMemcpyDtoHAsync = "cuMemcpyDtoHAsync_v2" 3020 (Number, Number, usize, Number);
        cuMemcpyDtoD = "cuMemcpyDtoD_v2" 3020 (Number, Number, usize);
        cuMemcpy3DAsync = "cuMemcpy3DAsync_v2" 3020 (List, Number);
        cuMemsetD8 = "cuMemsetD8_v2" 3020 (Number, u8, usize);
        cuMemsetD32Async = "cuMemsetD32Async" 3020 (Number, u32, usize, Number);
        cuMemsetD2D8Async = "cuMemsetD2D8Async" 3020 (Number, usize, u8, usize, usize, Number);
        cuStreamCreateWithPriority = "cuStreamCreateWithPriority" 5050 (Place<Number>, u32, i32);
        cuMemAllocHost = "cuMemAllocHost_v2" 3020 (Place<Number>, usize);
        cuCtxPushCurrent = "cuCtxPushCurrent_v2" 4000 (Number);
        cuCtxPopCurrent = "cuCtxPopCurrent_v2" 4000 (Place<Number>);
        cuEventRecordWithFlags = "cuEventRecordWithFlags" 11010 (Number, Number, u32);
        cuDeviceGraphMemTrim = "cuDeviceGraphMemTrim" 11040 (i32);
        cuDeviceGetGraphMemAttribute = "cuDeviceGetGraphMemAttribute" 11040
            (i32, u32, Place<Number>);
        cuMemGetAccess = "cuMemGetAccess" 10020 (Place<Number>, List, Number);
        cuMemcpy = "cuMemcpy" 4000 (Number, Number, usize);
        cuMemcpyDtoDAsync = "cuMemcpyDtoDAsync_v2" 3020 (Number, Number, usize, Number);
        cuMemcpyPeer = "cuMemcpyPeer" 4000 (Number, Number, Number, Number, usize);
        cuMemcpy2D = "cuMemcpy2D_v2" 3020 (List);
        cuMemcpy2DUnaligned = "cuMemcpy2DUnaligned_v2" 3020 (List);
        cuMemcpy3D = "cuMemcpy3D_v2" 3020 (List);
        cuMemcpy3DPeer = "cuMemcpy3DPeer" 4000 (List);
        cuMemcpy3DPeerAsync = "cuMemcpy3DPeerAsync" 4000 (List, Number);
        cuMemsetD16 = "cuMemsetD16_v2" 3020 (Number, u16, usize);
        cuMemsetD16Async = "cuMemsetD16Async" 3020 (Number, u16, usize, Number);
        cuMemsetD32 = "cuMemsetD32_v2" 3020 (Number, u32, usize);
        cuMemsetD2D8 = "cuMemsetD2D8_v2" 3020 (Number, usize, u8, usize, usize);
        cuMemsetD2D16 = "cuMemsetD2D16_v2" 3020 (Number, usize, u16, usize, usize);
        cuMemsetD2D16Async = "cuMemsetD2D16Async" 3020
            (Number, usize, u16, usize, usize, Number);
        cuMemsetD2D32 = "cuMemsetD2D32_v2" 3020 (Number, usize, u32, usize, usize);
        cuMemsetD2D32Async = "cuMemsetD2D32Async" 3020
            (Number, usize, u32, usize, usize, Number);
        cuLaunchCooperativeKernel = "cuLaunchCooperativeKernel" 9000
            (Number, u32, u32, u32, u32, u32, u32, u32, Number, List);
        cuLaunchCooperativeKernelMultiDevice = "cuLaunchCooperativeKernelMultiDevice" 9000
            (*mut c_void, u32, u32);
        cuParamSetv = "cuParamSetv" 2000 (Number, i32, *const c_void, u32);
        cuParamSetSize = "cuParamSetSize" 2000 (Number, u32);
        cuFuncSetBlockShape = "cuFuncSetBlockShape" 2000 (Number, i32, i32, i32);
        cuLaunchGridAsync = "cuLaunchGridAsync" 2000 (Number, i32, i32, Number);
        cuStreamBatchMemOp = "cuStreamBatchMemOp_v2" 11070 (Number, u32, List, u32);
        cuStreamWriteValue32 = "cuStreamWriteValue32_v2" 11070 (Number, Number, u32, u32);
        cuStreamWaitValue32 = "cuStreamWaitValue32_v2" 11070 (Number, Number, u32, u32);
        cuGraphAddKernelNode = "cuGraphAddKernelNode" 10000
            (Place<Number>, Number, List, usize, List);
        cuGraphAddMemcpyNode = "cuGraphAddMemcpyNode" 10000
            (Place<Number>, Number, List, usize, List, Number);
        cuGraphAddMemsetNode = "cuGraphAddMemsetNode" 10000
            (Place<Number>, Number, List, usize, List, Number);
        cuGraphAddChildGraphNode = "cuGraphAddChildGraphNode" 10000
            (Place<Number>, Number, List, usize, Number);
        cuGraphAddNode = "cuGraphAddNode_v2" 12030
            (Place<Number>, Number, List, List, usize, *mut c_void);
        cuGraphKernelNodeSetParams = "cuGraphKernelNodeSetParams_v2" 12000 (Number, List);
        cuGraphNodeSetParams = "cuGraphNodeSetParams" 12020 (Number, *mut c_void);
        cuGraphExecKernelNodeSetParams = "cuGraphExecKernelNodeSetParams" 10010
            (Number, Number, List);
        cuGraphExecNodeSetParams = "cuGraphExecNodeSetParams" 12020
            (Number, Number, *mut c_void);
        cuGraphInstantiateWithParams = "cuGraphInstantiateWithParams" 12000
            (Place<Number>, Number, Place<Number>);
        cuGraphUpload = "cuGraphUpload" 11010 (Number, Number);
        cuUserObjectCreate = "cuUserObjectCreate" 11030
            (Place<Number>, *mut c_void, HostFunction, u32, u32);
        cuGraphRetainUserObject = "cuGraphRetainUserObject" 11030 (Number, Number, u32, u32);
    }
    simulation {
        sim_host_read(Number, usize);
        sim_host_write(Number, usize);
        sim_race_count() -> Number;
        sim_now_ns() -> Number;
        sim_call_count(*const u8) -> Number;
        sim_fail(*const u8) -> i32;
        sim_was_news() -> i32;
    }
}
