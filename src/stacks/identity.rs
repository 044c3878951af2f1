//! Checks whether the file at a module's path is the one that was loaded. A library may be replaced
//! while it is in use, for example by a package update, and the new one has other functions at the
//! same offsets.

use std::fs::File;
use std::io::BufRead;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cachealloc_foreign::{OwnFile, Way, is_trusted, open_where, own_proc, symbols};

use crate::modules::Module;

/// The file from which a part of memory is mapped.
struct Mapping {
    device: u64,
    inode: u64,
    /// Whether its name was removed: a file that has that name now is another one.
    is_removed: bool,
}

/// Opens the file at this path if it is the module's. In doubt, it does not.
///
/// Another user's file is accepted only if it is the mapped one. Layered file systems can report
/// different numbers for one file. There, a file that only this user or root can have created is
/// accepted by its build id.
pub(crate) fn open(path: &Path, module: &Module) -> Option<OwnFile> {
    let mapping = mapping_at(module.base())?;
    let file = open_where(path, Way::Read, |about| {
        let is_mapped = (about.dev(), about.ino()) == (mapping.device, mapping.inode);
        is_mapped || !mapping.is_removed && !module.build_id().is_empty() && is_trusted(about)
    });
    let file = file.ok()?;
    let is_of_build =
        || symbols::build_id(&file).is_some_and(|of_file| of_file == module.build_id());
    (module.build_id().is_empty() || is_of_build()).then_some(file)
}

/// Returns the kernel's mapping at the start of the module. The load base is the address of the
/// first byte or lower, so the mapping at the base or the next one is the module's.
fn mapping_at(base: u64) -> Option<Mapping> {
    let maps = OwnFile::new(File::open(format!("{}/maps", own_proc())).ok()?).ok()?;
    let maps = std::io::BufReader::new(maps);
    for line in maps.split(b'\n').map_while(Result::ok) {
        // BEGIN-END ACCESS OFFSET MAJOR:MINOR INODE PATH
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split_ascii_whitespace();
        let (_, end) = words.next()?.split_once('-')?;
        if u64::from_str_radix(end, 16).ok()? <= base {
            continue;
        }
        let (major, minor) = words.nth(2)?.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        let device = libc::makedev(number(major)?, number(minor)?);
        let inode: u64 = words.next()?.parse().ok()?;
        return Some(Mapping { device, inode, is_removed: line.ends_with(" (deleted)") });
    }
    None
}
