//! Names of stacks for people: the most informative frame, and short names.

mod apart;
mod label;

pub use apart::ShortNames;
pub use cachealloc_history::{is_interpreter, is_source, short_name, short_path};
pub use label::{label, label_of, place_key};

use crate::model::{Frame, FrameId, Snapshot, StackId, TextId};
use cachealloc_history::{FrameKind, frame_kind, least_of_callers, site_index};
use label::label_with;

/// The kind and label of each frame of a snapshot, computed once.
#[derive(Clone, Debug, Default)]
pub struct Names {
    kinds: Vec<FrameKind>,
    /// Index of the site's frame in each stack. It is stored because a stack may have a million
    /// frames and many sites.
    sites: Vec<Option<u32>>,
    /// Label of each frame.
    labels: Vec<Box<str>>,
}

impl Names {
    pub fn of(snapshot: &Snapshot) -> Names {
        let text = |id| snapshot.texts.get(id);
        let kind = |frame: &Frame| frame_kind(text(frame.name), text(frame.filename));
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
        site_index(frames.iter().map(|frame| self.kinds[frame.0 as usize]))
    }

    pub fn site(&self, snapshot: &Snapshot, stack: StackId) -> Option<FrameId> {
        let frames = snapshot.stacks.get(stack);
        self.sites[stack.0 as usize].map(|index| frames[index as usize])
    }

    /// Returns the outermost informative frame of a stack, which tells what its thread runs:
    /// `<module>` of a script, `main`, or the function that a thread was started with.
    pub fn outermost(&self, snapshot: &Snapshot, stack: StackId) -> Option<FrameId> {
        let kind_of = |frame: FrameId| self.kinds[frame.0 as usize];
        snapshot.stacks.get(stack).iter().copied().max_by_key(|&frame| kind_of(frame))
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
        let least = least_of_callers(from.checked_sub(1).map(|site| kind_of(frames[site])));
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
