//! Makes a flag of every row of the options table, and builds the options text from the flags
//! given.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

use cachealloc_options::{Config, Effect, Kind, OPTIONS, OptionRow, ProblemKind, missed_of_others};
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::failure::{Failure, USAGE};

pub(crate) const VARIABLE: &str = "CACHEALLOC_CONF";
const HEADING: &str = "Options of the library";
/// Value of these flags when given without one.
const RECORD: (&str, &str) = ("record", "all");
const TRUE: &str = "true";
/// The option that also has a short name.
const LIMIT: &str = "gpu_memory_limit_mb";

/// Flags that were given, as keys of the table and values.
#[derive(Clone, Default, Debug)]
pub(crate) struct Flags(Vec<(&'static str, String)>);

impl Flags {
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == key)
    }

    /// Returns the flag that this word was meant as a value of, if that flag was given without a
    /// value and the word was taken for the program: `--record all`.
    pub(crate) fn meant_by(&self, word: &OsStr) -> Option<String> {
        let word = word.to_str()?;
        let mut rows = OPTIONS.iter().filter(|row| self.has(row.key));
        let row = rows.find(|row| row.kind.words().contains(&word))?;
        Some(format!("--{}={word}", flag_of(row.key)))
    }

    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| *given == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn set(&mut self, key: &'static str, value: &str) {
        self.0.retain(|(given, _)| *given != key);
        self.0.push((key, value.to_string()));
    }

    /// Builds the text for the library: the earlier settings, then the flags, because the last
    /// occurrence of a key counts. A wrong flag is reported here; the library reports what was
    /// wrong in the earlier settings.
    pub(crate) fn merge(&self, before: &str) -> Result<(String, Config), Failure> {
        let mut text = before.trim_end_matches(',').to_string();
        if text.rfind('[') > text.rfind(']') && !self.0.is_empty() {
            let what = format!("{VARIABLE} has an unclosed [: {before}");
            return Err(Failure::new(what).next("fix the variable, or unset it").code(USAGE));
        }
        for (key, value) in &self.0 {
            if value.contains(char::is_whitespace) || has_loose_comma(value) {
                let what = format!("invalid --{} {value:?}", flag_of(key));
                let next = "write it without spaces, and with commas only within []";
                return Err(Failure::new(what).next(next).code(USAGE));
            }
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{key}:{value}");
        }
        let (config, problems) = cachealloc_options::parse(&text);
        let is_ours = |key: &str| self.has(key);
        let mut wrong = problems.iter().filter(|problem| is_ours(&problem.key));
        // The library itself reports settings that have no effect.
        let wrong = wrong.find(|problem| !matches!(problem.kind, ProblemKind::NoEffect { .. }));
        match wrong {
            Some(problem) => Err(Failure::new(problem.what()).code(USAGE)),
            None => Ok((text, config)),
        }
    }
}

/// Returns a line for each variable of another allocator that is set here and has an equivalent
/// option missing from this text.
pub(crate) fn missed(options: &str) -> Vec<String> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let mut variables: Vec<_> =
        env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    variables.sort();
    variables.iter().filter_map(|(name, value)| missed_of_others(name, value, options)).collect()
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().fold(command, |command, row| command.arg(flag(row)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let given = |row: &OptionRow| Some((row.key, matches.get_one::<String>(row.key)?.clone()));
        Ok(Flags(OPTIONS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Flags::from_arg_matches(matches)?;
        Ok(())
    }
}

fn flag(row: &'static OptionRow) -> Arg {
    let OptionRow { key, kind, default, meaning, .. } = row;
    let flag = Arg::new(*key)
        .long(flag_of(key))
        .alias(*key)
        .visible_aliases(if *key == LIMIT { &["limit"][..] } else { &[] })
        .value_name(kind.name().to_uppercase())
        .value_parser(Words(kind.words()))
        .allow_negative_numbers(true)
        .overrides_with(*key)
        .help_heading(HEADING);
    let alone = match kind {
        _ if *key == RECORD.0 => Some(RECORD.1),
        Kind::Boolean => Some(TRUE),
        _ => None,
    };
    let flag = match alone {
        Some(value) => flag.num_args(0..=1).require_equals(true).default_missing_value(value),
        None => flag,
    };
    if let Effect::Never(why) = row.effect {
        return flag.hide(true).help(format!("PyTorch option, ignored: {why}"));
    }
    let meaning = format!("{}{}", &meaning[..1].to_uppercase(), &meaning[1..]);
    let allowed = kind.allowed();
    flag.help(format!("{meaning} [default: {default}]"))
        .long_help(format!("{meaning}\n\nAllowed: {allowed}; default: {default}"))
}

fn flag_of(key: &str) -> String {
    key.replace('_', "-")
}

fn has_loose_comma(value: &str) -> bool {
    let mut depth = 0;
    value.chars().any(|letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth <= 0
    })
}

/// Parser that accepts any text, because the table decides what is allowed. The words serve
/// completions and help.
#[derive(Clone)]
struct Words(Vec<&'static str>);

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        clap::builder::StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = || self.0.iter().map(|word| PossibleValue::new(*word));
        (!self.0.is_empty()).then(|| Box::new(values()) as Box<dyn Iterator<Item = PossibleValue>>)
    }
}
