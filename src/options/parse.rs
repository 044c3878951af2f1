//! Converts the text of all options to a `Config` and a list of problems. A problem with one option
//! leaves the others in force.

use crate::paddle::{OF_PADDLE, why_not};
use crate::problem::{PADDLE, Problem, ProblemKind, nearest_key};
use crate::table::{FREE_MODE_KEY, FREE_MODE_ON_BAD_VALUE, SIGNAL_KEY};
use crate::{Config, Effect, OPTIONS, OptionRow};

/// A short name, and PyTorch's spellings for AMD's devices and Paddle's spelling of the same
/// options.
const ALIASES: [(&str, &str); 5] = [
    ("limit", "gpu_memory_limit_mb"),
    ("allocator_strategy", "strategy"),
    ("release_lock_on_hipmalloc", "release_lock_on_cudamalloc"),
    ("throw_on_hipmalloc_oom", "throw_on_cudamalloc_oom"),
    ("pinned_use_hip_host_register", "pinned_use_cuda_host_register"),
];

/// Reads `key:value,key:value`. Spaces are ignored, and the last value of a repeated key counts.
/// The word `help` among them requests the table.
pub fn parse(text: &str) -> (Config, Vec<Problem>) {
    let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    let mut pairs: Vec<Pair> = split(&text).into_iter().map(Pair::of).collect();
    let help = pairs.iter().any(Pair::is_help);
    pairs.retain(|pair| !pair.is_help());
    let mut problems = Vec::new();
    for pair in pairs.iter().filter(|pair| key_of(pair.key).is_none()) {
        problems.push(unknown(pair));
    }
    let mut config = Config { help, ..Config::default() };
    for row in OPTIONS {
        let given = pairs.iter().rev().find(|pair| pair.key == row.key);
        // A misspelt `free_mode` may have requested more safety than the default gives.
        let misspelt = row.key == FREE_MODE_KEY && is_misspelt(row, &problems);
        match given {
            Some(pair) if !misspelt => problems.extend(apply(row, pair, &mut config)),
            _ if misspelt => set(row, row.on_bad_value, &mut config),
            _ => set(row, row.default, &mut config),
        }
    }
    config.history.signal_is_chosen = pairs.iter().any(|pair| pair.key == SIGNAL_KEY);
    for row in OPTIONS {
        let given = pairs.iter().rev().find(|pair| pair.key == row.key);
        problems.extend(given.and_then(|pair| without_effect(row, pair, &config)));
    }
    (config, problems)
}

struct Pair<'text> {
    key: &'text str,
    value: Option<&'text str>,
}

impl Pair<'_> {
    fn of(text: &str) -> Pair<'_> {
        match text.split_once(':') {
            Some((key, value)) => Pair { key: key_of(key).unwrap_or(key), value: Some(value) },
            None => Pair { key: key_of(text).unwrap_or(text), value: None },
        }
    }

    fn is_help(&self) -> bool {
        self.key == "help" && self.value.is_none()
    }

    fn value_text(&self) -> String {
        self.value.unwrap_or("").to_string()
    }
}

/// Returns the `key:value` pairs of a text, as `parse` reads them.
pub(crate) fn pairs(text: &str) -> Vec<String> {
    let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    split(&text).into_iter().map(str::to_string).collect()
}

/// Splits at commas outside lists. A bracket without an end opens no list: it must not swallow the
/// options after it.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut begin = 0;
    let mut position = 0;
    while position < text.len() {
        match text.as_bytes()[position] {
            b'[' => position += text[position..].find(']').unwrap_or(0),
            b',' => {
                parts.push(&text[begin..position]);
                begin = position + 1;
            }
            _ => {}
        }
        position += 1;
    }
    parts.push(&text[begin..]);
    parts.retain(|part| !part.is_empty());
    parts
}

fn apply(row: &OptionRow, pair: &Pair, config: &mut Config) -> Option<Problem> {
    let kind = match pair.value {
        None | Some("") => ProblemKind::MissingValue { allowed: row.kind.allowed() },
        // A file with a garbled name would not be found.
        Some(value) if value.contains('\u{fffd}') => ProblemKind::NotText,
        Some(value) if (row.set)(config, value).is_err() => {
            ProblemKind::BadValue { allowed: row.kind.allowed() }
        }
        Some(_) => return None,
    };
    set(row, row.on_bad_value, config);
    let key = pair.key.to_string();
    Some(Problem { key, value: pair.value_text(), kind, used: Some(row.on_bad_value) })
}

/// Returns the message about a value that is allowed and has no effect.
fn without_effect(row: &OptionRow, pair: &Pair, config: &Config) -> Option<Problem> {
    let why = match row.effect {
        Effect::Never(why) => why,
        Effect::If(has_effect, why) if !has_effect(config) => why,
        Effect::Always | Effect::If(..) => return None,
    };
    let mut scratch = config.clone();
    let value = pair.value.filter(|value| (row.set)(&mut scratch, value).is_ok())?;
    let kind = ProblemKind::NoEffect { why };
    let said = Problem { key: pair.key.to_string(), value: value.to_string(), kind, used: None };
    (!value.eq_ignore_ascii_case(row.default)).then_some(said)
}

/// Sets a value of the table, which must be valid.
fn set(row: &OptionRow, value: &str, config: &mut Config) {
    let done = (row.set)(config, value);
    assert!(done.is_ok(), "{}:{value} of the table is malformed", row.key);
}

fn unknown(pair: &Pair) -> Problem {
    let kind = with_equals_sign(pair).unwrap_or_else(|| match pair.key.strip_prefix(PADDLE) {
        Some(flag) => match (why_not(flag), nearest_key(flag)) {
            (Some(why), _) => ProblemKind::OfPaddle { why },
            (None, None) => ProblemKind::OfPaddle { why: OF_PADDLE },
            (None, nearest) => ProblemKind::UnknownKey { nearest },
        },
        None => ProblemKind::UnknownKey { nearest: nearest_key(pair.key) },
    });
    let used = (kind.nearest() == Some(FREE_MODE_KEY)).then_some(FREE_MODE_ON_BAD_VALUE);
    Problem { key: pair.key.to_string(), value: pair.value_text(), kind, used }
}

/// Recognises `record=all`, the form of an environment variable.
fn with_equals_sign(pair: &Pair) -> Option<ProblemKind> {
    let (key, value) = pair.key.split_once('=')?;
    let nearest = key_of(key).or_else(|| nearest_key(key))?;
    // Everything after the first colon belongs to the value.
    let rest = pair.value.map_or(String::new(), |rest| format!(":{rest}"));
    Some(ProblemKind::EqualsSign { nearest, meant: format!("{nearest}:{value}{rest}") })
}

/// Returns the key of the option with this name, with or without Paddle's `FLAGS_` prefix.
pub(crate) fn key_of(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix(PADDLE).unwrap_or(name);
    let key = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, key)| key);
    OPTIONS.iter().map(|row| row.key).find(|known| *known == key)
}

fn is_misspelt(row: &OptionRow, problems: &[Problem]) -> bool {
    problems.iter().any(|problem| problem.kind.nearest() == Some(row.key))
}
