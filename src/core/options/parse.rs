//! From the text of all options to a `Config` and the list of what was wrong with the text. A
//! problem with one option leaves the others in force.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::problem::{Problem, ProblemKind, nearest_key};
use super::{Config, FREE_MODE_KEY, FREE_MODE_ON_BAD_VALUE, OPTIONS, OptionRow};

/// Reads `key:value,key:value`. Spaces do not matter; of a repeated key the last value counts.
pub fn parse(text: &str) -> (Config, Vec<Problem>) {
    let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    let pairs: Vec<Pair> = split(&text).into_iter().map(Pair::of).collect();
    let mut problems = Vec::new();
    for pair in pairs.iter().filter(|pair| !is_known(pair.key)) {
        problems.push(unknown(pair));
    }
    let mut config = Config::default();
    for row in OPTIONS {
        let given = pairs.iter().rev().find(|pair| pair.key == row.key);
        // A misspelt `free_mode` may have asked for more safety than there is without it.
        let misspelt = row.key == FREE_MODE_KEY && is_misspelt(row, &problems);
        match given {
            Some(pair) if !misspelt => problems.extend(apply(row, pair, &mut config)),
            _ if misspelt => set(row, row.on_bad_value, &mut config),
            _ => set(row, row.default, &mut config),
        }
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
            Some((key, value)) => Pair { key, value: Some(value) },
            None => Pair { key: text, value: None },
        }
    }

    fn value_text(&self) -> String {
        self.value.unwrap_or("").to_string()
    }
}

/// Cuts at commas outside of lists. A bracket that is never closed opens no list: it must not
/// swallow the options behind it.
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
        None | Some("") => ProblemKind::MissingValue { allowed: row.allowed },
        Some(value) if (row.set)(config, value).is_err() => {
            ProblemKind::BadValue { allowed: row.allowed }
        }
        Some(_) => return None,
    };
    set(row, row.on_bad_value, config);
    let key = pair.key.to_string();
    Some(Problem { key, value: pair.value_text(), kind, used: Some(row.on_bad_value) })
}

/// The texts of the table itself are always accepted.
fn set(row: &OptionRow, value: &str, config: &mut Config) {
    let done = (row.set)(config, value);
    assert!(done.is_ok(), "{}:{value} of the table is malformed", row.key);
}

fn unknown(pair: &Pair) -> Problem {
    let nearest = nearest_key(pair.key);
    let used = (nearest == Some(FREE_MODE_KEY)).then_some(FREE_MODE_ON_BAD_VALUE);
    let kind = ProblemKind::UnknownKey { nearest };
    Problem { key: pair.key.to_string(), value: pair.value_text(), kind, used }
}

fn is_known(key: &str) -> bool {
    OPTIONS.iter().any(|row| row.key == key)
}

fn is_misspelt(row: &OptionRow, problems: &[Problem]) -> bool {
    problems.iter().any(|problem| problem.kind.nearest() == Some(row.key))
}
