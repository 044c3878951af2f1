//! All keys and strings of PyTorch's schema, for the writer here and for the reader in `analysis`.

use crate::pickle::Word;

/// Passes the list to a macro of the caller, which defines items from the names and texts.
#[macro_export]
macro_rules! schema_words {
    ($define:ident) => {
        $define! {
            EMPTY = "",

            SEGMENTS = "segments",
            DEVICE_TRACES = "device_traces",
            ALLOCATOR_SETTINGS = "allocator_settings",
            EXTERNAL_ANNOTATIONS = "external_annotations",
            HOST_SEGMENTS = "host_segments",
            HOST_TRACES = "host_traces",
            GRAPH_SEGMENTS = "graph_segments",

            DEVICE = "device",
            ADDRESS = "address",
            TOTAL_SIZE = "total_size",
            ALLOCATED_SIZE = "allocated_size",
            ACTIVE_SIZE = "active_size",
            REQUESTED_SIZE = "requested_size",
            STREAM = "stream",
            SEGMENT_TYPE = "segment_type",
            LARGE = "large",
            SMALL = "small",
            SEGMENT_POOL_ID = "segment_pool_id",
            IS_EXPANDABLE = "is_expandable",
            FRAMES = "frames",
            BLOCKS = "blocks",

            SIZE = "size",
            STATE = "state",
            ACTIVE_ALLOCATED = "active_allocated",
            ACTIVE_PENDING_FREE = "active_pending_free",
            INACTIVE = "inactive",

            ACTION = "action",
            ADDR = "addr",
            DEVICE_FREE = "device_free",
            TIME_US = "time_us",
            COMPILE_CONTEXT = "compile_context",
            NOT_AVAILABLE = "N/A",
            USER_METADATA = "user_metadata",
            RANGE_ENTERED = "range_entered",
            POOL_ID = "pool_id",
            CATEGORY = "category",
            UNKNOWN = "unknown",
            ALLOC = "alloc",
            FREE_REQUESTED = "free_requested",
            FREE_COMPLETED = "free_completed",
            SEGMENT_ALLOC = "segment_alloc",
            SEGMENT_FREE = "segment_free",
            SEGMENT_MAP = "segment_map",
            SEGMENT_UNMAP = "segment_unmap",
            OOM = "oom",
            SNAPSHOT = "snapshot",

            STAGE = "stage",
            START = "START",
            END = "END",

            NAME = "name",
            FILENAME = "filename",
            LINE = "line",

            CONFIGURATION = "PYTORCH_CUDA_ALLOC_CONF",
            MAX_SPLIT_SIZE = "max_split_size",
            GARBAGE_COLLECTION_THRESHOLD = "garbage_collection_threshold",
            EXPANDABLE_SEGMENTS = "expandable_segments",
            PINNED_NUM_REGISTER_THREADS = "pinned_num_register_threads",
            RELEASE_LOCK_ON_CUDAMALLOC = "release_lock_on_cudamalloc",
            PINNED_USE_CUDA_HOST_REGISTER = "pinned_use_cuda_host_register",
            GRAPH_CAPTURE_RECORD_STREAM_REUSE = "graph_capture_record_stream_reuse",
            MAX_ROUND_THRESHOLD = "max_round_threshold",
            MAX_CACHED_SIZE = "max_cached_size",
            ROUNDUP_POWER2_DIVISIONS = "roundup_power2_divisions",
            TRACE_ALLOC_OVERFLOWED = "trace_alloc_overflowed",
            TRACE_ALLOC_MAX_ENTRIES = "trace_alloc_max_entries",
            TRACE_ALLOC_DROPPED = "trace_alloc_dropped",
            CACHEALLOC = "cachealloc",

            // Written by other versions; only read, never written.
            FREE = "free",
            ANNOTATE = "annotate",
            ACTIVE_AWAITING_FREE = "active_awaiting_free",
            HISTORY = "history",
            REAL_SIZE = "real_size",
        }
    };
}

/// Passes the words for the states of a block to a macro of the caller.
#[macro_export]
macro_rules! state_words {
    ($define:ident) => {
        $define! {
            Allocated = ACTIVE_ALLOCATED,
            Pending = ACTIVE_PENDING_FREE,
            Free = INACTIVE,
        }
    };
}

/// Passes the words for the actions of entries to a macro of the caller. `Free` has none: it is two
/// entries of a file.
#[macro_export]
macro_rules! action_words {
    ($define:ident) => {
        $define! {
            Alloc = ALLOC,
            FreeRequested = FREE_REQUESTED,
            FreeCompleted = FREE_COMPLETED,
            SegmentAlloc = SEGMENT_ALLOC,
            SegmentFree = SEGMENT_FREE,
            SegmentMap = SEGMENT_MAP,
            SegmentUnmap = SEGMENT_UNMAP,
            OutOfMemory = OOM,
            Snapshot = SNAPSHOT,
        }
    };
}

/// Numbers the words from 0 in this order; the numbers are their places in the memo.
macro_rules! define {
    ($($name:ident = $text:literal,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Number { $($name,)* }
        $(
            #[allow(dead_code)]
            pub(super) const $name: Word = Word { place: Number::$name as u8, text: $text };
        )*
    };
}

schema_words!(define);
