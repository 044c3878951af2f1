//! Files of a killed process, perhaps changed since: they are read within bounds, or rejected with
//! a message.

use std::io;
use std::time::Duration;

use cachealloc_history::persistent::layout::*;
use cachealloc_history::persistent::log::{self, Module, PythonText};
use cachealloc_history::persistent::{ReadAt, header, read, restore};
use cachealloc_history::{Action, Frame, write_snapshot};
use cachealloc_tests::tier;

use crate::counting::cost;
use crate::files::random::Random;

const CHUNKS: usize = 6;
const MEMORY_PER_BYTE: usize = 100;
const MEMORY_LEAST: usize = 4 << 20;
const TIME_MAX: Duration = Duration::from_secs(5);

struct File(Vec<u8>);

impl ReadAt for File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let count = buffer.len().min(self.0.len() - begin);
        buffer[..count].copy_from_slice(&self.0[begin..begin + count]);
        buffer[count..].fill(0);
        Ok(())
    }

    fn stored_bytes(&self) -> u64 {
        self.0.len() as u64
    }
}

impl File {
    fn set(&mut self, at: usize, words: &[u64]) {
        for (number, word) in words.iter().enumerate() {
            let at = at + number * 8;
            self.0[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
    }

    fn add_chunk(&mut self, place: usize, word: u64, words: &[u64]) {
        self.set(TABLE_AT + place * 8, &[word]);
        self.set(chunks_at(CHUNKS) + place * CHUNK_BYTES, words);
    }
}

/// Returns a file of a context with a segment of twenty blocks, every second one freed, and a
/// mapping of the driver.
fn sound() -> File {
    let mut file = File(vec![0; file_bytes(CHUNKS)]);
    let mut head = [0; HEAD_WORDS];
    head[WORD_MAGIC] = MAGIC;
    head[WORD_LAYOUT] = LAYOUT;
    head[WORD_CHUNKS_MAX] = CHUNKS as u64;
    head[WORD_LEVEL] = 2;
    head[WORD_FROM_START] = 1;
    head[WORD_ENTRIES_MAX] = 100;
    file.set(0, &head);
    let (mut entries, mut blocks) = (Vec::new(), Vec::new());
    let last = |stack: u64, other: u64| stack | other << 32;
    let mut time_ns = 1000;
    let mut entry = |action: Action, address: u64, bytes: u64, stack: u64| {
        time_ns += 1;
        let action = Action::ALL.iter().position(|it| *it == action).expect("it is one");
        entries.extend([time_ns, address, bytes, 0, last(stack, action as u64)]);
    };
    let base = 0x7000_0000;
    entry(Action::SegmentAlloc, base, 2 << 20, 1);
    for number in 0..20 {
        let address = base + number * 1024;
        entry(Action::Alloc, address, 1000, 1 + number % 2);
        if number % 2 == 0 {
            entry(Action::Free, address, 1000, 1);
        }
        let state = number % 2 * u64::from(LIVE);
        blocks.extend([address, 1024, 1000, 0, last(1 + number % 2, state)]);
    }
    let flags = u64::from(IS_THERE | IS_SMALL);
    let pushed = entries.len() as u64 / 5;
    file.set(OWNERS_AT, &[OWNER_CONTEXT, 0, pushed, 100, 1]);
    file.add_chunk(0, chunk_word(ENTRIES, 0, 0), &entries);
    file.add_chunk(1, chunk_word(BLOCKS, 0, 0), &blocks);
    file.add_chunk(2, chunk_word(SEGMENTS, 0, 0), &[base, 2 << 20, 0, 0, last(1, flags)]);
    let mapped = [[2001, 1 << 40, 4096, 0, last(2, 4)], [2002, 1 << 40, 4096, 0, last(2, 0)]];
    file.set(OWNERS_AT + OWNER_BYTES, &[OWNER_FOREIGN, 0, 2, 100, 1]);
    file.add_chunk(3, chunk_word(ENTRIES, 1, 0), mapped.as_flattened());
    let flags = u64::from(IS_THERE | IS_BLOCK);
    file.add_chunk(4, chunk_word(SEGMENTS, 1, 0), &[1 << 40, 4096, 0, 0, last(2, flags)]);
    let mut piece = vec![0; log::PIECE_WORDS];
    let mut used = 0;
    let mut put = |kind, number, words: &[u64]| {
        log::put(&mut piece[used..], kind, number, words);
        used += 1 + words.len();
    };
    let module = Module {
        base: 0x40_0000,
        range: 0x40_0000..0x50_0000,
        epochs: (1, u32::MAX),
        path: "/usr/bin/app".to_string(),
        build_id: "0123abcd".to_string(),
    };
    put(log::MODULE, 0, &module.to_words());
    put(log::STACK, 1, &[header(1, 2, false), 0x40_1000, 0x40_2000]);
    put(log::STACK, 2, &[header(1, 1, false), 0x40_1000, 1 << 63]);
    let frame = Frame { name: "train".to_string(), filename: "a.py".to_string(), line: 7 };
    let text = PythonText { word: 1 << 63, frame, boundary: true };
    put(log::PYTHON, 0, &text.to_words());
    let mut setting = Vec::new();
    log::put_texts(&mut setting, "program", "app");
    put(log::SETTING, 0, &setting);
    file.add_chunk(5, chunk_word(LOG, 0, 0), &piece);
    file
}

#[track_caller]
fn within_bounds(file: &File) -> Result<(), String> {
    let (said, cost) = cost(|| {
        let leftover = read(file).map_err(|problem| problem.to_string())?;
        for words in leftover.stacks.values() {
            for word in words {
                let _ = leftover.module_at(*word, words[0] as u32);
            }
        }
        let restored = restore(&leftover).map_err(|problem| problem.to_string())?;
        write_snapshot(&restored.snapshot, &mut (), io::sink()).map_err(|error| error.to_string())
    });
    let memory = MEMORY_LEAST + MEMORY_PER_BYTE * file.0.len();
    assert!(cost.peak_bytes <= memory, "{cost:?}, not {memory} bytes: {said:?}");
    assert!(cost.time <= TIME_MAX, "{cost:?}: {said:?}");
    said
}

#[test]
fn sound_leftovers_are_read() {
    let file = sound();
    assert_eq!(within_bounds(&file), Ok(()));
    let leftover = read(&file).expect("it is sound");
    let snapshot = restore(&leftover).expect("it is sound").snapshot;
    assert_eq!((snapshot.segments.len(), snapshot.devices[0].entries.len()), (2, 33));
    assert_eq!(snapshot.segments[0].allocated_bytes(), 10 * 1024);
    assert_eq!(leftover.module_at(0x40_1000, 1).map(|it| &*it.path), Some("/usr/bin/app"));
    assert_eq!(leftover.python[&(1 << 63)].frame.name, "train");
    assert_eq!(leftover.settings, [("program".to_string(), "app".to_string())]);
}

#[test]
fn mutated_leftovers_are_read_or_refused() {
    let (whole, count) = (sound(), tier::count(1_000, 20_000));
    let mut sound_count = 0;
    for seed in 0..count {
        let random = &mut Random(seed);
        let mut file = File(whole.0.clone());
        for _ in 0..1 + random.below(4) {
            // Places that are in use.
            let chunk = chunks_at(CHUNKS) + random.below(CHUNKS as u64) as usize * CHUNK_BYTES;
            let (begin, words) = [
                (0, HEAD_WORDS),
                (OWNERS_AT, 3 * OWNER_WORDS),
                (TABLE_AT, CHUNKS),
                (chunk, 160),
                (chunk, 160),
            ][random.below(5) as usize];
            let at = begin + random.below(words as u64) as usize * 8;
            let there = u64::from_ne_bytes(file.0[at..at + 8].try_into().expect("8 bytes"));
            let word = match random.below(8) {
                0 => 0,
                1 => u64::MAX,
                2 => 1 << random.below(64),
                3 => random.next(),
                4 => there ^ 1 << random.below(64),
                5 => there.wrapping_add(1),
                6 => there.wrapping_mul(2),
                _ => there.wrapping_sub(4096),
            };
            file.set(at, &[word]);
        }
        if random.below(10) == 0 {
            file.0.truncate(random.below(file.0.len() as u64) as usize);
        }
        sound_count += u64::from(within_bounds(&file).is_ok());
    }
    assert!(sound_count > count / 20, "{sound_count} of {count} are read");
}

/// A small file that would be large if its holes were filled.
#[test]
fn holes_are_not_filled() {
    let mut file = File(vec![0; TABLE_AT + CHUNKS_MAX * 8]);
    let mut head = [0; HEAD_WORDS];
    head[WORD_MAGIC] = MAGIC;
    head[WORD_LAYOUT] = LAYOUT;
    head[WORD_CHUNKS_MAX] = CHUNKS_MAX as u64;
    file.set(0, &head);
    let table: Vec<u64> = (0..CHUNKS_MAX).map(|number| chunk_word(LOG, 0, number)).collect();
    file.set(TABLE_AT, &table);
    let said = within_bounds(&file);
    assert_eq!(said, Err("is damaged: it has little but holes".to_string()));
}
