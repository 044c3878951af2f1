//! The objects that the loader has put into the process, and their layout.

use core::ffi::c_void;
use core::mem::size_of;

/// Visits the loaded objects until `visit` returns true.
pub(crate) fn for_each(mut visit: impl FnMut(&libc::dl_phdr_info) -> bool) {
    unsafe extern "C" fn callback(
        info: *mut libc::dl_phdr_info,
        _bytes: libc::size_t,
        data: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `data` is the reference passed below; the loader's record is valid here.
        let (visit, info) =
            unsafe { (&mut *data.cast::<&mut dyn FnMut(&libc::dl_phdr_info) -> bool>(), &*info) };
        libc::c_int::from(visit(info))
    }
    let mut visit: &mut dyn FnMut(&libc::dl_phdr_info) -> bool = &mut visit;
    // SAFETY: the callback has the wanted signature, and `visit` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut visit).cast()) };
}

/// Returns the number of objects loaded and unloaded so far, combined in one number.
pub(crate) fn changes() -> u64 {
    let mut changes = 0;
    for_each(|info| {
        changes = info.dlpi_adds.wrapping_add(info.dlpi_subs << 32);
        true
    });
    changes
}

/// Returns the headers of an object's segments.
pub(crate) fn segments(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    const { assert!(size_of::<usize>() == 8) };
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the loader's own count of headers, in the object's memory.
    unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
}

/// Returns the first address of a segment, and the one past its end.
pub(crate) fn span(info: &libc::dl_phdr_info, segment: &libc::Elf64_Phdr) -> (usize, usize) {
    let begin = (info.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
    (begin, begin.wrapping_add(segment.p_memsz as usize))
}

/// Returns the first address of the object that contains this address, and the one past its end.
pub(crate) fn span_of_object(address: *const c_void) -> Option<(usize, usize)> {
    let (address, mut found) = (address as usize, None);
    for_each(|info| {
        let loaded = segments(info).iter().filter(|segment| segment.p_type == libc::PT_LOAD);
        let spans = || loaded.clone().map(|segment| span(info, segment));
        if spans().any(|(begin, end)| (begin..end).contains(&address)) {
            let begin = spans().map(|span| span.0).min();
            found = begin.zip(spans().map(|span| span.1).max());
        }
        found.is_some()
    });
    found
}

/// Whether the address contains code.
pub(crate) fn is_code(address: *const c_void) -> bool {
    let (address, mut found) = (address as usize, false);
    for_each(|info| {
        let mut loaded = segments(info).iter().filter(|segment| segment.p_type == libc::PT_LOAD);
        let here = |segment: &&libc::Elf64_Phdr| {
            let (begin, end) = span(info, segment);
            (begin..end).contains(&address)
        };
        match loaded.find(here) {
            Some(segment) => {
                found = segment.p_flags & libc::PF_X != 0;
                true
            }
            None => false,
        }
    });
    found
}
