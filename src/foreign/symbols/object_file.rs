//! One object file: its sections, its symbols, and its references to further files.

use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;

use cachealloc_history::file::OwnFile;
use object::elf::SHT_STRTAB;
use object::read::elf::{ElfFile64, SectionHeader};
use object::{LittleEndian, Object, ObjectSection, SymbolMap, SymbolMapName};

use super::files::{Bytes, Files, Reading};

pub(crate) type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

/// Returns the id that the linker gave to this build, or `None` if the file is not an object file
/// of this machine's kind.
pub fn build_id(file: &OwnFile) -> Option<Vec<u8>> {
    let files = Files::default();
    let reading = Reading::new(&files, file)?;
    ObjectFile::parse(&reading)?.build_id().map(<[u8]>::to_vec)
}

pub(crate) struct ObjectFile<'r, 'a> {
    elf: ElfFile64<'a, LittleEndian, Bytes<'r, 'a>>,
    files: &'a Files,
}

impl<'r, 'a> ObjectFile<'r, 'a> {
    pub(crate) fn parse(reading: &'r Reading<'r, 'a>) -> Option<ObjectFile<'r, 'a>> {
        let elf = ElfFile64::parse(Bytes(reading)).ok()?;
        Some(ObjectFile { elf, files: reading.files() })
    }

    pub(crate) fn build_id(&self) -> Option<&'a [u8]> {
        self.elf.build_id().ok()?
    }

    /// Returns the name of the file with the debug information of this one.
    pub(crate) fn debug_link(&self) -> Option<&'a [u8]> {
        self.elf.gnu_debuglink().ok()?.map(|(name, _)| name)
    }

    /// Returns the path and the build id of the file with debug information that several files
    /// share.
    pub(crate) fn shared_debug(&self) -> Option<(&'a [u8], &'a [u8])> {
        self.elf.gnu_debugaltlink().ok()?
    }

    pub(crate) fn has(&self, section: &str) -> bool {
        self.elf.section_by_name(section).is_some_and(|it| it.size() > 0)
    }

    pub(crate) fn symbols(&self) -> SymbolMap<SymbolMapName<'a>> {
        for section in self.elf.sections() {
            if section.elf_section_header().sh_type(LittleEndian) == SHT_STRTAB {
                let _ = section.data(); // reads all names at once, not one by one
            }
        }
        self.elf.symbol_map()
    }

    /// Returns a section, decompressed, or empty if it is missing or exceeds the remaining bytes.
    pub(crate) fn section(&self, name: Option<&'static str>) -> Slice<'a> {
        let found = name.filter(|name| !NOT_READ.contains(name));
        let bytes = found.and_then(|name| self.bytes(name)).unwrap_or_default();
        Slice::new(bytes, gimli::LittleEndian)
    }

    fn bytes(&self, name: &str) -> Option<&'a [u8]> {
        let section = self.elf.section_by_name(name)?;
        let data = section.compressed_data().ok()?;
        if data.format != object::CompressionFormat::None {
            self.files.take(data.uncompressed_size)?;
        }
        match data.decompress().ok()? {
            Cow::Borrowed(bytes) => Some(bytes),
            Cow::Owned(bytes) => Some(self.files.keep(bytes)),
        }
    }
}

/// Sections that are irrelevant for functions and lines.
const NOT_READ: [&str; 10] = [
    ".debug_aranges",
    ".debug_loc",
    ".debug_loclists",
    ".debug_loc.dwo",
    ".debug_loclists.dwo",
    ".debug_macinfo",
    ".debug_macro",
    ".debug_macinfo.dwo",
    ".debug_macro.dwo",
    ".debug_names",
];

/// Returns the user that owns the file.
pub(crate) fn owner(file: &OwnFile) -> Option<u32> {
    file.still().ok()?.metadata().ok().map(|about| about.uid())
}
