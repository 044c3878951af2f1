//! Names of stacks for people: the most informative frame, and short names.
//!
//! The innermost frame of an allocation hardly ever tells where it comes from: it belongs to the
//! CUDA runtime or to a container. The *site* of a stack is the innermost frame of the program's
//! own sources. Without one, it is the innermost Python frame, or else the first frame above the
//! runtime.

mod apart;
mod short;

pub use apart::ShortNames;
pub use short::{is_source, label, label_of, place_key, short_name, short_path};

use crate::model::{Frame, FrameId, Snapshot, StackId, TextId};
use short::label_with;

/// The kind and label of each frame of a snapshot, computed once.
#[derive(Clone, Debug, Default)]
pub struct Names {
    kinds: Vec<Kind>,
    /// Index of the site's frame in each stack. It is stored because a stack may have a million
    /// frames and many sites.
    sites: Vec<Option<u32>>,
    /// Label of each frame.
    labels: Vec<Box<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// Code that forwards requests to the driver, or that starts threads and programs.
    Plumbing,
    /// Machine code of a library.
    Code,
    /// Python code of a library.
    Python,
    /// Sources of the program itself.
    Own,
}

impl Names {
    pub fn of(snapshot: &Snapshot) -> Names {
        let text = |id| snapshot.texts.get(id);
        let kind = |frame: &Frame| kind(text(frame.name), text(frame.filename));
        let frames = snapshot.frames.all();
        let names = frames.iter().map(|frame| text(frame.name));
        let short = ShortNames::of(names);
        let label = |frame: &Frame| label_with(&short, &snapshot.texts, frame).into_boxed_str();
        let mut names = Names {
            kinds: frames.iter().map(kind).collect(),
            sites: Vec::new(),
            labels: frames.iter().map(label).collect(),
        };
        let site = |stack| names.site_index(snapshot.stacks.get(stack)).map(|index| index as u32);
        names.sites = snapshot.stacks.ids().map(site).collect();
        names
    }

    /// Returns the name of a frame for a line of a table.
    pub fn label(&self, frame: FrameId) -> &str {
        &self.labels[frame.0 as usize]
    }

    /// Returns the index of the site's frame in a stack. Returns `None` for a stack without frames.
    fn site_index(&self, frames: &[FrameId]) -> Option<usize> {
        let kinds = frames.iter().map(|frame| self.kinds[frame.0 as usize]);
        // The innermost of the best kind.
        kinds.enumerate().max_by_key(|&(index, kind)| (kind, usize::MAX - index)).map(|it| it.0)
    }

    pub fn site(&self, snapshot: &Snapshot, stack: StackId) -> Option<FrameId> {
        let frames = snapshot.stacks.get(stack);
        self.sites[stack.0 as usize].map(|index| frames[index as usize])
    }

    /// Returns the informative callers of the site, innermost first. If the site is in the
    /// program's own sources, only callers in them count.
    pub fn callers<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        stack: StackId,
    ) -> impl Iterator<Item = FrameId> + 'a {
        let frames = snapshot.stacks.get(stack);
        let from = self.sites[stack.0 as usize].map_or(0, |index| index as usize + 1);
        let kind_of = |frame: FrameId| self.kinds[frame.0 as usize];
        let is_own = from > 0 && kind_of(frames[from - 1]) == Kind::Own;
        let least = if is_own { Kind::Own } else { Kind::Code };
        frames[from..].iter().copied().filter(move |&frame| kind_of(frame) >= least)
    }

    /// Returns a stack in one line: `forward model.py:52 < step train.py:80 < main train.py:101`.
    pub fn place(&self, snapshot: &Snapshot, stack: StackId) -> String {
        let Some(site) = self.site(snapshot, stack) else {
            return "(no stack)".into();
        };
        let callers = self.callers(snapshot, stack).take(CALLERS_SHOWN);
        let all = std::iter::once(site).chain(callers).map(|frame| self.label(frame));
        all.collect::<Vec<_>>().join(" < ")
    }
}

/// Number of callers of the site that a line names.
const CALLERS_SHOWN: usize = 3;

/// Returns the library that holds the memory: the category from the file, or a default. cachealloc
/// derives the category from the libraries on the stack; a snapshot of PyTorch is all PyTorch's.
pub fn library(snapshot: &Snapshot, category: TextId) -> &str {
    match snapshot.texts.get(category) {
        "" if snapshot.is_ours() => "unknown",
        "" => "PyTorch",
        category => category,
    }
}

fn kind(name: &str, filename: &str) -> Kind {
    if is_plumbing(name, filename) {
        return Kind::Plumbing;
    }
    let is_python = filename.ends_with(".py") || filename.starts_with('<');
    // Python compiled to C belongs to a library, or to the program, which then calls it from other
    // sources.
    let is_compiled = name.starts_with("__pyx_") || name.starts_with("__Pyx_");
    let is_others = is_compiled || NOT_OWN.iter().any(|part| filename.contains(part));
    let is_own = is_source(filename) && !is_others;
    match (is_own, is_python) {
        (true, _) => Kind::Own,
        (false, true) => Kind::Python,
        (false, false) => Kind::Code,
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
const PLUMBING_NAMES: [&str; 14] = [
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
    "__GI___clone",
    "clone3",
    "std::sys::backtrace",
    "std::rt::",
];

/// Paths of glibc's sources at the time it was built.
const C_LIBRARY: [&str; 4] = ["/sysdeps/", "./nptl/", "./csu/", "/glibc-"];
