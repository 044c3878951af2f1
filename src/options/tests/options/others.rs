//! The options of other allocators, PyTorch's and Paddle's, and their variables.

use cachealloc_options::{Config, Effect, OPTIONS, help, missed_of_others, of_others, parse};

use crate::{accepted, refused};

/// Some of Paddle's flags are options, in Paddle's spelling; the others have no option.
#[test]
fn flags_of_paddle_are_options() {
    for (theirs, ours) in [
        ("FLAGS_allocator_strategy:naive_best_fit", "strategy:pre_allocate"),
        ("allocator_strategy:auto_growth", "strategy:auto_growth"),
        ("strategy:naive_best_fit", "strategy:pre_allocate"),
        ("FLAGS_allocator_strategy:thread_local", "strategy:auto_growth"),
        (
            "FLAGS_allocator_strategy:naive_best_fit,FLAGS_fraction_of_gpu_memory_to_use:0.4,
             FLAGS_initial_gpu_memory_in_mb:500,FLAGS_reallocate_gpu_memory_in_mb:100",
            "strategy:pre_allocate,fraction_of_gpu_memory_to_use:0.4,
             initial_gpu_memory_in_mb:500,reallocate_gpu_memory_in_mb:100",
        ),
        ("FLAGS_gpu_memory_limit_mb:4096", "gpu_memory_limit_mb:4096"),
        ("gpu_memory_limit_mb:1,FLAGS_gpu_memory_limit_mb:2", "gpu_memory_limit_mb:2"),
        ("FLAGS_gpu_memory_limit_mb:2,gpu_memory_limit_mb:1", "gpu_memory_limit_mb:1"),
    ] {
        assert_eq!(accepted(theirs), accepted(ours), "{theirs}");
    }
    refused(
        "FLAGS_gpu_memory_limit_mb:all",
        "invalid gpu_memory_limit_mb 'all': expected a whole number or a size such as 4G, 0 for no limit; using 0",
    );
    refused(
        "FLAGS_gpu_memory_limit_mb=4096",
        "invalid option FLAGS_gpu_memory_limit_mb=4096: write gpu_memory_limit_mb:4096; ignored",
    );
    refused(
        "FLAGS_gpu_memory_limit:4096",
        "unknown option FLAGS_gpu_memory_limit, did you mean gpu_memory_limit_mb? ignored",
    );
    refused(
        "FLAGS_use_cuda_managed_memory:1",
        "unknown option FLAGS_use_cuda_managed_memory: no option is equivalent to this flag of Paddle; ignored",
    );
    refused(
        "FLAGS_fast_eager_deletion_mode:true",
        "unknown option FLAGS_fast_eager_deletion_mode: no free waits for kernels, as with true; \
         with free_mode:strict each does, as with false; ignored",
    );
}

/// A value that PyTorch's parser refuses, or accepts in part, gives one line here, and changes
/// nothing else.
#[test]
fn values_refused_by_pytorch_are_refused() {
    for bad in [
        "expandable_segments_reserve:-1",
        "foo:1",
        "max_split_size_mb:5",
        "large_segment_size_mb:10",
        "max_non_split_rounding_mb:5",
        "garbage_collection_threshold:1.0",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[3:4]",
        "per_process_memory_fraction:1.5",
        "per_process_memory_fraction:-0.5",
        "pinned_num_register_threads:3",
        "pinned_num_register_threads:256",
        "pinned_reserve_segment_size_mb:0",
        "backend:foo",
        "max_split_size_mb:abc",
        "max_split_size_mb:40abc",
        "max_split_size_mb:20.7",
        "per_process_memory_fraction:0.5x",
        "gpu_memory_limit_mb:-1",
        "gpu_memory_limit_mb:40abc",
        "gpu_memory_limit_mb:1e3",
        "gpu_memory_limit_mb",
        "gpu_memory_limit_mb:",
        "gpu_memory_limit_mb:99999999999999999999",
        "fraction_of_gpu_memory_to_use:1.01",
        "initial_gpu_memory_in_mb:x",
        "reallocate_gpu_memory_in_mb:",
        "eager_delete_tensor_gb:--1",
        "eager_delete_tensor_gb:inf",
        "memory_fraction_of_eager_deletion:1.1",
        "memory_fraction_of_eager_deletion:-1",
        "idle_release_s:0",
        "idle_release_s:3601",
        "idle_release_s:on",
        "release_lock_on_cudamalloc:maybe",
        "roundup_power2_divisions:[256:1",
    ] {
        let (config, problems) = parse(bad);
        assert_eq!(problems.len(), 1, "{bad}");
        let (key, said) = (bad.split(':').next().expect("a key"), problems[0].to_string());
        assert!(said.contains(key), "{bad}: {said}");
        assert!(bad == "foo:1" || said.contains("expected "), "{bad}: {said}");
        assert_eq!(config, Config::default(), "{bad}");
    }
}

/// One text for PyTorch and this library: what PyTorch writes is accepted. A setting without a
/// meaning here is reported, unless it requests what applies anyway.
#[test]
fn options_of_pytorch_are_accepted() {
    for row in OPTIONS {
        let Effect::Never(why) = row.effect else { continue };
        accepted(&format!("{}:{}", row.key, row.default));
        assert!(help().contains(why));
    }
    for silent in [
        "backend:native",
        "release_lock_on_cudamalloc:True",
        "release_lock_on_hipmalloc:True",
        "graph_capture_record_stream_reuse:True",
        "pinned_use_hip_host_register:False",
    ] {
        assert_eq!(accepted(silent), Config::default(), "{silent}");
    }
    for (without_effect, why) in [
        ("backend:cudaMallocAsync", "memory comes from this cache"),
        ("backend:hipMallocAsync", "memory comes from this cache"),
        ("release_lock_on_cudamalloc:False", "no lock"),
        ("throw_on_cudamalloc_oom:True", "releases memory first"),
        ("expandable_segments_reserve:80G", "addresses for twice"),
        ("expandable_segments_reserve_by_class:[small:0.1,large:2G]", "addresses for twice"),
        ("pinned_use_cuda_host_register:True", "host_cache_mb limits the pinned memory kept"),
        ("pinned_num_register_threads:8", "host_cache_mb limits the pinned memory kept"),
        ("pinned_use_background_threads:True", "host_cache_mb limits the pinned memory kept"),
        ("pinned_reserve_segment_size_mb:64", "host_cache_mb limits the pinned memory kept"),
        ("pinned_max_round_threshold_mb:64", "host_cache_mb limits the pinned memory kept"),
        ("pinned_max_cached_size_mb:64", "host_cache_mb limits the pinned memory kept"),
        ("pinned_free_catch_all:True", "host_cache_mb limits the pinned memory kept"),
        ("initial_gpu_memory_in_mb:64", "strategy:pre_allocate only"),
        ("fraction_of_gpu_memory_to_use:0.5", "strategy:pre_allocate only"),
    ] {
        let (config, problems) = parse(without_effect);
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{without_effect}: {said:?}");
        assert!(
            said[0].starts_with(&format!("{without_effect} has no effect: "))
                || without_effect.contains("hip"),
            "{said:?}"
        );
        assert!(said[0].contains(why), "{said:?}");
        assert_eq!(config.policy, Config::default().policy, "{without_effect}");
    }
}

/// The effect that another allocator's variable would have here, by the same rules as its keys.
#[test]
fn variables_of_others() {
    let pytorch = "PYTORCH_CUDA_ALLOC_CONF";
    for (name, value, wanted) in [
        (pytorch, "", "belongs to PyTorch and is ignored; set its keys in CACHEALLOC_CONF"),
        (
            pytorch,
            "max_split_size_mb:512, roundup_power2_divisions:[256:1,>:8],backend:cudaMallocAsync",
            "belongs to PyTorch and is ignored; in CACHEALLOC_CONF max_split_size_mb:512 and \
             roundup_power2_divisions:[256:1,>:8] are equivalent, backend:cudaMallocAsync has no effect",
        ),
        (
            "PYTORCH_ALLOC_CONF",
            "x:1,max_split_size_mb:few,backend:native",
            "belongs to PyTorch and is ignored; in CACHEALLOC_CONF backend:native has no effect, x:1 and \
             max_split_size_mb:few are invalid",
        ),
        (
            "FLAGS_fraction_of_gpu_memory_to_use",
            "0.5",
            "belongs to Paddle and is ignored; in CACHEALLOC_CONF fraction_of_gpu_memory_to_use:0.5 is equivalent",
        ),
        (
            "FLAGS_allocator_strategy",
            "",
            "belongs to Paddle and is ignored; in CACHEALLOC_CONF strategy is equivalent",
        ),
        (
            "FLAGS_allocator_strategy",
            "naive_best_fit",
            "belongs to Paddle and is ignored; in CACHEALLOC_CONF strategy:naive_best_fit is equivalent",
        ),
        (
            "FLAGS_allocator_strategy",
            "thread_local",
            "belongs to Paddle and is ignored; in CACHEALLOC_CONF strategy:thread_local is equivalent",
        ),
        (
            "FLAGS_eager_delete_tensor_gb",
            "-1.0",
            "belongs to Paddle and is ignored; in CACHEALLOC_CONF eager_delete_tensor_gb:-1.0 is equivalent",
        ),
        (
            "FLAGS_auto_growth_chunk_size_in_mb",
            "64",
            "belongs to Paddle and is ignored; the sizes of segments are those of PyTorch; \
             large_segment_size_mb changes them, and strategy:pre_allocate reserves chunks",
        ),
        (
            "FLAGS_cudnn_deterministic",
            "1",
            "belongs to a framework and is ignored; no option is equivalent",
        ),
    ] {
        assert_eq!(of_others(name, value), Some(format!("{name} {wanted}")));
    }
    assert_eq!(of_others("CACHEALLOC_CONF", "x:1"), None);
    assert_eq!(of_others("max_split_size_mb", ""), None);
}

/// A line appears only for a reason: a key that would apply here and is missing.
#[test]
fn variables_of_others_that_are_missed() {
    let pytorch = "PYTORCH_CUDA_ALLOC_CONF";
    let value = "max_split_size_mb:512,expandable_segments:True,backend:native";
    for (name, value, options, missed) in [
        (pytorch, value, "", true),
        (pytorch, value, "log:info,max_split_size_mb:4", true),
        (pytorch, value, "expandable_segments:false,max_split_size_mb:4", false),
        (pytorch, "backend:native", "", false),
        (pytorch, "x:1", "", false),
        (pytorch, "", "", false),
        ("FLAGS_fraction_of_gpu_memory_to_use", "0.5", "", true),
        ("FLAGS_fraction_of_gpu_memory_to_use", "0.5", "fraction_of_gpu_memory_to_use:1", false),
        ("FLAGS_cudnn_deterministic", "1", "", false),
        ("CACHEALLOC_CONF", "max_split_size_mb:512", "", false),
    ] {
        let found = missed_of_others(name, value, options);
        assert_eq!(found, of_others(name, value).filter(|_| missed), "{name}={value}, {options}");
    }
}
