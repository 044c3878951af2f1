//! Resolves stacks for the writer of a snapshot. Addresses become frames, all at once and sorted by
//! library, because visiting the libraries in turn for each address would take a thousand times as
//! long. Results are kept for the next snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use cachealloc_history::category;
use cachealloc_history::merge::{self, EvalLoopCode, NativeFrame, PythonFrame};
use cachealloc_history::persistent::Words;
use cachealloc_history::{Describe, Frame, StackId};
use cachealloc_stacks::{ModuleInfo, Symbol};

use crate::lists::hash::{HashMap, HashSet};
use crate::record::{capture, eval_loop};

/// An address and the epoch in which it was on a stack.
type EpochAddress = (u64, u32);

/// The names of addresses and Python frames known so far.
#[derive(Default)]
pub(crate) struct Names {
    native: HashMap<EpochAddress, Vec<NativeFrame<Arc<Frame>>>>,
    evaluation: EvalLoopCode,
    modules: HashMap<EpochAddress, Arc<str>>,
    python: HashMap<u64, Option<Arc<Frame>>>,
    /// The main program's file, whose frames belong to the application.
    program: String,
    /// Keyed by path, for modules with an address that has no line: a reader of the snapshot may
    /// have the debug information that is missing here.
    build_ids: BTreeMap<String, String>,
}

impl Names {
    /// Resolves everything these stacks need. Calls `heartbeat` regularly.
    pub(crate) fn prepare(
        &mut self,
        stacks: impl Iterator<Item = StackId>,
        mut heartbeat: impl FnMut(),
    ) {
        let mut wanted = HashSet::default();
        let unique: HashSet<StackId> = stacks.filter(|stack| !stack.is_none()).collect();
        for words in unique.into_iter().filter_map(capture::words) {
            let places = words.native.iter().map(|&address| (address, words.epoch));
            wanted.extend(places.filter(|place| !self.native.contains_key(place)));
        }
        let mut wanted: Vec<EpochAddress> = wanted.into_iter().collect();
        wanted.sort_unstable();
        for some in wanted.chunks(PLACES_AT_ONCE) {
            heartbeat();
            for (place, symbols) in some.iter().zip(cachealloc_stacks::symbolise(some)) {
                let module = cachealloc_stacks::module_at(place.0, place.1);
                if let Some(module) = &module {
                    self.note_build_id(module, &symbols);
                }
                self.modules
                    .insert(*place, module.map(|module| module.path).unwrap_or_default().into());
                self.native.insert(*place, symbols.into_iter().map(named).collect());
            }
        }
        self.find_program();
        self.evaluation = EvalLoopCode(eval_loop::code());
    }

    /// Resolves only the libraries of these stacks, which `category` needs.
    pub(crate) fn prepare_categories(&mut self, stacks: impl Iterator<Item = StackId>) {
        for words in stacks.filter_map(capture::words) {
            for &address in &words.native {
                self.modules.entry((address, words.epoch)).or_insert_with(|| {
                    let module = cachealloc_stacks::module_at(address, words.epoch);
                    module.map(|module| module.path).unwrap_or_default().into()
                });
            }
        }
        self.find_program();
    }

    /// The build ids that a reader may need, by path.
    pub(crate) fn build_ids(&self) -> impl Iterator<Item = (&str, &str)> {
        self.build_ids.iter().map(|(path, build_id)| (path.as_str(), build_id.as_str()))
    }

    fn note_build_id(&mut self, module: &ModuleInfo, symbols: &[Symbol]) {
        let lacks_line = symbols.iter().any(|symbol| symbol.filename == module.path);
        if lacks_line && !module.build_id.is_empty() && !self.build_ids.contains_key(&module.path) {
            let build_id = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
            self.build_ids.insert(module.path.clone(), build_id);
        }
    }

    fn find_program(&mut self) {
        if self.program.is_empty() {
            let program = cachealloc_foreign::own_program();
            self.program = program.to_string_lossy().into_owned();
        }
    }

    fn merged(&mut self, words: &Words) -> Vec<Arc<Frame>> {
        let unknown = Vec::new();
        let shown = if words.native_hidden { &[][..] } else { &words.native };
        let native = shown.iter().flat_map(|&address| {
            let named = self.native.get(&(address, words.epoch)).unwrap_or(&unknown);
            self.evaluation.judge(address, named)
        });
        let python = words.python.iter().map(|&word| {
            let frame = self.python.entry(word).or_insert_with(|| python_frame(word)).clone();
            PythonFrame { frame, boundary: cachealloc_python::is_boundary(word) }
        });
        let mut frames = merge::merge(native, python);
        let cut = words.cut().map(|text| Frame::from_bytes(text.as_bytes(), b"??", 0));
        frames.extend(cut.map(Arc::new));
        frames
    }
}

impl Describe for Names {
    fn frames(&mut self, stack: StackId) -> Vec<Arc<Frame>> {
        capture::words(stack).map(|words| self.merged(&words)).unwrap_or_default()
    }

    fn category(&mut self, stack: StackId) -> String {
        let Some(words) = capture::words(stack) else { return String::new() };
        let places = words.native.iter().map(|&address| (address, words.epoch));
        let paths = places.filter_map(|place| self.modules.get(&place)).map(|path| &**path);
        category::of(paths, &self.program)
    }
}

/// Enough to visit each library only once or twice, few enough that a slow library still lets
/// heartbeats through.
const PLACES_AT_ONCE: usize = 4096;

fn named(symbol: Symbol) -> NativeFrame<Arc<Frame>> {
    let evaluation = merge::is_evaluation(&symbol.name);
    let frame = Frame::from_bytes(symbol.name.as_bytes(), symbol.filename.as_bytes(), symbol.line);
    NativeFrame { frame: Arc::new(frame), evaluation }
}

fn python_frame(word: u64) -> Option<Arc<Frame>> {
    let text = cachealloc_python::describe(word)?;
    let frame = Frame::from_bytes(text.name.as_bytes(), text.filename.as_bytes(), text.line);
    Some(Arc::new(frame))
}
