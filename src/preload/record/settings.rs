//! The current recording settings: those of the options, until a call of the program
//! (`include/cachealloc.h`) or a control command of another process (`statistics/control`) changes
//! them.
//!
//! All of them are in one word, so that a call being recorded sees one consistent state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachealloc_options::{ENTRIES_MAX, Record, StackContext, StackKind, Word};
use cachealloc_statistics::Recording;

use crate::config;
use crate::record::HOST;

static WORD: AtomicU64 = AtomicU64::new(AS_CONFIGURED);
const AS_CONFIGURED: u64 = u64::MAX;
/// The fields from lowest to highest: 32 bits for the entries, 8 for each other field.
const LEVEL_SHIFT: u32 = 32;
const CONTEXT_SHIFT: u32 = 40;
const STACKS_SHIFT: u32 = 48;
const DEVICE_SHIFT: u32 = 56;
const ALL_DEVICES: u8 = 0x7f;
const _: () = assert!(ENTRIES_MAX <= u32::MAX as u64);

/// Set if some events are missing from the entries.
static IS_PARTIAL: AtomicBool = AtomicBool::new(false);

/// Returns the settings in force. They are those requested: if memory has run out, nothing is
/// recorded nevertheless (`record::is_on`).
#[inline]
pub(crate) fn get() -> Recording {
    match WORD.load(Ordering::Relaxed) {
        AS_CONFIGURED => configured(),
        word => unpacked(word),
    }
}

/// Puts these settings in force. The caller must adapt what contexts have recorded.
pub(crate) fn set(settings: Recording) {
    WORD.store(packed(settings), Ordering::Relaxed);
    config::set_records(settings.record != Record::Off);
}

/// Notes that the entries are incomplete from here on.
pub(crate) fn note_partial() {
    IS_PARTIAL.store(true, Ordering::Relaxed);
}

/// Returns whether every event was recorded.
pub(crate) fn is_from_start() -> bool {
    get().record == Record::All && !IS_PARTIAL.load(Ordering::Relaxed)
}

/// Returns what is recorded now.
pub(crate) fn now() -> Recording {
    let settings = get();
    // Nothing is recorded after memory has run out.
    if crate::record::is_on() { settings } else { Recording { record: Record::Off, ..settings } }
}

/// Returns whether memory of this device is recorded. The host's is, whichever device is selected.
pub(crate) fn includes(settings: &Recording, device: i32) -> bool {
    device == HOST || settings.device.is_none_or(|only| only == device)
}

#[cold]
fn configured() -> Recording {
    let history = &config::get().history;
    Recording {
        record: history.record,
        context: history.context,
        stacks: history.stacks,
        max_entries: history.max_entries as u64,
        device: None,
    }
}

fn packed(settings: Recording) -> u64 {
    let device = settings.device.map_or(ALL_DEVICES, |device| device as u8);
    settings.max_entries
        | u64::from(settings.record.number()) << LEVEL_SHIFT
        | u64::from(settings.context.number()) << CONTEXT_SHIFT
        | u64::from(settings.stacks.number()) << STACKS_SHIFT
        | u64::from(device) << DEVICE_SHIFT
}

fn unpacked(word: u64) -> Recording {
    let byte = |shift: u32| (word >> shift) as u8;
    Recording {
        record: Word::of_number(byte(LEVEL_SHIFT)).unwrap_or(Record::Off),
        context: Word::of_number(byte(CONTEXT_SHIFT)).unwrap_or(StackContext::None),
        stacks: Word::of_number(byte(STACKS_SHIFT)).unwrap_or(StackKind::All),
        max_entries: u64::from(word as u32),
        device: Some(byte(DEVICE_SHIFT)).filter(|it| *it != ALL_DEVICES).map(i32::from),
    }
}
