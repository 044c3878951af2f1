//! The C library's functions that the library interposes, and one that is not public.
//!
//! There is no lock here, and no `Once` as in redhook's `real!`: a lookup takes the loader's lock,
//! which is held while a library's constructors run. A constructor that calls `sigaction` would
//! wait for a thread inside the `Once`, and that thread for the loader. Threads that look up
//! concurrently find the same address, and a child forked meanwhile waits for none.
//!
//! The lookup itself still waits for the loader, where the C library's own function would not. So
//! the first call of any function finds all of them. One case remains: a constructor that joins a
//! thread which makes the first such call of the process.
//!
//! The first call may come before the C library's own constructor (`.preinit_array`,
//! AddressSanitizer). `dlopen` must not be called here: it would run that constructor then, without
//! the program's arguments and environment.

pub(crate) mod dlsym;
pub(crate) mod dynamic;
pub(crate) mod objects;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::mem::{size_of, transmute_copy};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// One function, of the C signature `F`. The address is the first field because the trampolines
/// jump through it.
#[repr(C)]
pub(crate) struct Real<F> {
    address: AtomicPtr<c_void>,
    symbol: &'static CStr,
    signature: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    const fn new(symbol: &'static CStr) -> Real<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "F is a function pointer") };
        Real { address: AtomicPtr::new(null_mut()), symbol, signature: PhantomData }
    }

    /// Returns the function, or `None` if the C library has none of this name.
    #[inline]
    pub(crate) fn get(&self) -> Option<F> {
        let address = self.address();
        // SAFETY: the C library has the function of this name, and `F` is its signature.
        (!address.is_null()).then(|| unsafe { transmute_copy(&address) })
    }

    /// Returns the function's address, or null.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find_with_all_others() } else { known }
    }

    #[cold]
    fn find_with_all_others(&self) -> *mut c_void {
        find_all();
        self.address.load(Ordering::Relaxed)
    }

    fn find(&self) {
        let found = dlsym::real(libc::RTLD_NEXT, self.symbol.as_ptr());
        self.address.store(found, Ordering::Relaxed);
    }
}

macro_rules! real_functions {
    ($($name:ident = $symbol:literal: $signature:ty,)*) => {
        $(pub(crate) static $name: Real<$signature> = Real::new($symbol);)*

        /// Finds all functions now. In a signal handler, for example, it would be too late.
        #[cold]
        pub(crate) fn find_all() {
            $($name.find();)*
        }
    };
}

type Handler = usize;
type Action = libc::sigaction;
/// Signature of the C library's own `prctl`, which reads four words after the first, whatever the
/// caller has passed.
type Prctl = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
pub(crate) type Freopen =
    unsafe extern "C" fn(*const c_char, *const c_char, *mut libc::FILE) -> *mut libc::FILE;
type SetHandler = unsafe extern "C" fn(c_int, Handler) -> Handler;

real_functions! {
    DLCLOSE = c"dlclose": unsafe extern "C" fn(*mut c_void) -> c_int,
    DUP2 = c"dup2": unsafe extern "C" fn(c_int, c_int) -> c_int,
    DUP3 = c"dup3": unsafe extern "C" fn(c_int, c_int, c_int) -> c_int,
    EXIT_AT_ONCE = c"_exit": unsafe extern "C" fn(c_int),
    EXIT_AT_ONCE_ISO = c"_Exit": unsafe extern "C" fn(c_int),
    FREOPEN = c"freopen": Freopen,
    FREOPEN64 = c"freopen64": Freopen,
    PRCTL = c"prctl": Prctl,
    // Returns how much stack the C library needs for a thread, with all thread-local data. It is
    // meant for glibc's own libraries; std calls it too.
    STACK_LEAST = c"__pthread_get_minstack": unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize,
    SIGACTION = c"sigaction": unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int,
    SIGNAL = c"signal": SetHandler,
    BSD_SIGNAL = c"bsd_signal": SetHandler,
    SSIGNAL = c"ssignal": SetHandler,
    SYSV_SIGNAL = c"sysv_signal": SetHandler,
    SYSV_SIGNAL_RESERVED = c"__sysv_signal": SetHandler,
}
