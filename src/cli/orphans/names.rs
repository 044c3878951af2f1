//! Names the frames in the stacks of a process that is gone. Native names are looked up in its
//! modules' files if these are still of the same build. Python frames are as the process wrote
//! them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cachealloc_analysis::symbols::{self, BUILD_ID_SETTING, DebugFolders, Named};
use cachealloc_history::merge::{self, EvalLoopCode, NativeFrame, PythonFrame};
use cachealloc_history::persistent::layout::{SETTING_EVALUATION, SETTING_PROGRAM};
use cachealloc_history::persistent::log::{Module, PythonText};
use cachealloc_history::persistent::{Leftover, Words, take_apart};
use cachealloc_history::{Describe, Frame, StackId, category};

/// An address and the epoch in which it was on a stack.
type EpochAddress = (u64, u32);
/// Start address of a module, and the epoch since which it was loaded.
type ModuleId = (u64, u32);

pub(crate) struct Names {
    leftover: Leftover,
    native: HashMap<EpochAddress, Vec<NativeFrame<Arc<Frame>>>>,
    /// Module of each address.
    at: HashMap<EpochAddress, ModuleId>,
    python: HashMap<u64, (Option<Arc<Frame>>, bool)>,
    program: String,
    evaluation: EvalLoopCode,
    /// Build IDs, by path, of the modules that have an address without a line.
    build_ids: BTreeMap<String, String>,
}

impl Names {
    /// Looks up the names that these stacks need. `progress` receives the number of finished
    /// modules and their total.
    pub(crate) fn of(
        mut leftover: Leftover,
        stacks: BTreeSet<StackId>,
        mut progress: impl FnMut(u64, u64),
    ) -> Names {
        let setting = |name| {
            let mut last_first = leftover.settings.iter().rev();
            last_first
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
                .unwrap_or_default()
        };
        let program = setting(SETTING_PROGRAM);
        let evaluation = EvalLoopCode::from_text(&setting(SETTING_EVALUATION));
        let python = std::mem::take(&mut leftover.python).into_values().map(
            |PythonText { word, frame, boundary }| {
                let frame = Some(frame).filter(|frame| !frame.name.is_empty());
                (word, (frame.map(Arc::new), boundary))
            },
        );
        let mut names = Names {
            program,
            evaluation,
            leftover,
            native: HashMap::new(),
            at: HashMap::new(),
            python: python.collect(),
            build_ids: BTreeMap::new(),
        };
        let by_module = names.places(stacks);
        let folders = DebugFolders::usual(|variable| std::env::var(variable).ok());
        let count = by_module.len() as u64;
        for (done, (module, places)) in (0..).zip(by_module) {
            progress(done, count);
            names.look_up(&folders, module, &places);
        }
        names
    }

    /// Returns the build IDs that a reader may need, as settings.
    pub(crate) fn build_ids(&self) -> impl Iterator<Item = (String, String)> {
        let setting =
            |(path, id): (&String, &String)| (format!("{BUILD_ID_SETTING}{path}"), id.clone());
        self.build_ids.iter().map(setting)
    }

    /// Returns all native addresses by module. Addresses outside all modules are named at once.
    fn places(&mut self, stacks: BTreeSet<StackId>) -> BTreeMap<ModuleId, BTreeSet<EpochAddress>> {
        let mut by_module: BTreeMap<ModuleId, BTreeSet<EpochAddress>> = BTreeMap::new();
        for stack in stacks {
            let Some(Words { epoch, native, .. }) = self.words(stack) else { continue };
            for place in native.into_iter().map(|address| (address, epoch)) {
                if self.at.contains_key(&place) || self.native.contains_key(&place) {
                    continue;
                }
                match self.leftover.module_at(place.0, epoch) {
                    Some(module) => {
                        let module = (module.range.start, module.epochs.0);
                        self.at.insert(place, module);
                        by_module.entry(module).or_default().insert(place);
                    }
                    None => _ = self.native.insert(place, vec![frame("??", "??", place.0)]),
                }
            }
        }
        by_module
    }

    fn look_up(
        &mut self,
        folders: &DebugFolders,
        module: ModuleId,
        places: &BTreeSet<EpochAddress>,
    ) {
        let Some(module) = self.leftover.modules.get(&module) else { return };
        let Module { base, path, build_id, .. } = module.clone();
        let offsets: Vec<u64> = places.iter().map(|place| place.0.wrapping_sub(base)).collect();
        let known = Some(build_id.as_str()).filter(|id| !id.is_empty());
        let found = symbols::names(folders, &path, known, &offsets).unwrap_or_default();
        let found = found.into_iter().chain(std::iter::repeat(Vec::new()));
        let mut lacks_line = false;
        for ((place, offset), named) in places.iter().zip(offsets).zip(found) {
            let in_module = |Named { name, place }| match place {
                Some((file, line)) => frame(&name, &file, line),
                None => frame(&name, &path, offset),
            };
            lacks_line |= named.iter().any(|it| it.place.is_none()) || named.is_empty();
            let mut frames: Vec<_> = named.into_iter().map(in_module).collect();
            if frames.is_empty() {
                frames.push(frame("??", &path, offset));
            }
            self.native.insert(*place, frames);
        }
        if lacks_line && !build_id.is_empty() {
            self.build_ids.insert(path, build_id);
        }
    }

    fn words(&self, stack: StackId) -> Option<Words> {
        take_apart(self.leftover.stacks.get(&stack)?)
    }
}

impl Describe for Names {
    fn frames(&mut self, stack: StackId) -> Vec<Arc<Frame>> {
        let Some(words) = self.words(stack) else { return Vec::new() };
        let shown = if words.native_hidden { &[][..] } else { &words.native };
        let native = shown.iter().flat_map(|&address| {
            let named = self.native.get(&(address, words.epoch)).map_or(&[][..], Vec::as_slice);
            self.evaluation.judge(address, named)
        });
        let python = words.python.iter().filter_map(|word| self.python.get(word));
        let python = python
            .map(|(frame, boundary)| PythonFrame { frame: frame.clone(), boundary: *boundary });
        let mut frames = merge::merge(native, python);
        frames.extend(words.cut().map(|text| frame(text, "??", 0).frame));
        frames
    }

    fn category(&mut self, stack: StackId) -> String {
        let Some(words) = self.words(stack) else { return String::new() };
        let modules =
            words.native.iter().filter_map(|&address| self.at.get(&(address, words.epoch)));
        let paths = modules.filter_map(|module| self.leftover.modules.get(module));
        category::of(paths.map(|module| module.path.as_str()), &self.program)
    }
}

fn frame(name: &str, filename: &str, line: u64) -> NativeFrame<Arc<Frame>> {
    let frame = Frame::from_bytes(name.as_bytes(), filename.as_bytes(), line);
    NativeFrame { frame: Arc::new(frame), evaluation: merge::is_evaluation(name) }
}
