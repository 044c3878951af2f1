//! Converts the text of one value to its meaning.

use std::ops::RangeInclusive;

use cachealloc_core::policy::{MIB, ROUNDUP_INTERVALS};

use crate::{Config, Word};

/// The value is not an allowed one.
pub(crate) struct Malformed;

type Read<T> = Result<T, Malformed>;

/// Returns `None` for this word, and the result of `read` for any other value.
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

/// Reads a number of MiB, or a size with its unit.
pub(crate) fn mebibytes(value: &str) -> Read<u64> {
    match whole_number(value) {
        Ok(number) => number.checked_mul(MIB).ok_or(Malformed),
        Err(_) => cachealloc_text::size(value).ok_or(Malformed),
    }
}

/// Reads a size. 0 becomes `None`.
pub(crate) fn bytes_or_none(value: &str) -> Read<Option<u64>> {
    mebibytes(value).map(|bytes| (bytes != 0).then_some(bytes))
}

/// Reads a number of GiB or a size. A number below 0 becomes `None`.
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

/// Reads a number above 0 and below 1.
pub(crate) fn share(value: &str) -> Read<f64> {
    decimal(value).and_then(|number| valid(number, number > 0.0 && number < 1.0))
}

/// Reads a number from 0 to 1.
pub(crate) fn fraction(value: &str) -> Read<f64> {
    decimal(value).and_then(|number| valid(number, number <= 1.0))
}

pub(crate) fn power_of_two(value: &str) -> Read<u64> {
    whole_number(value).and_then(|number| valid(number, number.is_power_of_two()))
}

/// Reads divisions, one number or a list. An entry `N:divisions` applies from N MiB to twice that;
/// the first entry also applies to everything smaller, and `>` to everything larger than the entry
/// before it.
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

/// Reads one name or a list of them. A path is not a name.
pub(crate) fn names(value: &str) -> Read<Vec<String>> {
    let list = within_brackets(value).unwrap_or(value);
    let names: Vec<String> = list.split(',').map(ToString::to_string).collect();
    let is_bad = |name: &String| name.is_empty() || name.contains(['/', '[', ']']);
    let are_good = !names.iter().any(is_bad);
    valid(names, are_good)
}

/// Reads a template of a file name. Only the letters after percent signs are checked; the rest is
/// left to the file system.
pub(crate) fn template(value: &str) -> Read<String> {
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        if letter == '%' && !matches!(letters.next(), Some('h' | 'r' | 'p' | 'n' | '%')) {
            return Err(Malformed);
        }
    }
    Ok(value.to_string())
}

/// Reads an absolute path. Whether the file exists is found out when it is loaded.
pub(crate) fn absolute_path(value: &str) -> Read<String> {
    valid(value.to_string(), value.starts_with('/'))
}

/// Reads a share of the device, or a number of GiB.
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

/// Reads digits only: no sign, no unit, no fraction.
fn whole_number(value: &str) -> Read<u64> {
    let are_digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().map_err(|_| Malformed).and_then(|number| valid(number, are_digits))
}

/// Reads a number of at least 0, in plain decimal notation.
fn decimal(value: &str) -> Read<f64> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    value.parse().map_err(|_| Malformed).and_then(|number| valid(number, is_plain))
}

fn valid<T>(value: T, is_valid: bool) -> Read<T> {
    if is_valid { Ok(value) } else { Err(Malformed) }
}
