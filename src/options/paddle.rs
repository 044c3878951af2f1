//! The flags of Paddle about memory for which there is no option, with the reasons.

pub(crate) const OF_PADDLE: &str = "no option is equivalent to this flag of Paddle";

/// Flags of Paddle about memory for which there is no option, and the reason.
const WITHOUT_OPTION: [(&str, &str); 5] = [
    (
        "fast_eager_deletion_mode",
        "no free waits for kernels, as with true; with free_mode:strict each does, as with false",
    ),
    (
        "auto_growth_chunk_size_in_mb",
        "the sizes of segments are those of PyTorch; large_segment_size_mb changes them, and \
         strategy:pre_allocate reserves chunks",
    ),
    ("memory_fraction_of_eager_deletion", ONLY_PADDLE_FREES),
    ("eager_delete_scope", ONLY_PADDLE_FREES),
    (
        "use_system_allocator",
        "it turns off the cache of Paddle, as `cachealloc run --uncached` does",
    ),
];
const ONLY_PADDLE_FREES: &str = "it says when Paddle frees, and the cache has no part in that";

/// Returns why there is no option for this flag of Paddle, if that is known.
pub(crate) fn why_not(flag: &str) -> Option<&'static str> {
    let known = WITHOUT_OPTION.iter().find(|(known, _)| *known == flag);
    known.map(|(_, why)| *why)
}
