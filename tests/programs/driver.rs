//! A small binding of the driver API for test programs, on the simulated driver and on a GPU.
//!
//! It finds functions as the CUDA runtime does (`dlopen`, `cuGetProcAddress_v2`, one request for
//! each function) or by plain `dlsym`. Calls return the driver's code as the error. Functions named
//! `sim_*` do nothing without the simulation.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Mutex;

use crate::functions::Functions;
pub use crate::functions::{Lookup, Resolver};

/// Result of a driver call; the error is the driver's code.
pub type Outcome<T = ()> = Result<T, i32>;
pub type Stream = u64;
pub type Event = u64;

pub struct Driver {
    /// The driver's functions, for calls without a wrapper.
    pub functions: Functions,
    pub resolver: Resolver,
    /// Module of kernels.ptx in each context, by context.
    modules: Mutex<HashMap<u64, u64>>,
}

/// Handle of the legacy stream, with which every other blocking stream is in order.
pub const LEGACY: Stream = 1;
pub const PER_THREAD: Stream = 2;

/// Modes of a capture.
pub const GLOBAL: u32 = 0;
pub const THREAD_LOCAL: u32 = 1;
pub const RELAXED: u32 = 2;

impl Driver {
    /// Opens the driver, with the primary context of device 0 current.
    pub fn open(lookup: Lookup) -> Result<Driver, String> {
        let driver = Driver::load(lookup)?;
        driver.use_device(0).map_err(|code| format!("no context: error {code}"))?;
        Ok(driver)
    }

    /// Opens the driver with no context.
    pub fn load(lookup: Lookup) -> Result<Driver, String> {
        let resolver = Resolver::open(lookup)?;
        let functions = Functions::resolve(&resolver);
        let driver = Driver { functions, resolver, modules: Mutex::default() };
        // Loading a kernel at its first launch waits for running kernels, and a spinning kernel
        // never ends.
        // SAFETY: programs open the driver before they have other threads.
        unsafe { std::env::set_var("CUDA_MODULE_LOADING", "EAGER") };
        // SAFETY: the function takes a number.
        let code = unsafe { (driver.functions.cuInit)(0) };
        if code != 0 {
            return Err(format!("cuInit: error {code}"));
        }
        Ok(driver)
    }

    /// Leaves out the functions that only the simulated driver has, so that a program does what it
    /// does on a GPU.
    pub fn without_simulation(mut self) -> Driver {
        self.functions.forget_simulation();
        self
    }

    /// Makes the primary context of a device current in this thread.
    pub fn use_device(&self, device: i32) -> Outcome<u64> {
        let mut context = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuDevicePrimaryCtxRetain)(&mut context, device) })?;
        self.set_context(context)?;
        Ok(context)
    }

    pub fn set_context(&self, context: u64) -> Outcome {
        // SAFETY: the function takes a handle.
        check(unsafe { (self.functions.cuCtxSetCurrent)(context) })
    }

    pub fn context(&self) -> u64 {
        let mut context = 0;
        // SAFETY: a local for the result.
        unsafe { (self.functions.cuCtxGetCurrent)(&mut context) };
        context
    }

    /// Identifier of the current context, which is never reused, unlike the handle; 0 without a
    /// context.
    pub fn context_id(&self) -> u64 {
        let mut id = 0;
        // SAFETY: a local for the result.
        unsafe { (self.functions.cuCtxGetId)(self.context(), &mut id) };
        id
    }

    pub fn create_context(&self, device: i32) -> Outcome<u64> {
        let mut context = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuCtxCreate)(&mut context, 0, device) })?;
        Ok(context)
    }

    pub fn alloc(&self, bytes: usize) -> Outcome<u64> {
        let mut address = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuMemAlloc)(&mut address, bytes) })?;
        Ok(address)
    }

    pub fn free(&self, address: u64) -> Outcome {
        // SAFETY: the function takes a number.
        check(unsafe { (self.functions.cuMemFree)(address) })
    }

    pub fn alloc_async(&self, bytes: usize, stream: Stream) -> Outcome<u64> {
        let mut address = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuMemAllocAsync)(&mut address, bytes, stream) })?;
        Ok(address)
    }

    pub fn free_async(&self, address: u64, stream: Stream) -> Outcome {
        // SAFETY: the function takes numbers.
        check(unsafe { (self.functions.cuMemFreeAsync)(address, stream) })
    }

    /// Allocates pinned memory; host and device use the same address.
    pub fn pinned(&self, bytes: usize) -> Outcome<u64> {
        let mut address = 0;
        // SAFETY: a local for the result.
        check(unsafe { (self.functions.cuMemHostAlloc)(&mut address, bytes, 0) })?;
        Ok(address)
    }

    pub fn free_pinned(&self, address: u64) -> Outcome {
        // SAFETY: the function takes a number.
        check(unsafe { (self.functions.cuMemFreeHost)(address) })
    }

    /// Returns the free and the total bytes.
    pub fn memory_info(&self) -> Outcome<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: locals for the results.
        check(unsafe { (self.functions.cuMemGetInfo)(&mut free, &mut total) })?;
        Ok((free, total))
    }

    /// Returns the base and the requested size of the allocation at an address.
    pub fn address_range(&self, address: u64) -> Outcome<(u64, usize)> {
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: locals for the results.
        check(unsafe { (self.functions.cuMemGetAddressRange)(&mut base, &mut bytes, address) })?;
        Ok((base, bytes))
    }

    /// Reads one word of pinned memory on the host, and notes the access in the simulation.
    pub fn host_read(&self, address: u64) -> u64 {
        self.note_host_read(address, 8);
        // SAFETY: the test owns this pinned word.
        unsafe { (address as *const u64).read_volatile() }
    }

    /// Writes one word of pinned memory on the host, and notes the access in the simulation.
    pub fn host_write(&self, address: u64, value: u64) {
        self.note_host_write(address, 8);
        self.set_flag(address, value);
    }

    /// Writes a flag on which a kernel spins. This is no ordinary access, hence the simulation does
    /// not note it.
    pub fn set_flag(&self, address: u64, value: u64) {
        // SAFETY: the test owns this pinned word.
        unsafe { (address as *mut u64).write_volatile(value) };
    }

    pub fn note_host_read(&self, address: u64, bytes: usize) {
        if let Some(note) = self.functions.sim_host_read {
            // SAFETY: the function takes numbers.
            unsafe { note(address, bytes) };
        }
    }

    pub fn note_host_write(&self, address: u64, bytes: usize) {
        if let Some(note) = self.functions.sim_host_write {
            // SAFETY: the function takes numbers.
            unsafe { note(address, bytes) };
        }
    }

    /// Returns the number of races found so far, or `None` on a real GPU.
    pub fn races(&self) -> Option<u64> {
        // SAFETY: the function takes nothing.
        self.functions.sim_race_count.map(|count| unsafe { count() })
    }

    /// Returns this thread's virtual time, or `None` on a real GPU.
    pub fn virtual_ns(&self) -> Option<u64> {
        // SAFETY: the function takes nothing.
        self.functions.sim_now_ns.map(|now| unsafe { now() })
    }

    /// Returns the number of calls that reached the driver, or `None` on a real GPU.
    pub fn calls(&self, symbol: &str) -> Option<u64> {
        let name = CString::new(symbol).ok()?;
        // SAFETY: a C string.
        self.functions.sim_call_count.map(|count| unsafe { count(name.as_ptr().cast()) })
    }

    /// Requests failures as `SIM_FAIL` does. Returns `false` on a real GPU.
    pub fn fail(&self, list: &str) -> bool {
        let list = CString::new(list).expect("a list without zeros");
        // SAFETY: a C string.
        self.functions.sim_fail.is_some_and(|fail| unsafe { fail(list.as_ptr().cast()) } == 0)
    }

    /// Cancels all requested failures.
    pub fn recover(&self) {
        if let Some(fail) = self.functions.sim_fail {
            // SAFETY: null removes all.
            unsafe { fail(std::ptr::null()) };
        }
    }

    /// Whether the last answer was chance: it reported completed work for which no call waited.
    /// Returns `None` on a real GPU, which does not report this.
    pub fn answered_by_chance(&self) -> Option<bool> {
        // SAFETY: the function takes nothing.
        self.functions.sim_was_news.map(|news| unsafe { news() } != 0)
    }

    /// Returns a kernel of kernels.ptx, which is loaded when first needed.
    pub fn kernel(&self, name: &str) -> Outcome<u64> {
        let mut modules = self.modules.lock().expect("no test panics here");
        let module = modules.entry(self.context_id()).or_insert(0);
        if *module == 0 {
            let text = CString::new(include_str!("kernels.ptx")).expect("text without zeros");
            let load = self.functions.cuModuleLoadData;
            // SAFETY: a C string and a local for the result.
            check(unsafe { load(module, text.as_ptr().cast()) })?;
        }
        let name = CString::new(name).expect("a name without zeros");
        let mut function = 0;
        // SAFETY: a C string and a local for the result.
        check(unsafe {
            (self.functions.cuModuleGetFunction)(&mut function, *module, name.as_ptr().cast())
        })?;
        Ok(function)
    }

    /// Launches one thread of a kernel.
    pub fn launch(&self, name: &str, stream: Stream, args: &[u64]) -> Outcome {
        let function = self.kernel(name)?;
        let places: Vec<*const u64> = args.iter().map(|arg| arg as *const u64).collect();
        let list = places.as_ptr().cast();
        let launch = self.functions.cuLaunchKernel;
        // SAFETY: every argument of the kernel has its place in the list.
        check(unsafe { launch(function, 1, 1, 1, 1, 1, 1, 0, stream, list, std::ptr::null()) })
    }

    /// Launches a kernel that may start before its predecessor in the stream is complete.
    pub fn launch_early(&self, name: &str, stream: Stream, args: &[u64]) -> Outcome {
        let function = self.kernel(name)?;
        let places: Vec<*const u64> = args.iter().map(|arg| arg as *const u64).collect();
        let attribute = LaunchAttribute { id: 6, pad: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] };
        let config = LaunchConfig {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            stream,
            attributes: &attribute,
            attribute_count: 1,
        };
        let (config, list) = ((&raw const config).cast(), places.as_ptr().cast());
        let launch = self.functions.cuLaunchKernelEx;
        // SAFETY: the configuration outlives the call; every argument has its place.
        check(unsafe { launch(config, function, list, std::ptr::null()) })
    }

    pub fn copy(&self, dst: u64, src: u64, bytes: usize, stream: Stream) -> Outcome {
        // SAFETY: the test owns both ranges.
        check(unsafe { (self.functions.cuMemcpyAsync)(dst, src, bytes, stream) })
    }

    /// Returns the words of a device range, after all earlier work in the legacy stream.
    pub fn read_words(&self, address: u64, count: usize) -> Outcome<Vec<u64>> {
        let mut words = vec![0_u64; count];
        let place = words.as_mut_ptr() as u64;
        // SAFETY: room for `count` words.
        check(unsafe { (self.functions.cuMemcpyDtoH)(place, address, count * 8) })?;
        Ok(words)
    }

    pub fn write_words(&self, address: u64, words: &[u64]) -> Outcome {
        let place = words.as_ptr() as u64;
        // SAFETY: the words outlive the call, which waits.
        check(unsafe { (self.functions.cuMemcpyHtoD)(address, place, words.len() * 8) })
    }

    pub fn memset(&self, address: u64, byte: u8, bytes: usize, stream: Stream) -> Outcome {
        // SAFETY: the test owns the range.
        check(unsafe { (self.functions.cuMemsetD8Async)(address, byte, bytes, stream) })
    }

    pub fn synchronize(&self) -> Outcome {
        // SAFETY: the function takes nothing.
        check(unsafe { (self.functions.cuCtxSynchronize)() })
    }

    // Only the function uses the pointer; this wrapper does not dereference it.
    #[allow(clippy::not_unsafe_ptr_arg_deref)]
    pub fn host_function(
        &self,
        stream: Stream,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Outcome {
        // SAFETY: the caller gives a function that takes this pointer.
        check(unsafe { (self.functions.cuLaunchHostFunc)(stream, function, data) })
    }
}

pub fn check(code: i32) -> Outcome {
    if code == 0 { Ok(()) } else { Err(code) }
}

#[repr(C)]
struct LaunchAttribute {
    id: u32,
    pad: u32,
    value: [u64; 8],
}

#[repr(C)]
struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: Stream,
    attributes: *const LaunchAttribute,
    attribute_count: u32,
}
