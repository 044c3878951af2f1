//! Finds the rule of one code address, and its function, in the unwind tables of its module.

use core::ops::Range;

use gimli::UnwindSection;
use gimli::{BaseAddresses, EhFrame, EhFrameHdr, FrameDescriptionEntry, NativeEndian, Pointer};

use crate::fork::Visit;
use crate::processor::describe;
use crate::processor::rule::Rule;
use crate::processor::{SIGNAL_RETURN, VENDOR};
use crate::row::{Bytes, Frames, Malformed, Row};
use crate::{loader, modules};

/// Returns the code around this address that the unwind tables of its module describe as one: a
/// function, or a part of one that the compiler placed elsewhere. Empty if no table describes the
/// address.
pub fn function_range(address: u64) -> Range<u64> {
    let found = in_module(address, |base, headers, _| {
        // SAFETY: the module stays loaded while this runs.
        let entry = unsafe { entry_at(base, headers, address) }.ok()??;
        Some(entry.frame.initial_address()..entry.frame.end_address())
    });
    found.unwrap_or(0..0)
}

/// Runs `body` with base and headers of the module that contains this address, and the epoch. The
/// module stays loaded meanwhile.
pub(crate) fn in_module<R>(
    address: u64,
    body: impl FnOnce(u64, &[libc::Elf64_Phdr], u32) -> Option<R>,
) -> Option<R> {
    let visit = Visit::begin()?;
    let found = modules::while_current(&visit, |epoch| {
        let module = modules::loaded_at(address)?;
        // SAFETY: it is loaded, and the loader's list lock is held.
        body(module.base(), unsafe { module.headers() }, epoch)
    });
    found.flatten()
}

/// Returns the rule of a code address. `address` lies in the calling instruction, so the return
/// address is the byte after it.
///
/// # Safety
///
/// - The object with these headers and this base is loaded and stays so during the call.
pub(crate) unsafe fn rule_at(base: u64, headers: &[libc::Elf64_Phdr], address: u64) -> Rule {
    // SAFETY: the caller guarantees that it is loaded.
    let code = unsafe { loader::readable(base, headers, address + 1) };
    if code.is_some_and(|code| code.starts_with(&SIGNAL_RETURN)) {
        return Rule::Signal;
    }
    // SAFETY: the caller guarantees that it is loaded.
    let entry = unsafe { entry_at(base, headers, address) };
    let rule = entry.and_then(|entry| match entry {
        Some(entry) => entry.rule(address),
        // libgcc, too, ends a stack at code that no table describes.
        None => Ok(Rule::Outermost),
    });
    rule.unwrap_or(Rule::Unsupported)
}

/// The description of one function, or of a part of one, in a module's tables.
struct Entry<'visit> {
    section: EhFrame<Bytes<'visit>>,
    bases: BaseAddresses,
    frame: FrameDescriptionEntry<Bytes<'visit>>,
}

impl Entry<'_> {
    fn rule(&self, address: u64) -> Result<Rule, Malformed> {
        let Entry { section, bases, frame } = self;
        let frames = Frames {
            section,
            start: frame.initial_address(),
            code_factor: frame.cie().code_alignment_factor(),
            data_factor: frame.cie().data_alignment_factor(),
        };
        let mut row = Row::START;
        row.run(frame.cie().instructions(section, bases), &frames, address)?;
        row.run(frame.instructions(section, bases), &frames, address)?;
        Ok(describe::rule(&row))
    }
}

/// Returns the entry of an address, or `None` if no table describes it.
///
/// # Safety
///
/// - The module must stay loaded, as for [`rule_at`], for as long as the result is used.
unsafe fn entry_at<'visit>(
    base: u64,
    headers: &[libc::Elf64_Phdr],
    address: u64,
) -> Result<Option<Entry<'visit>>, Malformed> {
    let header = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
    let table = loader::segment(base, header.ok_or(Malformed)?).start;
    // SAFETY: the caller guarantees that it is loaded.
    let bytes = unsafe { loader::readable(base, headers, table) }.ok_or(Malformed)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(table);
    let parsed = EhFrameHdr::new(bytes, NativeEndian).parse(&bases, 8).map_err(|_| Malformed)?;
    let Pointer::Direct(frames) = parsed.eh_frame_ptr() else { return Err(Malformed) };
    // SAFETY: the caller guarantees that it is loaded.
    let bytes = unsafe { loader::readable(base, headers, frames) }.ok_or(Malformed)?;
    let mut section = EhFrame::new(bytes, NativeEndian);
    section.set_vendor(VENDOR);
    let bases = bases.set_eh_frame(frames);
    let frame = parsed.table().ok_or(Malformed)?.fde_for_address(
        &section,
        &bases,
        address,
        EhFrame::cie_from_offset,
    );
    match frame {
        Ok(frame) => Ok(Some(Entry { section, bases, frame })),
        Err(gimli::Error::NoUnwindInfoForAddress) => Ok(None),
        Err(_) => Err(Malformed),
    }
}
