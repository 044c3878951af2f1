//! Tables of the stacks of all files, with each item once: texts, frames, call sites, libraries.
//! Stacks form a tree, outermost frame first, so that a flame graph is a sum over it. A node comes
//! after its parent.

use std::collections::HashMap;
use std::hash::Hash;

use cachealloc_analysis::model::{FrameId, Snapshot, StackId, TextId};
use cachealloc_analysis::names::{self, Names, ShortNames, is_source, short_path};
use cachealloc_analysis::site_frames;

use cachealloc_text::cut;

use crate::columns::Columns;
use crate::head::json;
use crate::sites;

/// Longest name in a sentence, in characters.
const LABEL_CHARS_MAX: usize = 240;

/// Distinct items, numbered in the order in which they are added.
pub(crate) struct Numbered<T> {
    all: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { all: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    pub(crate) fn number(&mut self, thing: T) -> u32 {
        if let Some(&number) = self.numbers.get(&thing) {
            return number;
        }
        let number =
            u32::try_from(self.all.len()).expect("fewer than four billion fit into memory");
        self.all.push(thing.clone());
        self.numbers.insert(thing, number);
        number
    }

    pub(crate) fn all(&self) -> &[T] {
        &self.all
    }
}

/// A frame, as numbers of texts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FrameRow {
    name: u32,
    /// Number of the shortened name.
    short: u32,
    file: u32,
    line: u64,
    /// Whether the line is a source line, not an offset in a library.
    source: bool,
    /// Whether the Python interpreter ran the frame.
    python: bool,
}

/// A stack in the page. `node` is 0 for none, otherwise one more than the number of the node.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StackRow {
    node: u32,
    site: u32,
    library: u32,
    thread: u32,
}

/// Name of a call site in the page: "train.py:88" and "step", or with a caller "pool.c:12 <
/// load.c:30" and "get < load".
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SiteRow {
    place: u32,
    function: u32,
    file: u32,
}

#[derive(Default)]
pub(crate) struct Tables {
    texts: Numbered<String>,
    frames: Numbered<FrameRow>,
    /// Short names, the same in all files.
    short_names: ShortNames,
    /// Parent (as in [`StackRow`]) and frame of each node.
    nodes: Numbered<(u32, u32)>,
    sites: Numbered<SiteRow>,
    /// Name of each site in a sentence, as in the tables of the command: "get pool.c:12 < load
    /// load.c:30".
    labels: Vec<String>,
    libraries: Numbered<u32>,
    /// Name and file of the outermost informative function of each kind of thread.
    threads: Numbered<(u32, u32)>,
    stacks: Numbered<StackRow>,
    /// Frames that name the site of each stack of each file.
    chains: HashMap<(usize, StackId), Vec<u32>>,
}

/// Numbers of the stacks of one file in the tables.
pub(crate) struct Translation<'a> {
    /// Number of the file.
    number: usize,
    snapshot: &'a Snapshot,
    names: Names,
    frames: HashMap<FrameId, u32>,
    stacks: HashMap<(StackId, TextId), u32>,
    /// Node, site and thread of each stack, whatever its category. They are cached because a stack
    /// may have a million frames.
    places: HashMap<StackId, (u32, u32, u32)>,
    /// Category of each stack, taken from entries because blocks have none.
    categories: HashMap<StackId, TextId>,
}

impl<'a> Translation<'a> {
    pub(crate) fn of(number: usize, snapshot: &'a Snapshot) -> Translation<'a> {
        let entries = snapshot.devices.iter().flat_map(|device| &device.entries);
        let known = entries.filter(|entry| !entry.category.is_empty() && !entry.stack.is_none());
        Translation {
            number,
            snapshot,
            names: Names::of(snapshot),
            frames: HashMap::new(),
            stacks: HashMap::new(),
            places: HashMap::new(),
            categories: known.map(|entry| (entry.stack, entry.category)).collect(),
        }
    }

    fn category(&self, stack: StackId, category: TextId) -> TextId {
        let learnt = || self.categories.get(&stack).copied().unwrap_or_default();
        if category.is_empty() { learnt() } else { category }
    }

    /// Returns the number of a stack that is in the tables.
    pub(crate) fn known(&self, stack: StackId, category: TextId) -> u32 {
        let key = (stack, self.category(stack, category));
        self.stacks.get(&key).copied().unwrap_or_default()
    }
}

impl Tables {
    pub(crate) fn text(&mut self, text: &str) -> u32 {
        self.texts.number(text.to_string())
    }

    pub(crate) fn text_of(&self, number: u32) -> &str {
        &self.texts.all()[number as usize]
    }

    /// Returns the number of a stack of this file, for memory of this category.
    pub(crate) fn stack(
        &mut self,
        file: &mut Translation,
        stack: StackId,
        category: TextId,
    ) -> u32 {
        let category = file.category(stack, category);
        if let Some(&number) = file.stacks.get(&(stack, category)) {
            return number;
        }
        let (node, site, thread) = match file.places.get(&stack) {
            Some(&place) => place,
            None => {
                let mut node = 0;
                for &frame in file.snapshot.stacks.get(stack).iter().rev() {
                    let frame = self.frame(file, frame);
                    node = self.nodes.number((node, frame)) + 1;
                }
                let place = (node, self.site(file, stack), self.thread(file, stack));
                file.places.insert(stack, place);
                place
            }
        };
        let library = self.text(names::library(file.snapshot, category));
        let library = self.libraries.number(library);
        let number = self.stacks.number(StackRow { node, site, library, thread });
        file.stacks.insert((stack, category), number);
        number
    }

    fn frame(&mut self, file: &mut Translation, id: FrameId) -> u32 {
        if let Some(&number) = file.frames.get(&id) {
            return number;
        }
        let frame = file.snapshot.frames.get(id);
        let name = file.snapshot.texts.get(frame.name);
        let filename = file.snapshot.texts.get(frame.filename);
        let short = self.short_names.short(name).into_owned();
        let row = FrameRow {
            name: self.text(name),
            short: self.text(&short),
            file: self.text(filename),
            line: frame.line,
            source: is_source(filename),
            python: filename.ends_with(".py") || filename.starts_with('<'),
        };
        let number = self.frames.number(row);
        file.frames.insert(id, number);
        number
    }

    /// Chooses the frames that name call sites. The caller must call this before it adds anything
    /// else of these files.
    pub(crate) fn find_sites(&mut self, files: &mut [Translation]) {
        let names = files.iter().flat_map(|file| {
            let frames = file.snapshot.frames.all().iter();
            frames.map(|frame| file.snapshot.texts.get(frame.name))
        });
        self.short_names = ShortNames::of(names);
        let (mut whose, mut stacks) = (Vec::new(), Vec::new());
        for file in files {
            let (number, snapshot) = (file.number, file.snapshot);
            let names = std::mem::take(&mut file.names);
            let of_file = sites::weighed(snapshot, &names, |id| self.frame(file, id));
            file.names = names;
            for (stack, weighed) in of_file {
                whose.push((number, stack));
                stacks.push(weighed);
            }
        }
        self.chains = whose.into_iter().zip(site_frames(&stacks)).collect();
    }

    fn site(&mut self, file: &Translation, stack: StackId) -> u32 {
        let frames = self.chains.get(&(file.number, stack)).cloned().unwrap_or_default();
        let rows: Vec<_> = frames.iter().map(|&frame| self.frames.all()[frame as usize]).collect();
        let places: Vec<_> = rows.iter().map(|row| self.place(row)).collect();
        let texts = self.texts.all();
        let functions: Vec<_> = rows.iter().map(|row| texts[row.short as usize].as_str()).collect();
        let labels: Vec<_> =
            functions.iter().zip(&places).map(|it| names::label_of(it.0, it.1)).collect();
        let (functions, labels) = (functions.join(BY), labels.join(BY));
        let row = match rows.first() {
            Some(first) => SiteRow {
                place: self.text(&places.join(BY)),
                function: self.text(&functions),
                file: first.file,
            },
            None => {
                let nothing = self.text("");
                SiteRow { place: self.text(NO_STACK), function: nothing, file: nothing }
            }
        };
        let number = self.sites.number(row);
        if self.labels.len() == number as usize {
            self.labels.push(if rows.is_empty() { NO_STACK.to_string() } else { labels });
        }
        number
    }

    /// Returns the number of the thread of a stack: of the function that it runs, since no file
    /// tells threads apart otherwise.
    fn thread(&mut self, file: &mut Translation, stack: StackId) -> u32 {
        let (name, filename) = match file.names.outermost(file.snapshot, stack) {
            Some(outermost) => {
                let frame = self.frame(file, outermost);
                let row = self.frames.all()[frame as usize];
                (row.short, row.file)
            }
            None => (self.text(NO_STACK), self.text("")),
        };
        self.threads.number((name, filename))
    }

    /// Returns "model/train.py:88", or for a library without lines "libcublas.so.12+0x3f2".
    fn place(&self, row: &FrameRow) -> String {
        match short_path(&self.texts.all()[row.file as usize]) {
            "" => "??".to_string(),
            path if row.source => format!("{path}:{}", row.line),
            path => format!("{path}+{:#x}", row.line),
        }
    }

    pub(crate) fn site_of(&self, stack: u32) -> u32 {
        self.stacks.all()[stack as usize].site
    }

    /// Returns the place of a call site: "pool.c:12 < load.c:30".
    pub(crate) fn site_place(&self, site: u32) -> &str {
        self.text_of(self.sites.all()[site as usize].place)
    }

    /// Returns the description of a stack's call site, shortened.
    pub(crate) fn site_text(&self, site: u32) -> String {
        cut(&self.labels[site as usize], LABEL_CHARS_MAX).into_owned()
    }

    pub(crate) fn write(&self, columns: &mut Columns) {
        let frames = self.frames.all();
        columns.unsigned("frame.name", frames.iter().map(|frame| frame.name.into()));
        columns.unsigned("frame.short", frames.iter().map(|frame| frame.short.into()));
        columns.unsigned("frame.file", frames.iter().map(|frame| frame.file.into()));
        columns.unsigned("frame.line", frames.iter().map(|frame| frame.line));
        columns.unsigned("frame.source", frames.iter().map(|frame| frame.source.into()));
        columns.unsigned("frame.python", frames.iter().map(|frame| frame.python.into()));
        let nodes = self.nodes.all();
        columns.unsigned("node.parent", nodes.iter().map(|node| node.0.into()));
        columns.unsigned("node.frame", nodes.iter().map(|node| node.1.into()));
        let stacks = self.stacks.all();
        columns.unsigned("stack.node", stacks.iter().map(|stack| stack.node.into()));
        columns.unsigned("stack.site", stacks.iter().map(|stack| stack.site.into()));
        columns.unsigned("stack.library", stacks.iter().map(|stack| stack.library.into()));
        columns.unsigned("stack.thread", stacks.iter().map(|stack| stack.thread.into()));
        let threads = self.threads.all();
        columns.unsigned("thread.name", threads.iter().map(|&(name, _)| name.into()));
        columns.unsigned("thread.file", threads.iter().map(|&(_, file)| file.into()));
        let sites = self.sites.all();
        columns.unsigned("site.place", sites.iter().map(|site| site.place.into()));
        columns.unsigned("site.function", sites.iter().map(|site| site.function.into()));
        columns.unsigned("site.file", sites.iter().map(|site| site.file.into()));
        columns.unsigned("library.name", self.libraries.all().iter().map(|&name| name.into()));
        columns.text(
            "strings",
            &json(|json| json.list(self.texts.all(), |json, text| json.text(text))),
        );
    }
}

const NO_STACK: &str = "(no stack)";
/// Separator between a function and its caller.
const BY: &str = " < ";
