//! Finds the library that makes the present driver call, for the few calls whose meaning depends on
//! it.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::record::capture;

/// Enough for the frames of this library, of the runtime and of the caller.
const FRAMES_MAX: usize = 16;

/// The libraries between a caller and the driver.
const BETWEEN: [&str; 3] = ["libcudart", "libcuda.", "libcachealloc"];

/// Returns the file name of the innermost library on the stack that is neither this library nor the
/// runtime. Returns `None` if that code belongs to no library. Costs microseconds, and takes the
/// loader's lock.
#[cold]
#[inline(never)]
pub(crate) fn library() -> Option<Cow<'static, str>> {
    let is_between = |file: &str| BETWEEN.iter().any(|between| file.starts_with(between));
    let is_other = |file: &Option<Cow<str>>| file.as_deref().is_none_or(|file| !is_between(file));
    files(&mut [0; FRAMES_MAX]).find(is_other).flatten()
}

/// Returns whether one of these libraries is on the stack, or code that belongs to no library.
#[cold]
#[inline(never)]
pub(crate) fn may_be(is_one: impl Fn(&str) -> bool) -> bool {
    files(&mut [0; FRAMES_MAX]).any(|file| file.as_deref().is_none_or(&is_one))
}

/// The file names of the innermost frames' modules; `None` for code in no module.
fn files(frames: &mut [u64]) -> impl Iterator<Item = Option<Cow<'static, str>>> {
    let captured = cachealloc_stacks::capture(frames, capture::own_addresses());
    let names = cachealloc_stacks::module_names(&frames[..captured.count], captured.epoch);
    names.map(|name| name.map(file_name))
}

fn file_name(module: &'static [u8]) -> Cow<'static, str> {
    // The loader has no name for the main program, so the system is asked for it once.
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let path = match module {
        [] => PROGRAM.get_or_init(cachealloc_foreign::own_program).as_os_str().as_bytes(),
        path => path,
    };
    String::from_utf8_lossy(path.rsplit(|byte| *byte == b'/').next().unwrap_or_default())
}
