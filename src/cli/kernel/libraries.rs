//! Loads and queries shared libraries: the driver, this command's library, and the one that
//! monitors GPUs. Loading a library runs its code, so it is done in a separate process
//! (`doctor/asked.rs`). Repeated queries run in a thread for which nothing waits long
//! (`commands/top/gpus.rs`).

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A loaded library, which is never unloaded.
pub(crate) struct Loaded(*mut c_void);

/// One device, numbered as the driver numbers them in this process.
pub(crate) struct Device {
    pub name: String,
    pub bytes: u64,
    pub pci: String,
}

const SUCCESS: c_int = 0;
const TEXT_BYTES: usize = 128;

impl Loaded {
    /// Loads a library by its path, or by a name that the loader searches for. The error is the
    /// loader's message.
    pub(crate) fn open(name: &OsStr) -> Result<Loaded, String> {
        let name = CString::new(name.as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: a C string; this process or thread exists to run the code that the library runs
        // when it is loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if !handle.is_null() {
            return Ok(Loaded(handle));
        }
        // SAFETY: null, or the loader's text, which is valid until its next call.
        let said = unsafe { text_of(libc::dlerror()) };
        Err(said.unwrap_or_else(|| "no reason given".to_string()))
    }

    /// Returns the address of a function, or null if the library does not have it.
    fn address(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a library that was loaded, and a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// Returns whether the library has a function of this name.
    pub(crate) fn has(&self, function: &CStr) -> bool {
        !self.address(function).is_null()
    }

    /// Returns the file that this function was loaded from.
    pub(crate) fn file_of(&self, function: &CStr) -> Option<PathBuf> {
        let address = self.address(function);
        let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: zeros are a whole `Dl_info`; its name is null, or of a library that stays loaded.
        unsafe {
            if address.is_null() || libc::dladdr(address, about.as_mut_ptr()) == 0 {
                return None;
            }
            text_of(about.assume_init().dli_fname).map(PathBuf::from)
        }
    }

    /// Returns the version reported by the cachealloc library.
    pub(crate) fn own_version(&self) -> Option<String> {
        let function = self.address(c"cachealloc_version");
        if function.is_null() {
            return None;
        }
        // SAFETY: the signature is that of the library's header; the text is a constant.
        unsafe {
            let function: extern "C" fn() -> *const c_char = std::mem::transmute(function);
            text_of(function())
        }
    }

    /// Returns the newest CUDA version that the driver supports, such as 13000. Needs no device.
    pub(crate) fn driver_version(&self) -> Option<i32> {
        let mut version = 0;
        let code = self.call(c"cuDriverGetVersion", &raw mut version as usize, 0, 0);
        (code == Some(SUCCESS)).then_some(version)
    }

    /// Initializes the driver without creating a context. The error is the driver's name for it.
    pub(crate) fn start_driver(&self) -> Result<(), String> {
        match self.call(c"cuInit", 0, 0, 0) {
            Some(SUCCESS) => Ok(()),
            Some(code) => Err(self.error_name(code)),
            None => Err("it has no cuInit".to_string()),
        }
    }

    fn error_name(&self, code: c_int) -> String {
        let mut name: *const c_char = std::ptr::null();
        self.call(c"cuGetErrorName", code as usize, &raw mut name as usize, 0);
        // SAFETY: null as initialized, or a constant of the driver.
        let name = unsafe { text_of(name) };
        name.map_or(format!("error {code}"), |name| format!("error {code}, {name}"))
    }

    /// Returns the devices that the initialized driver shows to a process of this environment.
    pub(crate) fn devices(&self) -> Vec<Device> {
        let mut count: c_int = 0;
        self.call(c"cuDeviceGetCount", &raw mut count as usize, 0, 0);
        (0..count as usize).map(|device| self.device(device)).collect()
    }

    /// Returns a device by its number, which is also its handle.
    fn device(&self, device: usize) -> Device {
        let text = |function| {
            let mut text = [0u8; TEXT_BYTES];
            self.call(function, text.as_mut_ptr() as usize, TEXT_BYTES, device);
            let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
            text.to_string_lossy().into_owned()
        };
        let mut bytes: usize = 0;
        self.call(c"cuDeviceTotalMem_v2", &raw mut bytes as usize, device, 0);
        let [name, pci] = [c"cuDeviceGetName", c"cuDeviceGetPCIBusId"].map(text);
        Device { name, bytes: bytes as u64, pci }
    }

    /// Calls a function of the driver or of NVML. Returns `None` if the library does not have it.
    fn call(&self, function: &CStr, first: usize, second: usize, third: usize) -> Option<c_int> {
        let function = self.address(function);
        if function.is_null() {
            return None;
        }
        // SAFETY: every function called through here takes at most three words, each a number or
        // the address of an output, which is large enough; on the supported machines a function may
        // be called with more words than it takes.
        unsafe {
            let function: extern "C" fn(usize, usize, usize) -> c_int =
                std::mem::transmute(function);
            Some(function(first, second, third))
        }
    }
}

/// NVIDIA's library that monitors GPUs (NVML), as nvidia-smi does, without a context on any.
pub(crate) struct Watcher(Loaded);

/// A GPU, or a part of one, with NVML's number: GPUs are in the order of PCI addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WatchedGpu {
    /// Index of the whole GPU.
    pub index: u32,
    /// Number of the part (MIG).
    pub part: Option<u32>,
    pub uuid: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// Memory in use on a GPU, and the processes that use it, with NVML's process numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UsedGpu {
    pub uuid: String,
    pub in_use_bytes: u64,
    /// Process numbers, with the bytes of each if NVML reports them.
    pub processes: Vec<(u32, Option<u64>)>,
}

/// Layout of `nvmlProcessInfo_t`, from the second version of the call on.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RunningProcess {
    number: u32,
    bytes: u64,
    instances: [u32; 2],
}

/// NVML's value if the bytes are not available.
const NOT_AVAILABLE: u64 = u64::MAX;
const PROCESSES_MAX: usize = 1024;

impl Watcher {
    /// Returns `None` if NVML is not installed or finds no driver.
    pub(crate) fn start() -> Option<Watcher> {
        let library = Loaded::open(OsStr::new("libnvidia-ml.so.1")).ok()?;
        (library.call(c"nvmlInit_v2", 0, 0, 0) == Some(SUCCESS)).then_some(Watcher(library))
    }

    /// Returns all GPUs, including the parts of divided ones.
    pub(crate) fn gpus(&self) -> Vec<WatchedGpu> {
        let mut count: c_int = 0;
        self.0.call(c"nvmlDeviceGetCount_v2", &raw mut count as usize, 0, 0);
        let mut gpus = Vec::new();
        for index in 0..u32::try_from(count).unwrap_or(0) {
            let whole = self.handle(c"nvmlDeviceGetHandleByIndex_v2", index as usize, None);
            let Some(whole) = whole else { continue };
            gpus.extend(self.gpu(whole, index, None));
            let mut parts: c_int = 0;
            self.0.call(c"nvmlDeviceGetMaxMigDeviceCount", whole, &raw mut parts as usize, 0);
            for part in 0..u32::try_from(parts).unwrap_or(0) {
                let function = c"nvmlDeviceGetMigDeviceHandleByIndex";
                let handle = self.handle(function, whole, Some(part as usize));
                gpus.extend(handle.and_then(|handle| self.gpu(handle, index, Some(part))));
            }
        }
        gpus
    }

    /// Returns the usage of a GPU, or of a part of one, by its UUID.
    pub(crate) fn used(&self, uuid: &str) -> Option<UsedGpu> {
        let name = CString::new(uuid).ok()?;
        let function = c"nvmlDeviceGetHandleByUUID";
        let handle = self.handle(function, name.as_ptr() as usize, None)?;
        let gpu = self.gpu(handle, 0, None)?;
        let in_use_bytes = gpu.total_bytes.saturating_sub(gpu.free_bytes);
        let processes = self.processes(handle);
        Some(UsedGpu { uuid: uuid.to_string(), in_use_bytes, processes })
    }

    /// Returns computing and drawing processes; a process that does both appears once. Returns none
    /// if the driver is older than the second version of the calls.
    fn processes(&self, handle: usize) -> Vec<(u32, Option<u64>)> {
        let computing = [
            c"nvmlDeviceGetComputeRunningProcesses_v3",
            c"nvmlDeviceGetComputeRunningProcesses_v2",
        ];
        let drawing = [
            c"nvmlDeviceGetGraphicsRunningProcesses_v3",
            c"nvmlDeviceGetGraphicsRunningProcesses_v2",
        ];
        let mut all = self.running(handle, computing);
        for drawing in self.running(handle, drawing) {
            if all.iter().all(|known| known.number != drawing.number) {
                all.push(drawing);
            }
        }
        let bytes = |bytes| Some(bytes).filter(|bytes| *bytes != NOT_AVAILABLE);
        all.iter().map(|process| (process.number, bytes(process.bytes))).collect()
    }

    /// Calls the first of these functions that exists and returns its processes.
    fn running(&self, handle: usize, functions: [&CStr; 2]) -> Vec<RunningProcess> {
        let ask = |function: &CStr| {
            let mut all = vec![RunningProcess::default(); PROCESSES_MAX];
            let mut count = PROCESSES_MAX as u32;
            let (room, place) = (&raw mut count as usize, all.as_mut_ptr() as usize);
            let code = self.0.call(function, handle, room, place);
            all.truncate(count as usize);
            (code == Some(SUCCESS)).then_some(all)
        };
        functions.into_iter().find_map(ask).unwrap_or_default()
    }

    fn handle(&self, function: &CStr, first: usize, second: Option<usize>) -> Option<usize> {
        let mut handle = 0usize;
        let place = &raw mut handle as usize;
        let code = match second {
            None => self.0.call(function, first, place, 0),
            Some(second) => self.0.call(function, first, second, place),
        };
        (code == Some(SUCCESS)).then_some(handle)
    }

    fn gpu(&self, handle: usize, index: u32, part: Option<u32>) -> Option<WatchedGpu> {
        let mut uuid = [0u8; TEXT_BYTES];
        let place = uuid.as_mut_ptr() as usize;
        let code = self.0.call(c"nvmlDeviceGetUUID", handle, place, TEXT_BYTES);
        let uuid = CStr::from_bytes_until_nul(&uuid).ok()?.to_string_lossy().into_owned();
        // Total, free and used bytes.
        let mut memory = [0u64; 3];
        let place = &raw mut memory as usize;
        let asked = self.0.call(c"nvmlDeviceGetMemoryInfo", handle, place, 0);
        let both = code == Some(SUCCESS) && asked == Some(SUCCESS);
        let [total_bytes, free_bytes, _] = memory;
        both.then_some(WatchedGpu { index, part, uuid, total_bytes, free_bytes })
    }
}

/// # Safety
///
/// `text` must be null or point to a valid C string.
unsafe fn text_of(text: *const c_char) -> Option<String> {
    // SAFETY: guaranteed by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Returns whether this file gives capabilities to the process that executes it.
pub(crate) fn has_capabilities(file: &std::path::Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: two C strings; nothing is written, because only the size is requested.
    let size = unsafe {
        libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0)
    };
    size > 0
}
