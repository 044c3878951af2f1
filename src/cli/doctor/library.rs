//! Checks that the library exists, loads, and has this command's version, and checks the C library
//! of this machine.

use std::path::Path;

use super::asked::ask;
use super::finding::{Finding, Severity};
use crate::kernel::libraries::Loaded;
use crate::launch::elf::{Elf, Version};
use crate::launch::fit::libc_beside;
use crate::launch::library::{self, Library, Named};

const OUR_VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) fn examine(named: Named) -> (Option<Library>, Vec<Finding>) {
    match library::find(named) {
        Ok(library) => {
            let findings = vec![loads(&library), c_library(&library)];
            (Some(library), findings)
        }
        Err(why) => (None, vec![Finding::new(Severity::Fail, "library", why.to_string())]),
    }
}

fn loads(library: &Library) -> Finding {
    let finding = |severity, text: String| Finding::new(severity, "library", text);
    let file = library.path.display();
    // The loader's message begins with the path.
    let version = ask(|| Loaded::open(library.path.as_os_str()).map(|it| it.own_version()));
    match version {
        Err(why) => finding(Severity::Fail, format!("{file}: {why}")),
        Ok(Err(why)) => finding(Severity::Fail, why),
        Ok(Ok(Some(version))) if version == OUR_VERSION => {
            finding(Severity::Fine, format!("{file}: loads, version {version}, like this command"))
        }
        Ok(Ok(version)) => {
            let version = version.as_deref().unwrap_or("unknown");
            let text = format!(
                "{file}: loads, version {version}, but this command is version {OUR_VERSION}"
            );
            finding(Severity::Note, format!("{text}: install both from one package"))
        }
    }
}

fn c_library(library: &Library) -> Finding {
    let own = Elf::read(Path::new("/proc/self/exe")).ok().flatten();
    let here = own.and_then(|own| libc_beside(&own.interpreter?));
    let (severity, text) = compared(here, library.elf.wants);
    Finding::new(severity, "glibc", text)
}

fn compared(here: Option<Version>, wanted: Option<Version>) -> (Severity, String) {
    match (here, wanted) {
        (Some(here), Some(wanted)) if here < wanted => {
            (Severity::Fail, format!("{here} here, and the library needs {wanted}"))
        }
        (Some(here), Some(wanted)) => {
            (Severity::Fine, format!("{here} here; the library needs {wanted}"))
        }
        _ => (Severity::Note, "its version is unknown".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_c_library_is_a_problem() {
        let floor = Some(Version(2, 17));
        for (here, severity) in [
            (Some(Version(2, 12)), Severity::Fail),
            (Some(Version(2, 17)), Severity::Fine),
            (Some(Version(2, 36)), Severity::Fine),
            (None, Severity::Note),
        ] {
            assert_eq!(compared(here, floor).0, severity, "{here:?}");
        }
    }
}
