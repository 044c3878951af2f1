//! Writes the names for the words of stacks, for use after the process has ended: its modules, the
//! texts of Python frames, and the description of the process. The writer of snapshots updates them
//! every second, so a library or a Python function first seen in the last second of a process has
//! no name.

use core::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::Duration;

use cachealloc_history::merge::EvalLoopCode;
use cachealloc_history::persistent::layout::*;
use cachealloc_history::persistent::log::{self, Module, PIECE_WORDS, PythonText};
use cachealloc_history::{Frame, Settings};

use crate::clock::{Instant, epoch_offset_ns, now_ns};
use crate::lists::hash::HashSet;
use crate::lock::lock;
use crate::record;
use crate::record::eval_loop;
use crate::record::persistent::{is_on, made};

/// Interval of the updates.
pub(super) const EVERY: Duration = Duration::from_secs(1);
/// Longer texts are truncated.
const TEXT_BYTES_MAX: usize = 3000;

static KEEPER: Mutex<NameWriter> = Mutex::new(NameWriter::new());

struct NameWriter {
    piece: Option<(&'static mut [u64], usize)>,
    /// Number of stacks already examined, by shard.
    seen: Vec<usize>,
    /// The words of Python frames already written.
    python: Option<HashSet<u64>>,
    modules: Vec<Module>,
    modules_version: u64,
    evaluation_parts: usize,
    last: Option<Instant>,
}

/// Writes what is known at the start.
pub(super) fn begin(settings: impl FnOnce() -> Settings) {
    let mut scavenger = lock(&KEEPER);
    if scavenger.last.replace(Instant::now()).is_some() {
        return;
    }
    let settings = settings();
    let split_max = settings.split_bytes_max.map(|bytes| bytes.to_string());
    let program = cachealloc_foreign::own_program();
    for (key, value) in [
        (SETTING_CONFIGURATION, settings.configuration),
        (SETTING_SPLIT_MAX, split_max.unwrap_or_default()),
        (SETTING_COLLECTED_ABOVE, settings.garbage_collection_threshold.to_string()),
        (SETTING_ROUNDUP, settings.roundup_power2_divisions.map(|it| it.to_string()).join(",")),
        (SETTING_CAPTURE_REUSE, settings.graph_capture_record_stream_reuse.to_string()),
        (SETTING_EXPANDABLE, settings.expandable_segments.to_string()),
        (SETTING_PROGRAM, program.to_string_lossy().into_owned()),
    ] {
        scavenger.setting(key, &value);
    }
    // These two are known only at the end.
    let at_end = ["stacks_refused", "recorded_from_start"];
    for (key, value) in settings.more.iter().filter(|(key, _)| !at_end.contains(&key.as_str())) {
        scavenger.setting(key, value);
    }
    scavenger.note_modules();
}

/// Writes what is new since the last call, once a second. For the writer.
pub(crate) fn keep_up() {
    let Some(area) = made() else { return };
    let mut scavenger = lock(&KEEPER);
    if scavenger.last.is_none_or(|last| last.elapsed() < EVERY / 2) {
        return;
    }
    scavenger.last = Some(Instant::now());
    let seen_us = now_ns().wrapping_add(epoch_offset_ns()) / 1000;
    area.word(WORD_SEEN_US).store(seen_us, Ordering::Relaxed);
    area.fetch_ahead();
    scavenger.note_modules();
    scavenger.note_evaluation();
    scavenger.note_stacks();
}

/// Returns how long the writer may sleep, or `None` without a limit.
pub(crate) fn next() -> Option<Duration> {
    is_on().then_some(EVERY)
}

impl NameWriter {
    const fn new() -> NameWriter {
        NameWriter {
            piece: None,
            seen: Vec::new(),
            python: None,
            modules: Vec::new(),
            modules_version: 0,
            evaluation_parts: 0,
            last: None,
        }
    }

    fn setting(&mut self, key: &str, value: &str) {
        let mut words = Vec::new();
        log::put_texts(&mut words, cut(key), cut(value));
        self.put(log::SETTING, 0, &words);
    }

    fn note_modules(&mut self) {
        let version = cachealloc_stacks::modules_version();
        if version == self.modules_version {
            return;
        }
        for life in cachealloc_stacks::module_lives() {
            let build_id = life.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
            let module = Module {
                base: life.base,
                range: life.range,
                epochs: life.epochs,
                path: cut(&life.path).to_string(),
                build_id,
            };
            match self.modules.iter_mut().find(|known| known.is(&module)) {
                Some(known) if *known == module => continue,
                Some(known) => *known = module.clone(),
                None => self.modules.push(module.clone()),
            }
            self.put(log::MODULE, 0, &module.to_words());
        }
        self.modules_version = version;
    }

    fn note_stacks(&mut self) {
        let stacks = record::stacks();
        for id in stacks.newer(&mut self.seen) {
            let words = stacks.words(id);
            // The stack is older than the file.
            if !stacks.is_persistent(id) {
                self.put(log::STACK, id.0, &words);
            }
            let python = cachealloc_history::persistent::take_apart(&words);
            for word in python.into_iter().flat_map(|words| words.python) {
                self.note_python(word);
            }
        }
    }

    fn note_evaluation(&mut self) {
        let code = eval_loop::code();
        if code.len() != self.evaluation_parts {
            self.evaluation_parts = code.len();
            self.setting(SETTING_EVALUATION, &EvalLoopCode(code).to_text());
        }
    }

    fn note_python(&mut self, word: u64) {
        if !self.python.get_or_insert_default().insert(word) {
            return;
        }
        // A word without a name represents no frame.
        let (name, file, line) = match cachealloc_python::describe(word) {
            Some(text) => (text.name, text.filename, text.line),
            None => Default::default(),
        };
        let frame = Frame::from_bytes(cut(&name).as_bytes(), cut(&file).as_bytes(), line);
        let boundary = cachealloc_python::is_boundary(word);
        self.put(log::PYTHON, 0, &PythonText { word, frame, boundary }.to_words());
    }

    fn put(&mut self, kind: u8, number: u32, words: &[u64]) {
        if words.len() >= PIECE_WORDS {
            return;
        }
        let has_room =
            |(piece, used): &(&'static mut [u64], usize)| piece.len() - used > words.len();
        if !self.piece.as_ref().is_some_and(has_room) {
            self.piece = made().and_then(|area| area.piece()).map(|piece| (piece, 0));
        }
        if let Some((piece, used)) = &mut self.piece {
            log::put(&mut piece[*used..], kind, number, words);
            *used += 1 + words.len();
        }
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}
