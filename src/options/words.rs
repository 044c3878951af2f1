//! Values that have a name, and their words: for options, calls, control commands and reports.

use cachealloc_core::order::Mode;

use crate::{AcrossContexts, Fill, LogLevel, Record, StackContext, StackKind, Strategy};

/// Maximum of `max_entries`.
pub const ENTRIES_MAX: u64 = 100_000_000;

/// A type with a word for each of its values. If a value has several words, the library writes the
/// first one.
pub trait Word: Copy + PartialEq + 'static {
    const ALL: &'static [(Self, &'static str)];

    fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(value, _)| *value == self);
        found.map_or("", |(_, word)| word)
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(value, _)| *value)
    }

    /// Returns the index in the list, in which form it can be packed.
    fn number(self) -> u8 {
        Self::ALL.iter().position(|(value, _)| *value == self).unwrap_or(0) as u8
    }

    fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).map(|(value, _)| *value)
    }
}

impl Word for Record {
    const ALL: &'static [(Record, &'static str)] =
        &[(Record::Off, "off"), (Record::State, "state"), (Record::All, "all")];
}

impl Word for StackContext {
    const ALL: &'static [(StackContext, &'static str)] = &[
        (StackContext::None, "none"),
        (StackContext::State, "state"),
        (StackContext::Alloc, "alloc"),
        (StackContext::All, "all"),
    ];
}

impl Word for StackKind {
    const ALL: &'static [(StackKind, &'static str)] =
        &[(StackKind::Native, "native"), (StackKind::Python, "python"), (StackKind::All, "all")];
}

impl Word for Mode {
    const ALL: &'static [(Mode, &'static str)] =
        &[(Mode::Ordered, "ordered"), (Mode::Strict, "strict"), (Mode::Relaxed, "relaxed")];
}

impl Word for AcrossContexts {
    const ALL: &'static [(AcrossContexts, &'static str)] =
        &[(AcrossContexts::Wait, "wait"), (AcrossContexts::Barrier, "barrier")];
}

impl Word for Strategy {
    const ALL: &'static [(Strategy, &'static str)] = &[
        (Strategy::AutoGrowth, "auto_growth"),
        (Strategy::PreAllocate, "pre_allocate"),
        // Paddle's words. Each thread has a cache before `auto_growth`.
        (Strategy::PreAllocate, "naive_best_fit"),
        (Strategy::AutoGrowth, "thread_local"),
    ];
}

impl Word for Fill {
    const ALL: &'static [(Fill, &'static str)] =
        &[(Fill::None, "none"), (Fill::Zero, "zero"), (Fill::Poison, "poison")];
}

impl Word for LogLevel {
    const ALL: &'static [(LogLevel, &'static str)] =
        &[(LogLevel::Quiet, "quiet"), (LogLevel::Warn, "warn"), (LogLevel::Info, "info")];
}
