//! Detects whether a program, or a library that it is linked with, opens others with
//! `RTLD_DEEPBIND`. Libraries opened this way prefer the driver's functions to those of cachealloc.
//!
//! Only the code of a file shows this: a call of `dlopen` shortly after a constant with that flag.
//! The search covers x86-64 only. It does not find flags that are computed, or set through an
//! interpreter (`sys.setdlopenflags`).

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::LittleEndian;
use object::elf::{EM_X86_64, FileHeader64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, SHF_EXECINSTR};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::read::{ReadCache, ReadRef};

use super::finding::{Finding, Severity};
use crate::launch::elf::Elf;

/// Maximum number of files named on one line.
const NAMED_MOST: usize = 3;
/// Maximum distance between the instruction that sets the flags and the call.
const NEAR_BYTES: usize = 48;
const RTLD_NOW_OR_LAZY: u32 = 3;
const RTLD_DEEPBIND: u32 = 8;
/// Flags that a mode may contain: lazy, now, no load, deep, global, no delete.
const MODE: u32 = RTLD_NOW_OR_LAZY | 4 | RTLD_DEEPBIND | 0x100 | 0x1000;

pub(super) fn examine(program: &Path) -> Option<Finding> {
    let opens =
        |file: &PathBuf| File::open(file).is_ok_and(|file| opens_deep(&ReadCache::new(file)));
    let found: Vec<PathBuf> = files_of(program).into_iter().filter(opens).collect();
    let named: Vec<_> = found.iter().take(NAMED_MOST).map(|it| it.display().to_string()).collect();
    let (more, verb) = match found.len() {
        0 => return None,
        1 => (String::new(), "opens"),
        count if count > NAMED_MOST => (format!(" and {} more", count - NAMED_MOST), "open"),
        _ => (String::new(), "open"),
    };
    let text = format!(
        "{}{more} {verb} libraries with RTLD_DEEPBIND: driver calls of such a library are neither cached nor \
         recorded, and a free may not wait for its work; if it uses the program's memory, set \
         skip_barriers:false,free_mode:strict",
        named.join(", ")
    );
    Some(Finding::new(Severity::Note, "plugins", text))
}

/// Returns the program and the libraries that the loader would load with it. The loader itself
/// lists them, without running any of their code.
fn files_of(program: &Path) -> Vec<PathBuf> {
    let mut files = vec![program.to_path_buf()];
    let loader = Elf::read(program).ok().flatten().and_then(|elf| elf.interpreter);
    let is_glibc = |loader: &String| loader.rsplit('/').next().is_some_and(is_loader);
    let listed = loader.filter(is_glibc).and_then(|loader| {
        let mut list = Command::new(loader);
        list.arg("--list").arg(program).env_remove("LD_PRELOAD").env_remove("LD_AUDIT");
        list.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()
    });
    if let Some(listed) = listed {
        let text = String::from_utf8_lossy(&listed.stdout);
        files.extend(text.lines().filter_map(|line| {
            let (_, path) = line.split_once(" => ")?;
            let (path, _) = path.rsplit_once(" (")?;
            // The C library opens its own modules, which are unrelated to CUDA.
            let name = path.rsplit('/').next().unwrap_or(path);
            (!name.starts_with("libc.so") && !is_loader(name)).then(|| path.into())
        }));
    }
    files
}

fn is_loader(name: &str) -> bool {
    name.starts_with("ld-linux")
}

fn opens_deep<'data>(data: impl ReadRef<'data>) -> bool {
    code_opens_deep(data).unwrap_or(false) // unreadable code counts as harmless
}

fn code_opens_deep<'data>(data: impl ReadRef<'data>) -> object::read::Result<bool> {
    let head = FileHeader64::<LittleEndian>::parse(data)?;
    let endian = LittleEndian;
    if head.e_machine.get(endian) != EM_X86_64 {
        return Ok(false);
    }
    let sections = head.sections(endian, data)?;
    let symbols = sections.symbols(endian, data, object::elf::SHT_DYNSYM)?;
    let mut slots = BTreeSet::new();
    for section in sections.iter() {
        for entry in section.rela(endian, data)?.map_or(&[][..], |(entries, _)| entries) {
            let kind = entry.r_type(endian, false);
            let at = object::SymbolIndex(entry.r_sym(endian, false) as usize);
            if matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT)
                && symbols.symbol(at)?.name(endian, symbols.strings())? == b"dlopen"
            {
                slots.insert(entry.r_offset.get(endian));
            }
        }
    }
    if slots.is_empty() {
        return Ok(false);
    }
    let is_code = |section: &&object::elf::SectionHeader64<LittleEndian>| {
        section.sh_flags(endian).0 & SHF_EXECINSTR.0 != 0
    };
    let code: Vec<(u64, &[u8])> = sections
        .iter()
        .filter(is_code)
        .map(|section| Ok((section.sh_addr(endian), section.data(endian, data)?)))
        .collect::<object::read::Result<_>>()?;
    let stubs = code.iter().flat_map(|(start, bytes)| stubs(*start, bytes, &slots)).collect();
    Ok(code.iter().any(|(start, bytes)| calls_deep(*start, bytes, &slots, &stubs)))
}

/// Returns the target of a jump or call with this opcode, `length` bytes long with its
/// displacement.
fn target(start: u64, code: &[u8], at: usize, length: usize) -> Option<u64> {
    let displacement = code.get(at + length - 4..at + length)?;
    let displacement = i32::from_le_bytes(displacement.try_into().ok()?);
    Some((start + (at + length) as u64).wrapping_add_signed(displacement.into()))
}

/// Returns where the stubs that jump through one of these slots may begin: `bnd`, `endbr64`, both
/// or neither may precede the jump.
fn stubs(start: u64, code: &[u8], slots: &BTreeSet<u64>) -> Vec<u64> {
    let jumps = code.windows(6).enumerate().filter(|(at, bytes)| {
        bytes[..2] == [0xff, 0x25]
            && target(start, code, *at, 6).is_some_and(|it| slots.contains(&it))
    });
    jumps.flat_map(|(at, _)| [0, 1, 4, 5].map(|before| start + at as u64 - before)).collect()
}

fn calls_deep(start: u64, code: &[u8], slots: &BTreeSet<u64>, stubs: &BTreeSet<u64>) -> bool {
    code.iter().enumerate().any(|(at, byte)| {
        let leads_there = match byte {
            // call, jmp
            0xe8 | 0xe9 => target(start, code, at, 5).is_some_and(|it| stubs.contains(&it)),
            0xff if matches!(code.get(at + 1), Some(0x15 | 0x25)) => {
                target(start, code, at, 6).is_some_and(|it| slots.contains(&it))
            }
            _ => false,
        };
        leads_there && mode_before(&code[..at]).is_some_and(|mode| mode & RTLD_DEEPBIND != 0)
    })
}

/// Returns the last constant moved to `esi` before the end of this code, if it can be a mode.
fn mode_before(code: &[u8]) -> Option<u32> {
    let near = &code[code.len().saturating_sub(NEAR_BYTES)..];
    near.windows(5).rev().find_map(|bytes| {
        let mode = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        let is_one = bytes[0] == 0xbe && mode & RTLD_NOW_OR_LAZY != 0 && mode & !MODE == 0;
        is_one.then_some(mode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mode_before_a_call_counts() {
        let mov = |mode: u32| [&[0xbe][..], &mode.to_le_bytes()].concat();
        let [lazy, deep, large] = [1, 0x10a, 0x1234_5609].map(mov);
        let code = |parts: &[&[u8]]| parts.concat();
        assert_eq!(mode_before(&code(&[&lazy, &deep, &[0x90; 9]])), Some(0x10a));
        assert_eq!(mode_before(&code(&[&deep, &lazy])), Some(1));
        assert_eq!(mode_before(&code(&[&deep, &large])), Some(0x10a));
        assert_eq!(mode_before(&code(&[&deep, &[0x90; NEAR_BYTES]])), None);
        assert_eq!(mode_before(&[]), None);
    }
}
