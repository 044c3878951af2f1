//! The table: every option, one row each. The parser, its messages, the help and the table of
//! docs/options.md come from here.

use cachealloc_core::order::Mode;

use crate::readers::{
    self as read, Malformed, boolean, bytes_or_none, fraction, mebibytes, number, word,
};
use crate::row::{Kind, OptionRow, ignored, row};
use crate::without_effect::{
    BACKEND, CACHE_FIRST, CLASSES, ENOUGH_ADDRESSES, FLAG, NO_LOCK, NOT_PINNED, PINNED_MAX,
    PINNED_RESERVE, RESERVE, THREADS,
};
use crate::{
    AcrossContexts, Config, ENTRIES_MAX, Fill, IdleRelease, LogLevel, Record, SNAPSHOT_DEFAULT,
    StackContext, StackKind, StatsOnExit, Strategy, signals,
};

pub(crate) const FREE_MODE_KEY: &str = "free_mode";
pub(crate) const SIGNAL_KEY: &str = "signal";
/// A typo must not weaken what the user may have asked for.
pub(crate) const FREE_MODE_ON_BAD_VALUE: &str = "strict";

/// Makes a setter of one field from the function that reads its value.
macro_rules! to {
    ($($field:ident).+, $read:expr) => {
        |config, value| {
            config.$($field).+ = $read(value)?;
            Ok(())
        }
    };
}

const ANY_MIB: Kind = Kind::Other("MiB", "a whole number, 0 to use the fraction");
const AT_LEAST_A_SEGMENT: Kind =
    Kind::Other("MiB", "a whole number, at least large_segment_size_mb, or unlimited");

const ONLY_LOOKS: &str = "cache:false leaves memory as the driver serves it";

/// Every option. A row may use what the rows above it have set.
pub const OPTIONS: &[OptionRow] = &[
    row(
        "cache",
        Kind::Boolean,
        "true",
        to!(cache, boolean),
        "serve memory from a cache; false: observe only: every call goes to the driver unchanged, \
        without barriers and limits, but is still recorded, counted and reported",
    ),
    OptionRow {
        on_bad_value: FREE_MODE_ON_BAD_VALUE,
        ..row(
            FREE_MODE_KEY,
            Kind::of::<Mode>(),
            "ordered",
            to!(free_mode, word),
            "guarantees of a free: ordered: all, by a barrier on the device; strict: all, by a \
            wait in every free; relaxed: only that memory in use is not reused",
        )
    },
    row(
        "large_segment_size_mb",
        Kind::Other("MiB", "a whole number above 10"),
        "20",
        to!(policy.large_segment_bytes, read::large_segment),
        "size of the segments that requests between 1 and 10 MiB share",
    ),
    row(
        "max_split_size_mb",
        AT_LEAST_A_SEGMENT,
        "unlimited",
        |config, value| {
            config.policy.max_split_bytes =
                read::unless("unlimited", value, |value| read::at_least_a_segment(config, value))?;
            Ok(())
        },
        "do not split blocks of this size or more; keep them for large requests",
    ),
    row(
        "max_non_split_rounding_mb",
        Kind::Other(
            "MiB",
            "a whole number, at least large_segment_size_mb, or large_segment_size_mb",
        ),
        "large_segment_size_mb",
        |config, value| {
            let read = |value: &str| read::at_least_a_segment(config, value);
            let bytes = read::unless("large_segment_size_mb", value, read)?;
            config.policy.max_non_split_rounding_bytes =
                bytes.unwrap_or(config.policy.large_segment_bytes);
            Ok(())
        },
        "maximum size of an unsplit block beyond that of the request",
    ),
    row(
        "garbage_collection_threshold",
        Kind::Other("share", "a number above 0 and below 1, or off"),
        "off",
        to!(policy.garbage_collection_threshold, |value| {
            Ok(read::unless("off", value, read::share)?.unwrap_or(0.0))
        }),
        "share of the limit above which old free segments are released before a new one is \
         reserved",
    ),
    row(
        "expandable_segments",
        Kind::Boolean,
        "false",
        to!(policy.expandable_segments, boolean),
        "let segments grow in place, and release memory from anywhere in them; such memory cannot \
         be exported to other processes by cudaIpcGetMemHandle",
    )
    .when(Config::grows, "the chunks of strategy:pre_allocate do not grow"),
    row(
        "roundup_power2_divisions",
        Kind::Other(
            "list",
            "0 or a power of two, or a list of them such as [256:1,512:2,>:8] with sizes in MiB \
             that are powers of two",
        ),
        "0",
        to!(policy.roundup_power2_divisions, read::divisions_list),
        "round requests up to this many steps between two powers of two",
    ),
    row(
        "gpu_memory_limit_mb",
        Kind::Other("MiB", "a whole number or a size such as 4G, 0 for no limit"),
        "0",
        to!(limit.bytes, bytes_or_none),
        "maximum memory of each device that the process may hold, all libraries together; above \
        it a request fails although the device has memory",
    )
    .when(Config::acts, ONLY_LOOKS),
    row(
        "per_process_memory_fraction",
        Kind::Other("share", "a number from 0 to 1, 1 for no limit"),
        "1",
        to!(limit.fraction, fraction),
        "the same limit as a share of the device's memory; the smaller limit applies",
    )
    .when(Config::acts, ONLY_LOOKS),
    row(
        "strategy",
        Kind::of::<Strategy>(),
        "auto_growth",
        |config, value| {
            config.strategy = word(value)?;
            let chunks = config.strategy == Strategy::PreAllocate;
            config.policy.chunk_bytes = chunks.then_some(0);
            config.policy.expandable_segments &= !chunks;
            Ok(())
        },
        "reserve memory as it is requested, or reserve a large chunk at the first request and \
        serve from it all requests that fit",
    ),
    row(
        "fraction_of_gpu_memory_to_use",
        Kind::Other("share", "a number from 0 to 1"),
        "0.92",
        to!(chunks.fraction, fraction),
        "size of the chunk of pre_allocate, as a share of the memory that is free when it is \
        reserved; 0, with either strategy: cache nothing, and pass every request to the driver",
    )
    .when(Config::sizes_chunks, ONLY_WITH_CHUNKS),
    row(
        "initial_gpu_memory_in_mb",
        ANY_MIB,
        "0",
        to!(chunks.first_bytes, bytes_or_none),
        "size of the first chunk of pre_allocate",
    )
    .when(Config::sizes_chunks, ONLY_WITH_CHUNKS),
    row(
        "reallocate_gpu_memory_in_mb",
        ANY_MIB,
        "0",
        to!(chunks.next_bytes, bytes_or_none),
        "size of the chunks after the first",
    )
    .when(Config::sizes_chunks, ONLY_WITH_CHUNKS),
    row(
        "idle_release_s",
        Kind::Other("seconds", "a whole number from 1 to 3600, auto or off"),
        "auto",
        to!(idle_release, |value| {
            Ok(match value {
                "auto" => IdleRelease::Auto,
                "off" => IdleRelease::Never,
                value => IdleRelease::After(number(value, 1..=3600)? as u32),
            })
        }),
        "release memory to the driver after it has been idle for this time; auto: after 3 \
        seconds, and later if released memory is requested again",
    )
    .when(Config::grows, CHUNKS_STAY),
    row(
        "eager_delete_tensor_gb",
        Kind::Other("GiB", "a number, below 0 for no maximum"),
        "-1",
        to!(policy.free_bytes_max, read::gibibytes_or_none),
        "maximum free memory in the cache of a context; the excess is released to the driver \
        within about a second, the largest first",
    )
    .when(Config::grows, CHUNKS_STAY),
    row(
        "memory_fraction_of_eager_deletion",
        Kind::Other("share", "a number from 0 to 1"),
        "1",
        to!(policy.excess_share, fraction),
        "maximum share of the releasable excess to release; the rest stays cached until it has \
        been reused",
    )
    .when(Config::bounds_free, "it applies to eager_delete_tensor_gb only"),
    row(
        "async",
        Kind::Boolean,
        "true",
        to!(serve_async, boolean),
        "serve cuMemAllocAsync from the default pool too",
    ),
    row(
        "wait_for_memory_s",
        Kind::Other("seconds", "a whole number up to 86400, 0 to fail at once"),
        "0",
        to!(wait_for_memory_s, |value| number(value, 0..=86_400)),
        "how long a request waits for memory of the device before it fails",
    )
    .when(Config::acts, ONLY_LOOKS),
    row(
        "host_cache_mb",
        Kind::Other("MiB", "a whole number, 0 for none"),
        "256",
        to!(host_cache_bytes, mebibytes),
        "maximum freed pinned host memory to cache",
    )
    .when(
        Config::keeps_pinned,
        "free_mode:strict and across_contexts:barrier leave pinned memory to the driver",
    ),
    row(
        "skip_barriers",
        Kind::Boolean,
        "true",
        to!(skip_barriers, boolean),
        "skip the barrier of a free if nothing was submitted since the last one",
    ),
    row(
        "across_contexts",
        Kind::of::<AcrossContexts>(),
        "wait",
        to!(across_contexts, word),
        "guarantees of a free between the contexts of a process, as with several devices: wait: \
        all, by waits on the host; barrier: none, for a program that orders its contexts itself, \
        by events or waits",
    ),
    row(
        "graph_capture_record_stream_reuse",
        Kind::Boolean,
        "true",
        to!(reuse_in_captures, boolean),
        "reuse memory freed in a capture within that capture, as soon as its graph orders the \
        reuse",
    ),
    row(
        "graph_pool",
        Kind::Boolean,
        "false",
        to!(graph_pool, boolean),
        "serve cuMemAllocAsync in a capture from the memory of its graph, without memory nodes",
    ),
    row(
        "stats_on_exit",
        Kind::Other(
            "text",
            "off, stderr, or a file name with a dot or a slash in it, and %h, %r, %p, %n and %% as \
             in snapshot",
        ),
        "off",
        to!(stats_on_exit, |value: &str| match value {
            "off" => Ok(StatsOnExit::Off),
            "stderr" => Ok(StatsOnExit::Stderr),
            // A misspelt word must not become a file.
            _ if value.contains(['.', '/']) => read::template(value).map(StatsOnExit::File),
            _ => Err(Malformed),
        }),
        "print statistics at exit: a summary to stderr, or all of them to a file, as JSON if its \
         name ends in .json",
    ),
    row(
        "live",
        Kind::Boolean,
        "true",
        to!(live, boolean),
        "let other processes of the user read the statistics while this one runs, through a file in \
         /dev/shm; needs the library's thread, as signal does",
    ),
    row(
        "waits_on_exit",
        Kind::Word(|| vec!["off", "stderr"]),
        "off",
        to!(waits_on_exit, |value: &str| match value {
            "off" => Ok(false),
            "stderr" => Ok(true),
            _ => Err(Malformed),
        }),
        "print at exit where the program waited inside the library, and why",
    ),
    row(
        "fill",
        Kind::of::<Fill>(),
        "none",
        to!(fill, word),
        "contents of fresh memory: the previous contents, zeros, or 0xff bytes, which expose \
        reads of uninitialized memory",
    )
    .when(Config::acts, ONLY_LOOKS),
    row(
        "red_zone",
        Kind::Other("bytes", "a number of bytes from 0 to 1048576"),
        "0",
        to!(red_zone_bytes, |value| number(value, 0..=1 << 20)),
        "keep this many bytes past the end of each block, and report if the program wrote there: \
        at its free, which waits for that check, or, for a free in stream order, at a later free \
        or at exit",
    )
    .when(Config::acts, ONLY_LOOKS),
    row(
        "only",
        Kind::Other(
            "names",
            "the name of an executable file, a list of them such as [a,b], or any",
        ),
        "any",
        to!(
            programs.only,
            |value| Ok(read::unless("any", value, read::names)?.unwrap_or_default())
        ),
        "do nothing in programs other than these",
    ),
    row(
        "except",
        Kind::Other(
            "names",
            "the name of an executable file, a list of them such as [a,b], or none",
        ),
        "none",
        to!(programs.except, |value| {
            Ok(read::unless("none", value, read::names)?.unwrap_or_default())
        }),
        "do nothing in these programs",
    ),
    row(
        "record",
        Kind::of::<Record>(),
        "off",
        to!(history.record, word),
        "record the stacks of live blocks (state), or every allocation and free (all), and write a \
         snapshot at exit and when memory runs out",
    ),
    row(
        "context",
        Kind::of::<StackContext>(),
        "all",
        to!(history.context, word),
        "entries that get a stack: none, those of live blocks, all allocations, or frees as well",
    ),
    row(
        "stacks",
        Kind::of::<StackKind>(),
        "all",
        to!(history.stacks, word),
        "frames that a stack contains",
    ),
    row(
        "max_entries",
        Kind::Other("count", "a whole number from 1 to 100000000"),
        "1000000",
        to!(history.max_entries, |value| Ok(number(value, 1..=ENTRIES_MAX)? as usize)),
        "maximum entries kept for each context, 40 bytes each, and written to a snapshot for each \
        device, where a free takes two; the oldest are dropped first",
    ),
    row(
        SIGNAL_KEY,
        Kind::Word(signals::words),
        "USR1",
        to!(history.signal, |value| read::unless("off", value, |value| {
            signals::number(value).ok_or(Malformed)
        })),
        "signal that writes a snapshot, whether or not anything is recorded; a signal that the \
        program handles itself is used only if something is recorded or this option is set",
    ),
    row(
        "snapshot",
        Kind::Other(
            "text",
            "a file name in which %h is the host, %r the rank, %p the process, %n a number and %% a \
             percent sign",
        ),
        SNAPSHOT_DEFAULT,
        to!(history.snapshot, read::template),
        "where snapshots are written",
    ),
    row(
        "hook",
        Kind::Other("file", "an absolute path without spaces and commas, or none"),
        "none",
        to!(hook, |value| read::unless("none", value, read::absolute_path)),
        "a shared library whose cachealloc_hook_table is notified of every allocation and free",
    ),
    row("log", Kind::of::<LogLevel>(), "warn", to!(log, word), "messages to print on stderr"),
    // PyTorch's options that have no meaning here are accepted, so that the same text may serve
    // both.
    ignored("backend", "native", BACKEND, "memory comes from this cache in either case"),
    ignored("release_lock_on_cudamalloc", "true", FLAG, NO_LOCK),
    ignored("throw_on_cudamalloc_oom", "false", FLAG, CACHE_FIRST),
    ignored("expandable_segments_reserve", "default", RESERVE, ENOUGH_ADDRESSES),
    ignored("expandable_segments_reserve_by_class", "default", CLASSES, ENOUGH_ADDRESSES),
    ignored("pinned_use_cuda_host_register", "false", FLAG, NOT_PINNED),
    ignored("pinned_num_register_threads", "1", THREADS, NOT_PINNED),
    ignored("pinned_use_background_threads", "false", FLAG, NOT_PINNED),
    ignored("pinned_reserve_segment_size_mb", "none", PINNED_RESERVE, NOT_PINNED),
    ignored("pinned_max_round_threshold_mb", "unlimited", PINNED_MAX, NOT_PINNED),
    ignored("pinned_max_cached_size_mb", "unlimited", PINNED_MAX, NOT_PINNED),
    ignored("pinned_free_catch_all", "false", FLAG, NOT_PINNED),
];

const ONLY_WITH_CHUNKS: &str = "it applies to strategy:pre_allocate only";

const CHUNKS_STAY: &str = "memory that strategy:pre_allocate has reserved is kept";
