//! Arguments of the calls that do not concern graphs.

use cachealloc_tests::driver::Stream;

use crate::scene::{KernelArguments, PLAIN_BYTES, Scene, at, out, place, text};

const MIB: u64 = 1 << 20;
/// Larger than any piece of the cache.
const LARGE: u64 = 32 * MIB;
const PLAIN: u64 = PLAIN_BYTES as u64;
/// The size of a small part of a block.
const PIECE: u64 = 4096;
const DEVICE: u64 = 1;
const PINNED: u64 = 1;
const FILE_DESCRIPTOR: u64 = 1;
const MODULE: &std::ffi::CStr = c".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 8 .b8 table[4096];\n.visible .entry kernel() { ret; }\n";
const MODULE_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/kernels.ptx\0");

impl Scene<'_> {
    pub fn of_others(&self, name: &str) -> Option<Vec<u64>> {
        let of_family = self.of_contexts(name).or_else(|| self.of_memory(name));
        of_family.or_else(|| self.of_work(name)).or_else(|| self.of_code(name))
    }

    fn of_contexts(&self, name: &str) -> Option<Vec<u64>> {
        let s = self;
        Some(match name {
            "cuInit" | "cuDevicePrimaryCtxRelease" | "cuDevicePrimaryCtxRelease_v2" => vec![0],
            "cuDevicePrimaryCtxReset" | "cuDevicePrimaryCtxReset_v2" => vec![0],
            "cuDevicePrimaryCtxRetain" => vec![out(), 0],
            "cuCtxCreate" | "cuCtxCreate_v2" => vec![out(), 0, 0],
            "cuCtxCreate_v3" => vec![out(), 0, 0, 0, 0],
            "cuCtxCreate_v4" => vec![out(), 0, 0, 0],
            "cuCtxDestroy" | "cuCtxDestroy_v2" => vec![s.second_context(0)],
            "cuCtxAttach" => vec![out(), 0],
            "cuCtxDetach" => {
                s.must("cuCtxAttach", &[out(), 0]);
                vec![s.context]
            }
            "cuCtxEnablePeerAccess" => vec![s.second_context(1), 0],
            "cuCtxDisablePeerAccess" => {
                let peer = s.second_context(1);
                s.must("cuCtxEnablePeerAccess", &[peer, 0]);
                vec![peer]
            }
            "cuCtxSetLimit" => vec![0, 2048],
            "cuCtxSynchronize" => vec![],
            "cuCtxSynchronize_v2" => vec![s.context],
            "cuCtxRecordEvent" => vec![s.context, s.event()],
            "cuCtxWaitEvent" => vec![s.context, s.recorded()],
            "cuGreenCtxCreate" => vec![out(), 0, 0, 1],
            "cuGreenCtxDestroy" => vec![s.green()],
            "cuCtxFromGreenCtx" => vec![out(), s.green()],
            "cuGreenCtxStreamCreate" => vec![out(), s.green(), 1, 0],
            "cuGreenCtxRecordEvent" => vec![s.green(), s.event()],
            "cuGreenCtxWaitEvent" => vec![s.green(), s.recorded()],
            "cuStreamCreate" => vec![out(), 1],
            "cuStreamCreateWithPriority" => vec![out(), 1, 0],
            "cuStreamDestroy" | "cuStreamDestroy_v2" => vec![s.d.stream().expect("a stream")],
            "cuStreamQuery" | "cuStreamSynchronize" => vec![s.stream],
            "cuStreamWaitEvent" => vec![s.stream, s.recorded(), 0],
            "cuEventCreate" => vec![out(), 2],
            "cuEventRecord" => vec![s.event(), s.stream],
            "cuEventRecordWithFlags" => vec![s.event(), s.stream, 0],
            "cuEventQuery" | "cuEventSynchronize" => vec![s.recorded()],
            "cuEventElapsedTime" | "cuEventElapsedTime_v2" => vec![out(), s.timed(), s.timed()],
            "cuIpcGetEventHandle" => vec![out(), s.shared_event()],
            "cuIpcOpenEventHandle" => {
                let handle = out();
                s.must("cuIpcGetEventHandle", &[handle, s.shared_event()]);
                vec![out(), handle, 0]
            }
            _ => return None,
        })
    }

    fn of_memory(&self, name: &str) -> Option<Vec<u64>> {
        let s = self;
        let block = s.held[2].0;
        Some(match name {
            "cuMemAlloc_v2" => vec![out(), LARGE],
            "cuMemAllocManaged" => vec![out(), LARGE, 1],
            "cuMemFree_v2" => vec![s.pool_memory(s.pool())],
            "cuMemGetInfo_v2" => vec![out(), out()],
            "cuDeviceTotalMem_v2" => vec![out(), 0],
            "cuMemGetAddressRange_v2" => vec![out(), out(), s.pool_memory(s.pool())],
            "cuPointerGetAttribute" => vec![out(), 2, block],
            "cuPointerGetAttributes" => vec![1, place(&[2]), place(&[out()]), block],
            "cuPointerSetAttribute" => vec![place(&[1]), 6, block],
            "cuMemAllocAsync" => {
                // From this use on the library no longer serves the pool.
                s.must("cuMemPoolSetAttribute", &[s.default_pool(), 1, place(&[1])]);
                vec![out(), LARGE, s.stream]
            }
            "cuMemAllocFromPoolAsync" => vec![out(), LARGE, s.pool(), s.stream],
            "cuMemFreeAsync" => vec![s.pool_memory(s.pool()), s.stream],
            "cuMemPoolCreate" => vec![out(), place(&[PINNED, DEVICE])],
            "cuMemPoolDestroy" => vec![s.pool()],
            "cuMemPoolGetAttribute" => vec![s.pool(), 5, out()],
            "cuMemPoolSetAttribute" => vec![s.default_pool(), 1, place(&[1])],
            "cuMemPoolSetAccess" => vec![s.default_pool(), place(&[DEVICE, 3]), 1],
            "cuMemPoolTrimTo" => vec![s.default_pool(), 0],
            "cuDeviceSetMemPool" => vec![0, s.pool()],
            "cuMemSetMemPool" => vec![place(&[DEVICE]), PINNED, s.pool()],
            "cuMemGetMemPool" | "cuMemGetDefaultMemPool" => vec![out(), place(&[2]), PINNED],
            "cuMemAllocHost_v2" => vec![out(), PIECE],
            "cuMemHostAlloc" => vec![out(), PIECE, 1],
            "cuMemFreeHost" => {
                // Beside an observer only the driver's own call waits as on the plain driver: the
                // library does not retain the memory.
                s.exported();
                let memory = out();
                s.must("cuMemHostAlloc", &[memory, PIECE, 0]);
                vec![at(memory)]
            }
            "cuMemHostRegister" | "cuMemHostRegister_v2" => vec![own_pages(), PIECE, 2],
            "cuMemHostUnregister" => {
                let pages = own_pages();
                s.must("cuMemHostRegister_v2", &[pages, PIECE, 2]);
                vec![pages]
            }
            "cuMemHostGetDevicePointer_v2" => vec![out(), s.pinned, 0],
            "cuMemHostGetFlags" => vec![out(), s.pinned],
            "cuMemAddressReserve" => vec![out(), 2 * MIB, 0, 0, 0],
            "cuMemAddressFree" => vec![s.addresses(), 2 * MIB],
            "cuMemCreate" => vec![out(), 2 * MIB, place(&[PINNED, DEVICE]), 0],
            "cuMemRelease" => vec![s.physical(0)],
            "cuMemMap" => vec![s.addresses(), 2 * MIB, 0, s.physical(0), 0],
            "cuMemUnmap" => vec![s.mapped(), 2 * MIB],
            "cuMemSetAccess" => vec![s.mapped(), 2 * MIB, place(&[DEVICE, 3]), 1],
            "cuMemRetainAllocationHandle" => vec![out(), s.mapped()],
            "cuMemExportToShareableHandle" => {
                vec![out(), s.physical(FILE_DESCRIPTOR), FILE_DESCRIPTOR, 0]
            }
            "cuMemImportFromShareableHandle" => {
                let handle = out();
                s.must(
                    "cuMemExportToShareableHandle",
                    &[handle, s.physical(FILE_DESCRIPTOR), FILE_DESCRIPTOR, 0],
                );
                vec![out(), at(handle), FILE_DESCRIPTOR]
            }
            "cuMemGetHandleForAddressRange" => vec![out(), s.held[3].0, 12 * MIB, 1, 0],
            "cuIpcGetMemHandle" => vec![out(), block],
            "cuIpcOpenMemHandle" | "cuIpcOpenMemHandle_v2" => vec![out(), s.exported(), 1],
            "cuIpcCloseMemHandle" => {
                let opened = out();
                s.must("cuIpcOpenMemHandle_v2", &[opened, s.exported(), 1]);
                vec![at(opened)]
            }
            "cuArrayCreate_v2" => vec![out(), place(&[256, 256, 0x20 | 1 << 32])],
            "cuArray3DCreate_v2" => vec![out(), place(&[256, 256, 16, 0x20 | 1 << 32, 0])],
            "cuArrayDestroy" => vec![s.array()],
            "cuTexObjectCreate" => vec![out(), s.resource(), out(), 0],
            "cuSurfObjectCreate" => vec![out(), s.resource()],
            "cuTexObjectDestroy" | "cuSurfObjectDestroy" => {
                let object = out();
                s.must("cuTexObjectCreate", &[object, s.resource(), out(), 0]);
                vec![at(object)]
            }
            _ => return None,
        })
    }

    fn of_work(&self, name: &str) -> Option<Vec<u64>> {
        let s = self;
        let (to, from) = (s.plain, s.plain + PLAIN / 2);
        let own = out();
        Some(match name {
            "cuLaunchKernel" => vec![s.kernel, 1, 1, 1, 1, 1, 1, 0, s.stream, s.fill(), 0],
            "cuLaunchCooperativeKernel" => vec![s.kernel, 1, 1, 1, 1, 1, 1, 0, s.stream, s.fill()],
            "cuLaunchKernelEx" => {
                const ONE: u64 = 1 | 1 << 32;
                vec![place(&[ONE, ONE, ONE, 0, s.stream, 0, 0]), s.kernel, s.fill(), 0]
            }
            "cuLaunchHostFunc" => vec![s.stream, nothing as *const () as u64, 0],
            "cuLaunchHostFunc_v2" => vec![s.stream, nothing as *const () as u64, 0, 0],
            "cuStreamAddCallback" => vec![s.stream, nothing_of_stream as *const () as u64, 0, 0],
            "cuMemcpy" | "cuMemcpyDtoD_v2" => vec![to, from, PIECE],
            "cuMemcpyAsync" | "cuMemcpyDtoDAsync_v2" => vec![to, from, PIECE, s.stream],
            "cuMemcpyHtoD_v2" => vec![to, own, 64],
            "cuMemcpyHtoDAsync_v2" => vec![to, s.pinned, PIECE, s.stream],
            "cuMemcpyDtoH_v2" => vec![own, from, 64],
            "cuMemcpyDtoHAsync_v2" => vec![s.pinned, from, PIECE, s.stream],
            "cuMemcpyPeer" => vec![to, s.context, from, s.context, PIECE],
            "cuMemcpyPeerAsync" => vec![to, s.context, from, s.context, PIECE, s.stream],
            "cuMemcpy2D_v2" | "cuMemcpy2DUnaligned_v2" => vec![s.copy_2d()],
            "cuMemcpy2DAsync_v2" => vec![s.copy_2d(), s.stream],
            "cuMemcpy3D_v2" => vec![s.copy_3d()],
            "cuMemcpy3DAsync_v2" => vec![s.copy_3d(), s.stream],
            "cuMemcpy3DPeer" => vec![s.copy_between_contexts()],
            "cuMemcpy3DPeerAsync" => vec![s.copy_between_contexts(), s.stream],
            "cuMemcpyBatchAsync" | "cuMemcpyBatchAsync_v2" => {
                let mut words =
                    vec![place(&[to]), place(&[from]), place(&[PIECE]), 1, place(&[1]), out(), 1];
                words.extend((!name.ends_with("_v2")).then(out));
                words.push(s.stream);
                words
            }
            "cuMemcpyWithAttributesAsync" => vec![to, from, PIECE, place(&[1]), s.stream],
            "cuMemcpy3DWithAttributesAsync" => vec![s.copy_of_batch(), 0, s.stream],
            "cuMemcpy3DBatchAsync" => vec![1, s.copy_of_batch(), out(), 0, s.stream],
            "cuMemcpy3DBatchAsync_v2" => vec![1, s.copy_of_batch(), 0, s.stream],
            "cuMemcpyHtoA_v2" => vec![s.array(), 0, own, 64],
            "cuMemcpyHtoAAsync_v2" => vec![s.array(), 0, s.pinned, 64, s.stream],
            "cuMemcpyAtoH_v2" => vec![own, s.array(), 0, 64],
            "cuMemcpyAtoHAsync_v2" => vec![s.pinned, s.array(), 0, 64, s.stream],
            "cuMemcpyDtoA_v2" => vec![s.array(), 0, from, 64],
            "cuMemcpyAtoD_v2" => vec![to, s.array(), 0, 64],
            "cuMemcpyAtoA_v2" => vec![s.array(), 0, s.array(), 0, 64],
            "cuMemsetD8_v2" | "cuMemsetD16_v2" | "cuMemsetD32_v2" => vec![to, 3, 64],
            "cuMemsetD8Async" | "cuMemsetD16Async" | "cuMemsetD32Async" => {
                vec![to, 3, 64, s.stream]
            }
            "cuMemsetD2D8_v2" | "cuMemsetD2D16_v2" | "cuMemsetD2D32_v2" => vec![to, 1024, 3, 16, 4],
            "cuMemsetD2D8Async" | "cuMemsetD2D16Async" | "cuMemsetD2D32Async" => {
                vec![to, 1024, 3, 16, 4, s.stream]
            }
            "cuMemPrefetchAsync" => vec![s.managed(), PIECE, 0, s.stream],
            "cuMemPrefetchAsync_v2" => vec![s.managed(), PIECE, DEVICE, 0, s.stream],
            "cuMemPrefetchBatchAsync" | "cuMemDiscardAndPrefetchBatchAsync" => {
                let (address, location) = (place(&[s.managed()]), place(&[DEVICE]));
                vec![address, place(&[PIECE]), 1, location, out(), 1, 0, s.stream]
            }
            "cuMemDiscardBatchAsync" => {
                vec![place(&[s.managed()]), place(&[PIECE]), 1, 0, s.stream]
            }
            "cuStreamAttachMemAsync" => vec![s.stream, s.managed(), PIECE, 1],
            "cuStreamBatchMemOp" | "cuStreamBatchMemOp_v2" => {
                const WRITE: u64 = 2;
                vec![s.stream, 1, place(&[WRITE, to, 7, 0, 0, 0]), 0]
            }
            _ if name.starts_with("cuStreamWaitValue") => vec![s.stream, to, 0, 0],
            _ if name.starts_with("cuStreamWriteValue") => vec![s.stream, to, 7, 0],
            _ => return None,
        })
    }

    fn of_code(&self, name: &str) -> Option<Vec<u64>> {
        let s = self;
        let kernel = text(c"kernel");
        Some(match name {
            "cuModuleLoad" => vec![out(), MODULE_FILE.as_ptr() as u64],
            "cuModuleLoadData" | "cuModuleLoadFatBinary" => vec![out(), text(MODULE)],
            "cuModuleLoadDataEx" => vec![out(), text(MODULE), 0, 0, 0],
            "cuModuleUnload" => vec![s.module()],
            "cuModuleGetFunction" => vec![out(), s.module(), kernel],
            "cuModuleGetGlobal_v2" => vec![out(), out(), s.module(), text(c"table")],
            "cuLibraryLoadData" => vec![out(), text(MODULE), 0, 0, 0, 0, 0, 0],
            "cuLibraryLoadFromFile" => vec![out(), MODULE_FILE.as_ptr() as u64, 0, 0, 0, 0, 0, 0],
            "cuLibraryUnload" => vec![s.library()],
            "cuLibraryGetModule" => vec![out(), s.library()],
            "cuLibraryGetGlobal" => vec![out(), out(), s.library(), text(c"table")],
            "cuLogsRegisterCallback" => vec![nothing_of_log as *const () as u64, 0, out()],
            "cuLogsCurrent" => vec![out(), 0],
            "cuLogsDumpToFile" => vec![0, text(c"/dev/null"), 0],
            "cuLogsDumpToMemory" => vec![0, out(), place(&[64]), 0],
            "cuKernelGetFunction" => vec![out(), s.kernel_of_library()],
            "cuKernelGetAttribute" => vec![out(), 0, s.kernel_of_library(), 0],
            "cuKernelSetAttribute" => vec![8, 0, s.kernel_of_library(), 0],
            "cuFuncGetAttribute" => vec![out(), 0, s.kernel],
            "cuFuncSetAttribute" => vec![s.kernel, 8, 0],
            "cuFuncSetCacheConfig" => vec![s.kernel, 0],
            "cuFuncLoad" => vec![s.kernel],
            "cuOccupancyMaxActiveBlocksPerMultiprocessor" => vec![out(), s.kernel, 32, 0],
            "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" => {
                vec![out(), s.kernel, 32, 0, 0]
            }
            "cuGetProcAddress" => vec![text(c"cuMemAlloc"), out(), 12000, 0],
            "cuGetProcAddress_v2" => vec![text(c"cuMemAlloc"), out(), 12000, 0, out()],
            "cuGetExportTable" => vec![out(), place(&[7, 7])],
            _ => return None,
        })
    }

    /// Creates a context in this thread, and leaves the current one in place.
    fn second_context(&self, device: i32) -> u64 {
        let context = self.d.create_context(device).expect("a context");
        self.d.set_context(self.context).expect("the first context");
        context
    }

    fn green(&self) -> u64 {
        self.made("cuGreenCtxCreate", &[0, 0, 1])
    }

    /// Makes a call, and returns what it writes to its first argument.
    pub fn made(&self, symbol: &str, rest: &[u64]) -> u64 {
        let place = out();
        self.must(symbol, &[&[place], rest].concat());
        at(place)
    }

    pub fn event(&self) -> u64 {
        self.d.event().expect("an event")
    }

    fn recorded(&self) -> u64 {
        self.recorded_on(self.event())
    }

    fn timed(&self) -> u64 {
        self.recorded_on(self.made("cuEventCreate", &[0]))
    }

    fn recorded_on(&self, event: u64) -> u64 {
        self.d.record(event, self.stream).expect("a record");
        self.d.synchronize().expect("a wait");
        event
    }

    fn shared_event(&self) -> u64 {
        const WITHOUT_TIME: u64 = 2;
        const SHARED: u64 = 4;
        self.made("cuEventCreate", &[WITHOUT_TIME | SHARED])
    }

    fn pool(&self) -> u64 {
        self.made("cuMemPoolCreate", &[place(&[PINNED, DEVICE])])
    }

    fn default_pool(&self) -> u64 {
        self.made("cuDeviceGetDefaultMemPool", &[0])
    }

    pub fn pool_memory(&self, pool: u64) -> u64 {
        self.made("cuMemAllocFromPoolAsync", &[LARGE, pool, self.stream])
    }

    fn managed(&self) -> u64 {
        self.made("cuMemAllocManaged", &[PIECE, 1])
    }

    fn addresses(&self) -> u64 {
        self.made("cuMemAddressReserve", &[2 * MIB, 0, 0, 0])
    }

    pub fn physical(&self, handles: u64) -> u64 {
        self.made("cuMemCreate", &[2 * MIB, place(&[PINNED | handles << 32, DEVICE]), 0])
    }

    pub fn mapped(&self) -> u64 {
        let addresses = self.addresses();
        self.must("cuMemMap", &[addresses, 2 * MIB, 0, self.physical(0), 0]);
        addresses
    }

    /// Returns a pointer to an IPC handle of a block.
    fn exported(&self) -> u64 {
        let handle = out();
        self.must("cuIpcGetMemHandle", &[handle, self.held[2].0]);
        handle
    }

    fn module(&self) -> u64 {
        self.made("cuModuleLoadData", &[text(MODULE)])
    }

    pub fn library(&self) -> u64 {
        self.made("cuLibraryLoadData", &[text(MODULE), 0, 0, 0, 0, 0, 0])
    }

    pub fn kernel_of_library(&self) -> u64 {
        self.made("cuLibraryGetKernel", &[self.library(), text(c"kernel")])
    }

    /// Describes linear memory as a resource.
    fn resource(&self) -> u64 {
        place(&[2, self.plain, 0x20 | 1 << 32, PIECE])
    }

    pub fn fill(&self) -> u64 {
        KernelArguments::fill(self.plain, 64, 5, 0).list()
    }

    fn array(&self) -> u64 {
        self.made("cuArrayCreate_v2", &[place(&[256, 256, 0x20 | 1 << 32])])
    }

    fn copy_of_batch(&self) -> u64 {
        let side = |at: u64| [1, at, 256, 4, 0];
        let sides = [side(self.plain + PLAIN / 2), side(self.plain)].concat();
        place(&[&sides[..], &[64, 4, 2, 1]].concat())
    }

    fn copy_2d(&self) -> u64 {
        let side = |at: u64| [0, 0, 2, 0, at, 0, 256];
        let sides = [side(self.plain + PLAIN / 2), side(self.plain)].concat();
        place(&[&sides[..], &[64, 4]].concat())
    }

    pub fn copy_3d(&self) -> u64 {
        self.copy_of_sides(0)
    }

    fn copy_between_contexts(&self) -> u64 {
        self.copy_of_sides(self.context)
    }

    fn copy_of_sides(&self, context: u64) -> u64 {
        let side = |at: u64| [0, 0, 0, 0, 2, 0, at, 0, context, 256, 4];
        let sides = [side(self.plain + PLAIN / 2), side(self.plain)].concat();
        place(&[&sides[..], &[64, 4, 2]].concat())
    }
}

/// Returns a page of ordinary memory.
fn own_pages() -> u64 {
    let bytes = vec![0_u8; 3 * PIECE as usize].leak();
    (bytes.as_mut_ptr() as u64).next_multiple_of(PIECE)
}

extern "C" fn nothing(_: u64) {}
extern "C" fn nothing_of_stream(_: Stream, _: i32, _: u64) {}
extern "C" fn nothing_of_log(_: u64, _: u32, _: u64, _: u64) {}
