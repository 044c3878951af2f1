//! Uses the functions of the library from Rust, if it is loaded.
//!
//!     rustc -O 06-interface.rs
//!     LD_PRELOAD=/path/to/libcachealloc.so ./06-interface
//!
//! Nothing is linked: the functions are found by name, as those of the CUDA driver are.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;
const RTLD_DEFAULT: *mut c_void = null_mut();

struct Cachealloc {
    version: extern "C" fn() -> *const c_char,
    snapshot: extern "C" fn(*const c_char) -> c_int,
    record: extern "C" fn(*const c_char) -> c_int,
    trim: extern "C" fn(c_int) -> i64,
}

impl Cachealloc {
    fn find() -> Option<Cachealloc> {
        // SAFETY: the names are C strings, and the signatures are those of cachealloc.h.
        unsafe {
            let find = |name: &CStr| {
                let address = dlsym(RTLD_DEFAULT, name.as_ptr());
                (!address.is_null()).then_some(address)
            };
            Some(Cachealloc {
                version: transmute::<*mut c_void, _>(find(c"cachealloc_version")?),
                snapshot: transmute::<*mut c_void, _>(find(c"cachealloc_snapshot")?),
                record: transmute::<*mut c_void, _>(find(c"cachealloc_record")?),
                trim: transmute::<*mut c_void, _>(find(c"cachealloc_trim")?),
            })
        }
    }
}

struct Cuda {
    alloc: extern "C" fn(*mut u64, usize) -> c_int,
    free: extern "C" fn(u64) -> c_int,
}

impl Cuda {
    fn start() -> Option<Cuda> {
        // SAFETY: as above, with the signatures of cuda.h.
        unsafe {
            let driver = dlopen(c"libcuda.so.1".as_ptr(), RTLD_NOW);
            if driver.is_null() {
                return None;
            }
            let find = |name: &CStr| {
                let address = dlsym(driver, name.as_ptr());
                (!address.is_null()).then_some(address)
            };
            let init: extern "C" fn(u32) -> c_int = transmute(find(c"cuInit")?);
            let retain: extern "C" fn(*mut usize, c_int) -> c_int =
                transmute(find(c"cuDevicePrimaryCtxRetain")?);
            let set_current: extern "C" fn(usize) -> c_int = transmute(find(c"cuCtxSetCurrent")?);
            let mut context = 0;
            let started = init(0) == 0 && retain(&mut context, 0) == 0 && set_current(context) == 0;
            started.then_some(Cuda {
                alloc: transmute::<*mut c_void, _>(find(c"cuMemAlloc_v2")?),
                free: transmute::<*mut c_void, _>(find(c"cuMemFree_v2")?),
            })
        }
    }

    fn work(&self) {
        for _ in 0..10 {
            let mut address = 0;
            assert_eq!((self.alloc)(&mut address, 30 << 20), 0);
            assert_eq!((self.free)(address), 0);
        }
    }
}

fn main() {
    let cuda = Cuda::start().expect("CUDA starts");
    let Some(library) = Cachealloc::find() else {
        cuda.work();
        println!("cachealloc is not here");
        return;
    };
    // SAFETY: a C string that is never freed.
    println!("cachealloc {}", unsafe { CStr::from_ptr((library.version)()) }.to_string_lossy());
    (library.record)(c"all".as_ptr());
    cuda.work();
    let failed = (library.snapshot)(c"interface.pickle".as_ptr()) != 0;
    println!("snapshot: {}", if failed { "failed" } else { "interface.pickle" });
    (library.record)(c"off".as_ptr());
    println!("{} MiB released", (library.trim)(-1) >> 20);
}
