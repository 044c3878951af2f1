//! Whether programs will run under the library on this machine, and one program in particular. Each line
//! says what was looked at and no more: that nothing was found is no promise.

mod asked;
mod driver;
mod finding;
mod lacking;
mod library;
mod program;
mod surroundings;

use std::ffi::OsString;

use crate::launch::library::Named;

pub(crate) use finding::{Finding, Weight};

/// All that is looked at. An empty command: no program in particular.
pub(crate) fn examine(named: Named, command: &[OsString]) -> Vec<Finding> {
    let (library, mut findings) = library::examine(named);
    findings.extend(driver::examine());
    let program = command.first();
    findings.extend(program.map(|program| program::examine(program, library.as_ref())));
    findings.extend(surroundings::examine(program));
    findings
}
