//! The text of the options: what is accepted, and what each mistake says and leaves in force.

use cachealloc_core::options::{
    Config, Effect, FREE_MODE_DEFAULT, LogLevel, OPTIONS, StatsOnExit, help, help_markdown, parse,
};
use cachealloc_core::order::Mode;
use cachealloc_core::policy::MIB;

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
        "option max_split_size_mb:20 is malformed, allowed is a whole number, at least \
         large_segment_size_mb, or unlimited; using unlimited",
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
    assert_eq!(FREE_MODE_DEFAULT, Config::default().free_mode);
    let message = "allowed is ordered, strict or relaxed; using strict";
    for (text, begins) in [
        ("free_mode:relxed", "option free_mode:relxed is malformed, "),
        ("free_mode:", "option free_mode has no value, "),
        ("free_mode", "option free_mode has no value, "),
    ] {
        assert_eq!(refused(text, &format!("{begins}{message}")).free_mode, Mode::Strict);
    }
}

#[test]
fn a_misspelt_free_mode_is_strict_whatever_else_is_said() {
    let config = refused(
        "free_mode:relaxed,fre_mode:strict",
        "option fre_mode:strict is unknown, did you mean free_mode? using strict",
    );
    assert_eq!(config.free_mode, Mode::Strict);
}

#[test]
fn unknown_keys_name_the_nearest() {
    refused(
        "max_split_size:40",
        "option max_split_size:40 is unknown, did you mean max_split_size_mb? it is ignored",
    );
    let useful = OPTIONS.iter().filter(|row| !matches!(row.effect, Effect::Never(_)));
    let keys: Vec<_> = useful.map(|row| row.key).collect();
    let known = keys.join(", ");
    refused("zzz:1", &format!("option zzz:1 is unknown, known are {known}; it is ignored"));
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
    let mut random = crate::random::Random::new(7);
    for _ in 0..20_000 {
        let pieces = random.below(12);
        let text: String = (0..pieces).map(|_| letters[random.below(10) as usize]).collect();
        for problem in parse(&text).1 {
            assert_eq!(problem.to_string().lines().count(), 1, "{text}");
        }
    }
}

#[test]
fn help_names_every_option() {
    for row in OPTIONS {
        assert!(help().contains(row.key));
        assert!(
            help_markdown()
                .contains(&format!("| `{}` | {} | `{}` |", row.key, row.kind, row.default))
        );
    }
}
