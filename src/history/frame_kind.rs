//! Which frames of a stack tell a person where an allocation comes from.
//!
//! The innermost frame of an allocation hardly ever does: it belongs to the CUDA runtime or to a
//! container. The *site* of a stack is the innermost frame of the program's own sources. Without
//! one, it is the innermost Python frame, or else the first frame above the runtime.

use crate::frames::is_source;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FrameKind {
    /// Code that forwards requests to the driver, or that starts threads and programs.
    Plumbing,
    /// Machine code of a library.
    Code,
    /// Python code of a library.
    Python,
    /// Sources of the program itself.
    Own,
}

/// Returns the index of the site's frame, given the kinds of all frames, innermost first.
/// Returns `None` for a stack without frames.
pub fn site_index(kinds: impl Iterator<Item = FrameKind>) -> Option<usize> {
    // The innermost of the best kind.
    kinds.enumerate().max_by_key(|&(index, kind)| (kind, usize::MAX - index)).map(|it| it.0)
}

/// Returns the least informative kind that a caller of the site must have to be shown. If the site
/// is in the program's own sources, only callers in them count.
pub fn least_of_callers(site: Option<FrameKind>) -> FrameKind {
    match site {
        Some(FrameKind::Own) => FrameKind::Own,
        _ => FrameKind::Code,
    }
}

/// Returns the kind of a frame, by its function and file.
pub fn frame_kind(name: &str, filename: &str) -> FrameKind {
    if is_plumbing(name, filename) {
        return FrameKind::Plumbing;
    }
    let is_python = filename.ends_with(".py") || filename.starts_with('<');
    // Python compiled to C belongs to a library, or to the program, which then calls it from other
    // sources.
    let is_compiled = name.starts_with("__pyx_") || name.starts_with("__Pyx_");
    let is_others = is_compiled || NOT_OWN.iter().any(|part| filename.contains(part));
    let is_own = is_source(filename) && !is_others;
    match (is_own, is_python) {
        (true, _) => FrameKind::Own,
        (false, true) => FrameKind::Python,
        (false, false) => FrameKind::Code,
    }
}

/// Parts of paths that mark sources of other projects.
const NOT_OWN: [&str; 10] = [
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    "/rustc/",
    "/.cargo/",
    "/usr/include/",
    "/usr/lib/",
    "/usr/local/cuda",
    "<frozen ",
    "/pytorch/",
];

fn is_plumbing(name: &str, filename: &str) -> bool {
    let file = filename.rsplit('/').next().unwrap_or(filename);
    PLUMBING_FILES.iter().any(|begin| file.starts_with(begin))
        || PLUMBING_NAMES.iter().any(|begin| name.starts_with(begin))
        || C_LIBRARY.iter().any(|part| filename.contains(part))
        || is_interpreter(name, filename)
}

/// Returns whether a frame is Python's own machine code, or the code by which it calls C. Such
/// frames lie between the functions of a script and what they call, and are alike in all stacks.
/// Built with debug information, they have source files as well.
pub fn is_interpreter(name: &str, filename: &str) -> bool {
    let file = filename.rsplit('/').next().unwrap_or(filename);
    let of_python = ["_Py", "Py"].iter().any(|begin| {
        let rest = name.strip_prefix(begin);
        rest.is_some_and(|rest| {
            rest.starts_with(|letter: char| letter.is_ascii_uppercase() || letter == '_')
        })
    });
    filename.contains("/Python-3.")
        || ["libffi.so", "_ctypes.", "libpython"].iter().any(|begin| file.starts_with(begin))
        || !is_source(filename) && (of_python || file.starts_with("python3"))
}

const PLUMBING_FILES: [&str; 7] =
    ["libcudart", "libcuda.", "libcachealloc", "libc.so", "libpthread", "ld-linux", "libc10_cuda"];

/// Functions of a runtime that is linked into the program, and those at the start of every stack.
const PLUMBING_NAMES: [&str; 15] = [
    "cuMem",
    "cudaMalloc",
    "cudaMemPool",
    "cudart::",
    "__cudart",
    "libcudart",
    "c10::cuda::CUDACachingAllocator",
    "_start",
    "__libc_start",
    "start_thread",
    "execute_native_thread_routine",
    "__GI___clone",
    "clone3",
    "std::sys::backtrace",
    "std::rt::",
];

/// Paths of glibc's sources at the time it was built.
const C_LIBRARY: [&str; 4] = ["/sysdeps/", "./nptl/", "./csu/", "/glibc-"];
