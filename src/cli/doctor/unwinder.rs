//! Compares the unwinder that is loaded with the library with the one that the program brings.

use std::path::Path;

use super::asked::ask;
use super::finding::{Finding, Severity};
use crate::kernel::libraries::Loaded;
use crate::launch::elf::Elf;
use crate::launch::library::Library;

const NAME: &str = "libgcc_s.so.1";

/// Reports a newer `libgcc_s` in the program's installation, as of Conda, Spack or Nix. The library
/// needs one as well, and loads that of the system before the program's libraries are searched for.
pub(super) fn examine(library: &Library, program: &Path) -> Option<Finding> {
    let program = std::fs::canonicalize(program).ok()?;
    let brought = program.parent()?.parent()?.join("lib").join(NAME);
    let brought_version = newest(&brought)?;
    let path = library.path.as_os_str();
    let loaded = ask(|| Loaded::open(path).ok().and_then(|it| it.file_of(c"_Unwind_Backtrace")));
    let loaded = loaded.ok()??;
    let loaded_version = newest(&loaded)?;
    (brought_version > loaded_version).then(|| {
        let text = format!(
            "{} is of GCC {brought_version}, and {} of GCC {loaded_version} is loaded with the library: \
             what needs the newer one does not load; add it to LD_PRELOAD",
            brought.display(),
            loaded.display()
        );
        Finding::new(Severity::Note, "libgcc_s", text)
    })
}

fn newest(path: &Path) -> Option<crate::launch::elf::Version> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    Elf::read(path).ok()??.offers_unwinder
}
