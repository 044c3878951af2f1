//! Whether programs will run under the library on this machine, and one program in particular. Each
//! line says what was looked at and no more: that nothing was found is no promise.

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

/// All that is looked at. An empty command: no program in particular.
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
