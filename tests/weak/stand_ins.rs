//! Minimal stand-ins for the code that the files under test use of the library, the C library and
//! the driver.

#![allow(dead_code)]

/// The part of a context that the files use.
pub(crate) mod contexts {
    /// A context of the program.
    pub(crate) struct Context {
        pub id: u64,
        pub links: crate::state::registry::Links,
    }

    impl Context {
        /// Returns a context that is never freed, like all contexts.
        pub(crate) fn leaked(id: u64) -> &'static Context {
            Box::leak(Box::new(Context { id, links: Default::default() }))
        }
    }
}

/// The list of the driver's functions: it has four, of which the driver has three.
pub(crate) mod functions {
    use core::ffi::CStr;

    pub(crate) struct Function {
        pub id: usize,
        symbol: &'static CStr,
        pub version: i32,
        pub per_thread: bool,
    }

    impl Function {
        pub(crate) fn symbol(&self) -> &'static CStr {
            self.symbol
        }

        pub(crate) fn base(&self) -> &'static str {
            ""
        }

        pub(crate) fn door(&self) -> Option<()> {
            None
        }
    }

    const fn row(id: usize, symbol: &'static CStr) -> Function {
        Function { id, symbol, version: 0, per_thread: false }
    }

    pub(crate) mod id {
        #![allow(non_upper_case_globals)]

        pub(crate) const cuGetProcAddress_v2: usize = 0;
    }

    pub(crate) const COUNT: usize = 4;
    pub(crate) static FUNCTIONS: [Function; COUNT] =
        [row(0, c"a"), row(1, c"b"), row(2, c""), row(3, c"c")];
}

pub(crate) mod c_library {
    pub(crate) mod dlsym {
        use core::ffi::{c_char, c_void};
        use core::ptr::null_mut;

        /// Returns the first letter of the symbol as the function's address.
        pub(crate) fn real(_: *mut c_void, symbol: *const c_char) -> *mut c_void {
            // SAFETY: at least one byte.
            null_mut::<c_void>().wrapping_byte_add(unsafe { *symbol } as usize)
        }

        /// No other library interposes the driver.
        pub(crate) fn has_neighbour() -> bool {
            false
        }

        pub(crate) fn next(handle: *mut c_void, symbol: *const c_char) -> *mut c_void {
            real(handle, symbol)
        }

        pub(crate) fn first(_: *const c_char) -> *mut c_void {
            null_mut()
        }
    }

    pub(crate) mod objects {
        pub(crate) fn is_code(_: *const core::ffi::c_void) -> bool {
            true
        }
    }
}

pub(crate) mod clock {
    pub(crate) use std::time::Instant;

    pub(crate) fn now_ns() -> u64 {
        0
    }
}

pub(crate) mod config {
    use std::sync::LazyLock;

    #[derive(Default)]
    pub(crate) struct Config {
        pub policy: cachealloc_core::Policy,
    }

    static CONFIG: LazyLock<Config> = LazyLock::new(Config::default);

    pub(crate) fn get() -> &'static Config {
        &CONFIG
    }

    pub(crate) fn zone_bytes() -> u64 {
        0
    }
}

pub(crate) mod identity {
    pub(crate) struct OfOneProcess<T>(pub T);

    impl<T> OfOneProcess<T> {
        pub(crate) fn wipe_in_children(&'static self) {}
    }
}

pub(crate) mod heap {
    pub(crate) unsafe fn return_pages<T>(_: &T) {}

    pub(crate) fn map_zeroed(bytes: usize) -> Option<*mut u8> {
        let layout = std::alloc::Layout::from_size_align(bytes, 4096).ok()?;
        // SAFETY: the size is never zero.
        Some(unsafe { std::alloc::alloc_zeroed(layout) })
    }
}

pub(crate) mod test_delay {
    pub(crate) fn test_delay(_: cachealloc_core::rules::Rule) {}
}

pub(crate) mod process {
    pub(crate) use crate::{bounds, seats};

    pub(crate) mod library_thread {
        pub(crate) fn sleep(_: std::time::Duration) {
            std::thread::yield_now();
        }
    }

    pub(crate) mod lock_timeout {
        #[derive(Clone, Copy)]
        pub(crate) enum LockWait {
            Blocking,
            Timeout,
            TryOnce,
        }
    }
}

pub(crate) mod thread {
    use core::cell::Cell;
    use core::ffi::c_void;
    use core::ptr::null;

    use crate::state::events::Event;

    /// A thread, which consists of its seat.
    pub(crate) struct Thread {
        seat: u32,
        pub lists: Cell<*const c_void>,
        pub list: Cell<*const c_void>,
        pub window: Cell<u64>,
        pub level: Cell<*const c_void>,
        pub spare_event: Cell<*const Event>,
    }

    impl Thread {
        pub(crate) fn new(seat: u32) -> Thread {
            Thread {
                seat,
                lists: Cell::new(null()),
                list: Cell::new(null()),
                window: Cell::new(u64::MAX),
                level: Cell::new(null()),
                spare_event: Cell::new(null()),
            }
        }

        pub(crate) fn seat(&self) -> u32 {
            self.seat
        }

        pub(crate) fn take_seat(&self) -> bool {
            self.seat != crate::seats::SHARED
        }
    }
}

pub(crate) mod statistics {
    pub(crate) mod waits {
        pub(crate) enum Wait {
            Release,
        }

        pub(crate) fn timed<T>(_: Wait, call: impl FnOnce() -> T) -> T {
            call()
        }
    }
}

pub(crate) mod driver {
    /// The order of libraries: no other library is loaded.
    pub(crate) mod libraries {
        use core::ffi::c_void;

        pub(crate) fn note(_: *const c_void) {}

        pub(crate) fn contain(_: *const c_void) -> bool {
            false
        }

        pub(crate) fn is_copy(_: *const c_void) -> bool {
            false
        }

        pub(crate) fn is_ours(_: *const c_void) -> bool {
            false
        }
    }

    pub(crate) mod sys {
        pub(crate) type EventHandle = usize;
        pub(crate) type CuCode = u32;
        pub(crate) type CuResult<T = ()> = Result<T, CuError>;

        #[derive(Clone, Copy, Debug)]
        pub(crate) struct CuError;

        impl CuError {
            pub(crate) const OUT_OF_MEMORY: CuError = CuError;
            pub(crate) const NOT_FOUND: CuError = CuError;
        }

        pub(crate) fn code(_: CuResult) -> CuCode {
            500
        }

        pub(crate) const EVENT_DISABLE_TIMING: u32 = 2;
    }

    /// The calls for events: an event holds the number that was recorded last.
    pub(crate) mod api {
        use core::sync::atomic::{AtomicUsize, Ordering};

        use super::sys::{CuResult, EventHandle};
        use crate::Bare;

        static RECORDED: [Bare; 4096] = [const { Bare(core::cell::UnsafeCell::new(0)) }; 4096];
        static CREATED: AtomicUsize = AtomicUsize::new(0);

        pub(crate) fn event_create(_: u32) -> CuResult<EventHandle> {
            Ok(CREATED.fetch_add(1, Ordering::Relaxed))
        }

        pub(crate) fn event_record(event: EventHandle, what: u64) {
            RECORDED[event].write(what);
        }

        pub(crate) fn event_recorded(event: EventHandle) -> u64 {
            RECORDED[event].read()
        }

        pub(crate) fn event_synchronize(_: EventHandle) -> CuResult {
            Ok(())
        }

        pub(crate) fn event_query(_: EventHandle) -> CuResult {
            Ok(())
        }
    }
}

pub(crate) mod libc_of_miri {
    use core::ffi::{c_char, c_void};
    use core::ptr::null_mut;
    use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    pub const PROT_READ: i32 = 1;
    pub const PROT_WRITE: i32 = 2;
    pub const MAP_PRIVATE: i32 = 2;
    pub const MAP_ANONYMOUS: i32 = 0x20;
    pub const MAP_NORESERVE: i32 = 0x4000;
    pub const MAP_FAILED: *mut c_void = usize::MAX as *mut c_void;
    pub const MADV_DONTNEED: i32 = 4;
    pub const MADV_NOHUGEPAGE: i32 = 15;

    /// Returns zeroed memory, which is never freed.
    ///
    /// # Safety
    ///
    /// - None, like the C library's function.
    pub unsafe fn mmap(
        _: *mut c_void,
        bytes: usize,
        _: i32,
        _: i32,
        _: i32,
        _: i64,
    ) -> *mut c_void {
        let words: Box<[u64]> = vec![0; bytes.div_ceil(8)].into_boxed_slice();
        Box::leak(words).as_mut_ptr().cast()
    }

    /// Zeroes the first slots of an extent, the only ones that the tests use, as the kernel does: a
    /// reader sees the old contents or zero.
    ///
    /// # Safety
    ///
    /// - The range must consist of slots.
    pub unsafe fn madvise(start: *mut c_void, _: usize, _: i32) -> i32 {
        for slot in 0..4 {
            // SAFETY: the caller's; a slot is a word and two halves of one.
            unsafe {
                let word = start.cast::<AtomicU64>().add(2 * slot);
                (*word).store(0, Ordering::Relaxed);
                let halves = word.add(1).cast::<AtomicU32>();
                (*halves).store(0, Ordering::Relaxed);
                (*halves.add(1)).store(0, Ordering::Relaxed);
            }
        }
        0
    }

    pub const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
    pub const RTLD_NOW: i32 = 2;
    pub const RTLD_NOLOAD: i32 = 4;

    /// Finds the driver.
    ///
    /// # Safety
    ///
    /// - None, like the C library's function.
    pub unsafe fn dlopen(_: *const c_char, _: i32) -> *mut c_void {
        null_mut::<c_void>().wrapping_byte_add(1)
    }
}
