//! Whether the file at a module's path is the one that was loaded: a library may be replaced while it is in
//! use, as every update of a package does, and the new one has other functions at the same places.

use std::fs::{self, File};
use std::io::BufRead;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::loader::build_id_among;
use crate::modules::Module;

/// Notes are short; a file that says otherwise is none of ours.
const NOTES_BYTES_MAX: u64 = 1 << 20;

/// Whether this open file is what the module was loaded from, as far as both can tell: by their build-ids,
/// or without one by being the file that is mapped. In doubt it is not.
fn is_of(file: &File, module: &Module) -> bool {
    match module.build_id() {
        [] => is_mapped_at(file, module.base()).unwrap_or(false),
        build_id => build_id_of(file).is_some_and(|of_file| of_file == build_id),
    }
}

fn build_id_of(file: &File) -> Option<Vec<u8>> {
    let header = bytes_at(file, 0, size_of::<libc::Elf64_Ehdr>() as u64)?;
    let is_elf_64 = header.starts_with(b"\x7fELF\x02");
    let (at, size) = (u64_at(&header, 32)?, u64::from(u16_at(&header, 54)?));
    let count = u64::from(u16_at(&header, 56)?);
    if !is_elf_64 || size != size_of::<libc::Elf64_Phdr>() as u64 {
        return None;
    }
    (0..count).find_map(|index| {
        let header = bytes_at(file, at.checked_add(index * size)?, size)?;
        if u32_at(&header, 0)? != libc::PT_NOTE {
            return None;
        }
        let notes = bytes_at(file, u64_at(&header, 8)?, u64_at(&header, 32)?)?;
        build_id_among(&notes, u64_at(&header, 48)?).map(<[u8]>::to_vec)
    })
}

fn bytes_at(file: &File, at: u64, count: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(count).ok().filter(|_| count <= NOTES_BYTES_MAX)?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Whether the kernel has mapped this very file where the module begins. The load base is where the first
/// byte lies, or before that; what is mapped there or next is the module's.
fn is_mapped_at(file: &File, base: u64) -> Option<bool> {
    let found = file.metadata().ok()?;
    let maps = std::io::BufReader::new(File::open("/proc/self/maps").ok()?);
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
        return Some((device, inode) == (found.dev(), found.ino()));
    }
    None
}

/// The file at this path, if it is the module's.
pub(crate) fn open(path: &str, module: &Module) -> Option<File> {
    // What is no ordinary file may answer never.
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
    let file = File::open(path).ok().filter(|_| is_file)?;
    is_of(&file, module).then_some(file)
}
