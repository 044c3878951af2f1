//! The library: whether it is there, loads, and is of this command's version; and the C library here.

use std::path::Path;

use super::asked::ask;
use super::finding::{Finding, Weight};
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
        Err(why) => (None, vec![Finding::new(Weight::Against, "library", why.to_string())]),
    }
}

fn loads(library: &Library) -> Finding {
    let finding = |weight, text: String| Finding::new(weight, "library", text);
    let file = library.path.display();
    // The loader's sentence begins with the path.
    let version = ask(|| Loaded::open(library.path.as_os_str()).map(|it| it.own_version()));
    match version {
        Err(why) => finding(Weight::Against, format!("{file}: {why}")),
        Ok(Err(why)) => finding(Weight::Against, why),
        Ok(Ok(Some(version))) if version == OUR_VERSION => {
            finding(Weight::Fine, format!("{file}: loads, version {version} as this command"))
        }
        Ok(Ok(version)) => {
            let version = version.as_deref().unwrap_or("unknown");
            let text =
                format!("{file}: loads, version {version}, and this command is {OUR_VERSION}");
            finding(Weight::Note, format!("{text}: install both from one package"))
        }
    }
}

fn c_library(library: &Library) -> Finding {
    let own = Elf::read(Path::new("/proc/self/exe")).ok().flatten();
    let here = own.and_then(|own| libc_beside(&own.interpreter?));
    let (weight, text) = compared(here, library.elf.wants);
    Finding::new(weight, "glibc", text)
}

fn compared(here: Option<Version>, wanted: Option<Version>) -> (Weight, String) {
    match (here, wanted) {
        (Some(here), Some(wanted)) if here < wanted => {
            (Weight::Against, format!("{here} here, and the library needs {wanted}"))
        }
        (Some(here), Some(wanted)) => {
            (Weight::Fine, format!("{here} here; the library needs {wanted}"))
        }
        _ => (Weight::Note, "its version is not known".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_c_library_is_against_it() {
        let floor = Some(Version(2, 17));
        for (here, weight) in [
            (Some(Version(2, 12)), Weight::Against),
            (Some(Version(2, 17)), Weight::Fine),
            (Some(Version(2, 36)), Weight::Fine),
            (None, Weight::Note),
        ] {
            assert_eq!(compared(here, floor).0, weight, "{here:?}");
        }
    }
}
