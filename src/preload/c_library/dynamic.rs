//! The tables by which the loader links an object, read in place. Reading them waits for no lock
//! except that of the loader's list, which is not held while a library's constructor runs.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::size_of;
use core::ptr::{null, null_mut};

use crate::c_library::objects;

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_SONAME: i64 = 14;
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
    /// Place of the object's own name in the table of names, or 0.
    own_name: usize,
}

#[repr(C)]
struct Entry {
    tag: i64,
    value: usize,
}

/// An object in the loader's list, from `<link.h>`.
#[repr(C)]
struct LinkMap {
    base: usize,
    _path: *const c_char,
    dynamic: *const Entry,
    next: *const LinkMap,
}

/// The loader's list for debuggers, from `<link.h>`.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const LinkMap,
}

unsafe extern "C" {
    static _r_debug: Debug;
}

impl Dynamic {
    pub(crate) fn of(info: &libc::dl_phdr_info) -> Option<Dynamic> {
        let mut segments = objects::segments(info).iter();
        let section = segments.find(|segment| segment.p_type == libc::PT_DYNAMIC)?;
        let entries = objects::span(info, section).0 as *const Entry;
        // SAFETY: the section of a loaded object.
        unsafe { Dynamic::at(info.dlpi_addr as usize, entries) }
    }

    /// # Safety
    ///
    /// These must be the address of a loaded object and of its dynamic section.
    unsafe fn at(base: usize, mut entry: *const Entry) -> Option<Dynamic> {
        let mut found = Dynamic {
            base,
            relocations: 0,
            relocation_bytes: 0,
            relative_count: 0,
            symbols: 0,
            names: 0,
            hash: 0,
            own_name: 0,
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
                DT_SONAME => found.own_name = value,
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
        unsafe { CStr::from_ptr(self.text(symbol.st_name as usize)) }
    }

    /// Returns the C string at this place of the table of names.
    fn text(&self, place: usize) -> *const c_char {
        (self.names as *const c_char).wrapping_add(place)
    }

    /// Returns whether the object has this name.
    fn is(&self, name: &CStr) -> bool {
        // SAFETY: the object's own name is a C string in its table of names.
        self.own_name != 0 && unsafe { is_equal(self.text(self.own_name), name) }
    }

    /// Returns the address of a symbol that the object itself defines.
    pub(crate) fn address(&self, symbol: &libc::Elf64_Sym) -> Option<usize> {
        let is_there = symbol.st_shndx != SHN_UNDEF;
        is_there.then(|| self.base.wrapping_add(symbol.st_value as usize))
    }

    /// Returns the address of what the object defines by this name. Calls no function of the C
    /// library.
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
                if entry | 1 == hash | 1 && is_equal(self.text(symbol.st_name as usize), name) {
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

/// Returns the definition in the object of this name (its soname), or null. Calls no function of
/// the C library, so another library that interposes such a function and looks up the next one may
/// be the caller. Must not run while objects are loaded or unloaded.
pub(crate) fn find_in(object: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: the loader's list is complete before any code of an object runs.
    let mut at = unsafe { _r_debug.first };
    // SAFETY: an entry of the list, or null at its end.
    while let Some(LinkMap { base, dynamic, next, .. }) = unsafe { at.as_ref() } {
        // SAFETY: the loader's own description of a loaded object.
        let tables = unsafe { Dynamic::at(*base, *dynamic) };
        let tables = tables.filter(|tables| tables.is(object));
        if let Some(address) = tables.and_then(|tables| tables.find(name)) {
            return address as *mut c_void;
        }
        at = *next;
    }
    null_mut()
}

/// Compares without the C library.
///
/// # Safety
///
/// `text` must be a C string.
unsafe fn is_equal(text: *const c_char, name: &CStr) -> bool {
    let mut bytes = name.to_bytes_with_nul().iter().enumerate();
    // SAFETY: not read past the first difference, and so not past the end.
    bytes.all(|(place, byte)| unsafe { text.cast::<u8>().add(place).read() == *byte })
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
