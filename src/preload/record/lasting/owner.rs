//! What one context, or memory of the driver's own on one device or the host, has of the file: a ring and rows, lent to
//! `history` in chunks.

use core::sync::atomic::{AtomicU64, Ordering};

use cachealloc_history::lasting::layout::*;
use cachealloc_history::{CHUNK_ROWS, Entry, Lender, PieceLender, Ring, Rows};

use super::area::Area;
use super::{AREA, make_once};
use crate::lock::lock;

/// A part of the file, for one of these.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    area: &'static Area,
    number: usize,
}

/// A new owner; none where the history does not outlive the process.
pub(crate) fn owner(kind: u64, device: i32) -> Option<Owner> {
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
    let owner = Owner { area, number };
    owner.word(OWNER_DEVICE).store(device.max(0) as u64, Ordering::Relaxed);
    owner.word(OWNER_KIND).store(kind, Ordering::Release);
    Some(owner)
}

/// A ring for so many entries.
pub(crate) fn ring(owner: Option<Owner>, entries_max: usize) -> Ring {
    owner.map_or_else(|| Ring::new(entries_max), |owner| owner.ring(entries_max))
}

impl Owner {
    fn ring(self, entries_max: usize) -> Ring {
        self.word(OWNER_PUSHED).store(0, Ordering::Relaxed);
        self.word(OWNER_ENTRIES_MAX).store(entries_max.max(1) as u64, Ordering::Release);
        Ring::lasting(entries_max, self.lender(ENTRIES), self.word(OWNER_PUSHED))
    }

    pub(crate) fn blocks(self) -> Rows<BlockRow> {
        Rows::lent_by(self.lender(BLOCKS))
    }

    pub(crate) fn segments(self) -> Rows<SegmentRow> {
        Rows::lent_by(self.lender(SEGMENTS))
    }

    /// Whether its rows are consistent. Call before the first entry.
    pub(crate) fn set_on(self, on: bool) {
        if on {
            self.word(OWNER_PUSHED).store(0, Ordering::Release);
        }
        self.word(OWNER_ON).store(u64::from(on), Ordering::Release);
    }

    fn word(self, word: usize) -> &'static AtomicU64 {
        self.area.word(OWNERS_AT / 8 + self.number * OWNER_WORDS + word)
    }

    fn lender(self, kind: u8) -> Box<Chunks> {
        Box::new(Chunks { owner: self, kind, places: Vec::new() })
    }
}

/// The chunks of one kind of one owner.
struct Chunks {
    owner: Owner,
    kind: u8,
    places: Vec<usize>,
}

/// # Safety
///
/// - Zeros are a value of the type.
unsafe trait OfZeros: Send + 'static {}
// SAFETY: numbers, and an action of number 0.
unsafe impl OfZeros for Entry {}
// SAFETY: numbers.
unsafe impl OfZeros for BlockRow {}
// SAFETY: numbers.
unsafe impl OfZeros for SegmentRow {}

impl<T: OfZeros> Lender<T> for Chunks {
    fn lend(&mut self, number: usize) -> Option<&'static mut [T]> {
        const { assert!(size_of::<T>() * CHUNK_ROWS == CHUNK_BYTES) }
        self.places.try_reserve(1).ok()?;
        let place = self.owner.area.take(self.kind, self.owner.number, number)?;
        self.places.push(place);
        let chunk = self.owner.area.chunk(place).cast::<T>();
        // SAFETY: zeros, this owner's alone until `take_back`, and aligned to pages.
        Some(unsafe { core::slice::from_raw_parts_mut(chunk, CHUNK_ROWS) })
    }

    fn take_back(&mut self, number: usize, _: &'static mut [T]) {
        if let Some(place) = self.places.get(number).copied() {
            self.places.truncate(number);
            self.owner.area.give_back(place);
        }
    }
}

/// Lends pieces for stacks.
pub(crate) struct Pieces;

impl PieceLender for Pieces {
    fn lend_piece(&self) -> Option<&'static mut [u64]> {
        AREA.get()?.as_ref()?.piece()
    }
}
