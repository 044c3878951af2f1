//! The objects that the dynamic loader has loaded.

use core::ffi::{CStr, c_int, c_void};
use core::ops::{ControlFlow, Range};

/// One loaded object (the main program, a library, the kernel's vDSO), while the loader's list lock
/// is held: no part of it is unmapped until the visit ends.
pub(crate) struct Object<'visit> {
    /// Difference between the addresses in memory and those in the file.
    pub base: u64,
    pub headers: &'visit [libc::Elf64_Phdr],
    /// Name in the loader's list; empty for the main program.
    pub name: &'visit [u8],
    /// State of the list; it changes whenever an object is added or removed.
    pub state: ListState,
}

/// Number of objects ever added to the loader's list, and number removed from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListState {
    pub added: u32,
    pub removed: u32,
}

/// Visits the objects under the loader's list lock, until `body` breaks.
///
/// glibc holds this lock only while it links an object in or out, never while it runs a constructor
/// or waits. So a capture inside `dlopen`, or concurrent with one that does not return, is not
/// blocked. `body` must take no lock and allocate nothing from the heap, so that no other lock ever
/// depends on this one.
pub(crate) fn each_object(mut body: impl FnMut(&Object) -> ControlFlow<()>) {
    let mut body: &mut dyn FnMut(&Object) -> ControlFlow<()> = &mut body;
    // SAFETY: `visit` gets back the pointer to `body`, during this call only.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut body).cast()) };
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, body: *mut c_void) -> c_int {
    // SAFETY: the pointer that `each_object` passed.
    let body = unsafe { &mut *body.cast::<&mut dyn FnMut(&Object) -> ControlFlow<()>>() };
    // SAFETY: the loader's own description, valid during the visit.
    let info = unsafe { &*info };
    let headers = match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: the object's program headers, with their count.
        false => unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
    };
    let name = match info.dlpi_name.is_null() {
        true => &[],
        // SAFETY: a string that lives as long as the object.
        false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes(),
    };
    // Only differences matter, so the low halves suffice.
    let state = ListState { added: info.dlpi_adds as u32, removed: info.dlpi_subs as u32 };
    body(&Object { base: info.dlpi_addr, headers, name, state }).is_break().into()
}

/// Returns the addresses of a segment in memory.
pub(crate) fn segment(base: u64, header: &libc::Elf64_Phdr) -> Range<u64> {
    let start = base.wrapping_add(header.p_vaddr);
    start..start.saturating_add(header.p_memsz)
}

/// Returns the part of a loaded object's memory from `address` to the end of its readable segment.
///
/// # Safety
///
/// - The object with these headers is loaded and stays so for `'visit`.
pub(crate) unsafe fn readable<'visit>(
    base: u64,
    headers: &[libc::Elf64_Phdr],
    address: u64,
) -> Option<&'visit [u8]> {
    let end = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0)
        .map(|header| segment(base, header))
        .find(|segment| segment.contains(&address))?
        .end;
    // SAFETY: within one readable segment of an object that the caller guarantees to be loaded.
    Some(unsafe { core::slice::from_raw_parts(address as *const u8, (end - address) as usize) })
}

impl Object<'_> {
    /// Returns the range from the first to the last loaded byte.
    pub(crate) fn range(&self) -> Range<u64> {
        let loaded = || {
            self.headers
                .iter()
                .filter(|header| header.p_type == libc::PT_LOAD)
                .map(|header| segment(self.base, header))
        };
        let start = loaded().map(|segment| segment.start).min().unwrap_or(0);
        let end = loaded().map(|segment| segment.end).max().unwrap_or(0);
        start..end
    }

    /// Returns the linker's build id; empty if the object has none.
    pub(crate) fn build_id(&self) -> &[u8] {
        for header in self.headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
            let range = segment(self.base, header);
            // SAFETY: loaded during this visit.
            let bytes = unsafe { readable(self.base, self.headers, range.start) };
            let length = (range.end - range.start) as usize;
            let notes = bytes.and_then(|bytes| bytes.get(..length)).unwrap_or(&[]);
            if let Some(build_id) = build_id_among(notes, header.p_align) {
                return build_id;
            }
        }
        &[]
    }
}

/// Returns the build id among the notes of a segment with this alignment.
pub(crate) fn build_id_among(mut notes: &[u8], align: u64) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let align = if align == 8 { 8 } else { 4 };
    while let Some((note, rest)) = split_note(notes, align) {
        if note.kind == NT_GNU_BUILD_ID && note.name == b"GNU\0" {
            return Some(note.content);
        }
        notes = rest;
    }
    None
}

struct Note<'a> {
    kind: u32,
    name: &'a [u8],
    content: &'a [u8],
}

/// Returns the first note of a note segment, and the notes after it.
fn split_note(notes: &[u8], align: usize) -> Option<(Note<'_>, &[u8])> {
    let word = |at: usize| Some(u32::from_ne_bytes(notes.get(at..at + 4)?.try_into().ok()?));
    let name_end = 12usize.checked_add(word(0)? as usize)?;
    let content_start = name_end.checked_next_multiple_of(align)?;
    let content_end = content_start.checked_add(word(4)? as usize)?;
    let rest_start = content_end.checked_next_multiple_of(align)?.min(notes.len());
    let name = notes.get(12..name_end)?;
    let content = notes.get(content_start..content_end)?;
    Some((Note { kind: word(8)?, name, content }, &notes[rest_start..]))
}
