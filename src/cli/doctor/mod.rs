//! Checks whether programs, and one program in particular, will run under the library on this
//! machine. Each line states what was checked and no more: a check without findings is no
//! guarantee.

mod asked;
mod deep;
mod driver;
mod finding;
mod lacking;
mod library;
mod program;
mod surroundings;

use std::ffi::OsString;

use crate::launch::library::Named;

pub(crate) use finding::{Finding, Severity};

/// Runs all checks. If `command` is empty, no particular program is checked.
pub(crate) fn examine(named: Named, command: &[OsString]) -> Vec<Finding> {
    let (library, mut findings) = library::examine(named);
    findings.extend(driver::examine());
    let program = command.first();
    findings.extend(program.map(|program| program::examine(program, library.as_ref())));
    let file = program.and_then(|program| crate::launch::program::executable(program).ok());
    findings.extend(file.and_then(|file| deep::examine(&file)));
    findings.extend(surroundings::examine(program));
    findings
}
