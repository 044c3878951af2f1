//! Checks whether the loader will load the library into a program. If it will not, the loader
//! prints a line that is easily missed, and the program runs without the library.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::elf::{Elf, Machine, Version};
use super::library::Library;
use crate::failure::Failure;
use crate::kernel::libraries::has_capabilities;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// Reason why the library cannot be loaded.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Misfit {
    Machine { program: Machine, library: Machine },
    Static,
    OtherLibc { loader: String },
    OldLibc { has: Version, wants: Version },
    OtherRights,
}

/// Checks whether the library can be loaded into the program in this file.
pub(crate) fn check(library: &Library, program: &Path) -> Result<(), Failure> {
    let elf = match Elf::read(program) {
        Ok(Some(elf)) => elf,
        // A text file without a `#!` line, which a shell runs, or a file that only the kernel may
        // read.
        Ok(None) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => {
            return Err(Failure::new(format!("cannot read {}: {error}", program.display()))
                .next("check the file"));
        }
    };
    match misfit(library, program, &elf) {
        Some(misfit) => Err(misfit.explain(program)),
        None => Ok(()),
    }
}

fn misfit(library: &Library, program: &Path, elf: &Elf) -> Option<Misfit> {
    if elf.machine != library.elf.machine {
        return Some(Misfit::Machine { program: elf.machine, library: library.elf.machine });
    }
    if has_other_rights(program) {
        return Some(Misfit::OtherRights);
    }
    let Some(loader) = &elf.interpreter else {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let is_loader = elf.is_dynamic && name.starts_with("ld");
        return (!is_loader).then_some(Misfit::Static);
    };
    if loader.contains("ld-musl") {
        return Some(Misfit::OtherLibc { loader: loader.clone() });
    }
    let (wants, has) = (library.elf.wants?, libc_beside(loader)?);
    (has < wants).then_some(Misfit::OldLibc { has, wants })
}

/// Returns the version of the C library installed next to this loader, or `None` if it is unknown.
pub(crate) fn libc_beside(loader: &str) -> Option<Version> {
    let loader = std::fs::canonicalize(loader).ok()?;
    Elf::read(&loader.with_file_name("libc.so.6")).ok()??.offers
}

/// Returns whether the program runs with rights that its user does not have. The loader then drops
/// `LD_PRELOAD`.
fn has_other_rights(program: &Path) -> bool {
    let Ok(facts) = program.metadata() else { return false };
    let user = nix::unistd::geteuid();
    let group = nix::unistd::getegid().as_raw();
    facts.mode() & SETUID != 0 && facts.uid() != user.as_raw()
        || facts.mode() & SETGID != 0 && facts.gid() != group
        // Root already has all capabilities.
        || !user.is_root() && has_capabilities(program)
}

impl Misfit {
    fn explain(&self, program: &Path) -> Failure {
        let shown = program.display();
        match self {
            Misfit::Machine { program, library } => Failure::new(format!(
                "{shown} is built for {program}, but the library for {library}"
            ))
            .next(format!("install the library for {program}")),
            Misfit::Static => Failure::new(format!(
                "{shown} is linked statically: the library cannot be preloaded"
            ))
            .next("link it without -static (a static CUDA runtime is fine)"),
            Misfit::OtherLibc { loader } => {
                Failure::new(format!("{shown} uses another C library ({loader})"))
                    .next("the library needs glibc")
            }
            Misfit::OldLibc { has, wants } => {
                Failure::new(format!("{shown} uses glibc {has}, but the library needs {wants}"))
                    .next("build the library on this machine and name it with --lib")
            }
            Misfit::OtherRights => {
                let what =
                    format!("{shown} is setuid or has capabilities: nothing can be preloaded");
                Failure::new(what).next(
                    "if it starts another program, put the command after it: sudo cachealloc run -- ./app",
                )
            }
        }
    }
}
