//! The row of one option in the table.

use crate::readers::Malformed;
use crate::{Config, Word};

/// Sets the fields of one option. If it fails, it changes nothing.
pub(crate) type Setter = fn(&mut Config, &str) -> Result<(), Malformed>;

/// One row of the table.
pub struct OptionRow {
    pub key: &'static str,
    pub kind: Kind,
    /// Setting without the option, as text that the parser accepts.
    pub default: &'static str,
    /// Setting if the value is malformed.
    pub(crate) on_bad_value: &'static str,
    pub meaning: &'static str,
    pub(crate) set: Setter,
    pub effect: Effect,
}

/// Values that an option takes.
#[derive(Clone, Copy)]
pub enum Kind {
    Boolean,
    Word(fn() -> Vec<&'static str>),
    /// A name of the kind, and a description of the allowed values.
    Other(&'static str, &'static str),
}

impl Kind {
    pub(crate) const fn of<W: Word>() -> Kind {
        Kind::Word(|| W::ALL.iter().map(|(_, word)| *word).collect())
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Boolean => "boolean",
            Kind::Word(_) => "word",
            Kind::Other(name, _) => name,
        }
    }

    /// Returns the words that the option can be; other kinds have none.
    pub fn words(self) -> Vec<&'static str> {
        match self {
            Kind::Boolean => vec!["true", "false"],
            Kind::Word(words) => words(),
            Kind::Other(..) => Vec::new(),
        }
    }

    pub fn allowed(self) -> String {
        match (self, self.words().as_slice()) {
            (Kind::Other(_, allowed), _) => allowed.to_string(),
            (_, [words @ .., last]) => format!("{} or {last}", words.join(", ")),
            (_, []) => String::new(),
        }
    }
}

/// Whether a value other than the default has an effect. If not, a message explains why.
#[derive(Clone, Copy)]
pub enum Effect {
    Always,
    If(fn(&Config) -> bool, &'static str),
    Never(&'static str),
}

pub(crate) const fn row(
    key: &'static str,
    kind: Kind,
    default: &'static str,
    set: Setter,
    meaning: &'static str,
) -> OptionRow {
    OptionRow { key, kind, default, on_bad_value: default, meaning, set, effect: Effect::Always }
}

impl OptionRow {
    pub(crate) const fn when(
        self,
        has_effect: fn(&Config) -> bool,
        why: &'static str,
    ) -> OptionRow {
        OptionRow { effect: Effect::If(has_effect, why), ..self }
    }
}

/// Returns the row of an option of PyTorch that changes nothing here.
pub(crate) const fn ignored(
    key: &'static str,
    default: &'static str,
    (kind, set): (Kind, Setter),
    why: &'static str,
) -> OptionRow {
    OptionRow { effect: Effect::Never(why), ..row(key, kind, default, set, "") }
}
