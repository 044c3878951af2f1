//! Whether the file at a module's path is the one that was loaded: a library may be replaced while it is in
//! use, as every update of a package does, and the new one has other functions at the same places.

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
    /// It has no name any longer: what has that name now is another file.
    is_removed: bool,
}

/// The file at this path, if it is the module's. In doubt it is not.
///
/// Another user's file is taken only if it is the one that is mapped. File systems in layers do not always tell:
/// there the numbers of one file differ, and a file that only we or root can have made is taken by its build-id.
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

/// What the kernel has mapped where the module begins. The load base is where the first byte lies, or before
/// that; what is mapped there or next is the module's.
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
