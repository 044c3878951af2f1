//! The tables by which the loader links an object, read in place. Reading them waits for no lock
//! except that of the loader's list, which is not held while a library's constructor runs.

use core::ffi::{CStr, c_char, c_void};
use core::mem::size_of;
use core::ptr::null;

use crate::c_library::objects;

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_RELACOUNT: i64 = 0x6fff_fff9;
const SHN_UNDEF: u16 = 0;

/// Tables of an object. An address is 0 if the object has no such table.
pub(crate) struct Dynamic {
    base: usize,
    relocations: usize,
    relocation_bytes: usize,
    /// Number of leading relocations that refer to no symbol.
    relative_count: usize,
    symbols: usize,
    names: usize,
    hash: usize,
}

impl Dynamic {
    pub(crate) fn of(info: &libc::dl_phdr_info) -> Option<Dynamic> {
        #[repr(C)]
        struct Entry {
            tag: i64,
            value: usize,
        }
        let base = info.dlpi_addr as usize;
        let segments = objects::segments(info).iter();
        let section = segments.clone().find(|segment| segment.p_type == libc::PT_DYNAMIC)?;
        let mut entry = objects::span(info, section).0 as *const Entry;
        let mut found = Dynamic {
            base,
            relocations: 0,
            relocation_bytes: 0,
            relative_count: 0,
            symbols: 0,
            names: 0,
            hash: 0,
        };
        // The loader has added the base in place, except in the object that the kernel provides.
        let address = |value: usize| if value < base { base.wrapping_add(value) } else { value };
        loop {
            // SAFETY: the section ends with an entry of the tag that ends the loop.
            let Entry { tag, value } = unsafe { entry.read() };
            match tag {
                DT_NULL => break,
                DT_RELA => found.relocations = address(value),
                DT_RELASZ => found.relocation_bytes = value,
                DT_RELACOUNT => found.relative_count = value,
                DT_SYMTAB => found.symbols = address(value),
                DT_STRTAB => found.names = address(value),
                DT_GNU_HASH => found.hash = address(value),
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        (found.symbols != 0 && found.names != 0).then_some(found)
    }

    /// Returns the places to which the loader has written the address of a symbol, without the
    /// calls that it binds late.
    pub(crate) fn relocations(&self) -> &'static [libc::Elf64_Rela] {
        let count = self.relocation_bytes / size_of::<libc::Elf64_Rela>();
        if self.relocations == 0 || self.relative_count >= count {
            return &[];
        }
        let first = (self.relocations as *const libc::Elf64_Rela).wrapping_add(self.relative_count);
        // SAFETY: the object's own table, with this many entries.
        unsafe { core::slice::from_raw_parts(first, count - self.relative_count) }
    }

    /// # Safety
    ///
    /// `number` must be the number of one of the object's symbols.
    pub(crate) unsafe fn symbol(&self, number: usize) -> &'static libc::Elf64_Sym {
        // SAFETY: the caller's promise.
        unsafe { &*(self.symbols as *const libc::Elf64_Sym).add(number) }
    }

    pub(crate) fn name(&self, symbol: &libc::Elf64_Sym) -> &'static CStr {
        // SAFETY: a symbol's name is a C string in the object's table of names.
        unsafe { CStr::from_ptr((self.names as *const c_char).add(symbol.st_name as usize)) }
    }

    /// Returns the address of a symbol that the object itself defines.
    pub(crate) fn address(&self, symbol: &libc::Elf64_Sym) -> Option<usize> {
        let is_there = symbol.st_shndx != SHN_UNDEF;
        is_there.then(|| self.base.wrapping_add(symbol.st_value as usize))
    }

    /// Returns the address of what the object defines by this name.
    fn find(&self, name: &CStr) -> Option<usize> {
        if self.hash == 0 {
            return None;
        }
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let table = self.hash as *const u32;
        // SAFETY: the object's own table, in the form of its tag: a header of four words, a filter,
        // a word for each bucket, and one for each symbol from the first one in the table on.
        unsafe {
            let (buckets, first, filter_words) =
                (table.read(), table.add(1).read(), table.add(2).read());
            if buckets == 0 {
                return None;
            }
            let bucket = table.add(4 + 2 * filter_words as usize);
            let chain = bucket.add(buckets as usize);
            let mut number = bucket.add((hash % buckets) as usize).read();
            while number >= first {
                let entry = chain.add((number - first) as usize).read();
                let symbol = self.symbol(number as usize);
                if entry | 1 == hash | 1 && self.name(symbol) == name {
                    return self.address(symbol);
                }
                if entry & 1 == 1 {
                    break;
                }
                number += 1;
            }
        }
        None
    }
}

/// Returns the first definition in any object, even in one that was loaded with local scope, or
/// null.
pub(crate) fn find(name: &CStr) -> *const c_void {
    let mut found = None;
    objects::for_each(|info| {
        found = Dynamic::of(info).and_then(|dynamic| dynamic.find(name));
        found.is_some()
    });
    found.map_or(null(), |address| address as *const c_void)
}
