//! The parts of the file that belong to one history source: a context, or driver memory on one
//! device or the host. They are a ring and rows, lent to `history` in chunks.

use core::sync::atomic::{AtomicU64, Ordering};

use cachealloc_history::persistent::layout::*;
use cachealloc_history::{CHUNK_ROWS, ChunkAllocator, Entry, PieceAllocator, Ring, Rows};

use crate::lock::lock;
use crate::record::persistent::area::Area;
use crate::record::persistent::{AREA, make_once};

/// The part of the file of one history source.
#[derive(Clone, Copy)]
pub(crate) struct HistorySource {
    area: &'static Area,
    number: usize,
}

/// Returns a new source, or `None` if the history is not persistent.
pub(crate) fn source(kind: u64, device: i32) -> Option<HistorySource> {
    let area = make_once()?;
    let number = {
        let mut taken = lock(&area.taken);
        taken.owners += 1;
        taken.owners - 1
    };
    let is_there = number < OWNERS_MAX && area.fetch(OWNERS_AT + number * OWNER_BYTES, OWNER_BYTES);
    if !is_there {
        area.give_up();
        return None;
    }
    let source = HistorySource { area, number };
    source.word(OWNER_DEVICE).store(device.max(0) as u64, Ordering::Relaxed);
    source.word(OWNER_KIND).store(kind, Ordering::Release);
    Some(source)
}

/// Returns a ring for `entries_max` entries.
pub(crate) fn ring(source: Option<HistorySource>, entries_max: usize) -> Ring {
    source.map_or_else(|| Ring::new(entries_max), |source| source.ring(entries_max))
}

impl HistorySource {
    fn ring(self, entries_max: usize) -> Ring {
        self.word(OWNER_PUSHED).store(0, Ordering::Relaxed);
        self.word(OWNER_ENTRIES_MAX).store(entries_max.max(1) as u64, Ordering::Release);
        Ring::persistent(entries_max, self.allocator(ENTRIES), self.word(OWNER_PUSHED))
    }

    pub(crate) fn blocks(self) -> Rows<BlockRow> {
        Rows::allocated_by(self.allocator(BLOCKS))
    }

    pub(crate) fn segments(self) -> Rows<SegmentRow> {
        Rows::allocated_by(self.allocator(SEGMENTS))
    }

    /// Sets whether the rows are consistent. Call before the first entry.
    pub(crate) fn set_on(self, on: bool) {
        if on {
            self.word(OWNER_PUSHED).store(0, Ordering::Release);
        }
        self.word(OWNER_ON).store(u64::from(on), Ordering::Release);
    }

    fn word(self, word: usize) -> &'static AtomicU64 {
        self.area.word(OWNERS_AT / 8 + self.number * OWNER_WORDS + word)
    }

    fn allocator(self, kind: u8) -> Box<Chunks> {
        Box::new(Chunks { source: self, kind, places: Vec::new() })
    }
}

/// The chunks of one kind of one source.
struct Chunks {
    source: HistorySource,
    kind: u8,
    places: Vec<usize>,
}

/// A type for which zeroed memory is valid.
///
/// # Safety
///
/// All-zero bytes must be a value of the type.
unsafe trait OfZeros: Send + 'static {}
// SAFETY: numbers, and an action of number 0.
unsafe impl OfZeros for Entry {}
// SAFETY: numbers.
unsafe impl OfZeros for BlockRow {}
// SAFETY: numbers.
unsafe impl OfZeros for SegmentRow {}

impl<T: OfZeros> ChunkAllocator<T> for Chunks {
    fn allocate(&mut self, number: usize) -> Option<&'static mut [T]> {
        const { assert!(size_of::<T>() * CHUNK_ROWS == CHUNK_BYTES) }
        self.places.try_reserve(1).ok()?;
        let place = self.source.area.take(self.kind, self.source.number, number)?;
        self.places.push(place);
        let chunk = self.source.area.chunk(place).cast::<T>();
        // SAFETY: zeros, used only by this source until `release`, and aligned to pages.
        Some(unsafe { core::slice::from_raw_parts_mut(chunk, CHUNK_ROWS) })
    }

    fn release(&mut self, number: usize, _: &'static mut [T]) {
        if let Some(place) = self.places.get(number).copied() {
            self.places.truncate(number);
            self.source.area.give_back(place);
        }
    }
}

/// Allocates pieces for stacks.
pub(crate) struct Pieces;

impl PieceAllocator for Pieces {
    fn allocate_piece(&self) -> Option<&'static mut [u64]> {
        AREA.get()?.as_ref()?.piece()
    }
}
