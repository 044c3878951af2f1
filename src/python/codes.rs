//! Assigns a number to each code object, and keeps the data that describes it.
//!
//! Both tables only grow, so that a hit takes no lock: a slot, once set, never changes, and records
//! are never freed. A code object that takes the place of a dead one has another fingerprint
//! (`identity`), so it gets another slot.
//!
//! I1: a number is in a slot only after its record is in place. I2: a slot's number is set before
//! its fingerprint, which readers check first. I3: at most half of the slots of a table are set, so
//! that a search ends.

use core::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::host::Interpreter;
use crate::identity::fingerprint;
use crate::layout::LineFormat;
use crate::memory::Memory;
use crate::{fork_lock, text, word};

/// Data kept for a code object.
pub(crate) struct Code {
    pub name: String,
    pub filename: String,
    pub line_table: Box<[u8]>,
    pub line_format: LineFormat,
    pub first_line: u32,
}

/// Number of any code object that is not kept.
pub(crate) const UNKNOWN: u32 = 0;
/// Maximum number of code objects that are kept. At some hundred bytes each, this bounds the cost
/// of a program that creates code objects forever.
pub(crate) const CODES_COUNT_MAX: u32 = 1 << 20;
const _: () = assert!(CODES_COUNT_MAX < word::CODE_END);

const PAGE_ENTRIES: usize = 1 << 10;
const PAGES: usize = CODES_COUNT_MAX as usize / PAGE_ENTRIES + 1;
const FIRST_SLOTS_COUNT: usize = 1 << 12;

type Page = [AtomicPtr<Code>; PAGE_ENTRIES];

/// From number to record, in pages allocated on demand.
static RECORDS: [AtomicPtr<Page>; PAGES] = [const { AtomicPtr::new(null_mut()) }; PAGES];
/// Count of numbers assigned. Written under `fork_lock`.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// From fingerprint to number. Replaced by a table of twice the size under `fork_lock`; readers may
/// still use the previous one, which is never freed.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(null_mut());

struct Table {
    slots: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    /// 0 while the slot is empty.
    fingerprint: AtomicU64,
    number: AtomicU32,
}

/// Returns the number of a code object of the main or another interpreter; assigns one at first
/// sight.
#[inline(always)]
pub(crate) fn number<M: Memory>(
    interpreter: &Interpreter,
    memory: &M,
    code: u64,
    is_main: bool,
) -> u32 {
    let Some(fingerprint) = fingerprint(interpreter, memory, code, is_main) else {
        return UNKNOWN;
    };
    match find(fingerprint) {
        Some(number) => number,
        None => insert(interpreter, memory, code, fingerprint),
    }
}

/// Returns the data of the code object with this number.
pub(crate) fn get(number: u32) -> Option<&'static Code> {
    if number == UNKNOWN || number > CODES_COUNT_MAX {
        return None;
    }
    // SAFETY: null or leaked by `keep`.
    let page = unsafe { RECORDS[number as usize / PAGE_ENTRIES].load(Ordering::Acquire).as_ref()? };
    // SAFETY: null or leaked by `keep`.
    unsafe { page[number as usize % PAGE_ENTRIES].load(Ordering::Acquire).as_ref() }
}

#[inline(always)]
fn find(fingerprint: u64) -> Option<u32> {
    // SAFETY: null or leaked by `make_room`.
    let table = unsafe { TABLE.load(Ordering::Acquire).as_ref()? };
    let slot = table.slot(fingerprint);
    (slot.fingerprint.load(Ordering::Acquire) == fingerprint)
        .then(|| slot.number.load(Ordering::Relaxed))
}

#[cold]
#[inline(never)]
fn insert<M: Memory>(interpreter: &Interpreter, memory: &M, code: u64, fingerprint: u64) -> u32 {
    if COUNT.load(Ordering::Relaxed) == CODES_COUNT_MAX {
        return UNKNOWN;
    }
    let layout = &interpreter.layout.code;
    let object = |field| memory.word(code + field).unwrap_or_default();
    let record = Code {
        name: text::copy_text(interpreter, memory, object(layout.name)),
        filename: text::copy_text(interpreter, memory, object(layout.filename)),
        line_table: text::copy_bytes(interpreter, memory, object(layout.line_table)),
        line_format: layout.line_format,
        first_line: memory.half(code + layout.first_line).unwrap_or_default(),
    };
    fork_lock::take(|| keep(record, fingerprint)).unwrap_or(UNKNOWN)
}

/// Records a code object. Called by one thread at a time. A fork may interrupt it at any point; the
/// child then continues from the current state, because each step leaves both tables consistent.
fn keep(record: Code, fingerprint: u64) -> u32 {
    // Another thread may have recorded it first.
    if let Some(number) = find(fingerprint) {
        return number;
    }
    let number = COUNT.load(Ordering::Relaxed) + 1;
    if number > CODES_COUNT_MAX {
        return UNKNOWN;
    }
    let entry = &page(number as usize / PAGE_ENTRIES)[number as usize % PAGE_ENTRIES];
    entry.store(Box::into_raw(Box::new(record)), Ordering::Release);
    COUNT.store(number, Ordering::Relaxed);
    make_room(number).set(fingerprint, number);
    number
}

fn page(index: usize) -> &'static Page {
    let present = RECORDS[index].load(Ordering::Acquire);
    let page = match present.is_null() {
        true => {
            let made =
                Box::into_raw(Box::new([const { AtomicPtr::new(null_mut()) }; PAGE_ENTRIES]));
            RECORDS[index].store(made, Ordering::Release);
            made
        }
        false => present,
    };
    // SAFETY: made above or earlier, and leaked.
    unsafe { &*page }
}

/// Returns the table, with capacity for this many numbers (I3).
fn make_room(count: u32) -> &'static Table {
    // SAFETY: null or leaked below.
    let present = unsafe { TABLE.load(Ordering::Acquire).as_ref() };
    let slots_count = match present {
        Some(table) if table.slots.len() >= 2 * count as usize => return table,
        Some(table) => 2 * table.slots.len(),
        None => FIRST_SLOTS_COUNT,
    };
    let made = Table { slots: (0..slots_count).map(|_| Slot::default()).collect() };
    for slot in present.iter().flat_map(|table| table.slots.iter()) {
        let fingerprint = slot.fingerprint.load(Ordering::Relaxed);
        if fingerprint != 0 {
            made.set(fingerprint, slot.number.load(Ordering::Relaxed));
        }
    }
    let made = Box::into_raw(Box::new(made));
    TABLE.store(made, Ordering::Release);
    // SAFETY: leaked from here on.
    unsafe { &*made }
}

impl Table {
    /// Returns the slot of this fingerprint, or the empty slot where it would be inserted.
    #[inline(always)]
    fn slot(&self, fingerprint: u64) -> &Slot {
        let mask = self.slots.len() - 1;
        let mut index = fingerprint as usize & mask;
        loop {
            let slot = &self.slots[index & mask];
            let present = slot.fingerprint.load(Ordering::Acquire);
            if present == fingerprint || present == 0 {
                return slot;
            }
            index += 1;
        }
    }

    fn set(&self, fingerprint: u64, number: u32) {
        let slot = self.slot(fingerprint);
        slot.number.store(number, Ordering::Relaxed);
        slot.fingerprint.store(fingerprint, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interned_code_is_found_again() {
        let record = |name: String| Code {
            name,
            filename: "file".to_owned(),
            line_table: Box::default(),
            line_format: LineFormat::Locations,
            first_line: 1,
        };
        let fingerprint = |index: u64| (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let keep = |name: String, fingerprint| {
            fork_lock::take(|| super::keep(record(name), fingerprint)).expect("this thread's turn")
        };
        let numbers: Vec<u32> =
            (0..10_000).map(|index| keep(index.to_string(), fingerprint(index))).collect();
        for (index, number) in numbers.iter().enumerate() {
            assert_eq!(find(fingerprint(index as u64)), Some(*number));
            assert_eq!(get(*number).expect("kept").name, index.to_string());
        }
        assert_eq!(keep("again".to_owned(), fingerprint(3)), numbers[3]);
        assert!(get(UNKNOWN).is_none());
    }

    /// For Miri (`scripts/test-weak.sh`). Publishes a page, a record, a table and a number, each
    /// after the data it leads to.
    #[test]
    fn readers_find_whole_records() {
        const FIRST: u64 = 0xface_0001;
        let record = |name: u64| Code {
            name: name.to_string(),
            filename: "file".to_owned(),
            line_table: Box::default(),
            line_format: LineFormat::Locations,
            first_line: 1,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for name in FIRST..FIRST + 2 {
                    fork_lock::take(|| keep(record(name), name)).expect("this thread's turn");
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    for name in FIRST..FIRST + 2 {
                        if let Some(number) = find(name) {
                            assert_eq!(get(number).expect("kept").name, name.to_string());
                        }
                    }
                });
            }
        });
    }
}
