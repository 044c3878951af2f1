//! Checks one program: what the loader would do with the library in it. The program is not started.

use std::ffi::OsStr;

use super::finding::{Finding, Severity};
use crate::launch::library::Library;
use crate::launch::{fit, program};

pub(super) fn examine(command: &OsStr, library: Option<&Library>) -> Finding {
    let finding = |severity, text: String| Finding::new(severity, "program", text);
    let shown = command.to_string_lossy();
    let file = match program::executable(command) {
        Ok(file) => file,
        Err(why) => return finding(Severity::Fail, why.to_string()),
    };
    let name = file.display().to_string();
    // For a script, the file is the interpreter of its first line.
    let name = match file.file_name() == std::path::Path::new(command).file_name() {
        true => name,
        false => format!("{name} (which runs {shown})"),
    };
    match library.map(|library| fit::check(library, &file)) {
        None => finding(Severity::Note, format!("{name}: not checked without a library")),
        Some(Err(why)) => finding(Severity::Fail, why.to_string()),
        Some(Ok(())) => {
            finding(Severity::Fine, format!("{name}: nothing prevents loading the library"))
        }
    }
}
