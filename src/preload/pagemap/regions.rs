//! Slots of large blocks, in little memory.
//!
//! A page of slots describes 128 KiB of a segment. Where blocks are that large, each of them would
//! take a page for its 16 bytes. So each *region* of 128 KiB has one slot beside the pages: the
//! first block that begins in the region takes it, and only further ones take slots in the page. A
//! block keeps its slot until it ends.
//!
//! A region takes 32 bytes once touched: 32 MiB of host memory for 128 GiB of the device. A thread
//! writes the slot of its block in each of its calls, and the block in the next region may be
//! another thread's. In segments of small blocks, where that is likely, every other region is left
//! out, so that each has a cache line of its own.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::heap;
use crate::pagemap::residence::Page;
use crate::state::slot::{FREE, Slot};

/// Number of 512-byte granules in a region.
pub(super) const GRANULES: usize = 256;
/// Number of regions that are mapped at once, or more.
const PIECE: usize = (256 << 10) / size_of::<Region>();

/// A part of a segment.
#[derive(Default)]
#[repr(align(32))]
pub(super) struct Region {
    slot: Slot,
    /// Its holder, if the segment has no place for it (`Holder`).
    pub(super) holder: Holder,
    /// State of the page of slots that begins with this region, if one does.
    pub(super) page: Page,
}

const _: () = assert!(size_of::<Region>() == 32 && GRANULES == 1 << u8::BITS);

/// Which block has the slot of a region, if that is not empty: the low byte of the number of the
/// granule where it begins. Each free of a block in the region reads it, and the block's thread
/// writes the slot in each of its calls. So where many threads may have blocks in a region, they
/// are in different cache lines.
#[derive(Default)]
pub(super) struct Holder(AtomicU8);

impl Holder {
    /// Returns whether it is the block that begins at this granule. A block whose slot is in the
    /// page began while another one had the region's, so it is not.
    #[inline(always)]
    pub(super) fn begins_at(&self, granule: usize) -> bool {
        self.0.load(Ordering::Acquire) == granule as u8
    }
}

impl Region {
    #[inline(always)]
    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Gives the slot to the block that begins at this granule, unless another one has it. Only
    /// one thread at a time may give slots of a region.
    #[inline(always)]
    pub(super) fn take(&self, holder: &Holder, granule: usize) -> Option<&Slot> {
        if self.slot.word.load(Ordering::Acquire) != FREE {
            return None;
        }
        holder.0.store(granule as u8, Ordering::Release);
        Some(&self.slot)
    }

    /// Returns whether this is the region's slot.
    #[inline(always)]
    pub(super) fn has(&self, slot: &Slot) -> bool {
        core::ptr::eq(slot, &self.slot)
    }

    /// Resets the region of a segment that was removed with all its blocks. Writes only where
    /// something was written before: the memory of most regions is never touched.
    pub(super) fn reset(&self) {
        if self.slot.word.load(Ordering::Relaxed) != FREE {
            self.slot.word.store(FREE, Ordering::Relaxed);
        }
        self.page.reset();
    }
}

/// Memory for regions, which is never returned to the system.
pub(super) struct Pieces {
    unused: &'static [Region],
}

impl Pieces {
    pub(super) const fn new() -> Pieces {
        Pieces { unused: &[] }
    }

    /// Returns this number of empty regions, or `None` if there is no memory.
    pub(super) fn take(&mut self, wanted: usize) -> Option<&'static [Region]> {
        if wanted > self.unused.len() {
            self.unused = map(wanted.max(PIECE))?;
        }
        let (taken, unused) = self.unused.split_at(wanted);
        self.unused = unused;
        Some(taken)
    }
}

fn map(count: usize) -> Option<&'static [Region]> {
    let mapped = heap::map_zeroed(count * size_of::<Region>())?.cast::<Region>();
    // SAFETY: a mapping of the library of this size, which is never unmapped. All-zero is a valid
    // region.
    Some(unsafe { core::slice::from_raw_parts(mapped, count) })
}
