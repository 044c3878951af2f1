//! From the text of one value to the field it sets. A setter either takes the whole value, or
//! fails and has changed nothing.

use crate::{Config, ENTRIES_MAX, Fill, KeepFree, LogLevel, StatsOnExit, Strategy, Word, signals};
use cachealloc_core::order::Mode;
use cachealloc_core::policy::{MIB, ROUNDUP_INTERVALS};

/// The value is not one of the allowed ones.
pub(super) struct Malformed;

pub(super) type Setter = fn(&mut Config, &str) -> Result<(), Malformed>;

pub(super) fn free_mode(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.free_mode = match value {
        "ordered" => Mode::Ordered,
        "strict" => Mode::Strict,
        "relaxed" => Mode::Relaxed,
        _ => return Err(Malformed),
    };
    Ok(())
}

pub(super) fn large_segment_size_mb(config: &mut Config, value: &str) -> Result<(), Malformed> {
    let bytes = mebibytes(value)?;
    if bytes <= 10 * MIB {
        return Err(Malformed);
    }
    config.policy.large_segment_bytes = bytes;
    Ok(())
}

pub(super) fn max_split_size_mb(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.policy.max_split_bytes = match value {
        "unlimited" => None,
        _ => Some(at_least_a_segment(config, value)?),
    };
    Ok(())
}

pub(super) fn max_non_split_rounding_mb(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.policy.max_non_split_rounding_bytes = match value {
        "large_segment_size_mb" => config.policy.large_segment_bytes,
        _ => at_least_a_segment(config, value)?,
    };
    Ok(())
}

pub(super) fn garbage_collection_threshold(
    config: &mut Config,
    value: &str,
) -> Result<(), Malformed> {
    config.policy.garbage_collection_threshold = match value {
        "off" => 0.0,
        _ => share(value)?,
    };
    Ok(())
}

/// A list entry `N:divisions` counts from N MiB up to twice that; the first one also for all that
/// is smaller, `>` for all that is larger than the entry before it.
pub(super) fn roundup_power2_divisions(config: &mut Config, value: &str) -> Result<(), Malformed> {
    let mut table = [0; ROUNDUP_INTERVALS];
    match value.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
        None => table.fill(divisions(value)?),
        Some(list) => fill_from_list(&mut table, list)?,
    }
    config.policy.roundup_power2_divisions = table;
    Ok(())
}

pub(super) fn gpu_memory_limit_mb(config: &mut Config, value: &str) -> Result<(), Malformed> {
    let bytes = mebibytes(value)?;
    config.limit.bytes = (bytes != 0).then_some(bytes);
    Ok(())
}

pub(super) fn per_process_memory_fraction(
    config: &mut Config,
    value: &str,
) -> Result<(), Malformed> {
    config.limit.fraction = fraction(value)?;
    Ok(())
}

pub(super) fn strategy(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.strategy = match value {
        "auto_growth" => Strategy::AutoGrowth,
        "pre_allocate" => Strategy::PreAllocate,
        _ => return Err(Malformed),
    };
    let chunks = config.strategy == Strategy::PreAllocate;
    config.policy.chunk_bytes = chunks.then_some(0);
    config.policy.expandable_segments &= !chunks;
    Ok(())
}

pub(super) fn fraction_of_gpu_memory_to_use(
    config: &mut Config,
    value: &str,
) -> Result<(), Malformed> {
    config.chunks.fraction = fraction(value)?;
    Ok(())
}

pub(super) fn initial_gpu_memory_in_mb(config: &mut Config, value: &str) -> Result<(), Malformed> {
    let bytes = mebibytes(value)?;
    config.chunks.first_bytes = (bytes != 0).then_some(bytes);
    Ok(())
}

pub(super) fn reallocate_gpu_memory_in_mb(
    config: &mut Config,
    value: &str,
) -> Result<(), Malformed> {
    let bytes = mebibytes(value)?;
    config.chunks.next_bytes = (bytes != 0).then_some(bytes);
    Ok(())
}

pub(super) fn idle_release_s(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.idle.release_seconds = match value {
        "off" => None,
        _ => match whole_number(value)? {
            seconds @ 1..=3600 => Some(seconds as u32),
            _ => return Err(Malformed),
        },
    };
    Ok(())
}

pub(super) fn keep_free_mb(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.idle.keep_free = match value {
        "auto" => KeepFree::Auto,
        _ => KeepFree::Bytes(mebibytes(value)?),
    };
    Ok(())
}

pub(super) fn expandable_segments(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.policy.expandable_segments = boolean(value)?;
    Ok(())
}

pub(super) fn serve_async(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.serve_async = boolean(value)?;
    Ok(())
}

pub(super) fn graph_capture_record_stream_reuse(
    config: &mut Config,
    value: &str,
) -> Result<(), Malformed> {
    config.reuse_in_captures = boolean(value)?;
    Ok(())
}

pub(super) fn graph_pool(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.graph_pool = boolean(value)?;
    Ok(())
}

pub(super) fn skip_barriers(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.skip_barriers = boolean(value)?;
    Ok(())
}

pub(super) fn stats_on_exit(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.stats_on_exit = match value {
        "off" => StatsOnExit::Off,
        "stderr" => StatsOnExit::Stderr,
        // A misspelt word is no file.
        _ if value.contains(['.', '/']) => StatsOnExit::File(template(value)?),
        _ => return Err(Malformed),
    };
    Ok(())
}

pub(super) fn live(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.live = boolean(value)?;
    Ok(())
}

pub(super) fn waits_on_exit(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.waits_on_exit = match value {
        "off" => false,
        "stderr" => true,
        _ => return Err(Malformed),
    };
    Ok(())
}

pub(super) fn fill(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.fill = match value {
        "none" => Fill::None,
        "zero" => Fill::Zero,
        "poison" => Fill::Poison,
        _ => return Err(Malformed),
    };
    Ok(())
}

pub(super) fn red_zone(config: &mut Config, value: &str) -> Result<(), Malformed> {
    let bytes = whole_number(value)?;
    if bytes > MIB {
        return Err(Malformed);
    }
    config.red_zone_bytes = bytes;
    Ok(())
}

pub(super) fn only(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.programs.only = names(value, "any")?;
    Ok(())
}

pub(super) fn except(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.programs.except = names(value, "none")?;
    Ok(())
}

/// One name or a list of them; `nobody` is the empty list. A path is no name.
fn names(value: &str, nobody: &str) -> Result<Vec<String>, Malformed> {
    if value == nobody {
        return Ok(Vec::new());
    }
    let list = value.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(value);
    let names: Vec<String> = list.split(',').map(ToString::to_string).collect();
    let bad = |name: &String| name.is_empty() || name.contains(['/', '[', ']']);
    if names.iter().any(bad) { Err(Malformed) } else { Ok(names) }
}

pub(super) fn record(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.history.record = Word::of(value).ok_or(Malformed)?;
    Ok(())
}

pub(super) fn context(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.history.context = Word::of(value).ok_or(Malformed)?;
    Ok(())
}

pub(super) fn stacks(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.history.stacks = Word::of(value).ok_or(Malformed)?;
    Ok(())
}

pub(super) fn max_entries(config: &mut Config, value: &str) -> Result<(), Malformed> {
    let number = whole_number(value)?;
    if !(1..=ENTRIES_MAX).contains(&number) {
        return Err(Malformed);
    }
    config.history.max_entries = number as usize;
    Ok(())
}

pub(super) fn signal(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.history.signal = match value {
        "off" => None,
        _ => Some(signals::number(value).ok_or(Malformed)?),
    };
    Ok(())
}

pub(super) fn snapshot(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.history.snapshot = template(value)?;
    Ok(())
}

/// A file name with places to fill in. Only the letters behind percent signs are looked at here; the
/// rest is the file system's affair.
fn template(value: &str) -> Result<String, Malformed> {
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        if letter == '%' && !matches!(letters.next(), Some('h' | 'r' | 'p' | 'n' | '%')) {
            return Err(Malformed);
        }
    }
    Ok(value.to_string())
}

/// Whether there is such a library is seen when it is loaded.
pub(super) fn hook(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.hook = match value {
        "none" => None,
        path if path.starts_with('/') => Some(path.to_string()),
        _ => return Err(Malformed),
    };
    Ok(())
}

pub(super) fn log(config: &mut Config, value: &str) -> Result<(), Malformed> {
    config.log = match value {
        "quiet" => LogLevel::Quiet,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        _ => return Err(Malformed),
    };
    Ok(())
}

// Values of options without effect: as strict as the others, so that a typo is found here, too.

pub(super) fn backend(_: &mut Config, value: &str) -> Result<(), Malformed> {
    let known = ["native", "cudaMallocAsync", "hipMallocAsync"].contains(&value);
    if known { Ok(()) } else { Err(Malformed) }
}

pub(super) fn checked_boolean(_: &mut Config, value: &str) -> Result<(), Malformed> {
    boolean(value).map(drop)
}

pub(super) fn checked_reserve(_: &mut Config, value: &str) -> Result<(), Malformed> {
    match value.strip_suffix('G') {
        _ if value == "default" => Ok(()),
        Some(number) => decimal(number).map(drop),
        None => decimal(value).map(drop),
    }
}

pub(super) fn checked_classes(_: &mut Config, value: &str) -> Result<(), Malformed> {
    if value == "default" {
        return Ok(());
    }
    let list = value.strip_prefix('[').and_then(|list| list.strip_suffix(']')).ok_or(Malformed)?;
    list.split(',').try_for_each(|entry| {
        let (name, reserve) = entry.split_once(':').ok_or(Malformed)?;
        if name.is_empty() {
            Err(Malformed)
        } else {
            checked_reserve(&mut Config::default(), reserve)
        }
    })
}

pub(super) fn checked_threads(_: &mut Config, value: &str) -> Result<(), Malformed> {
    if power_of_two(value)? <= 128 { Ok(()) } else { Err(Malformed) }
}

pub(super) fn checked_pinned_reserve(_: &mut Config, value: &str) -> Result<(), Malformed> {
    if value == "none" || mebibytes(value)? > 0 { Ok(()) } else { Err(Malformed) }
}

pub(super) fn checked_pinned_max(_: &mut Config, value: &str) -> Result<(), Malformed> {
    if value == "unlimited" { Ok(()) } else { mebibytes(value).map(drop) }
}

fn fill_from_list(table: &mut [u64; ROUNDUP_INTERVALS], list: &str) -> Result<(), Malformed> {
    let mut begin = 0;
    for entry in list.split(',') {
        let (size, value) = entry.split_once(':').ok_or(Malformed)?;
        let value = divisions(value)?;
        if size == ">" {
            table[begin..].fill(value);
            begin = ROUNDUP_INTERVALS;
            continue;
        }
        let interval = power_of_two(size)?.ilog2() as usize;
        if interval < begin || interval >= ROUNDUP_INTERVALS {
            return Err(Malformed);
        }
        let first = if begin == 0 { 0 } else { interval };
        table[first..=interval].fill(value);
        begin = interval + 1;
    }
    Ok(())
}

fn divisions(value: &str) -> Result<u64, Malformed> {
    if value == "0" { Ok(0) } else { power_of_two(value) }
}

fn power_of_two(value: &str) -> Result<u64, Malformed> {
    let number = whole_number(value)?;
    if number.is_power_of_two() { Ok(number) } else { Err(Malformed) }
}

fn at_least_a_segment(config: &Config, value: &str) -> Result<u64, Malformed> {
    let bytes = mebibytes(value)?;
    if bytes >= config.policy.large_segment_bytes { Ok(bytes) } else { Err(Malformed) }
}

fn mebibytes(value: &str) -> Result<u64, Malformed> {
    whole_number(value)?.checked_mul(MIB).ok_or(Malformed)
}

/// Digits and nothing else: no sign, no unit, no fraction.
fn whole_number(value: &str) -> Result<u64, Malformed> {
    if !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Malformed);
    }
    value.parse().map_err(|_| Malformed)
}

/// Above 0 and below 1.
fn share(value: &str) -> Result<f64, Malformed> {
    let number = decimal(value)?;
    if number > 0.0 && number < 1.0 { Ok(number) } else { Err(Malformed) }
}

/// From 0 to 1.
fn fraction(value: &str) -> Result<f64, Malformed> {
    let number = decimal(value)?;
    if number <= 1.0 { Ok(number) } else { Err(Malformed) }
}

/// Not below 0, in plain decimal notation.
fn decimal(value: &str) -> Result<f64, Malformed> {
    if !value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(Malformed);
    }
    value.parse().map_err(|_| Malformed)
}

fn boolean(value: &str) -> Result<bool, Malformed> {
    match value {
        "true" | "True" => Ok(true),
        "false" | "False" => Ok(false),
        _ => Err(Malformed),
    }
}
