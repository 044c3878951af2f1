//! The text of the options: what is accepted, and what each mistake says and leaves in force.

use cachealloc_core::order::Mode;
use cachealloc_core::policy::MIB;
use cachealloc_options::{
    Chunks, Config, Effect, IdleRelease, Limit, LogLevel, OPTIONS, StatsOnExit, Strategy, help,
    help_markdown, help_on, of_others, parse,
};

#[path = "../../core/tests/allocator/random.rs"]
mod random;

#[track_caller]
fn accepted(text: &str) -> Config {
    let (config, problems) = parse(text);
    assert!(problems.is_empty(), "{text}: {}", problems[0]);
    config
}

#[track_caller]
fn refused(text: &str, message: &str) -> Config {
    let (config, problems) = parse(text);
    let messages: Vec<String> = problems.iter().map(|problem| problem.to_string()).collect();
    assert_eq!(messages, [message], "{text}");
    config
}

#[test]
fn no_text_means_the_defaults_of_the_table() {
    assert_eq!(accepted(""), Config::default());
    assert_eq!(accepted(" , ,"), Config::default());
    for row in OPTIONS {
        assert_eq!(accepted(&format!("{}:{}", row.key, row.default)), Config::default());
    }
}

#[test]
fn values_of_every_option() {
    let config = accepted(
        "free_mode:relaxed, large_segment_size_mb:40, max_split_size_mb : 64,
         max_non_split_rounding_mb:48,garbage_collection_threshold:0.8,async:False,
         skip_barriers:false,stats_on_exit:stderr,log:info,",
    );
    assert_eq!(config.free_mode, Mode::Relaxed);
    assert_eq!(config.policy.large_segment_bytes, 40 * MIB);
    assert_eq!(config.policy.max_split_bytes, Some(64 * MIB));
    assert_eq!(config.policy.max_non_split_rounding_bytes, 48 * MIB);
    assert_eq!(config.policy.garbage_collection_threshold, 0.8);
    assert!(!config.serve_async);
    assert!(!config.skip_barriers);
    assert_eq!(config.stats_on_exit, StatsOnExit::Stderr);
    assert_eq!(config.log, LogLevel::Info);
}

#[test]
fn statistics_go_to_stderr_or_a_file() {
    let file = |name: &str| StatsOnExit::File(name.to_string());
    assert_eq!(accepted("stats_on_exit:a-%p.json").stats_on_exit, file("a-%p.json"));
    assert_eq!(accepted("stats_on_exit:/tmp/a%%").stats_on_exit, file("/tmp/a%%"));
    assert!(!accepted("live:false").live);
    for wrong in ["stdrr", "a.%x", "a.json%", "on"] {
        let (config, problems) = parse(&format!("stats_on_exit:{wrong}"));
        assert_eq!((config, problems.len()), (Config::default(), 1), "{wrong}");
    }
}

#[test]
fn the_last_of_a_repeated_key_counts() {
    assert_eq!(accepted("log:bogus,log:info").log, LogLevel::Info);
    assert_eq!(accepted("free_mode:x,free_mode:ordered").free_mode, Mode::Ordered);
}

#[test]
fn the_segment_size_counts_for_the_others_wherever_it_stands() {
    let config = accepted("max_split_size_mb:40,large_segment_size_mb:30");
    assert_eq!(config.policy.max_split_bytes, Some(40 * MIB));
    assert_eq!(config.policy.max_non_split_rounding_bytes, 30 * MIB);
    let config = refused(
        "max_split_size_mb:20,large_segment_size_mb:30",
        "invalid max_split_size_mb '20': expected a whole number, at least large_segment_size_mb, \
         or unlimited; using unlimited",
    );
    assert_eq!(config.policy.max_split_bytes, None);
}

#[test]
fn roundup_lists() {
    let all = |text| accepted(text).policy.roundup_power2_divisions;
    assert_eq!(all("roundup_power2_divisions:8"), [8; 16]);
    assert_eq!(all("roundup_power2_divisions:[>:8]"), [8; 16]);
    let list = all("roundup_power2_divisions:[256:1,512:2,1024:4,>:8],log:warn");
    assert_eq!(list, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
    for bad in ["3", "[3:4]", "[256:3]", "[256]", "[]", "[512:1,256:1]", "[>:8,1:2]", "[65536:1]"] {
        let (config, problems) = parse(&format!("roundup_power2_divisions:{bad}"));
        assert_eq!(problems.len(), 1, "{bad}");
        assert_eq!(config, Config::default(), "{bad}");
    }
}

#[test]
fn an_open_bracket_does_not_swallow_what_follows() {
    let (config, problems) = parse("roundup_power2_divisions:[256:1,free_mode:relaxed");
    assert_eq!(problems.len(), 1);
    assert_eq!(config.free_mode, Mode::Relaxed);
}

#[test]
fn a_malformed_free_mode_is_strict() {
    let message = "expected ordered, strict or relaxed; using strict";
    for (text, begins) in [
        ("free_mode:relxed", "invalid free_mode 'relxed': "),
        ("free_mode:", "option free_mode has no value: "),
        ("free_mode", "option free_mode has no value: "),
    ] {
        assert_eq!(refused(text, &format!("{begins}{message}")).free_mode, Mode::Strict);
    }
}

#[test]
fn a_misspelt_free_mode_is_strict_whatever_else_is_said() {
    let config = refused(
        "free_mode:relaxed,fre_mode:strict",
        "unknown option fre_mode, did you mean free_mode? using strict",
    );
    assert_eq!(config.free_mode, Mode::Strict);
}

#[test]
fn unknown_keys_name_the_nearest() {
    refused(
        "max_split_size:40",
        "unknown option max_split_size, did you mean max_split_size_mb? ignored",
    );
    let useful = OPTIONS.iter().filter(|row| !matches!(row.effect, Effect::Never(_)));
    let keys: Vec<_> = useful.map(|row| row.key).collect();
    let known = keys.join(", ");
    refused("zzz:1", &format!("unknown option zzz, expected one of {known}; ignored"));
}

/// As variables are written.
#[test]
fn an_equals_sign_is_no_colon() {
    refused("record=all", "invalid option record=all: write record:all; ignored");
    refused("recrod=all", "invalid option recrod=all: write record:all; ignored");
    refused("hook=/a:b", "invalid option hook=/a:b: write hook:/a:b; ignored");
    let config = refused(
        "free_mode=relaxed",
        "invalid option free_mode=relaxed: write free_mode:relaxed; using strict",
    );
    assert_eq!(config.free_mode, Mode::Strict);
}

/// Some of Paddle's flags are options, as Paddle writes them; for the others there is none.
#[test]
fn flags_of_paddle_are_options() {
    for (theirs, ours) in [
        ("FLAGS_allocator_strategy:naive_best_fit", "strategy:pre_allocate"),
        ("allocator_strategy:auto_growth", "strategy:auto_growth"),
        ("strategy:naive_best_fit", "strategy:pre_allocate"),
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
        "invalid gpu_memory_limit_mb 'all': expected a whole number, 0 for no limit; using 0",
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
        "unknown option FLAGS_use_cuda_managed_memory: no option does what this flag of Paddle's \
         does; ignored",
    );
}

#[test]
fn numbers_are_strict() {
    for bad in ["40abc", "-1", "+40", "40.0", "0x40", "18446744073709551615", "19", ""] {
        let (config, problems) = parse(&format!("max_split_size_mb:{bad}"));
        assert_eq!(problems.len(), 1, "{bad}");
        assert_eq!(config, Config::default(), "{bad}");
    }
    for bad in ["0", "1", "1.0", "-0.5", "nan", "inf", "5e-1", ".", "0.5x"] {
        let (config, problems) = parse(&format!("garbage_collection_threshold:{bad}"));
        assert_eq!(problems.len(), 1, "{bad}");
        assert_eq!(config, Config::default(), "{bad}");
    }
    assert_eq!(parse("large_segment_size_mb:10").1.len(), 1);
    assert_eq!(parse("skip_barriers:yes").1.len(), 1);
}

#[test]
fn no_text_at_all_panics() {
    let letters = [":", ",", "[", "]", ">", "8", "é", "log", "free_mode", "quiet"];
    let mut random = random::Random::new(7);
    for _ in 0..20_000 {
        let pieces = random.below(12);
        let text: String = (0..pieces).map(|_| random.pick(&letters)).collect();
        for problem in parse(&text).1 {
            assert_eq!(problem.to_string().lines().count(), 1, "{text}");
        }
    }
}

#[test]
fn help_names_every_option() {
    for row in OPTIONS {
        assert!(help().contains(row.key));
        assert!(help_markdown().contains(&format!(
            "| `{}` | {} | `{}` |",
            row.key,
            row.kind.name(),
            row.default
        )));
    }
}

#[test]
fn limits_and_strategies() {
    let config = accepted(
        "gpu_memory_limit_mb:4096,per_process_memory_fraction:0.5,strategy:pre_allocate,
         fraction_of_gpu_memory_to_use:0.4,initial_gpu_memory_in_mb:500,
         reallocate_gpu_memory_in_mb:100",
    );
    assert_eq!(config.limit, Limit { bytes: Some(4096 * MIB), fraction: 0.5 });
    assert_eq!(config.strategy, Strategy::PreAllocate);
    assert_eq!(config.policy.chunk_bytes, Some(0));
    let (first_bytes, next_bytes) = (Some(500 * MIB), Some(100 * MIB));
    assert_eq!(config.chunks, Chunks { fraction: 0.4, first_bytes, next_bytes });
    assert!(!accepted("gpu_memory_limit_mb:0,per_process_memory_fraction:1.0").limit.is_set());
    assert!(accepted("").caches());
    assert!(!accepted("fraction_of_gpu_memory_to_use:0").caches());
    assert!(!accepted("fraction_of_gpu_memory_to_use:0.0,strategy:pre_allocate").caches());
}

/// PyTorch rounds, too.
#[test]
fn of_two_limits_the_smaller_one_holds() {
    let limit = |text: &str| accepted(text).limit.on(1000 * MIB + 1);
    assert_eq!(limit(""), None);
    assert_eq!(limit("gpu_memory_limit_mb:300"), Some(300 * MIB));
    assert_eq!(limit("per_process_memory_fraction:0.5"), Some(500 * MIB + 1));
    assert_eq!(limit("per_process_memory_fraction:0.5,gpu_memory_limit_mb:300"), Some(300 * MIB));
    let share = limit("per_process_memory_fraction:0.5,gpu_memory_limit_mb:700");
    assert_eq!(share, Some(500 * MIB + 1));
    assert_eq!(limit("per_process_memory_fraction:0"), Some(0));
}

#[test]
fn idle_memory_goes_back_as_the_options_say() {
    assert_eq!(accepted("").idle_release, IdleRelease::Auto);
    for (value, wanted) in [
        ("auto", IdleRelease::Auto),
        ("off", IdleRelease::Never),
        ("1", IdleRelease::After(1)),
        ("3600", IdleRelease::After(3600)),
    ] {
        assert_eq!(accepted(&format!("idle_release_s:{value}")).idle_release, wanted);
    }
    assert_eq!(accepted("idle_release_s:20").idle_release.seconds(), Some(20));
    assert_eq!(accepted("").idle_release.seconds(), None);
    let (_, problems) = parse("idle_release_s:20,strategy:pre_allocate");
    assert!(problems[0].to_string().contains("is kept"), "{}", problems[0]);
}

#[test]
fn chunks_are_what_the_options_say() {
    let sizes = |text: &str| {
        let chunks = accepted(&format!("strategy:pre_allocate,{text}")).chunks;
        let [first, next] = [true, false].map(|first| chunks.bytes(first, 1001 * MIB) / MIB);
        (first, next, chunks.request_bytes_max(1001 * MIB) / MIB)
    };
    assert_eq!(sizes(""), (920, 920, 920));
    assert_eq!(sizes("fraction_of_gpu_memory_to_use:0.5"), (500, 500, 500));
    assert_eq!(sizes("initial_gpu_memory_in_mb:301"), (300, 920, 920));
    let both = "initial_gpu_memory_in_mb:301,reallocate_gpu_memory_in_mb:100";
    assert_eq!(sizes(both), (300, 100, 300));
    assert_eq!(sizes("fraction_of_gpu_memory_to_use:1"), (1000, 1000, 1000));
}

/// What PyTorch's parser refuses, or takes by halves, is one line here, and nothing else changes.
#[test]
fn what_pytorch_refuses_is_refused() {
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
        "strategy:thread_local",
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

/// One text for PyTorch and us: what it writes is taken, and what cannot mean anything here is
/// said, unless it asks for what is the case anyway.
#[test]
fn what_pytorch_has_is_accepted() {
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
        ("backend:cudaMallocAsync", "the cache is ours"),
        ("backend:hipMallocAsync", "the cache is ours"),
        ("release_lock_on_cudamalloc:False", "no lock"),
        ("throw_on_cudamalloc_oom:True", "releases memory first"),
        ("expandable_segments_reserve:80G", "addresses for twice"),
        ("expandable_segments_reserve_by_class:[small:0.1,large:2G]", "addresses for twice"),
        (
            "pinned_use_cuda_host_register:True",
            "host_cache_mb bounds what is kept of pinned memory",
        ),
        ("pinned_num_register_threads:8", "host_cache_mb bounds what is kept of pinned memory"),
        (
            "pinned_use_background_threads:True",
            "host_cache_mb bounds what is kept of pinned memory",
        ),
        ("pinned_reserve_segment_size_mb:64", "host_cache_mb bounds what is kept of pinned memory"),
        ("pinned_max_round_threshold_mb:64", "host_cache_mb bounds what is kept of pinned memory"),
        ("pinned_max_cached_size_mb:64", "host_cache_mb bounds what is kept of pinned memory"),
        ("pinned_free_catch_all:True", "host_cache_mb bounds what is kept of pinned memory"),
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

#[test]
fn chunks_do_not_grow() {
    let (config, problems) = parse("expandable_segments:True,strategy:pre_allocate");
    assert!(!config.policy.expandable_segments);
    assert_eq!(problems.len(), 1);
    let said = problems[0].to_string();
    assert!(said.starts_with("expandable_segments:True has no effect: "), "{said}");
}

#[test]
fn help_is_a_word_and_no_key() {
    assert!(accepted("help").help);
    assert!(accepted("log:quiet,help").help);
    assert!(!accepted("").help);
    assert_eq!(parse("help:1").1.len(), 1);
}

/// By key, by the flag of the command, by meaning and by value.
#[test]
fn help_is_found_by_a_word() {
    let keys = |word: &str| -> Vec<String> {
        let text = help_on(word).unwrap_or_default();
        let rows = text.lines().skip(1).filter(|line| !line.starts_with(' '));
        rows.filter_map(|line| Some(line.split_once(' ')?.0.to_string())).collect()
    };
    assert_eq!(keys("free_mode"), ["free_mode"]);
    assert_eq!(keys("--Free-Mode"), ["free_mode"]);
    assert_eq!(keys("uninitialized"), ["fill"]);
    assert_eq!(keys("poison"), ["fill"]);
    assert!(keys("pinned").len() > 5);
    assert_eq!(help_on("nothing of the kind"), None);
    assert_eq!(help_on("").as_deref(), Some(help().as_str()));
}

/// What another allocator's variable would do here, by the same rules as its keys.
#[test]
fn variables_of_others() {
    let pytorch = "PYTORCH_CUDA_ALLOC_CONF";
    for (name, value, wanted) in [
        (pytorch, "", "PyTorch's and not read; its keys may stand in CACHEALLOC_CONF"),
        (
            pytorch,
            "max_split_size_mb:512, roundup_power2_divisions:[256:1,>:8],backend:cudaMallocAsync",
            "PyTorch's and not read; in CACHEALLOC_CONF max_split_size_mb:512 and \
             roundup_power2_divisions:[256:1,>:8] do the same, backend:cudaMallocAsync changes nothing",
        ),
        (
            "PYTORCH_ALLOC_CONF",
            "x:1,max_split_size_mb:few,backend:native",
            "PyTorch's and not read; in CACHEALLOC_CONF backend:native changes nothing, x:1 and \
             max_split_size_mb:few are not understood",
        ),
        (
            "FLAGS_fraction_of_gpu_memory_to_use",
            "0.5",
            "Paddle's and not read; in CACHEALLOC_CONF fraction_of_gpu_memory_to_use:0.5 does the same for \
             this cache",
        ),
        (
            "FLAGS_allocator_strategy",
            "",
            "Paddle's and not read; in CACHEALLOC_CONF strategy does the same for this cache",
        ),
        (
            "FLAGS_allocator_strategy",
            "naive_best_fit",
            "Paddle's and not read; in CACHEALLOC_CONF strategy:naive_best_fit does the same for this cache",
        ),
        (
            "FLAGS_allocator_strategy",
            "thread_local",
            "Paddle's and not read; in CACHEALLOC_CONF strategy:thread_local is not understood",
        ),
        (
            "FLAGS_cudnn_deterministic",
            "1",
            "a framework's own and not read; no option does what it does",
        ),
    ] {
        assert_eq!(of_others(name, value), Some(format!("{name} is {wanted}")));
    }
    assert_eq!(of_others("CACHEALLOC_CONF", "x:1"), None);
    assert_eq!(of_others("max_split_size_mb", ""), None);
}
