//! Arguments of calls that few programs make: memory of others, old launches, graphics.

use crate::scene::{PLAIN_BYTES, Scene, out, place, text};

const PAGE: u64 = 2 << 20;
const PIECE: u64 = 4096;
const PLAIN: u64 = PLAIN_BYTES as u64;
const PINNED: u64 = 1;
const DEVICE: u64 = 1;
/// A kind of handle of pools, memory and semaphores, and another kind of semaphores.
const DESCRIPTOR: u64 = 1;
const TIMELINE: u64 = 9;
const FABRIC: u64 = 1;
const ONE: u64 = 1 | 1 << 32;
/// A kind of number in a tensor.
const KIND: u64 = 7;
const MANAGED: &std::ffi::CStr = c".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .attribute(.managed) .align 8 .u64 word;\n.visible .entry kernel() { ret; }\n";

impl Scene<'_> {
    pub fn of_seldom(&self, name: &str) -> Option<Vec<u64>> {
        let of_family = self.of_sharing(name).or_else(|| self.of_foreign(name));
        of_family.or_else(|| self.of_old_work(name)).or_else(|| self.of_objects(name))
    }

    fn of_sharing(&self, name: &str) -> Option<Vec<u64>> {
        let s = self;
        Some(match name {
            "cuMemPoolExportToShareableHandle" => vec![out(), s.shareable_pool(), DESCRIPTOR, 0],
            "cuMemPoolImportFromShareableHandle" => {
                vec![out(), s.file_of(s.shareable_pool()), DESCRIPTOR, 0]
            }
            "cuMemPoolExportPointer" => vec![out(), s.pool_memory(s.shareable_pool())],
            "cuMemPoolImportPointer" => {
                let pool = s.shareable_pool();
                let file = s.file_of(pool);
                let import = "cuMemPoolImportFromShareableHandle";
                let imported = s.made(import, &[file, DESCRIPTOR, 0]);
                vec![out(), imported, place(&[pool, s.pool_memory(pool)])]
            }
            "cuMulticastCreate" => vec![out(), place(&[1, PAGE, DESCRIPTOR, 0])],
            "cuMulticastAddDevice" => vec![s.multicast_without_devices(), 0],
            "cuMulticastBindMem" => vec![s.multicast(), 0, s.physical(0), 0, PAGE, 0],
            "cuMulticastBindMem_v2" => vec![s.multicast(), 0, 0, s.physical(0), 0, PAGE, 0],
            "cuMulticastBindAddr" => vec![s.multicast(), 0, s.mapped(), PAGE, 0],
            "cuMulticastBindAddr_v2" => vec![s.multicast(), 0, 0, s.mapped(), PAGE, 0],
            "cuMulticastUnbind" => {
                let multicast = s.multicast();
                s.must("cuMulticastBindMem", &[multicast, 0, s.physical(0), 0, PAGE, 0]);
                vec![multicast, 0, 0, PAGE]
            }
            "cuLogicalEndpointIdReserve" => vec![out(), 1],
            "cuLogicalEndpointCreate" => vec![s.endpoint_id(), unicast()],
            "cuLogicalEndpointDestroy" => vec![s.endpoint()],
            "cuLogicalEndpointBindAddr" => vec![s.endpoint(), 0, 0, s.mapped(), PAGE, 0],
            "cuLogicalEndpointUnbind" => {
                let endpoint = s.endpoint();
                s.must("cuLogicalEndpointBindAddr", &[endpoint, 0, 0, s.mapped(), PAGE, 0]);
                vec![endpoint, 0, 0, PAGE]
            }
            "cuLogicalEndpointExport" => vec![out(), s.endpoint(), FABRIC],
            "cuLogicalEndpointImport" => vec![s.endpoint_id(), place(&[s.endpoint()]), FABRIC],
            _ => return None,
        })
    }

    fn of_foreign(&self, name: &str) -> Option<Vec<u64>> {
        let s = self;
        Some(match name {
            "cuImportExternalMemory" => vec![out(), external_memory()],
            "cuDestroyExternalMemory" => {
                vec![s.made("cuImportExternalMemory", &[external_memory()])]
            }
            "cuExternalMemoryGetMappedBuffer" => {
                let memory = s.made("cuImportExternalMemory", &[external_memory()]);
                vec![out(), memory, place(&[0, PIECE])]
            }
            "cuImportExternalSemaphore" => vec![out(), place(&[TIMELINE, file()])],
            "cuDestroyExternalSemaphore" => vec![s.semaphore()],
            "cuSignalExternalSemaphoresAsync" => {
                vec![place(&[s.semaphore()]), place(&[5]), 1, s.stream]
            }
            "cuWaitExternalSemaphoresAsync" => {
                vec![place(&[s.semaphore()]), place(&[0]), 1, s.stream]
            }
            "cuGraphAddExternalSemaphoresSignalNode" | "cuGraphAddExternalSemaphoresWaitNode" => {
                let params = place(&[place(&[s.semaphore()]), place(&[5]), 1]);
                vec![out(), s.graph(), 0, 0, params]
            }
            "cuGLCtxCreate" | "cuGLCtxCreate_v2" => vec![out(), 0, 0],
            "cuVDPAUCtxCreate" | "cuVDPAUCtxCreate_v2" => vec![out(), 0, 0, 0, 0],
            "cuGLRegisterBufferObject" => vec![1],
            "cuGraphicsUnregisterResource" => vec![s.made("cuGraphicsGLRegisterBuffer", &[1, 0])],
            "cuEGLStreamProducerConnect" => vec![out(), 1, 16, 16],
            _ if name.starts_with("cuGraphics") && name.contains("Register") => {
                vec![out(), 1, 0, 0]
            }
            _ if name.starts_with("cuEGLStreamConsumerConnect") => vec![out(), 1, 0],
            _ => return None,
        })
    }

    fn of_old_work(&self, name: &str) -> Option<Vec<u64>> {
        let s = self;
        let (to, from) = (s.plain, s.plain + PLAIN / 2);
        Some(match name {
            "cuLaunch" => vec![s.kernel_with_parameters()],
            "cuLaunchGrid" => vec![s.kernel_with_parameters(), 1, 1],
            "cuLaunchGridAsync" => vec![s.kernel_with_parameters(), 1, 1, s.stream],
            "cuLaunchCooperativeKernelMultiDevice" => {
                vec![place(&[s.kernel, ONE, ONE, ONE, 0, s.stream, s.fill()]), 1, 0]
            }
            "cuFabricCpyBatchAsync" => {
                let copy = place(&[1, from, 0, 1, to, 0, PIECE]);
                vec![1, copy, 0, s.stream]
            }
            "cuMemBatchDecompressAsync" => {
                let one = place(&[PIECE, PIECE, s.pinned, from, to]);
                vec![one, 1, 0, out(), s.stream]
            }
            "cuGraphAddBatchMemOpNode" => {
                const WRITE: u64 = 2;
                let write = place(&[WRITE, to, 7, 0, 0, 0]);
                vec![out(), s.graph(), 0, 0, place(&[s.context, 1, write, 0])]
            }
            _ => return None,
        })
    }

    fn of_objects(&self, name: &str) -> Option<Vec<u64>> {
        let s = self;
        let map = out().next_multiple_of(64);
        let config = place(&[ONE, ONE, ONE, 0, s.stream, 0, 0]);
        Some(match name {
            "cuTensorMapEncodeTiled" => vec![map, KIND, 1, s.plain],
            "cuTensorMapEncodeIm2col" | "cuTensorMapEncodeIm2colWide" => {
                vec![map, KIND, 3, s.plain]
            }
            "cuTensorMapReplaceAddress" => vec![map, s.plain],
            "cuTexRefSetAddress_v2" => vec![out(), s.texture_reference(), s.plain, PIECE],
            "cuTexRefSetAddress2D_v2" | "cuTexRefSetAddress2D_v3" => {
                vec![s.texture_reference(), out(), s.plain, 1024]
            }
            "cuTexRefDestroy" => vec![s.texture_reference()],
            "cuLibraryGetManaged" => {
                let library = s.made("cuLibraryLoadData", &[text(MANAGED), 0, 0, 0, 0, 0, 0]);
                vec![out(), out(), library, text(c"word")]
            }
            "cuLibraryGetUnifiedFunction" => vec![out(), s.library(), text(c"kernel")],
            "cuKernelSetCacheConfig" => vec![s.kernel_of_library(), 0, 0],
            "cuOccupancyAvailableDynamicSMemPerBlock" => vec![out(), s.kernel, 1, 32],
            "cuOccupancyMaxActiveClusters" | "cuOccupancyMaxPotentialClusterSize" => {
                vec![out(), s.kernel, config]
            }
            "cuOccupancyMaxPotentialBlockSize" | "cuOccupancyMaxPotentialBlockSizeWithFlags" => {
                vec![out(), out(), s.kernel, 0, 0, 0, 0]
            }
            _ => return None,
        })
    }

    fn shareable_pool(&self) -> u64 {
        self.made("cuMemPoolCreate", &[place(&[PINNED | DESCRIPTOR << 32, DEVICE])])
    }

    fn file_of(&self, pool: u64) -> u64 {
        self.made("cuMemPoolExportToShareableHandle", &[pool, DESCRIPTOR, 0])
    }

    fn multicast_without_devices(&self) -> u64 {
        self.made("cuMulticastCreate", &[place(&[1, PAGE, DESCRIPTOR, 0])])
    }

    fn multicast(&self) -> u64 {
        let multicast = self.multicast_without_devices();
        self.must("cuMulticastAddDevice", &[multicast, 0]);
        multicast
    }

    fn endpoint_id(&self) -> u64 {
        self.made("cuLogicalEndpointIdReserve", &[1])
    }

    fn endpoint(&self) -> u64 {
        let id = self.endpoint_id();
        self.must("cuLogicalEndpointCreate", &[id, unicast()]);
        id
    }

    fn semaphore(&self) -> u64 {
        self.made("cuImportExternalSemaphore", &[place(&[TIMELINE, file()])])
    }

    fn texture_reference(&self) -> u64 {
        self.made("cuTexRefCreate", &[])
    }

    /// Returns a kernel whose parameters calls have set.
    fn kernel_with_parameters(&self) -> u64 {
        for (index, value) in [self.plain, 64, 5, 0].into_iter().enumerate() {
            let offset = index as u64 * 8;
            self.must("cuParamSetv", &[self.kernel, offset, place(&[value]), 8]);
        }
        self.must("cuFuncSetBlockShape", &[self.kernel, 1, 1, 1]);
        self.kernel
    }
}

fn unicast() -> u64 {
    const UNICAST: u64 = 1;
    place(&[UNICAST, PAGE, FABRIC])
}

fn external_memory() -> u64 {
    place(&[DESCRIPTOR, file(), 0, PIECE])
}

/// Returns a descriptor of memory that another API could have made.
fn file() -> u64 {
    // SAFETY: a C string; the descriptor is new.
    unsafe {
        let file = libc::memfd_create(c"shared".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, PIECE as libc::off_t), 0);
        file as u64
    }
}
