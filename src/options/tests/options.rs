//! The text of the options: which values are accepted, and what each mistake reports and leaves in
//! force.

use cachealloc_core::order::Mode;
use cachealloc_core::policy::MIB;
use cachealloc_options::{
    Chunks, Config, Effect, IdleRelease, Limit, LogLevel, OPTIONS, StatsOnExit, Strategy, help,
    help_markdown, help_on, parse,
};

#[path = "options/others.rs"]
mod others;
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
        let mut said = accepted(&format!("{}:{}", row.key, row.default));
        // The option `signal` also notes that it was given.
        assert_eq!(said.history.signal_is_chosen, row.key == "signal");
        said.history.signal_is_chosen = false;
        assert_eq!(said, Config::default());
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
fn misspelt_free_mode_always_becomes_strict() {
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

/// An environment variable is written with an equals sign.
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

/// PyTorch rounds too.
#[test]
fn of_two_limits_the_smaller_one_holds() {
    let limit = |text: &str| accepted(text).limit.on(1000 * MIB + 1);
    assert_eq!(limit(""), None);
    assert_eq!(limit("gpu_memory_limit_mb:300"), Some(300 * MIB));
    // Sizes with their units, and the short name.
    for text in [
        "gpu_memory_limit_mb:4G",
        "limit:4GB",
        "limit:4096",
        "limit:4096MiB",
        "FLAGS_gpu_memory_limit_mb:4g",
    ] {
        assert_eq!(accepted(text).limit.bytes, Some(4096 * MIB), "{text}");
    }
    assert_eq!(limit("per_process_memory_fraction:0.5"), Some(500 * MIB + 1));
    assert_eq!(limit("per_process_memory_fraction:0.5,gpu_memory_limit_mb:300"), Some(300 * MIB));
    let share = limit("per_process_memory_fraction:0.5,gpu_memory_limit_mb:700");
    assert_eq!(share, Some(500 * MIB + 1));
    assert_eq!(limit("per_process_memory_fraction:0"), Some(0));
}

#[test]
fn idle_release_follows_the_options() {
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

/// Paddle's form: GiB, and a number below 0 for off.
#[test]
fn free_memory_maximum_follows_the_options() {
    for (value, wanted) in [
        ("-1", None),
        ("-0.5", None),
        ("-1.0", None),
        ("0", Some(0)),
        ("0.0", Some(0)),
        ("-0", Some(0)),
        ("0.5", Some(512 * MIB)),
        ("1", Some(1024 * MIB)),
        ("80", Some(80 * 1024 * MIB)),
    ] {
        for prefix in ["", "FLAGS_"] {
            let config = accepted(&format!("{prefix}eager_delete_tensor_gb:{value}"));
            assert_eq!(config.policy.free_bytes_max, wanted, "{value}");
        }
    }
    let both = "eager_delete_tensor_gb:1,FLAGS_memory_fraction_of_eager_deletion:0.6";
    assert_eq!(accepted(both).policy.excess_share, 0.6);
    for (text, why) in [
        ("memory_fraction_of_eager_deletion:0.6", "eager_delete_tensor_gb only"),
        ("eager_delete_tensor_gb:1,strategy:naive_best_fit", "is kept"),
    ] {
        let said = parse(text).1[0].to_string();
        assert!(said.contains(why), "{text}: {said}");
    }
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
