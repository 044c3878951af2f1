//! Checks whether programs, and one program in particular, will run under the library on this
//! machine. Each line states what was checked and no more: a check without findings is no
//! guarantee.

mod asked;
mod deep;
mod driver;
mod finding;
mod lacking;
mod library;
mod machine;
mod program;
mod surroundings;
mod unwinder;

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
    findings.extend(file.as_deref().and_then(deep::examine));
    let both = library.as_ref().zip(file.as_deref());
    findings.extend(both.and_then(|(library, file)| unwinder::examine(library, file)));
    findings.extend(machine::examine());
    findings.extend(surroundings::examine(program));
    findings
}
