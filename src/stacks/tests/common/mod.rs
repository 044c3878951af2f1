//! Shared by the tests: libraries built on the spot with g++, and the comparison with libgcc.
#![allow(dead_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_stacks::{capture, capture_by_libgcc};

#[path = "../../../../tests/skip.rs"]
mod skip;

pub use skip::skipped;

pub const NOTHING_HIDDEN: core::ops::Range<u64> = 0..0;
/// Functions that describe their frames wrongly, for this processor.
pub const LIES: &str =
    if cfg!(target_arch = "x86_64") { "lies-x86_64.s" } else { "lies-aarch64.s" };
pub const FRAMES_MAX: usize = 512;

/// Builds a shared library from a file of `fixtures`, unless there is no C++ compiler.
pub fn build(source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    // Each test program has its own folder: test programs may run concurrently.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join(format!("lib{name}.so"));
    let status = Command::new("g++")
        .args(["-shared", "-fPIC", "-g", "-pthread", "-Wl,--build-id"])
        .args(flags)
        .arg(fixtures.join(source))
        .arg("-o")
        .arg(&library)
        .status();
    let Ok(status) = status else {
        skipped("there is no g++");
        return None;
    };
    assert!(status.success(), "g++ {source}");
    Some(library)
}

pub struct Library(pub *mut c_void);

// SAFETY: a handle of the dynamic loader may be used by any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    pub fn open(path: &Path) -> Library {
        Library::open_bound(path, libc::RTLD_NOW)
    }

    /// `bound`: when its calls to other libraries are bound, now or lazily.
    pub fn open_bound(path: &Path, bound: c_int) -> Library {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a valid string; the fixtures' constructors are harmless.
        let handle = unsafe { libc::dlopen(name.as_ptr(), bound | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{}", path.display());
        Library(handle)
    }

    pub fn address(&self, name: &str) -> u64 {
        let name = CString::new(name).unwrap();
        // SAFETY: an open handle and a valid string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null());
        found as u64
    }

    /// Calls the library's function of this name with a depth and the function to call at the
    /// bottom.
    pub fn run(&self, name: &str, depth: c_int, bottom: Bottom) {
        // SAFETY: the fixtures' functions all have this type.
        let function: extern "C-unwind" fn(c_int, Bottom) -> c_int =
            unsafe { core::mem::transmute(self.address(name)) };
        function(depth, bottom);
    }

    pub fn close(self) {
        // SAFETY: an open handle, used for the last time.
        unsafe { libc::dlclose(self.0) };
    }
}

pub type Bottom = extern "C-unwind" fn();

/// Number of comparisons made, so that a test can check that its code ran.
pub static COMPARED: AtomicU64 = AtomicU64::new(0);

/// Captures a stack with this crate; the first address lies in this function.
#[inline(never)]
pub fn ours() -> Vec<u64> {
    let mut out = [0; FRAMES_MAX];
    let captured = capture(&mut out, NOTHING_HIDDEN);
    assert!(!captured.truncated);
    out[..captured.count].to_vec()
}

/// Takes this stack with both unwinders; both must return the same addresses from the caller's
/// frame on.
#[inline(never)]
pub extern "C-unwind" fn compare() {
    let mut out = [0; FRAMES_MAX];
    // Twice: the second time every rule comes from the cache.
    for _ in 0..2 {
        let captured = capture(&mut out, NOTHING_HIDDEN);
        let mut oracle = [0; FRAMES_MAX];
        let oracle_count = capture_by_libgcc(&mut oracle);
        assert_same(&out[..captured.count], &oracle[..oracle_count]);
    }
    COMPARED.fetch_add(1, Ordering::Relaxed);
}

/// The first address is in the comparing function itself, where the two calls differ.
pub fn assert_same(ours: &[u64], oracle: &[u64]) {
    let ours = &ours[1..];
    assert!(!ours.is_empty(), "one frame only; libgcc: {oracle:x?}");
    let tail = oracle.len().checked_sub(ours.len()).map(|start| &oracle[start..]);
    assert_eq!(Some(ours), tail, "\n ours {ours:x?}\n libgcc {oracle:x?}");
    let inner = oracle.len() - ours.len();
    assert!(inner > 0 && inner < 16, "frames are missing: {ours:x?}, libgcc {oracle:x?}");
}

pub fn compared(body: impl FnOnce()) {
    let before = COMPARED.load(Ordering::Relaxed);
    body();
    assert!(COMPARED.load(Ordering::Relaxed) > before, "the stack was never compared");
}

pub fn c_string(text: *const c_char) -> String {
    // SAFETY: the loader's strings are valid.
    unsafe { core::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
