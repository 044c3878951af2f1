//! Which library makes the present call of the driver: for the few calls whose meaning depends on it.

use crate::record::capture;

/// Ours, the runtime's and the caller's.
const FRAMES_MAX: usize = 16;

/// Between a library and its call of the driver.
const BETWEEN: [&str; 3] = ["libcudart", "libcuda.", "libcachealloc"];

/// The file name of the innermost library on the stack that is neither ours nor the runtime. None: that is no
/// library's code. Costs microseconds, and takes the loader's lock.
#[cold]
#[inline(never)]
pub(crate) fn library() -> Option<String> {
    let is_between = |file: &str| BETWEEN.iter().any(|between| file.starts_with(between));
    files().into_iter().find(|file| file.as_deref().is_none_or(|file| !is_between(file))).flatten()
}

/// Whether one of these libraries is on the stack, or something that is no library's code.
#[cold]
#[inline(never)]
pub(crate) fn may_be(is_one: impl Fn(&str) -> bool) -> bool {
    files().iter().any(|file| file.as_deref().is_none_or(&is_one))
}

/// The file names of the innermost frames' modules; None for code that is in none.
fn files() -> Vec<Option<String>> {
    let mut frames = [0; FRAMES_MAX];
    let captured = cachealloc_stacks::capture(&mut frames, capture::own_addresses());
    let file = |address: &u64| {
        let path = cachealloc_stacks::module_at(*address, captured.epoch)?.path;
        Some(path.rsplit('/').next().unwrap_or_default().to_string())
    };
    frames[..captured.count].iter().map(file).collect()
}
