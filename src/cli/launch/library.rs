//! Where the library is: where the user says, or beside the command.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::elf::Elf;
use crate::failure::Failure;
use crate::live::LIBRARY_NAME;

pub(crate) const VARIABLE: &str = "CACHEALLOC_LIB";
/// From the folder of the command: built, installed, as a Debian package.
const FOLDERS: [&str; 4] = [".", "../lib", "../lib/cachealloc", "../lib64"];
/// Every library of ours has it, and no other.
const SYMBOL: &str = "cachealloc_version";

/// A library that can be preloaded, by its absolute path.
pub(crate) struct Library {
    pub path: PathBuf,
    pub elf: Elf,
}

/// `named`: by `--lib`.
pub(crate) fn find(named: Option<PathBuf>) -> Result<Library, Failure> {
    let named = named
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
        Failure::new(format!("the path of the command is unknown: {error}"))
            .next("give the library with --lib")
    })?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let mut candidates = FOLDERS.iter().map(|relative| folder.join(relative).join(LIBRARY_NAME));
    candidates.find(|path| path.is_file()).ok_or_else(|| {
        let folder = folder.display();
        Failure::new(format!("{LIBRARY_NAME} is neither in {folder} nor in {folder}/../lib"))
            .next(format!("build it with `make`, then give it with --lib or {VARIABLE}"))
    })
}

fn check(path: &Path) -> Result<Library, Failure> {
    let shown = path.display();
    let elf = match Elf::read(path) {
        Ok(Some(elf)) if elf.exports(SYMBOL) => elf,
        Ok(_) => {
            return Err(Failure::new(format!("{shown} is not the library of cachealloc"))
                .next(format!("give {LIBRARY_NAME} with --lib or {VARIABLE}")));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::new(format!("the library {shown} does not exist"))
                .next(format!("give {LIBRARY_NAME} with --lib or {VARIABLE}")));
        }
        Err(error) => {
            return Err(Failure::new(format!("the library {shown} cannot be read: {error}"))
                .next("check its permissions"));
        }
    };
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if path.as_os_str().as_bytes().iter().any(|byte| *byte == b':' || byte.is_ascii_whitespace()) {
        return Err(Failure::new(format!(
            "LD_PRELOAD cannot contain {}: colons and spaces separate its paths",
            path.display()
        ))
        .next("copy the library to a path without them, and give that with --lib"));
    }
    Ok(Library { path, elf })
}

/// `LD_PRELOAD` with the library in front of what is there.
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
