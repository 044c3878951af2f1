//! The table: every option, one row each. The parser, its messages, the help and the README's table
//! come from here.

use crate::setters::{self, Setter};
use crate::{Config, FREE_MODE_DEFAULT, SNAPSHOT_DEFAULT, Strategy, mode_name, signals};

pub(super) const FREE_MODE_KEY: &str = "free_mode";
/// A typo never weakens what the user may have asked for.
pub(super) const FREE_MODE_ON_BAD_VALUE: &str = "strict";

/// One row of the table.
pub struct OptionRow {
    pub key: &'static str,
    /// What the value is, in one word.
    pub kind: &'static str,
    /// What is in force without the option, as text that the parser accepts.
    pub default: &'static str,
    /// What is in force when the value is malformed.
    pub on_bad_value: &'static str,
    pub allowed: &'static str,
    pub meaning: &'static str,
    pub(super) set: Setter,
    pub effect: Effect,
}

/// Whether a value other than the default changes anything. Where it does not, the user hears why.
#[derive(Clone, Copy)]
pub enum Effect {
    Always,
    If(fn(&Config) -> bool, &'static str),
    Never(&'static str),
}

const ONLY_WITH_CHUNKS: &str = "it counts with strategy:pre_allocate only";

/// Or nothing is cached at all, which the fraction says with either strategy.
fn sizes_chunks(config: &Config) -> bool {
    config.strategy == Strategy::PreAllocate || !config.caches()
}

fn grows(config: &Config) -> bool {
    config.strategy == Strategy::AutoGrowth
}

const CHUNKS_STAY: &str = "what strategy:pre_allocate has reserved is kept";

fn keeps_no_chunks(config: &Config) -> bool {
    config.strategy == Strategy::AutoGrowth
}

/// The same options as PyTorch spells them on AMD's devices.
pub(super) const ALIASES: [(&str, &str); 3] = [
    ("release_lock_on_hipmalloc", "release_lock_on_cudamalloc"),
    ("throw_on_hipmalloc_oom", "throw_on_cudamalloc_oom"),
    ("pinned_use_hip_host_register", "pinned_use_cuda_host_register"),
];

/// Every option. A row may use what the rows above it have set.
pub const OPTIONS: &[OptionRow] = &[
    OptionRow {
        key: FREE_MODE_KEY,
        kind: "word",
        default: mode_name(FREE_MODE_DEFAULT),
        on_bad_value: FREE_MODE_ON_BAD_VALUE,
        allowed: "ordered, strict or relaxed",
        meaning: "what a free keeps: everything by a barrier on the device, everything by a wait \
                  in each free, or only that no memory is reused while in use",
        set: setters::free_mode,
        effect: Effect::Always,
    },
    OptionRow {
        key: "large_segment_size_mb",
        kind: "MiB",
        default: "20",
        on_bad_value: "20",
        allowed: "a whole number above 10",
        meaning: "size of the segments that requests between 1 and 10 MiB share",
        set: setters::large_segment_size_mb,
        effect: Effect::Always,
    },
    OptionRow {
        key: "max_split_size_mb",
        kind: "MiB",
        default: "unlimited",
        on_bad_value: "unlimited",
        allowed: "a whole number, at least large_segment_size_mb, or unlimited",
        meaning: "blocks of this size or more are not split, and kept for requests as large",
        set: setters::max_split_size_mb,
        effect: Effect::Always,
    },
    OptionRow {
        key: "max_non_split_rounding_mb",
        kind: "MiB",
        default: "large_segment_size_mb",
        on_bad_value: "large_segment_size_mb",
        allowed: "a whole number, at least large_segment_size_mb, or large_segment_size_mb",
        meaning: "how much larger than the request an unsplit block may be",
        set: setters::max_non_split_rounding_mb,
        effect: Effect::Always,
    },
    OptionRow {
        key: "garbage_collection_threshold",
        kind: "share",
        default: "off",
        on_bad_value: "off",
        allowed: "a number above 0 and below 1, or off",
        meaning: "share of the limit above which old free segments are given back before a new \
                  one is reserved",
        set: setters::garbage_collection_threshold,
        effect: Effect::Always,
    },
    OptionRow {
        key: "expandable_segments",
        kind: "boolean",
        default: "false",
        on_bad_value: "false",
        allowed: "true or false",
        meaning: "let segments grow in place, and give memory back from anywhere in them; such memory \
                  cannot be exported to other processes by cudaIpcGetMemHandle",
        set: setters::expandable_segments,
        effect: Effect::If(grows, "the chunks of strategy:pre_allocate do not grow"),
    },
    OptionRow {
        key: "roundup_power2_divisions",
        kind: "list",
        default: "0",
        on_bad_value: "0",
        allowed: "0 or a power of two, or a list of them such as [256:1,512:2,>:8] with sizes in \
                  MiB that are powers of two",
        meaning: "round requests up to this many steps between two powers of two",
        set: setters::roundup_power2_divisions,
        effect: Effect::Always,
    },
    OptionRow {
        key: "gpu_memory_limit_mb",
        kind: "MiB",
        default: "0",
        on_bad_value: "0",
        allowed: "a whole number, 0 for no limit",
        meaning: "how much memory of each device the process may hold, all libraries together; \
                  above it a request fails although the device has memory",
        set: setters::gpu_memory_limit_mb,
        effect: Effect::Always,
    },
    OptionRow {
        key: "per_process_memory_fraction",
        kind: "share",
        default: "1",
        on_bad_value: "1",
        allowed: "a number from 0 to 1, 1 for no limit",
        meaning: "the same limit as a share of the device's memory; the smaller one holds",
        set: setters::per_process_memory_fraction,
        effect: Effect::Always,
    },
    OptionRow {
        key: "strategy",
        kind: "word",
        default: "auto_growth",
        on_bad_value: "auto_growth",
        allowed: "auto_growth or pre_allocate",
        meaning: "reserve memory as it is asked for, or a large chunk at the first request, from \
                  which all that fit are served",
        set: setters::strategy,
        effect: Effect::Always,
    },
    OptionRow {
        key: "fraction_of_gpu_memory_to_use",
        kind: "share",
        default: "0.92",
        on_bad_value: "0.92",
        allowed: "a number from 0 to 1",
        meaning: "the chunk of pre_allocate, as a share of what is free when it is reserved; 0, with \
                  either strategy: nothing is cached, every request goes to the driver",
        set: setters::fraction_of_gpu_memory_to_use,
        effect: Effect::If(sizes_chunks, ONLY_WITH_CHUNKS),
    },
    OptionRow {
        key: "initial_gpu_memory_in_mb",
        kind: "MiB",
        default: "0",
        on_bad_value: "0",
        allowed: "a whole number, 0 for what the fraction says",
        meaning: "size of the first chunk of pre_allocate",
        set: setters::initial_gpu_memory_in_mb,
        effect: Effect::If(sizes_chunks, ONLY_WITH_CHUNKS),
    },
    OptionRow {
        key: "reallocate_gpu_memory_in_mb",
        kind: "MiB",
        default: "0",
        on_bad_value: "0",
        allowed: "a whole number, 0 for what the fraction says",
        meaning: "size of the chunks after the first",
        set: setters::reallocate_gpu_memory_in_mb,
        effect: Effect::If(sizes_chunks, ONLY_WITH_CHUNKS),
    },
    OptionRow {
        key: "idle_release_s",
        kind: "seconds",
        default: "off",
        on_bad_value: "off",
        allowed: "a whole number from 1 to 3600, or off",
        meaning: "give memory back to the driver that was not used for so long, for others on the \
                  device",
        set: setters::idle_release_s,
        effect: Effect::If(keeps_no_chunks, CHUNKS_STAY),
    },
    OptionRow {
        key: "keep_free_mb",
        kind: "MiB",
        default: "auto",
        on_bad_value: "auto",
        allowed: "a whole number, 0 for never, or auto: half of the device",
        meaning: "while the device has less than this free, give memory back that was not used for \
                  3 seconds",
        set: setters::keep_free_mb,
        effect: Effect::If(keeps_no_chunks, CHUNKS_STAY),
    },
    OptionRow {
        key: "async",
        kind: "boolean",
        default: "true",
        on_bad_value: "true",
        allowed: "true or false",
        meaning: "serve cuMemAllocAsync from the default pool as well",
        set: setters::serve_async,
        effect: Effect::Always,
    },
    OptionRow {
        key: "skip_barriers",
        kind: "boolean",
        default: "true",
        on_bad_value: "true",
        allowed: "true or false",
        meaning: "leave out the barrier of a free when nothing was submitted since the last one",
        set: setters::skip_barriers,
        effect: Effect::Always,
    },
    OptionRow {
        key: "graph_capture_record_stream_reuse",
        kind: "boolean",
        default: "true",
        on_bad_value: "true",
        allowed: "true or false",
        meaning: "what a capture frees is used again in it, as soon as its graph orders that",
        set: setters::graph_capture_record_stream_reuse,
        effect: Effect::Always,
    },
    OptionRow {
        key: "graph_pool",
        kind: "boolean",
        default: "false",
        on_bad_value: "false",
        allowed: "true or false",
        meaning: "serve cuMemAllocAsync in a capture from the memory of its graph, without memory nodes",
        set: setters::graph_pool,
        effect: Effect::Always,
    },
    OptionRow {
        key: "stats_on_exit",
        kind: "text",
        default: "off",
        on_bad_value: "off",
        allowed: "off, stderr, or a file name with a dot or a slash in it, and %h, %r, %p, %n and %% \
                  as in snapshot",
        meaning: "say the statistics when the process ends: in short on stderr, or all of them in a \
                  file, as JSON where its name ends in .json",
        set: setters::stats_on_exit,
        effect: Effect::Always,
    },
    OptionRow {
        key: "live",
        kind: "boolean",
        default: "true",
        on_bad_value: "true",
        allowed: "true or false",
        meaning: "let other processes of the user read the statistics while this one runs, by a file \
                  in /dev/shm; only where the library has a thread, as with signal",
        set: setters::live,
        effect: Effect::Always,
    },
    OptionRow {
        key: "waits_on_exit",
        kind: "word",
        default: "off",
        on_bad_value: "off",
        allowed: "off or stderr",
        meaning: "print where the program waited inside the library, and why, when it ends",
        set: setters::waits_on_exit,
        effect: Effect::Always,
    },
    OptionRow {
        key: "fill",
        kind: "word",
        default: "none",
        on_bad_value: "none",
        allowed: "none, zero or poison",
        meaning: "what fresh memory holds: what was there, zeros, or 0xff bytes, which show a program \
                  that reads what it has not written",
        set: setters::fill,
        effect: Effect::Always,
    },
    OptionRow {
        key: "red_zone",
        kind: "bytes",
        default: "0",
        on_bad_value: "0",
        allowed: "a number of bytes from 0 to 1048576",
        meaning: "keep so many bytes behind each block, and report where a program wrote there when \
                  it frees the block (every free waits for that)",
        set: setters::red_zone,
        effect: Effect::Always,
    },
    OptionRow {
        key: "only",
        kind: "names",
        default: "any",
        on_bad_value: "any",
        allowed: "the name of an executable file, a list of them such as [a,b], or any",
        meaning: "do nothing in other programs that inherit the variable",
        set: setters::only,
        effect: Effect::Always,
    },
    OptionRow {
        key: "except",
        kind: "names",
        default: "none",
        on_bad_value: "none",
        allowed: "the name of an executable file, a list of them such as [a,b], or none",
        meaning: "do nothing in these programs",
        set: setters::except,
        effect: Effect::Always,
    },
    OptionRow {
        key: "record",
        kind: "word",
        default: "off",
        on_bad_value: "off",
        allowed: "off, state or all",
        meaning: "remember where live blocks came from (state), or every allocation and free (all), \
                  and write a snapshot at exit and when memory runs out",
        set: setters::record,
        effect: Effect::Always,
    },
    OptionRow {
        key: "context",
        kind: "word",
        default: "all",
        on_bad_value: "all",
        allowed: "none, state, alloc or all",
        meaning: "which entries have a stack: none, live blocks, allocations too, or frees as well",
        set: setters::context,
        effect: Effect::Always,
    },
    OptionRow {
        key: "stacks",
        kind: "word",
        default: "all",
        on_bad_value: "all",
        allowed: "native, python or all",
        meaning: "which frames a stack has",
        set: setters::stacks,
        effect: Effect::Always,
    },
    OptionRow {
        key: "max_entries",
        kind: "count",
        default: "1000000",
        on_bad_value: "1000000",
        allowed: "a whole number from 1 to 100000000",
        meaning: "how many entries are remembered for each context, 40 bytes each; the oldest go \
                  first",
        set: setters::max_entries,
        effect: Effect::Always,
    },
    OptionRow {
        key: "signal",
        kind: "word",
        default: "USR1",
        on_bad_value: "USR1",
        allowed: signals::ALLOWED,
        meaning: "the signal that writes a snapshot, whether or not anything is recorded",
        set: setters::signal,
        effect: Effect::Always,
    },
    OptionRow {
        key: "snapshot",
        kind: "text",
        default: SNAPSHOT_DEFAULT,
        on_bad_value: SNAPSHOT_DEFAULT,
        allowed: "a file name in which %h is the host, %r the rank, %p the process, %n a number \
                  and %% a percent sign",
        meaning: "where snapshots go",
        set: setters::snapshot,
        effect: Effect::Always,
    },
    OptionRow {
        key: "hook",
        kind: "file",
        default: "none",
        on_bad_value: "none",
        allowed: "an absolute path without spaces and commas, or none",
        meaning: "a shared library whose cachealloc_hook_table hears of every allocation and free",
        set: setters::hook,
        effect: Effect::Always,
    },
    OptionRow {
        key: "log",
        kind: "word",
        default: "warn",
        on_bad_value: "warn",
        allowed: "quiet, warn or info",
        meaning: "which messages go to stderr",
        set: setters::log,
        effect: Effect::Always,
    },
    // What PyTorch has and nothing here could mean: the same text may serve both.
    without_effect("backend", "native", BACKEND, "the cache is ours in either case"),
    without_effect("release_lock_on_cudamalloc", "true", FLAG, NO_LOCK),
    without_effect("throw_on_cudamalloc_oom", "false", FLAG, ROOM_FIRST),
    without_effect("expandable_segments_reserve", "default", RESERVE, ENOUGH_ADDRESSES),
    without_effect("expandable_segments_reserve_by_class", "default", CLASSES, ENOUGH_ADDRESSES),
    without_effect("pinned_use_cuda_host_register", "false", FLAG, NOT_PINNED),
    without_effect("pinned_num_register_threads", "1", THREADS, NOT_PINNED),
    without_effect("pinned_use_background_threads", "false", FLAG, NOT_PINNED),
    without_effect("pinned_reserve_segment_size_mb", "none", PINNED_RESERVE, NOT_PINNED),
    without_effect("pinned_max_round_threshold_mb", "unlimited", PINNED_MAX, NOT_PINNED),
    without_effect("pinned_max_cached_size_mb", "unlimited", PINNED_MAX, NOT_PINNED),
    without_effect("pinned_free_catch_all", "false", FLAG, NOT_PINNED),
];

const NO_LOCK: &str = "no lock that hits need is held while the driver allocates";
const ROOM_FIRST: &str = "natively a request fails only where the device has no room, so the cache \
                          makes room first";
const ENOUGH_ADDRESSES: &str = "addresses for twice the device's memory are reserved";
const NOT_PINNED: &str = "pinned memory is not cached";

/// What a value is, which are allowed, and who says so.
type Value = (&'static str, &'static str, Setter);

const FLAG: Value = ("boolean", "true or false", setters::checked_boolean);
const BACKEND: Value = ("word", "native or cudaMallocAsync", setters::backend);
const RESERVE: Value = (
    "text",
    "a share of the device, a number of GiB such as 80G, or default",
    setters::checked_reserve,
);
const CLASSES: Value = ("list", "a list such as [name:0.5], or default", setters::checked_classes);
const THREADS: Value = ("count", "a power of two up to 128", setters::checked_threads);
const PINNED_RESERVE: Value =
    ("MiB", "a whole number above 0, or none", setters::checked_pinned_reserve);
const PINNED_MAX: Value = ("MiB", "a whole number, or unlimited", setters::checked_pinned_max);

const fn without_effect(
    key: &'static str,
    default: &'static str,
    (kind, allowed, set): Value,
    why: &'static str,
) -> OptionRow {
    let effect = Effect::Never(why);
    OptionRow { key, kind, default, on_bad_value: default, allowed, meaning: "", set, effect }
}
