//! Describes why a subcommand failed: one sentence with the next step, and an exit code.

use std::fmt::{self, Display, Formatter};
use std::io::Write;
use std::process::ExitCode;

use cachealloc_text::{cut, plain};

/// Prints one line on stderr. Names in it are untrusted. Errors are ignored if stderr is full or
/// closed, because the remaining work matters more.
pub(crate) fn say(what: fmt::Arguments) {
    let what = what.to_string();
    let line = plain(&cut(&what, LINE_LETTERS_MAX)).into_owned();
    let _ = writeln!(std::io::stderr(), "cachealloc: {line}");
}

const LINE_LETTERS_MAX: usize = 4000;

/// Exit code of a general failure.
pub(crate) const FAILED: u8 = 1;
/// Exit code of invalid usage.
pub(crate) const USAGE: u8 = 2;
/// Exit code of `run` if it fails itself, as of `env` and `timeout`, so that the code is not taken
/// for the program's.
pub(crate) const NOT_THE_PROGRAM: u8 = 125;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    what: String,
    next: Option<String>,
    code: u8,
}

impl Failure {
    /// Creates a failure from its reason, without a capital letter and without a full stop.
    pub(crate) fn new(what: impl Display) -> Failure {
        Failure { what: what.to_string(), next: None, code: FAILED }
    }

    /// Sets the next step for the user.
    pub(crate) fn next(mut self, next: impl Display) -> Failure {
        self.next = Some(next.to_string());
        self
    }

    /// Adds another step for the user.
    pub(crate) fn also(self, other: impl Display) -> Failure {
        match &self.next {
            Some(next) => {
                let both = format!("{next}; {other}");
                self.next(both)
            }
            None => self.next(other),
        }
    }

    pub(crate) fn code(mut self, code: u8) -> Failure {
        self.code = code;
        self
    }

    /// Prints the failure to stderr. Returns the command's exit code.
    pub(crate) fn report(&self) -> ExitCode {
        say(format_args!("{self}"));
        ExitCode::from(self.code)
    }
}

impl Display for Failure {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.what)?;
        match &self.next {
            Some(next) => write!(out, "; {next}"),
            None => Ok(()),
        }
    }
}
