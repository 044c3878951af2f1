//! Finds the library: where the user says, next to the command, or in the Python package that
//! contains both.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Args;

use super::elf::Elf;
use crate::failure::Failure;
use crate::live::LIBRARY_NAME;

pub(crate) const VARIABLE: &str = "CACHEALLOC_LIB";
/// Relative to the command's folder: as built, installed, or packaged for Debian.
const FOLDERS: [&str; 4] = [".", "../lib", "../lib/cachealloc", "../lib64"];
/// Relative to the command's folder: where pip puts packages. With `--target`, that is the parent
/// folder. In a prefix with a Python, a folder named after the Python version lies in between.
const PREFIX: &str = "..";
const PYTHONS: [&str; 2] = ["../lib", "../lib64"];
const PACKAGES: [&str; 2] = ["site-packages", "dist-packages"];
/// pip's record of the package, which exists only next to the package of this version.
const PACKAGE_RECORD: &str = concat!("cachealloc-", env!("CARGO_PKG_VERSION"), ".dist-info");
const PACKAGE: &str = "cachealloc";
/// Symbol that every version of the library exports, and no other library.
const SYMBOL: &str = "cachealloc_version";

/// A library that can be preloaded, by its absolute path.
pub(crate) struct Library {
    pub path: PathBuf,
    pub elf: Elf,
}

/// Where the library is, as the user says.
#[derive(Args)]
pub(crate) struct Named {
    /// Library or its folder; default: CACHEALLOC_LIB, else the library next to this command.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    lib: Option<PathBuf>,
}

pub(crate) fn find(named: Named) -> Result<Library, Failure> {
    let named = named
        .lib
        .or_else(|| std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from));
    let path = match named {
        Some(path) if path.is_dir() => path.join(LIBRARY_NAME),
        Some(path) => path,
        None => beside_us()?,
    };
    check(&path)
}

fn beside_us() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|error| {
        Failure::new(format!("cannot find the folder of this command: {error}"))
            .next("name the library with --lib")
    })?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let beside = FOLDERS.iter().map(|relative| folder.join(relative));
    let mut candidates = beside.chain(in_packages(folder)).map(|folder| folder.join(LIBRARY_NAME));
    candidates.find(|path| path.is_file()).ok_or_else(|| {
        let folder = folder.display();
        Failure::new(format!("{LIBRARY_NAME} is neither in {folder} nor in {folder}/../lib"))
            .next(format!("build it with `make`, then name it with --lib or {VARIABLE}"))
    })
}

/// Returns the cachealloc packages of the Pythons around the command. A prefix may have several
/// Pythons, with different versions of the package.
fn in_packages(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let pythons = PYTHONS.iter().filter_map(|lib| fs::read_dir(folder.join(lib)).ok());
    let pythons = pythons.flatten().flatten().map(|python| python.path());
    let packages = pythons.flat_map(|python| PACKAGES.map(|packages| python.join(packages)));
    let packages = packages.chain([folder.join(PREFIX)]);
    packages.filter(|packages| packages.join(PACKAGE_RECORD).is_dir()).map(|it| it.join(PACKAGE))
}

fn check(path: &Path) -> Result<Library, Failure> {
    let shown = path.display();
    let elf = match Elf::read(path) {
        Ok(Some(elf)) if elf.exports(SYMBOL) => elf,
        Ok(_) => {
            return Err(Failure::new(format!("{shown} is not the cachealloc library"))
                .next(format!("name {LIBRARY_NAME} with --lib or {VARIABLE}")));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::new(format!("the library {shown} does not exist"))
                .next(format!("name {LIBRARY_NAME} with --lib or {VARIABLE}")));
        }
        Err(error) => {
            return Err(Failure::new(format!("cannot read the library {shown}: {error}"))
                .next("check its permissions"));
        }
    };
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if path.as_os_str().as_bytes().iter().any(|byte| *byte == b':' || byte.is_ascii_whitespace()) {
        return Err(Failure::new(format!(
            "LD_PRELOAD cannot contain {}: colons and spaces separate its paths",
            path.display()
        ))
        .next("copy the library to a path without them and name that with --lib"));
    }
    Ok(Library { path, elf })
}

/// Returns `LD_PRELOAD` with the library in front of the existing entries.
pub(crate) fn preload(library: &Path, before: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    let before = before.unwrap_or_default();
    let separators = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    let others = before.as_bytes().split(separators).filter(|path| !path.is_empty());
    for other in others.filter(|path| *path != library.as_os_str().as_bytes()) {
        list.push(":");
        list.push(std::ffi::OsStr::from_bytes(other));
    }
    list
}
