//! What a person is shown of a stack: the one frame that says most, and short names.
//!
//! The innermost frame of an allocation hardly ever says where it comes from: it is the CUDA
//! runtime's, or a container's. The *site* of a stack is the innermost frame of the program's own
//! sources; without such, of any Python; without that, the first above the runtime.

mod apart;
mod short;

pub use apart::ShortNames;
pub use short::{is_source, label, label_of, place_key, short_name, short_path};

use crate::model::{Frame, FrameId, Snapshot, StackId, TextId};
use short::label_with;

/// What kind of code each frame of a snapshot is, found out once.
#[derive(Clone, Debug, Default)]
pub struct Names {
    kinds: Vec<Kind>,
    /// The index of the site's frame of each stack: a stack may have a million frames, and many
    /// sites.
    sites: Vec<Option<u32>>,
    /// What each frame is called.
    labels: Vec<Box<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// Hands requests on to the driver, or starts threads and programs.
    Plumbing,
    /// Machine code of a library.
    Code,
    /// Python of a library.
    Python,
    /// The program's own sources.
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

    /// What a frame is called, in a line of a table.
    pub fn label(&self, frame: FrameId) -> &str {
        &self.labels[frame.0 as usize]
    }

    /// The frame that says where this is: its index in the stack. None of a stack without frames.
    fn site_index(&self, frames: &[FrameId]) -> Option<usize> {
        let kinds = frames.iter().map(|frame| self.kinds[frame.0 as usize]);
        // The innermost of the best kind.
        kinds.enumerate().max_by_key(|&(index, kind)| (kind, usize::MAX - index)).map(|it| it.0)
    }

    pub fn site(&self, snapshot: &Snapshot, stack: StackId) -> Option<FrameId> {
        let frames = snapshot.stacks.get(stack);
        self.sites[stack.0 as usize].map(|index| frames[index as usize])
    }

    /// The callers of the site that say something, innermost first: where the site is the program's
    /// own, only what is its own as well.
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

    /// Where a stack is, in a line: `forward model.py:52 < step train.py:80 < main train.py:101`.
    pub fn place(&self, snapshot: &Snapshot, stack: StackId) -> String {
        let Some(site) = self.site(snapshot, stack) else {
            return "(no stack)".into();
        };
        let callers = self.callers(snapshot, stack).take(CALLERS_SHOWN);
        let all = std::iter::once(site).chain(callers).map(|frame| self.label(frame));
        all.collect::<Vec<_>>().join(" < ")
    }
}

/// Callers of the site that are named in a line.
const CALLERS_SHOWN: usize = 3;

/// Whose memory it is: the category that the file gives, or what the stack says. Our library looks
/// at the libraries on the stack; all of PyTorch's snapshot is PyTorch's.
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
    // Python that was compiled to C: a library's, or the program's, which then calls it from
    // elsewhere.
    let is_compiled = name.starts_with("__pyx_") || name.starts_with("__Pyx_");
    let is_others = is_compiled || NOT_OWN.iter().any(|part| filename.contains(part));
    let is_own = is_source(filename) && !is_others;
    match (is_own, is_python) {
        (true, _) => Kind::Own,
        (false, true) => Kind::Python,
        (false, false) => Kind::Code,
    }
}

/// Parts of paths of sources that came with something else.
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

/// Python's own machine code, and that by which it calls C: between the functions of a script and
/// what they ask for, and the same in all of them. Built with debug information it has sources as
/// well.
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

/// The runtime where it is a part of the program, and what begins every stack.
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

/// Where glibc's own sources were when it was built.
const C_LIBRARY: [&str; 4] = ["/sysdeps/", "./nptl/", "./csu/", "/glibc-"];
