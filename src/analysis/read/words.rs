//! The keys and strings of PyTorch's schema, known by number before anything is read.

use crate::model::{TextId, Texts};

macro_rules! words {
    ($($name:ident = $text:literal,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u32)]
        enum Number { $($name,)* }
        $(pub(super) const $name: TextId = TextId(1 + Number::$name as u32);)*
        const ALL: &[&str] = &[$($text,)*];
    };
}

words! {
    ACTION = "action",
    ADDR = "addr",
    DEVICE_FREE = "device_free",
    SIZE = "size",
    STREAM = "stream",
    TIME_US = "time_us",
    FRAMES = "frames",
    CATEGORY = "category",
    COMPILE_CONTEXT = "compile_context",
    USER_METADATA = "user_metadata",
    POOL_ID = "pool_id",
    NOT_AVAILABLE = "N/A",
    UNKNOWN = "unknown",

    ALLOC = "alloc",
    FREE = "free",
    FREE_REQUESTED = "free_requested",
    FREE_COMPLETED = "free_completed",
    SEGMENT_ALLOC = "segment_alloc",
    SEGMENT_FREE = "segment_free",
    SEGMENT_MAP = "segment_map",
    SEGMENT_UNMAP = "segment_unmap",
    OOM = "oom",
    SNAPSHOT = "snapshot",
    ANNOTATE = "annotate",

    NAME = "name",
    FILENAME = "filename",
    LINE = "line",

    ADDRESS = "address",
    REQUESTED_SIZE = "requested_size",
    STATE = "state",
    ACTIVE_ALLOCATED = "active_allocated",
    ACTIVE_PENDING_FREE = "active_pending_free",
    ACTIVE_AWAITING_FREE = "active_awaiting_free",
    INACTIVE = "inactive",
    HISTORY = "history",
    REAL_SIZE = "real_size",

    BLOCKS = "blocks",
    DEVICE = "device",
    TOTAL_SIZE = "total_size",
    SEGMENT_TYPE = "segment_type",
    SMALL = "small",
    SEGMENT_POOL_ID = "segment_pool_id",
    IS_EXPANDABLE = "is_expandable",

    SEGMENTS = "segments",
    DEVICE_TRACES = "device_traces",
    HOST_SEGMENTS = "host_segments",
    HOST_TRACES = "host_traces",
    EXTERNAL_ANNOTATIONS = "external_annotations",
    STAGE = "stage",
    START = "START",
    ALLOCATOR_SETTINGS = "allocator_settings",
    CACHEALLOC = "cachealloc",
    TRACE_ALLOC_DROPPED = "trace_alloc_dropped",
}

/// Texts in which every word has its number.
pub(super) fn texts() -> Texts {
    let mut texts = Texts::default();
    for (number, word) in (1..).zip(ALL) {
        let id = texts.add(word);
        debug_assert_eq!(id, TextId(number), "{word} is there twice");
    }
    texts
}
