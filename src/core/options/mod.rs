//! The options of the product: one table, from which the parser, its messages and the help come.
//! A new option is one row here, one field of `Config`, and one setter in `setters.rs`.
//!
//! The text is PyTorch's: `key:value,key:value`, with lists as `[256:1,512:2,>:8]`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::order::Mode;
use crate::policy::Policy;

mod parse;
mod problem;
mod setters;
mod signals;

pub use parse::parse;
pub use problem::{Problem, ProblemKind};

use setters::Setter;

/// The mode where the text names none. One constant, because it is a promise to users.
pub const FREE_MODE_DEFAULT: Mode = Mode::Ordered;

const SNAPSHOT_DEFAULT: &str = "cachealloc-%h-%r-%p-%n.pickle";
const FREE_MODE_KEY: &str = "free_mode";
/// A typo never weakens what the user may have asked for.
const FREE_MODE_ON_BAD_VALUE: &str = "strict";

/// Settings of this process, read once.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    pub policy: Policy,
    pub free_mode: Mode,
    /// Whether `cuMemAllocAsync` from the default pool is served from the cache.
    pub serve_async: bool,
    pub skip_barriers: bool,
    pub stats_on_exit: StatsOnExit,
    pub waits_on_exit: bool,
    pub fill: Fill,
    /// Bytes behind each block that are looked after; 0: none.
    pub red_zone_bytes: u64,
    pub programs: Programs,
    pub history: History,
    pub log: LogLevel,
}

/// In which programs the library does anything: the variable is inherited by every child.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Programs {
    /// In no others, if any are named.
    pub only: Vec<String>,
    pub except: Vec<String>,
}

impl Programs {
    /// By the name of the executable file.
    pub fn include(&self, program: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == program);
        !named(&self.except) && (self.only.is_empty() || named(&self.only))
    }
}

/// What is remembered of allocations and frees, with PyTorch's parameters
/// (`_record_memory_history`), and when it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    pub record: Record,
    pub context: StackContext,
    pub stacks: StackKind,
    /// Entries kept for each context; the oldest go first.
    pub max_entries: usize,
    /// The signal that asks for a snapshot, by its number on Linux.
    pub signal: Option<i32>,
    /// Template of the file name of a snapshot.
    pub snapshot: String,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Record {
    Off,
    /// Where live blocks came from.
    State,
    /// Every allocation and free as well.
    All,
}

/// Which entries have a stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StackContext {
    None,
    /// Live blocks.
    State,
    /// Allocations too; a free shows the stack of its allocation.
    Alloc,
    /// Frees have their own.
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackKind {
    Native,
    Python,
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatsOnExit {
    Off,
    Stderr,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    Quiet,
    Warn,
    Info,
}

/// What fresh memory holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Whatever was there.
    None,
    Zero,
    /// Bytes that are wrong as numbers of any kind.
    Poison,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            policy: Policy::default(),
            free_mode: FREE_MODE_DEFAULT,
            serve_async: true,
            skip_barriers: true,
            stats_on_exit: StatsOnExit::Off,
            waits_on_exit: false,
            fill: Fill::None,
            red_zone_bytes: 0,
            programs: Programs::default(),
            history: History {
                record: Record::Off,
                context: StackContext::All,
                stacks: StackKind::All,
                max_entries: 1_000_000,
                signal: signals::number("USR1"),
                snapshot: SNAPSHOT_DEFAULT.to_string(),
            },
            log: LogLevel::Warn,
        }
    }
}

/// One row of the table.
pub struct OptionRow {
    pub key: &'static str,
    /// What is in force without the option, as text that the parser accepts.
    pub default: &'static str,
    /// What is in force when the value is malformed.
    pub on_bad_value: &'static str,
    pub allowed: &'static str,
    pub meaning: &'static str,
    set: Setter,
}

/// Every option. A row may use what the rows above it have set.
pub const OPTIONS: &[OptionRow] = &[
    OptionRow {
        key: FREE_MODE_KEY,
        default: mode_name(FREE_MODE_DEFAULT),
        on_bad_value: FREE_MODE_ON_BAD_VALUE,
        allowed: "ordered, strict or relaxed",
        meaning: "what a free keeps: everything by a barrier on the device, everything by a wait \
                  in each free, or only that no memory is reused while in use",
        set: setters::free_mode,
    },
    OptionRow {
        key: "large_segment_size_mb",
        default: "20",
        on_bad_value: "20",
        allowed: "a whole number above 10",
        meaning: "size of the segments that requests between 1 and 10 MiB share",
        set: setters::large_segment_size_mb,
    },
    OptionRow {
        key: "max_split_size_mb",
        default: "unlimited",
        on_bad_value: "unlimited",
        allowed: "a whole number, at least large_segment_size_mb, or unlimited",
        meaning: "blocks of this size or more are not split, and kept for requests as large",
        set: setters::max_split_size_mb,
    },
    OptionRow {
        key: "max_non_split_rounding_mb",
        default: "large_segment_size_mb",
        on_bad_value: "large_segment_size_mb",
        allowed: "a whole number, at least large_segment_size_mb, or large_segment_size_mb",
        meaning: "how much larger than the request an unsplit block may be",
        set: setters::max_non_split_rounding_mb,
    },
    OptionRow {
        key: "garbage_collection_threshold",
        default: "off",
        on_bad_value: "off",
        allowed: "a number above 0 and below 1, or off",
        meaning: "share of the limit above which old free segments are given back before a new \
                  one is reserved",
        set: setters::garbage_collection_threshold,
    },
    OptionRow {
        key: "roundup_power2_divisions",
        default: "0",
        on_bad_value: "0",
        allowed: "0 or a power of two, or a list of them such as [256:1,512:2,>:8] with sizes in \
                  MiB that are powers of two",
        meaning: "round requests up to this many steps between two powers of two",
        set: setters::roundup_power2_divisions,
    },
    OptionRow {
        key: "async",
        default: "true",
        on_bad_value: "true",
        allowed: "true or false",
        meaning: "serve cuMemAllocAsync from the default pool as well",
        set: setters::serve_async,
    },
    OptionRow {
        key: "skip_barriers",
        default: "true",
        on_bad_value: "true",
        allowed: "true or false",
        meaning: "leave out the barrier of a free when nothing was submitted since the last one",
        set: setters::skip_barriers,
    },
    OptionRow {
        key: "stats_on_exit",
        default: "off",
        on_bad_value: "off",
        allowed: "off or stderr",
        meaning: "print the statistics when the process ends",
        set: setters::stats_on_exit,
    },
    OptionRow {
        key: "waits_on_exit",
        default: "off",
        on_bad_value: "off",
        allowed: "off or stderr",
        meaning: "print where the program waited inside the library, and why, when it ends",
        set: setters::waits_on_exit,
    },
    OptionRow {
        key: "fill",
        default: "none",
        on_bad_value: "none",
        allowed: "none, zero or poison",
        meaning: "what fresh memory holds: what was there, zeros, or 0xff bytes, which show a program \
                  that reads what it has not written",
        set: setters::fill,
    },
    OptionRow {
        key: "red_zone",
        default: "0",
        on_bad_value: "0",
        allowed: "a number of bytes from 0 to 1048576",
        meaning: "keep so many bytes behind each block, and report where a program wrote there when \
                  it frees the block (every free waits for that)",
        set: setters::red_zone,
    },
    OptionRow {
        key: "only",
        default: "any",
        on_bad_value: "any",
        allowed: "the name of an executable file, a list of them such as [a,b], or any",
        meaning: "do nothing in other programs that inherit the variable",
        set: setters::only,
    },
    OptionRow {
        key: "except",
        default: "none",
        on_bad_value: "none",
        allowed: "the name of an executable file, a list of them such as [a,b], or none",
        meaning: "do nothing in these programs",
        set: setters::except,
    },
    OptionRow {
        key: "record",
        default: "off",
        on_bad_value: "off",
        allowed: "off, state or all",
        meaning: "remember where live blocks came from (state), or every allocation and free (all), \
                  and write a snapshot at exit and when memory runs out",
        set: setters::record,
    },
    OptionRow {
        key: "context",
        default: "all",
        on_bad_value: "all",
        allowed: "none, state, alloc or all",
        meaning: "which entries have a stack: none, live blocks, allocations too, or frees as well",
        set: setters::context,
    },
    OptionRow {
        key: "stacks",
        default: "all",
        on_bad_value: "all",
        allowed: "native, python or all",
        meaning: "which frames a stack has",
        set: setters::stacks,
    },
    OptionRow {
        key: "max_entries",
        default: "1000000",
        on_bad_value: "1000000",
        allowed: "a whole number from 1 to 100000000",
        meaning: "how many entries are remembered for each context, 40 bytes each; the oldest go \
                  first",
        set: setters::max_entries,
    },
    OptionRow {
        key: "signal",
        default: "USR1",
        on_bad_value: "USR1",
        allowed: signals::ALLOWED,
        meaning: "the signal that writes a snapshot, whether or not anything is recorded",
        set: setters::signal,
    },
    OptionRow {
        key: "snapshot",
        default: SNAPSHOT_DEFAULT,
        on_bad_value: SNAPSHOT_DEFAULT,
        allowed: "a file name in which %h is the host, %r the rank, %p the process, %n a number \
                  and %% a percent sign",
        meaning: "where snapshots go",
        set: setters::snapshot,
    },
    OptionRow {
        key: "log",
        default: "warn",
        on_bad_value: "warn",
        allowed: "quiet, warn or info",
        meaning: "which messages go to stderr",
        set: setters::log,
    },
];

const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Ordered => "ordered",
        Mode::Strict => "strict",
        Mode::Relaxed => "relaxed",
    }
}

/// The options as text for a terminal.
pub fn help() -> String {
    let mut text = String::new();
    for row in OPTIONS {
        let OptionRow { key, default, allowed, meaning, .. } = row;
        text += &format!("{key}  (default: {default})\n    {meaning}\n    allowed: {allowed}\n");
    }
    text
}

/// The options as a Markdown table.
pub fn help_markdown() -> String {
    let mut text = String::from("| key | default | meaning | allowed |\n|---|---|---|---|\n");
    for row in OPTIONS {
        let OptionRow { key, default, allowed, meaning, .. } = row;
        text += &format!("| `{key}` | `{default}` | {meaning} | {allowed} |\n");
    }
    text
}
