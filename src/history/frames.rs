//! The text of a stack, which only the caller can give: it knows what the words of a stack mean.
//!
//! The writer of a file asks for each stack once, in the order in which the file needs them, and
//! refers to it from then on. Frames are shared: the same `Arc` for the same frame is what makes
//! both sides fast. Equal frames behind different `Arc`s are found too, and written once, but
//! each costs a look at its text.

use std::sync::Arc;

use crate::entry::StackId;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Frame {
    /// The function, or `??` where it is not known.
    pub name: String,
    /// The source file, or the library where there is no line information.
    pub filename: String,
    /// The line, or the offset in the library.
    pub line: u64,
}

impl Frame {
    /// From bytes of any origin: what is not UTF-8 is replaced, and too long a name is cut.
    pub fn from_bytes(name: &[u8], filename: &[u8], line: u64) -> Frame {
        let text = |bytes| capped(&String::from_utf8_lossy(bytes)).into_owned();
        Frame { name: text(name), filename: text(filename), line }
    }

    /// Where it is, for people: a line of a source, or an offset in a library.
    pub fn place(&self) -> String {
        place(&self.filename, self.line)
    }
}

/// A line of a source, or an offset in a library or program.
pub fn place(filename: &str, line: u64) -> String {
    match is_source(filename) {
        true => format!("{filename}:{line}"),
        false => format!("{filename}+{line:#x}"),
    }
}

/// The frames without those of the C library that lead to `main` or to a thread's function, which tell nothing.
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

/// Whether a file has lines: sources, and what Python runs without a file (`<stdin>`). Whatever else
/// is named in a frame is a library or a program, and the line is an offset in it.
pub fn is_source(filename: &str) -> bool {
    let file = filename.rsplit('/').next().unwrap_or(filename);
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    filename.starts_with('<') || SOURCES.contains(&extension)
}

const SOURCES: [&str; 26] = [
    "py", "pyx", "pxd", "pxi", "c", "cc", "cpp", "cxx", "C", "h", "hh", "hpp", "hxx", "inl", "cu",
    "cuh", "rs", "go", "jl", "S", "s", "f90", "F90", "ipp", "tcc", "ipynb",
];

/// Describes a stack. Never called for [`StackId::NONE`].
pub trait Describe {
    /// Innermost first.
    fn frames(&mut self, stack: StackId) -> Vec<Arc<Frame>>;

    /// The library of the memory, for the colours of the timeline: `cuBLAS`, `NCCL`, ... Empty where that
    /// is not known.
    fn category(&mut self, stack: StackId) -> String;
}

/// Without text: entries keep their order and sizes, and have no frames.
impl Describe for () {
    fn frames(&mut self, _: StackId) -> Vec<Arc<Frame>> {
        Vec::new()
    }

    fn category(&mut self, _: StackId) -> String {
        String::new()
    }
}

/// The most bytes of one name: demangled C++ names grow to hundreds of thousands.
pub const NAME_BYTES_MAX: usize = 1024;

const CUT: &str = "...";

/// The name, cut where it is too long.
pub(crate) fn capped(name: &str) -> std::borrow::Cow<'_, str> {
    if name.len() <= NAME_BYTES_MAX {
        return name.into();
    }
    let end = name.floor_char_boundary(NAME_BYTES_MAX - CUT.len());
    [&name[..end], CUT].concat().into()
}
