//! The text of a stack, which only the caller can provide: it knows what the words of a stack mean.
//!
//! The writer of a file asks for each stack once, in the order in which the file needs them, and
//! refers to it afterwards. Frames are shared: using the same `Arc` for the same frame makes both
//! sides fast. Equal frames in different `Arc`s are also recognized and written once, but each
//! costs a comparison of its text.

use std::sync::Arc;

use crate::entry::StackId;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Frame {
    /// Function name, or `??` if it is unknown.
    pub name: String,
    /// Source file, or the library if there is no line information.
    pub filename: String,
    /// Line, or the offset in the library.
    pub line: u64,
}

impl Frame {
    /// Builds a frame from arbitrary bytes: replaces invalid UTF-8 and truncates names that are too
    /// long.
    pub fn from_bytes(name: &[u8], filename: &[u8], line: u64) -> Frame {
        let text = |bytes| capped(&String::from_utf8_lossy(bytes)).into_owned();
        Frame { name: text(name), filename: text(filename), line }
    }

    /// Returns the location for people: a line of a source, or an offset in a library.
    pub fn place(&self) -> String {
        place(&self.filename, self.line)
    }
}

/// Formats a line of a source, or an offset in a library or program.
pub fn place(filename: &str, line: u64) -> String {
    match is_source(filename) {
        true => format!("{filename}:{line}"),
        false => format!("{filename}+{line:#x}"),
    }
}

/// Returns the frames without the outermost ones that lead from the C library to `main` or to a
/// thread's function, which carry no information.
pub fn without_start(frames: &[Arc<Frame>]) -> &[Arc<Frame>] {
    let name = |frame: &Arc<Frame>| frame.name.split('@').next().unwrap_or("").to_string();
    let is_start = |frame: &Arc<Frame>| STARTS.contains(&name(frame).as_str());
    let kept = frames.iter().rposition(|frame| !is_start(frame)).map_or(0, |last| last + 1);
    if kept == 0 { frames } else { &frames[..kept] }
}

const STARTS: [&str; 9] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
];

/// Returns whether a file has lines: sources, and code that Python runs without a file (`<stdin>`).
/// Any other file in a frame is a library or a program, and the line is an offset in it.
pub fn is_source(filename: &str) -> bool {
    let file = filename.rsplit('/').next().unwrap_or(filename);
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    filename.starts_with('<') || SOURCES.contains(&extension)
}

const SOURCES: [&str; 26] = [
    "py", "pyx", "pxd", "pxi", "c", "cc", "cpp", "cxx", "C", "h", "hh", "hpp", "hxx", "inl", "cu",
    "cuh", "rs", "go", "jl", "S", "s", "f90", "F90", "ipp", "tcc", "ipynb",
];

/// Describes stacks. Never called for [`StackId::NONE`].
pub trait Describe {
    /// Returns the frames of a stack, innermost first.
    fn frames(&mut self, stack: StackId) -> Vec<Arc<Frame>>;

    /// Returns the library that asked for the memory (`cuBLAS`, `NCCL`, ...), which selects the
    /// colour in the timeline. Empty if it is unknown.
    fn category(&mut self, stack: StackId) -> String;
}

/// Describes without text: entries keep their order and sizes, but have no frames.
impl Describe for () {
    fn frames(&mut self, _: StackId) -> Vec<Arc<Frame>> {
        Vec::new()
    }

    fn category(&mut self, _: StackId) -> String {
        String::new()
    }
}

/// Maximum bytes of one name: demangled C++ names grow to hundreds of thousands.
pub const NAME_BYTES_MAX: usize = 1024;

const CUT: &str = "...";

/// Returns the name, truncated if it is too long.
pub(crate) fn capped(name: &str) -> std::borrow::Cow<'_, str> {
    if name.len() <= NAME_BYTES_MAX {
        return name.into();
    }
    let end = name.floor_char_boundary(NAME_BYTES_MAX - CUT.len());
    [&name[..end], CUT].concat().into()
}
