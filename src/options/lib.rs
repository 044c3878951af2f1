//! The options of the library: one table (`table.rs`), from which the parser, its messages and the
//! help come. A new option is one row there and one field of `Config`.
//!
//! The text has PyTorch's form: `key:value,key:value`, with lists as `[256:1,512:2,>:8]`.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

use cachealloc_core::order::Mode;
use cachealloc_core::policy::Policy;

mod foreign;
mod help;
mod paddle;
mod parse;
mod problem;
mod readers;
mod row;
mod shares;
mod signals;
mod table;
mod without_effect;
mod words;

pub use foreign::{missed_of_others, of_others};
pub use help::{help, help_markdown, help_on};
pub use parse::parse;
pub use problem::{Problem, ProblemKind, nearest_key};
pub use row::{Effect, Kind, OptionRow};
pub use shares::{Chunks, IdleRelease, Limit, Strategy};
pub use table::OPTIONS;
pub use words::{ENTRIES_MAX, Word};

const SNAPSHOT_DEFAULT: &str = "cachealloc-%h-%r-%p-%n.pickle";

/// Settings of this process, read once.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Whether the library serves anything itself, or only observes.
    pub cache: bool,
    pub policy: Policy,
    pub limit: Limit,
    pub strategy: Strategy,
    pub chunks: Chunks,
    pub idle_release: IdleRelease,
    /// How long a request that finds no memory waits for it.
    pub wait_for_memory_s: u64,
    pub free_mode: Mode,
    /// Whether `cuMemAllocAsync` from the default pool is served from the cache.
    pub serve_async: bool,
    /// Maximum bytes of pinned memory to keep for later requests; 0 keeps none.
    pub host_cache_bytes: u64,
    pub skip_barriers: bool,
    pub across_contexts: AcrossContexts,
    /// Whether a capture may reuse memory that was freed in it.
    pub reuse_in_captures: bool,
    /// Whether `cuMemAllocAsync` in a capture is served without memory nodes.
    pub graph_pool: bool,
    pub stats_on_exit: StatsOnExit,
    /// Whether other processes may read the statistics while this one runs.
    pub live: bool,
    pub waits_on_exit: bool,
    pub fill: Fill,
    /// Checked bytes past the end of each block; 0 for none.
    pub red_zone_bytes: u64,
    pub programs: Programs,
    pub history: History,
    /// Library whose memory hook is notified of every allocation of the process.
    pub hook: Option<String>,
    pub log: LogLevel,
    /// Whether the word `help` is among the options.
    pub help: bool,
}

impl Config {
    /// Whether anything is cached.
    pub fn caches(&self) -> bool {
        self.cache && self.chunks.fraction != 0.0
    }

    /// Whether the library only observes: every call goes to the driver as the program made it, and
    /// nothing is cached, limited or written.
    pub fn only_looks(&self) -> bool {
        let writes = self.fill != Fill::None || self.red_zone_bytes != 0;
        !self.cache || !self.caches() && !self.limit.is_set() && !writes
    }

    /// Whether memory may be limited and written.
    fn acts(&self) -> bool {
        self.cache
    }

    /// Whether pinned memory may be kept. It belongs to every context, so its free waits for all of
    /// them, while `across_contexts` is about what one context has allocated.
    pub fn keeps_pinned(&self) -> bool {
        let waits_elsewhere = self.across_contexts != AcrossContexts::Barrier;
        self.caches() && self.free_mode != Mode::Strict && waits_elsewhere
    }

    /// Whether segments are reserved as they are needed, without chunks.
    fn grows(&self) -> bool {
        self.strategy == Strategy::AutoGrowth
    }

    /// Whether free memory above a maximum is released.
    fn bounds_free(&self) -> bool {
        self.policy.free_bytes_max.is_some() && self.grows()
    }

    /// Whether the options of chunks have an effect: the fraction may also turn caching off.
    fn sizes_chunks(&self) -> bool {
        !self.grows() || !self.caches()
    }
}

/// Programs in which the library is active: every child inherits the variable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Programs {
    /// If any are named, the library is active only in these.
    pub only: Vec<String>,
    pub except: Vec<String>,
}

impl Programs {
    /// Whether the library is active in the program whose executable file has this name.
    pub fn include(&self, program: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == program);
        !named(&self.except) && (self.only.is_empty() || named(&self.only))
    }
}

/// Recording of allocations and frees, with PyTorch's parameters (`_record_memory_history`), and
/// when it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    pub record: Record,
    pub context: StackContext,
    pub stacks: StackKind,
    /// Number of entries kept for each context; the oldest are dropped first.
    pub max_entries: usize,
    /// Number on Linux of the signal that requests a snapshot.
    pub signal: Option<i32>,
    /// Whether the user has chosen the signal.
    pub signal_is_chosen: bool,
    /// Template of the file name of a snapshot.
    pub snapshot: String,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Record {
    Off,
    /// Call sites of live blocks.
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
    /// Allocations too. A free shows the stack of its allocation.
    Alloc,
    /// Frees too, with their own stacks.
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackKind {
    Native,
    Python,
    All,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatsOnExit {
    Off,
    Stderr,
    /// Template of the file name.
    File(String),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    Quiet,
    Warn,
    Info,
}

/// How much a free keeps of the driver's order between the contexts of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcrossContexts {
    /// All of it.
    Wait,
    /// Nothing: the program orders its contexts itself.
    Barrier,
}

/// Contents of fresh memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// The previous contents.
    None,
    Zero,
    /// Bytes that are invalid as numbers of any kind.
    Poison,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cache: true,
            policy: Policy::default(),
            limit: Limit::default(),
            strategy: Strategy::AutoGrowth,
            chunks: Chunks::default(),
            idle_release: IdleRelease::default(),
            wait_for_memory_s: 0,
            free_mode: Mode::Ordered,
            serve_async: true,
            host_cache_bytes: 256 << 20,
            skip_barriers: true,
            across_contexts: AcrossContexts::Wait,
            reuse_in_captures: true,
            graph_pool: false,
            stats_on_exit: StatsOnExit::Off,
            live: true,
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
                signal_is_chosen: false,
                snapshot: SNAPSHOT_DEFAULT.to_string(),
            },
            hook: None,
            log: LogLevel::Warn,
            help: false,
        }
    }
}
