//! Maps addresses to the library's segments, readable without a lock, and holds the state of each
//! block.
//!
//! Segments start on a 2 MiB boundary (the driver's page), so a radix over address >> 21 leads to
//! the segment's `Extent`. An extent has one `Slot` for each 512 bytes, of which only those at the
//! starts of blocks are ever touched. The pages of the others cost nothing, and pages in which no
//! block begins any more are returned to the system (`residence`).
//!
//! Addresses enter the radix after the driver provides the segment and leave it before the driver
//! gets it back. Extents are reused but never unmapped: looking up a wild pointer while its segment
//! leaves reads stale numbers, not another owner's memory.

mod residence;
mod slots;

use core::ptr::null_mut;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

pub(crate) use crate::state::slot::{Kind, Slot};
pub(crate) use slots::{Claimed, LiveBlock, fresh_buffer_id, occupy, vacate};

use crate::heap;
use crate::lock::lock;
use crate::pagemap::residence::Page;
use crate::state::contexts::Context;
use crate::state::slot::GRANULE_BYTES;

const PAGE_SHIFT: u32 = 21;
pub(crate) const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
const LEVEL_BITS: u32 = 14;
const LEVEL_ENTRIES: usize = 1 << LEVEL_BITS;
/// Addresses above this are not the library's (the radix has two levels).
const ADDRESS_MAX: u64 = 1 << (PAGE_SHIFT + 2 * LEVEL_BITS);

/// A segment's addresses.
pub(crate) struct Extent {
    base: AtomicU64,
    bytes: AtomicU64,
    context: AtomicPtr<Context>,
    /// Reasons why none of its blocks may enter a thread cache.
    special: AtomicU8,
    /// Whether it is a range of an arena: not all addresses are backed by memory, and none can be
    /// exported.
    expandable: AtomicBool,
    slots: *const Slot,
    slots_count: usize,
    /// The pages of `slots`.
    pages: &'static [Page],
    /// The extent made before this one.
    _older: *const Extent,
}

// SAFETY: `slots` points to a mapping that is never unmapped and holds only atomics.
unsafe impl Sync for Extent {}
// SAFETY: as above.
unsafe impl Send for Extent {}

/// Meaning of an address.
pub(crate) enum Place {
    /// In none of the library's segments: the driver decides.
    Elsewhere,
    /// In one of the library's segments, but not the start of a block that the program holds.
    Inside,
    /// The start of a block that the program holds.
    Block(LiveBlock),
}

const EXPORTED: u8 = 1;
const PRIVATE: u8 = 2;

type Level = [AtomicPtr<Extent>; LEVEL_ENTRIES];

static ROOT: [AtomicPtr<Level>; LEVEL_ENTRIES] =
    [const { AtomicPtr::new(null_mut()) }; LEVEL_ENTRIES];
/// Unused extents by the number of their slots. Its lock guards every change to the radix.
static SPARE: Mutex<Spare> = Mutex::new(Spare::new());

type Spare = BTreeMap<usize, Vec<&'static Extent>>;

/// The newest extent ever made, which links to the older ones. Changed under the lock of `SPARE`.
/// Only for leak checkers: LeakSanitizer does not scan the radix's mappings and would report the
/// extents as leaked.
static EVER: AtomicPtr<Extent> = AtomicPtr::new(null_mut());

/// Looks an address up.
#[inline]
pub(crate) fn place(address: u64) -> Place {
    let Some((extent, offset)) = find(address) else { return Place::Elsewhere };
    let Some(slot) = extent.slot_at(offset) else { return Place::Inside };
    slot.place(extent, address)
}

/// Returns the segment that contains an address.
#[inline]
pub(crate) fn extent_of(address: u64) -> Option<&'static Extent> {
    find(address).map(|(extent, _)| extent)
}

/// Returns the segment that contains an address, and the offset in it.
#[inline]
fn find(address: u64) -> Option<(&'static Extent, u64)> {
    let extent = extent_at(address)?;
    extent.offset_of(address).map(|offset| (extent, offset))
}

/// Returns the segment that has the address's page, or a part of it.
#[inline(always)]
fn extent_at(address: u64) -> Option<&'static Extent> {
    if address >= ADDRESS_MAX {
        return None;
    }
    let page = (address >> PAGE_SHIFT) as usize;
    let level = ROOT[page >> LEVEL_BITS].load(Ordering::Acquire);
    if level.is_null() {
        return None;
    }
    // SAFETY: levels are leaked once made.
    let extent = unsafe { &*level }[page % LEVEL_ENTRIES].load(Ordering::Acquire);
    if extent.is_null() {
        return None;
    }
    // SAFETY: extents are never unmapped.
    Some(unsafe { &*extent })
}

/// Returns whether the radix can hold a segment at this base.
pub(crate) fn fits(base: u64, bytes: u64) -> bool {
    base.is_multiple_of(PAGE_BYTES) && base.checked_add(bytes).is_some_and(|end| end <= ADDRESS_MAX)
}

/// Enters a segment that arrived from the driver. Returns `false`, with nothing entered, if there
/// is no memory for the tables.
pub(crate) fn insert(context: &'static Context, base: u64, bytes: u64) -> bool {
    debug_assert!(fits(base, bytes));
    let mut spare = lock(&SPARE);
    let Some(extent) = take_extent(&mut spare, bytes) else { return false };
    extent.base.store(base, Ordering::Relaxed);
    extent.bytes.store(bytes, Ordering::Relaxed);
    extent.special.store(0, Ordering::Relaxed);
    extent.expandable.store(false, Ordering::Relaxed);
    extent.context.store((context as *const Context).cast_mut(), Ordering::Relaxed);
    let entered = for_pages(base, bytes, (extent as *const Extent).cast_mut());
    if !entered {
        for_pages(base, bytes, null_mut());
        put_back(&mut spare, extent);
    }
    entered
}

/// Removes a segment. Call before the driver gets it: afterwards the addresses may belong to
/// another owner.
pub(crate) fn remove(base: u64) {
    let mut spare = lock(&SPARE);
    if let Some(extent) = extent_of(base) {
        retire(extent, &mut spare);
    }
}

/// Drops what is still recorded for addresses that the driver has just provided. Returns `true` if
/// it included segments of this context, which were freed without passing the library's hooks.
/// Segments of another context ended with it, and the thread that ends it is about to report that.
pub(crate) fn forget_lost(context: &Context, base: u64, bytes: u64) -> bool {
    let mut spare = lock(&SPARE);
    let pages = (base..base.saturating_add(bytes)).step_by(PAGE_BYTES as usize);
    let lost = pages.filter_map(extent_of).map(|extent| {
        retire(extent, &mut spare);
        core::ptr::eq(extent.context(), context)
    });
    lost.fold(false, |any, own| any | own)
}

/// Drops what is still recorded, for a context that has ended, at addresses that the driver has
/// served to the program. The thread that ended the context is about to report that.
pub(crate) fn forget_ended(base: u64, bytes: u64, is_over: impl Fn(&Context) -> bool) {
    let first = base & !(PAGE_BYTES - 1);
    for page in (first..base.saturating_add(bytes)).step_by(PAGE_BYTES as usize) {
        let Some(context) = extent_of(page).map(Extent::context).filter(|it| is_over(it)) else {
            continue;
        };
        let mut spare = lock(&SPARE);
        let same = |extent: &&'static Extent| core::ptr::eq(extent.context(), context);
        if let Some(extent) = extent_of(page).filter(same) {
            retire(extent, &mut spare);
        }
    }
}

/// Removes all segments of a context that has ended.
pub(crate) fn remove_context(context: &Context) {
    let mut spare = lock(&SPARE);
    for level in ROOT.iter().map(|entry| entry.load(Ordering::Acquire)) {
        // SAFETY: null or leaked.
        let Some(level) = (unsafe { level.as_ref() }) else { continue };
        for entry in level {
            // SAFETY: null or never unmapped.
            let extent = unsafe { entry.load(Ordering::Relaxed).as_ref() };
            if let Some(extent) = extent.filter(|extent| core::ptr::eq(extent.context(), context)) {
                retire(extent, &mut spare);
            }
        }
    }
}

impl Extent {
    /// Returns the offset of an address in this extent, or `None` if it lies outside.
    #[inline]
    fn offset_of(&self, address: u64) -> Option<u64> {
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

    /// Returns the page of slots that has the slot of a block at this offset.
    #[inline]
    fn page_at(&self, offset: u64) -> usize {
        (offset / GRANULE_BYTES) as usize * size_of::<Slot>() / residence::PAGE_BYTES
    }

    #[inline(always)]
    fn page(&self, page: usize) -> &'static Page {
        debug_assert!(page < self.pages.len());
        // SAFETY: there is one for each slot, and callers have a slot.
        unsafe { self.pages.get_unchecked(page) }
    }

    /// Returns a page of slots, in which no block begins, to the system. It reads as zero
    /// afterwards.
    fn forget(&self, page: usize) {
        let begin = page * residence::PAGE_BYTES;
        let bytes = (self.slots_count * size_of::<Slot>() - begin).min(residence::PAGE_BYTES);
        let slots = self.slots.cast::<u8>().wrapping_add(begin).cast_mut();
        // SAFETY: a part of the library's private mapping, whose words are all `FREE`, which is
        // zero. Where the program has locked its memory the system refuses.
        unsafe { libc::madvise(slots.cast(), bytes, libc::MADV_DONTNEED) };
    }

    /// Returns the slot of a block that starts at this offset, or `None` off the 512-byte grid.
    #[inline]
    fn slot_at(&self, offset: u64) -> Option<&'static Slot> {
        let index = (offset / GRANULE_BYTES) as usize;
        let on_grid = offset.is_multiple_of(GRANULE_BYTES) && index < self.slots_count;
        // SAFETY: index is inside the mapping, which is never unmapped; all-zero is a valid slot.
        on_grid.then(|| unsafe { &*self.slots.add(index) })
    }
}

fn for_pages(base: u64, bytes: u64, extent: *mut Extent) -> bool {
    let first = base >> PAGE_SHIFT;
    let last = (base + bytes - 1) >> PAGE_SHIFT;
    for page in first..=last {
        let page = page as usize;
        let Some(level) = level_of(page >> LEVEL_BITS) else { return false };
        level[page % LEVEL_ENTRIES].store(extent, Ordering::Release);
    }
    true
}

/// Returns the second level, created on demand. The caller must hold the lock of `SPARE`.
fn level_of(index: usize) -> Option<&'static Level> {
    let present = ROOT[index].load(Ordering::Acquire);
    let level = match present.is_null() {
        true => {
            let made = heap::map_zeroed(size_of::<Level>())?.cast::<Level>();
            ROOT[index].store(made, Ordering::Release);
            made
        }
        false => present,
    };
    // SAFETY: all-zero bytes are null pointers; the mapping is never unmapped.
    Some(unsafe { &*level })
}

fn take_extent(spare: &mut Spare, bytes: u64) -> Option<&'static Extent> {
    let wanted = (bytes / GRANULE_BYTES) as usize;
    if let Some((&count, fitting)) = spare.range_mut(wanted..).next() {
        let extent = fitting.pop();
        if fitting.is_empty() {
            spare.remove(&count);
        }
        return extent;
    }
    let slots = heap::map_zeroed(wanted * size_of::<Slot>())?.cast::<Slot>();
    // Without this, one block could cost 2 MiB, where the system maps that much at once.
    // SAFETY: the library's mapping of this size.
    unsafe { libc::madvise(slots.cast(), wanted * size_of::<Slot>(), libc::MADV_NOHUGEPAGE) };
    let pages = (wanted * size_of::<Slot>()).div_ceil(residence::PAGE_BYTES);
    let extent = Box::leak(Box::new(Extent {
        base: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        context: AtomicPtr::new(null_mut()),
        special: AtomicU8::new(0),
        expandable: AtomicBool::new(false),
        slots,
        slots_count: wanted,
        pages: Box::leak((0..pages).map(|_| Page::default()).collect()),
        _older: EVER.load(Ordering::Relaxed).cast_const(),
    }));
    EVER.store((extent as *const Extent).cast_mut(), Ordering::Relaxed);
    Some(extent)
}

fn put_back(spare: &mut Spare, extent: &'static Extent) {
    spare.entry(extent.slots_count).or_default().push(extent);
}

fn retire(extent: &'static Extent, spare: &mut Spare) {
    for_pages(extent.base(), extent.bytes(), null_mut());
    extent.bytes.store(0, Ordering::Relaxed);
    // SAFETY: the library's private mapping; its pages read as zero afterwards, which is `FREE`.
    let code = unsafe {
        libc::madvise(
            extent.slots.cast_mut().cast(),
            extent.slots_count * size_of::<Slot>(),
            libc::MADV_DONTNEED,
        )
    };
    // Refused where the program has locked its memory. An extent with words of earlier blocks is
    // not used again.
    if code == 0 {
        extent.pages.iter().for_each(Page::reset);
        put_back(spare, extent);
    }
}
