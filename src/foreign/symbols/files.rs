//! The bytes read from the files of one module.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use cachealloc_history::file::OwnFile;
use object::ReadRef;
use typed_arena::Arena;

/// Maximum bytes read and decompressed from a module's files. Debug information beyond that is
/// skipped.
const BYTES_MAX: u64 = 256 << 20;

/// The bytes read from a module's files, kept while its names are looked up.
pub struct Files {
    bytes: Arena<Vec<u8>>,
    left: Cell<u64>,
}

impl Default for Files {
    fn default() -> Files {
        Files { bytes: Arena::new(), left: Cell::new(BYTES_MAX) }
    }
}

impl Files {
    /// Keeps decompressed bytes.
    pub(crate) fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        self.bytes.alloc(bytes)
    }

    /// Counts bytes against the maximum. Returns `None` if fewer are left.
    pub(crate) fn take(&self, bytes: u64) -> Option<()> {
        self.left.set(self.left.get().checked_sub(bytes)?);
        Some(())
    }
}

/// An open file, and the parts of it that were read.
pub(crate) struct Reading<'r, 'a> {
    files: &'a Files,
    file: &'r OwnFile,
    length: u64,
    parts: RefCell<Vec<(u64, &'a [u8])>>,
}

impl<'r, 'a> Reading<'r, 'a> {
    pub(crate) fn new(files: &'a Files, file: &'r OwnFile) -> Option<Reading<'r, 'a>> {
        let length = file.still().ok()?.metadata().ok()?.len();
        Some(Reading { files, file, length, parts: RefCell::default() })
    }

    pub(crate) fn files(&self) -> &'a Files {
        self.files
    }

    fn known(&self, Range { start, end }: Range<u64>) -> Option<&'a [u8]> {
        self.parts.borrow().iter().find_map(|(at, part)| {
            let from = usize::try_from(start.checked_sub(*at)?).ok()?;
            part.get(from..usize::try_from(end - at).ok()?)
        })
    }

    fn read(&self, range: Range<u64>) -> Option<&'a [u8]> {
        if range.start > range.end || range.end > self.length {
            return None;
        }
        if let Some(known) = self.known(range.clone()) {
            return Some(known);
        }
        let count = range.end - range.start;
        self.files.take(count)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(count).ok()?).ok()?;
        bytes.resize(count as usize, 0);
        // A file that was truncated meanwhile lacks the rest.
        self.file.still().ok()?.read_exact_at(&mut bytes, range.start).ok()?;
        let bytes = self.files.keep(bytes);
        self.parts.borrow_mut().push((range.start, bytes));
        Some(bytes)
    }
}

/// The file in the form that the parsers read.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'r, 'a>(pub &'r Reading<'r, 'a>);

impl<'a> ReadRef<'a> for Bytes<'_, 'a> {
    fn len(self) -> Result<u64, ()> {
        Ok(self.0.length)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        let end = offset.checked_add(size).ok_or(())?;
        if size == 0 { Ok(&[]) } else { self.0.read(offset..end).ok_or(()) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        /// Bytes to read for a name that is looked up separately; such names are short.
        const WINDOW_BYTES: u64 = 4096;
        let until = |bytes: &'a [u8]| {
            let end = bytes.iter().position(|byte| *byte == delimiter)?;
            bytes.get(..end)
        };
        let end = range.end.min(self.0.length);
        // Reuses a part that was read, the whole table or a window of it.
        let parts: Vec<&'a [u8]> = {
            let parts = self.0.parts.borrow();
            let tail = |(at, part): &(u64, &'a [u8])| {
                part.get(usize::try_from(range.start.checked_sub(*at)?).ok()?..)
            };
            parts.iter().filter_map(tail).filter(|tail| !tail.is_empty()).take(1).collect()
        };
        if let Some(found) = parts.into_iter().find_map(until) {
            return Ok(found);
        }
        let end = end.min(range.start.saturating_add(WINDOW_BYTES));
        self.0.read(range.start..end).and_then(until).ok_or(())
    }
}
