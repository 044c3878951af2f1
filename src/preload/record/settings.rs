//! The current recording settings: those of the options, until a call of the program
//! (`include/cachealloc.h`) or a control command of another process (`statistics/control`) changes
//! them.
//!
//! All of them are in one word, so that a call being recorded sees one consistent state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachealloc_options::{ENTRIES_MAX, Record, StackContext, StackKind, Word};

use crate::config;
use crate::record::HOST;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    pub level: Record,
    pub context: StackContext,
    pub stacks: StackKind,
    /// Number of entries of each context.
    pub entries_max: usize,
    /// The only device whose memory is recorded.
    pub device: Option<i32>,
}

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

/// Returns the settings in force. The level is the one requested: if memory has run out, nothing is
/// recorded nevertheless (`record::is_on`).
#[inline]
pub(crate) fn get() -> Settings {
    match WORD.load(Ordering::Relaxed) {
        AS_CONFIGURED => configured(),
        word => unpacked(word),
    }
}

/// Puts these settings in force. The caller must adapt what contexts have recorded.
pub(crate) fn set(settings: Settings) {
    WORD.store(packed(settings), Ordering::Relaxed);
    config::set_records(settings.level != Record::Off);
}

/// Notes that the entries are incomplete from here on.
pub(crate) fn note_partial() {
    IS_PARTIAL.store(true, Ordering::Relaxed);
}

/// Returns whether every event was recorded.
pub(crate) fn is_from_start() -> bool {
    get().level == Record::All && !IS_PARTIAL.load(Ordering::Relaxed)
}

/// Returns what is recorded now.
pub(crate) fn now() -> Settings {
    let settings = get();
    // Nothing is recorded after memory has run out.
    if crate::record::is_on() { settings } else { Settings { level: Record::Off, ..settings } }
}

impl Settings {
    pub(crate) fn includes(&self, device: i32) -> bool {
        device == HOST || self.device.is_none_or(|only| only == device)
    }
}

#[cold]
fn configured() -> Settings {
    let history = &config::get().history;
    Settings {
        level: history.record,
        context: history.context,
        stacks: history.stacks,
        entries_max: history.max_entries,
        device: None,
    }
}

fn packed(settings: Settings) -> u64 {
    let device = settings.device.map_or(ALL_DEVICES, |device| device as u8);
    settings.entries_max as u64
        | u64::from(settings.level.number()) << LEVEL_SHIFT
        | u64::from(settings.context.number()) << CONTEXT_SHIFT
        | u64::from(settings.stacks.number()) << STACKS_SHIFT
        | u64::from(device) << DEVICE_SHIFT
}

fn unpacked(word: u64) -> Settings {
    let byte = |shift: u32| (word >> shift) as u8;
    Settings {
        level: Word::of_number(byte(LEVEL_SHIFT)).unwrap_or(Record::Off),
        context: Word::of_number(byte(CONTEXT_SHIFT)).unwrap_or(StackContext::None),
        stacks: Word::of_number(byte(STACKS_SHIFT)).unwrap_or(StackKind::All),
        entries_max: word as u32 as usize,
        device: Some(byte(DEVICE_SHIFT)).filter(|it| *it != ALL_DEVICES).map(i32::from),
    }
}
