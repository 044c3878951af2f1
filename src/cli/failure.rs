//! Why a subcommand did not do what was asked: one sentence with the next step, and an exit code.

use std::fmt::{self, Display, Formatter};
use std::io::Write;
use std::process::ExitCode;

use cachealloc_text::{cut, plain};

/// One line on stderr. Names in it come from anywhere. Where stderr is full or closed, the rest
/// matters more.
pub(crate) fn say(what: fmt::Arguments) {
    let what = what.to_string();
    let line = plain(&cut(&what, LINE_LETTERS_MAX)).into_owned();
    let _ = writeln!(std::io::stderr(), "cachealloc: {line}");
}

const LINE_LETTERS_MAX: usize = 4000;

/// Something was not as the command needs it.
pub(crate) const FAILED: u8 = 1;
/// The command line asks for what cannot be.
pub(crate) const USAGE: u8 = 2;
/// Of `run`: the exit code of `env` and `timeout` for their own failures, which is not taken for
/// the program's.
pub(crate) const NOT_THE_PROGRAM: u8 = 125;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    what: String,
    next: Option<String>,
    code: u8,
}

impl Failure {
    /// What is the matter, without a capital letter and without a full stop.
    pub(crate) fn new(what: impl Display) -> Failure {
        Failure { what: what.to_string(), next: None, code: FAILED }
    }

    /// What the user can do now.
    pub(crate) fn next(mut self, next: impl Display) -> Failure {
        self.next = Some(next.to_string());
        self
    }

    /// Another thing that the user can do.
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

    /// Prints it to stderr. Returns the command's exit code.
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
