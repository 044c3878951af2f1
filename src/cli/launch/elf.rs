//! Reads the headers of a program or library: machine, loader, and versions of the C library.

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use object::LittleEndian;
use object::elf::{FileHeader64, PT_DYNAMIC, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};

/// A version of the C library, such as 2.17.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Version(pub u32, pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Machine {
    pub bits: u8,
    pub number: u16,
}

#[derive(Debug)]
pub(crate) struct Elf {
    pub machine: Machine,
    /// The loader that starts the program, or `None` if it needs none.
    pub interpreter: Option<String>,
    pub is_dynamic: bool,
    /// Newest version of the C library that the file requires.
    pub wants: Option<Version>,
    /// Newest version that the file defines, if it is the C library.
    pub offers: Option<Version>,
    /// Newest version that the file defines, if it is GCC's unwinder.
    pub offers_unwinder: Option<Version>,
    exported: Vec<String>,
}

impl Elf {
    /// Returns `None` if the file is not ELF. For another machine, only the machine is read.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Elf>> {
        let mut head = [0; 20];
        let mut file = File::open(path)?;
        match file.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        if head[..4] != *b"\x7fELF" {
            return Ok(None);
        }
        let number = [head[18], head[19]];
        let little = head[5] == 1;
        let machine = Machine {
            bits: if head[4] == 2 { 64 } else { 32 },
            number: if little { u16::from_le_bytes(number) } else { u16::from_be_bytes(number) },
        };
        let mut elf = Elf {
            machine,
            interpreter: None,
            is_dynamic: false,
            wants: None,
            offers: None,
            offers_unwinder: None,
            exported: Vec::new(),
        };
        if machine.bits == 64 && little {
            let cache = ReadCache::new(file);
            elf.read_tables(&cache).map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(Some(elf))
    }

    pub(crate) fn exports(&self, symbol: &str) -> bool {
        self.exported.iter().any(|name| name == symbol)
    }

    fn read_tables<'data>(&mut self, data: impl ReadRef<'data>) -> object::read::Result<()> {
        let head = FileHeader64::<LittleEndian>::parse(data)?;
        let endian = LittleEndian;
        for segment in head.program_headers(endian, data)? {
            self.is_dynamic |= segment.p_type(endian) == PT_DYNAMIC;
            if segment.p_type(endian) == PT_INTERP
                && let Some(path) = segment.interpreter(endian, data)?
            {
                self.interpreter = Some(String::from_utf8_lossy(path).into_owned());
            }
        }
        let sections = head.sections(endian, data)?;
        if let Some((mut needs, link)) = sections.gnu_verneed(endian, data)? {
            let strings = sections.strings(endian, data, link)?;
            while let Some((_, mut names)) = needs.next()? {
                while let Some(name) = names.next()? {
                    self.wants = self.wants.max(version("GLIBC_", name.name(endian, strings)?));
                }
            }
        }
        if let Some((mut definitions, link)) = sections.gnu_verdef(endian, data)? {
            let strings = sections.strings(endian, data, link)?;
            while let Some((_, mut names)) = definitions.next()? {
                // The first name is the version's own; the others are the versions it builds on.
                if let Some(name) = names.next()? {
                    let name = name.name(endian, strings)?;
                    self.offers = self.offers.max(version("GLIBC_", name));
                    self.offers_unwinder = self.offers_unwinder.max(version("GCC_", name));
                }
            }
        }
        let symbols = sections.symbols(endian, data, object::elf::SHT_DYNSYM)?;
        for symbol in symbols.iter() {
            use object::read::elf::Sym;
            let name = symbol.name(endian, symbols.strings())?;
            // A large program has many symbols; keep only those that are queried.
            let is_asked_for = name.starts_with(b"cachealloc_") || OF_OTHERS.contains(&name);
            if !symbol.is_undefined(endian) && is_asked_for {
                self.exported.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        Ok(())
    }
}

/// Symbols that another library exports if it interposes the driver as this one does.
const OF_OTHERS: [&[u8]; 3] = [b"dlsym", b"cuMemAlloc_v2", b"cuGetProcAddress_v2"];

/// Parses `GLIBC_2.17`, for this beginning, and nothing else.
fn version(begin: &str, name: &[u8]) -> Option<Version> {
    let number = std::str::from_utf8(name).ok()?.strip_prefix(begin)?;
    let mut parts = number.split('.');
    Some(Version(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Display for Version {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.0, self.1)
    }
}

impl Display for Machine {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let name = match self.number {
            3 => "x86",
            8 => "MIPS",
            21 => "POWER",
            22 => "S/390",
            40 => "ARM",
            62 => "x86-64",
            183 => "AArch64",
            243 => "RISC-V",
            number => return write!(out, "machine {number} ({} bits)", self.bits),
        };
        match (self.number, self.bits) {
            (62 | 183, 64) | (3 | 40, 32) => write!(out, "{name}"),
            (_, bits) => write!(out, "{name} ({bits} bits)"),
        }
    }
}
