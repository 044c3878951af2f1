//! From the text of one value to what it means.

use std::ops::RangeInclusive;

use cachealloc_core::policy::{MIB, ROUNDUP_INTERVALS};

use crate::{Config, Word};

/// The value is not one of the allowed ones.
pub(crate) struct Malformed;

type Read<T> = Result<T, Malformed>;

/// None for this word; what `read` makes of any other value.
pub(crate) fn unless<T>(
    word: &str,
    value: &str,
    read: impl FnOnce(&str) -> Read<T>,
) -> Read<Option<T>> {
    if value == word { Ok(None) } else { read(value).map(Some) }
}

pub(crate) fn word<W: Word>(value: &str) -> Read<W> {
    W::of(value).ok_or(Malformed)
}

pub(crate) fn boolean(value: &str) -> Read<bool> {
    match value {
        "true" | "True" => Ok(true),
        "false" | "False" => Ok(false),
        _ => Err(Malformed),
    }
}

pub(crate) fn number(value: &str, range: RangeInclusive<u64>) -> Read<u64> {
    whole_number(value).and_then(|number| valid(number, range.contains(&number)))
}

/// A number of MiB, or a size with its unit.
pub(crate) fn mebibytes(value: &str) -> Read<u64> {
    match whole_number(value) {
        Ok(number) => number.checked_mul(MIB).ok_or(Malformed),
        Err(_) => cachealloc_text::size(value).ok_or(Malformed),
    }
}

/// 0: none.
pub(crate) fn bytes_or_none(value: &str) -> Read<Option<u64>> {
    mebibytes(value).map(|bytes| (bytes != 0).then_some(bytes))
}

/// Below 0: none.
pub(crate) fn gibibytes_or_none(value: &str) -> Read<Option<u64>> {
    if let Some(bytes) = cachealloc_text::size(value) {
        return Ok(Some(bytes));
    }
    let number = decimal(value.strip_prefix('-').unwrap_or(value))?;
    let is_below_0 = value.starts_with('-') && number > 0.0;
    Ok((!is_below_0).then_some((number * 1024.0 * MIB as f64) as u64))
}

pub(crate) fn large_segment(value: &str) -> Read<u64> {
    mebibytes(value).and_then(|bytes| valid(bytes, bytes > 10 * MIB))
}

pub(crate) fn at_least_a_segment(config: &Config, value: &str) -> Read<u64> {
    mebibytes(value).and_then(|bytes| valid(bytes, bytes >= config.policy.large_segment_bytes))
}

/// Above 0 and below 1.
pub(crate) fn share(value: &str) -> Read<f64> {
    decimal(value).and_then(|number| valid(number, number > 0.0 && number < 1.0))
}

/// From 0 to 1.
pub(crate) fn fraction(value: &str) -> Read<f64> {
    decimal(value).and_then(|number| valid(number, number <= 1.0))
}

pub(crate) fn power_of_two(value: &str) -> Read<u64> {
    whole_number(value).and_then(|number| valid(number, number.is_power_of_two()))
}

/// An entry `N:divisions` counts from N MiB up to twice that; the first one also for all that
/// is smaller, `>` for all that is larger than the entry before it.
pub(crate) fn divisions_list(value: &str) -> Read<[u64; ROUNDUP_INTERVALS]> {
    let mut table = [0; ROUNDUP_INTERVALS];
    let Some(list) = within_brackets(value) else {
        table.fill(divisions(value)?);
        return Ok(table);
    };
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
    Ok(table)
}

fn divisions(value: &str) -> Read<u64> {
    if value == "0" { Ok(0) } else { power_of_two(value) }
}

/// One name or a list of them. A path is no name.
pub(crate) fn names(value: &str) -> Read<Vec<String>> {
    let list = within_brackets(value).unwrap_or(value);
    let names: Vec<String> = list.split(',').map(ToString::to_string).collect();
    let is_bad = |name: &String| name.is_empty() || name.contains(['/', '[', ']']);
    let are_good = !names.iter().any(is_bad);
    valid(names, are_good)
}

/// A file name with places to fill in. Only the letters behind percent signs are checked; the
/// rest is up to the file system.
pub(crate) fn template(value: &str) -> Read<String> {
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        if letter == '%' && !matches!(letters.next(), Some('h' | 'r' | 'p' | 'n' | '%')) {
            return Err(Malformed);
        }
    }
    Ok(value.to_string())
}

/// Whether the file exists is seen when it is loaded.
pub(crate) fn absolute_path(value: &str) -> Read<String> {
    valid(value.to_string(), value.starts_with('/'))
}

/// A share of the device, or a number of GiB.
pub(crate) fn reserve(value: &str) -> Read<f64> {
    decimal(value.strip_suffix('G').unwrap_or(value))
}

pub(crate) fn reserves(value: &str) -> Read<()> {
    within_brackets(value).ok_or(Malformed)?.split(',').try_for_each(|entry| {
        let (name, share) = entry.split_once(':').ok_or(Malformed)?;
        reserve(share).and_then(|_| valid((), !name.is_empty()))
    })
}

fn within_brackets(value: &str) -> Option<&str> {
    value.strip_prefix('[')?.strip_suffix(']')
}

/// Digits and nothing else: no sign, no unit, no fraction.
fn whole_number(value: &str) -> Read<u64> {
    let are_digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().map_err(|_| Malformed).and_then(|number| valid(number, are_digits))
}

/// Not below 0, in plain decimal notation.
fn decimal(value: &str) -> Read<f64> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    value.parse().map_err(|_| Malformed).and_then(|number| valid(number, is_plain))
}

fn valid<T>(value: T, is_valid: bool) -> Read<T> {
    if is_valid { Ok(value) } else { Err(Malformed) }
}
