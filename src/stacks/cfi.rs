//! The rule of one code address, from the unwind tables of its module.

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, NativeEndian, Pointer, UnwindSection};

use crate::loader;
use crate::processor::describe;
use crate::processor::rule::Rule;
use crate::processor::{SIGNAL_RETURN, VENDOR};
use crate::row::{Frames, Malformed, Row};

/// `address` lies in the calling instruction, so the return address is the byte after it.
///
/// # Safety
///
/// - The object with these headers and this base is loaded and stays so during the call.
pub(crate) unsafe fn rule_at(base: u64, headers: &[libc::Elf64_Phdr], address: u64) -> Rule {
    // SAFETY: loaded, by the caller's word.
    let code = unsafe { loader::readable(base, headers, address + 1) };
    if code.is_some_and(|code| code.starts_with(&SIGNAL_RETURN)) {
        return Rule::Signal;
    }
    let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME) else {
        return Rule::Unsupported;
    };
    let table = loader::segment(base, header).start;
    // SAFETY: loaded, by the caller's word.
    unsafe { look_up(base, headers, table, address) }.unwrap_or(Rule::Unsupported)
}

/// # Safety
///
/// - As for [`rule_at`].
unsafe fn look_up(
    base: u64,
    headers: &[libc::Elf64_Phdr],
    table: u64,
    address: u64,
) -> Result<Rule, Malformed> {
    // SAFETY: loaded, by the caller's word.
    let bytes = unsafe { loader::readable(base, headers, table) }.ok_or(Malformed)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(table);
    let parsed = EhFrameHdr::new(bytes, NativeEndian).parse(&bases, 8).map_err(|_| Malformed)?;
    let Pointer::Direct(frames) = parsed.eh_frame_ptr() else { return Err(Malformed) };
    // SAFETY: loaded, by the caller's word.
    let bytes = unsafe { loader::readable(base, headers, frames) }.ok_or(Malformed)?;
    let mut section = EhFrame::new(bytes, NativeEndian);
    section.set_vendor(VENDOR);
    let bases = bases.set_eh_frame(frames);
    let entry = parsed.table().ok_or(Malformed)?.fde_for_address(
        &section,
        &bases,
        address,
        EhFrame::cie_from_offset,
    );
    let entry = match entry {
        Ok(entry) => entry,
        // libgcc, too, ends a stack at code that no table describes.
        Err(gimli::Error::NoUnwindInfoForAddress) => return Ok(Rule::Outermost),
        Err(_) => return Err(Malformed),
    };
    let frames = Frames {
        section: &section,
        start: entry.initial_address(),
        code_factor: entry.cie().code_alignment_factor(),
        data_factor: entry.cie().data_alignment_factor(),
    };
    let mut row = Row::START;
    row.run(entry.cie().instructions(&section, &bases), &frames, address)?;
    row.run(entry.instructions(&section, &bases), &frames, address)?;
    Ok(describe::rule(&row))
}
