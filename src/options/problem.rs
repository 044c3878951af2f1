//! Problems in the text of the options, each as one line for the user.

use std::fmt;

use crate::{Effect, OPTIONS};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub key: String,
    pub value: String,
    pub kind: ProblemKind,
    /// Setting that applies now, or `None` for a key that does not exist.
    pub used: Option<&'static str>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProblemKind {
    UnknownKey {
        nearest: Option<&'static str>,
    },
    /// An `=` in place of the colon, with the presumable meaning.
    EqualsSign {
        nearest: &'static str,
        meant: String,
    },
    /// A flag of Paddle (`FLAGS_...`) for which there is no option, and the reason.
    OfPaddle {
        why: &'static str,
    },
    MissingValue {
        allowed: String,
    },
    BadValue {
        allowed: String,
    },
    /// Bytes that are not UTF-8: their conversion to text left U+FFFD.
    NotText,
    /// An allowed value that changes nothing.
    NoEffect {
        why: &'static str,
    },
}

impl ProblemKind {
    /// Returns the known key that an unknown one may stand for.
    pub(crate) fn nearest(&self) -> Option<&'static str> {
        match self {
            ProblemKind::UnknownKey { nearest } => *nearest,
            ProblemKind::EqualsSign { nearest, .. } => Some(nearest),
            _ => None,
        }
    }
}

impl Problem {
    /// Returns the problem, without the setting that is used instead.
    pub fn what(&self) -> String {
        let Problem { key, value, .. } = self;
        match &self.kind {
            ProblemKind::UnknownKey { nearest: Some(nearest) } => {
                format!("unknown option {key}, did you mean {nearest}?")
            }
            ProblemKind::UnknownKey { nearest: None } => {
                let useful = OPTIONS.iter().filter(|row| !matches!(row.effect, Effect::Never(_)));
                let keys: Vec<&str> = useful.map(|row| row.key).collect();
                format!("unknown option {key}, expected one of {}", keys.join(", "))
            }
            ProblemKind::EqualsSign { meant, .. } if value.is_empty() => {
                format!("invalid option {key}: write {meant}")
            }
            ProblemKind::EqualsSign { meant, .. } => {
                format!("invalid option {key}:{value}: write {meant}")
            }
            ProblemKind::OfPaddle { why } => format!("unknown option {key}: {why}"),
            ProblemKind::MissingValue { allowed } => {
                format!("option {key} has no value: expected {allowed}")
            }
            ProblemKind::BadValue { allowed } => {
                format!("invalid {key} '{value}': expected {allowed}")
            }
            ProblemKind::NotText => format!("invalid {key} '{value}': not UTF-8"),
            ProblemKind::NoEffect { why } => format!("{key}:{value} has no effect: {why}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.what())?;
        let end = match self.kind {
            ProblemKind::NoEffect { .. } => return Ok(()),
            ProblemKind::UnknownKey { nearest: Some(_) } => " ",
            _ => "; ",
        };
        match self.used {
            Some(used) => write!(out, "{end}using {used}"),
            None => write!(out, "{end}ignored"),
        }
    }
}

/// Maximum number of wrong letters, out of three, in a key that is still recognised.
const WRONG_LETTERS_OF_THREE_MAX: usize = 1;

/// Prefix of Paddle's flags. Some of them continue with a key of the library.
pub(crate) const PADDLE: &str = "FLAGS_";

/// Returns the known key that differs least, if it differs little enough.
pub fn nearest_key(key: &str) -> Option<&'static str> {
    let key = key.strip_prefix(PADDLE).unwrap_or(key);
    let (distance, nearest) =
        OPTIONS.iter().map(|row| (edit_distance(key, row.key), row.key)).min()?;
    (distance * 3 <= nearest.len() * WRONG_LETTERS_OF_THREE_MAX).then_some(nearest)
}

/// Returns the number of letters to insert, remove or replace, by the table of Wagner and Fischer,
/// one row at a time.
fn edit_distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, left_letter) in left.bytes().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (before, right_letter) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(left_letter != right_letter);
            diagonal = row[before + 1];
            row[before + 1] = replaced.min(diagonal + 1).min(row[before] + 1);
        }
    }
    row[right.len()]
}
