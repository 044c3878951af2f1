//! A segment's addresses, and where the slots of its blocks lie.

use core::mem::offset_of;
use core::ptr::null_mut;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::heap;
use crate::pagemap::regions::{self, Holder, Pieces, Region};
use crate::pagemap::residence::{self, Page};
use crate::state::contexts::Context;
use crate::state::slot::{GRANULE_BYTES, Slot};

/// A segment's addresses. Each free of any thread reads the first cache line, so nothing that is
/// written in a pair of calls is there.
#[repr(C, align(64))]
pub(crate) struct Extent {
    base: AtomicU64,
    context: AtomicPtr<Context>,
    slots_count: usize,
    /// Slots of the blocks that do not have their region's.
    slots: *const Slot,
    /// Where the regions after the first would have the first one.
    others: *const Region,
    /// Reasons why none of its blocks may enter a thread cache.
    special: AtomicU8,
    /// Whether it is a range of an arena: not all addresses are backed by memory, and no other
    /// process can open any.
    expandable: AtomicBool,
    /// Binary logarithm of the distance between its regions, in regions.
    spread: u8,
    /// The holders of its first regions. A segment of small blocks has no more regions.
    holders: [Holder; HOLDERS],
    /// The first region. Large segments have one block, which begins there.
    first: Region,
    bytes: AtomicU64,
    /// The extent made before this one.
    _older: *const Extent,
}

/// Number of regions whose holders are in the first line.
const HOLDERS: usize = (2 << 20) / (regions::GRANULES * GRANULE_BYTES as usize);
const _: () = assert!(offset_of!(Extent, first) == 64);

// SAFETY: `slots` points to a mapping that is never unmapped and holds only atomics.
unsafe impl Sync for Extent {}
// SAFETY: as above.
unsafe impl Send for Extent {}

const EXPORTED: u8 = 1;
const PRIVATE: u8 = 2;

const SLOTS_PER_PAGE: usize = residence::PAGE_BYTES / size_of::<Slot>();
const _: () = assert!(SLOTS_PER_PAGE.is_multiple_of(regions::GRANULES));

/// Unused extents, and what new ones are made of.
pub(super) struct Spare {
    /// By the number of their slots.
    extents: BTreeMap<usize, Vec<&'static Extent>>,
    regions: Pieces,
}

/// The newest extent ever made, which links to the older ones. Changed under the lock of the spare
/// extents. Only for leak checkers: LeakSanitizer does not scan the radix's mappings and would
/// report the extents as leaked.
static EVER: AtomicPtr<Extent> = AtomicPtr::new(null_mut());

impl Extent {
    /// Returns the offset of an address in this extent, or `None` if it lies outside.
    #[inline]
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        // An address below the base is further from it than any segment is long.
        let offset = address.wrapping_sub(self.base());
        (offset < self.bytes()).then_some(offset)
    }

    pub(crate) fn base(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn context(&self) -> &'static Context {
        // SAFETY: set before the extent became reachable; contexts are leaked.
        unsafe { &*self.context.load(Ordering::Relaxed) }
    }

    /// Notes that a block of the segment was exported.
    pub(crate) fn note_exported(&self) {
        self.special.fetch_or(EXPORTED, Ordering::Release);
    }

    /// Notes that the segment starts or stops belonging to a capture. Only the core's state is
    /// authoritative.
    pub(crate) fn note_private(&self, private: bool) {
        match private {
            true => self.special.fetch_or(PRIVATE, Ordering::Release),
            false => self.special.fetch_and(!PRIVATE, Ordering::Release),
        };
    }

    pub(crate) fn is_private(&self) -> bool {
        self.special.load(Ordering::Acquire) & PRIVATE != 0
    }

    pub(crate) fn note_expandable(&self) {
        self.expandable.store(true, Ordering::Release);
    }

    pub(crate) fn is_expandable(&self) -> bool {
        self.expandable.load(Ordering::Acquire)
    }

    /// Returns whether a freed block may enter a thread cache.
    #[inline]
    pub(crate) fn may_list(&self) -> bool {
        self.special.load(Ordering::Acquire) == 0
    }

    /// Returns the state of a page of slots.
    #[inline(always)]
    pub(super) fn page(&'static self, page: usize) -> &'static Page {
        &self.region(page * SLOTS_PER_PAGE).page
    }

    /// Returns the region of a granule of the segment.
    #[inline(always)]
    fn region(&'static self, granule: usize) -> &'static Region {
        debug_assert!(granule < self.slots_count);
        match granule / regions::GRANULES {
            0 => &self.first,
            // SAFETY: there are regions for all granules that have a slot. `others` itself points
            // before them.
            other => unsafe { &*self.others.wrapping_add(other << self.spread) },
        }
    }

    /// Returns the holder of this region, which has this granule.
    #[inline(always)]
    fn holder(&'static self, region: &'static Region, granule: usize) -> &'static Holder {
        self.holders.get(granule / regions::GRANULES).unwrap_or(&region.holder)
    }

    /// Returns a page of slots, in which no block begins, to the system. It reads as zero
    /// afterwards.
    pub(super) fn forget(&self, page: usize) {
        let begin = page * residence::PAGE_BYTES;
        let bytes = (self.slots_count * size_of::<Slot>() - begin).min(residence::PAGE_BYTES);
        let slots = self.slots.cast::<u8>().wrapping_add(begin).cast_mut();
        // SAFETY: a part of the library's private mapping, whose words are all `FREE`, which is
        // zero. Where the program has locked its memory the system refuses.
        unsafe { libc::madvise(slots.cast(), bytes, libc::MADV_DONTNEED) };
    }

    /// Returns the granule at this offset, or `None` off the 512-byte grid and past the end.
    #[inline(always)]
    fn granule_at(&self, offset: u64) -> Option<usize> {
        // An offset off the grid becomes a huge number.
        let granule = offset.rotate_right(GRANULE_BYTES.trailing_zeros()) as usize;
        (granule < self.slots_count).then_some(granule)
    }

    /// Returns the slot that a block has which begins at this offset, or `None` where none can.
    #[inline]
    pub(super) fn slot_at(&'static self, offset: u64) -> Option<&'static Slot> {
        let granule = self.granule_at(offset)?;
        let region = self.region(granule);
        Some(match self.holder(region, granule).begins_at(granule) {
            true => region.slot(),
            false => self.slot_in_page(granule),
        })
    }

    /// Claims the block that begins at this offset: `claim` does so by the word of its slot.
    /// Returns the slot and the word before.
    #[inline(always)]
    pub(super) fn claim_at(
        &'static self,
        offset: u64,
        claim: impl Fn(&Slot) -> Option<u64>,
    ) -> Option<(&'static Slot, u64)> {
        let granule = self.granule_at(offset)?;
        let region = self.region(granule);
        let holder = self.holder(region, granule);
        if !holder.begins_at(granule) {
            let slot = self.slot_in_page(granule);
            return claim(slot).map(|word| (slot, word));
        }
        let slot = region.slot();
        let word = claim(slot)?;
        // Another free of the block may have been first, and an equal block have the slot now.
        if !holder.begins_at(granule) {
            slot.word.store(word, Ordering::Release);
            return None;
        }
        Some((slot, word))
    }

    /// Gives a slot to a block that begins at this offset, or `None` where none can. The caller
    /// must hold the allocator's lock.
    #[inline(always)]
    pub(super) fn take_slot(&'static self, offset: u64) -> Option<&'static Slot> {
        let granule = self.granule_at(offset)?;
        let region = self.region(granule);
        if let Some(own) = region.take(self.holder(region, granule), granule) {
            return Some(own);
        }
        self.page(granule / SLOTS_PER_PAGE).enter();
        Some(self.slot_in_page(granule))
    }

    /// Notes that the slot of the block that began at this offset is empty again.
    #[inline(always)]
    pub(super) fn leave_slot(&'static self, offset: u64, slot: &Slot) {
        let granule = (offset / GRANULE_BYTES) as usize;
        if !self.region(granule).has(slot) {
            residence::left(self, granule / SLOTS_PER_PAGE);
        }
    }

    #[inline(always)]
    fn slot_in_page(&self, granule: usize) -> &'static Slot {
        debug_assert!(granule < self.slots_count);
        // SAFETY: in the mapping, which is never unmapped; all-zero is a valid slot.
        unsafe { &*self.slots.add(granule) }
    }

    /// Assigns the extent, which is not reachable, to a segment.
    pub(super) fn assign(&self, context: &'static Context, base: u64, bytes: u64) {
        self.base.store(base, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.special.store(0, Ordering::Relaxed);
        self.expandable.store(false, Ordering::Relaxed);
        self.context.store((context as *const Context).cast_mut(), Ordering::Relaxed);
    }

    /// Empties all slots of the extent, which is no longer reachable. Returns `false` if the system
    /// refuses, because the program has locked its memory: then it must not be assigned again.
    fn clear(&'static self) -> bool {
        self.bytes.store(0, Ordering::Relaxed);
        let bytes = self.slots_count * size_of::<Slot>();
        let slots = self.slots.cast_mut().cast();
        // SAFETY: the library's private mapping. Its pages read as zero afterwards: `FREE`.
        let is_empty = unsafe { libc::madvise(slots, bytes, libc::MADV_DONTNEED) } == 0;
        if is_empty {
            let regions = 0..self.slots_count.div_ceil(regions::GRANULES);
            regions.for_each(|region| self.region(region * regions::GRANULES).reset());
        }
        is_empty
    }
}

impl Spare {
    pub(super) const fn new() -> Spare {
        Spare { extents: BTreeMap::new(), regions: Pieces::new() }
    }

    /// Returns an extent for a segment of this size, or `None` if there is no memory for its slots.
    pub(super) fn take(&mut self, bytes: u64) -> Option<&'static Extent> {
        let wanted = (bytes / GRANULE_BYTES) as usize;
        if let Some((&count, fitting)) = self.extents.range_mut(wanted..).next() {
            let extent = fitting.pop();
            if fitting.is_empty() {
                self.extents.remove(&count);
            }
            return extent;
        }
        self.make(wanted)
    }

    /// Puts an extent back that was never reachable.
    pub(super) fn put_back(&mut self, extent: &'static Extent) {
        self.extents.entry(extent.slots_count).or_default().push(extent);
    }

    /// Puts an extent back that is no longer reachable.
    pub(super) fn retire(&mut self, extent: &'static Extent) {
        if extent.clear() {
            self.put_back(extent);
        }
    }

    fn make(&mut self, slots_count: usize) -> Option<&'static Extent> {
        let bytes = slots_count * size_of::<Slot>();
        let regions_count = slots_count.div_ceil(regions::GRANULES);
        let spread = u8::from(regions_count <= HOLDERS);
        let others = self.regions.take(regions_count.saturating_sub(1) << spread)?;
        let slots = heap::map_zeroed(bytes)?.cast::<Slot>();
        // Without this, one block could cost 2 MiB, where the system maps that much at once.
        // SAFETY: the library's mapping of this size.
        unsafe { libc::madvise(slots.cast(), bytes, libc::MADV_NOHUGEPAGE) };
        let extent = Box::leak(Box::new(Extent {
            base: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            context: AtomicPtr::new(null_mut()),
            special: AtomicU8::new(0),
            expandable: AtomicBool::new(false),
            slots,
            slots_count,
            others: others.as_ptr().wrapping_sub(1 << spread),
            spread,
            holders: Default::default(),
            _older: EVER.load(Ordering::Relaxed).cast_const(),
            first: Region::default(),
        }));
        EVER.store((extent as *const Extent).cast_mut(), Ordering::Relaxed);
        Some(extent)
    }
}
