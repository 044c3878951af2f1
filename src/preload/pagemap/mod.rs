//! Maps addresses to the library's segments, readable without a lock, and holds the state of each
//! block.
//!
//! Segments start on a 2 MiB boundary (the driver's page), so a radix over address >> 21 leads to
//! the segment's `Extent`. An extent has one `Slot` for each 512 bytes, of which only those at the
//! starts of blocks are ever touched. The pages of the others cost nothing, and pages in which no
//! block begins any more are returned to the system (`residence`). A block that begins alone in its
//! 128 KiB takes no page at all (`regions`).
//!
//! Addresses enter the radix after the driver provides the segment and leave it before the driver
//! gets it back. Extents are reused but never unmapped: looking up a wild pointer while its segment
//! leaves reads stale numbers, not another owner's memory.

mod extent;
mod regions;
mod residence;
mod slots;

use core::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

pub(crate) use crate::state::slot::{Kind, Slot};
pub(crate) use extent::Extent;
pub(crate) use slots::{Claimed, LiveBlock, fresh_buffer_id, occupy, vacate, vacate_of};

use crate::heap;
use crate::lock::lock;
use crate::pagemap::extent::Spare;
use crate::state::contexts::Context;
use crate::state::thread::Thread;

const PAGE_SHIFT: u32 = 21;
pub(crate) const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
const LEVEL_BITS: u32 = 14;
const LEVEL_ENTRIES: usize = 1 << LEVEL_BITS;
/// Addresses above this are not the library's (the radix has two levels).
const ADDRESS_MAX: u64 = 1 << (PAGE_SHIFT + 2 * LEVEL_BITS);

/// Meaning of an address.
pub(crate) enum Place {
    /// In none of the library's segments: the driver decides.
    Elsewhere,
    /// In one of the library's segments, but not the start of a block that the program holds.
    Inside,
    /// The start of a block that the program holds.
    Block(LiveBlock),
}

type Level = [AtomicPtr<Extent>; LEVEL_ENTRIES];

static ROOT: [AtomicPtr<Level>; LEVEL_ENTRIES] =
    [const { AtomicPtr::new(null_mut()) }; LEVEL_ENTRIES];
/// Unused extents. Its lock guards every change to the radix.
static SPARE: Mutex<Spare> = Mutex::new(Spare::new());

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
    let page = (address >> PAGE_SHIFT) as usize;
    let level = ROOT.get(page >> LEVEL_BITS)?.load(Ordering::Acquire);
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

/// Returns whether the thread remembers the level that leads to this address. Most often it does,
/// as a level stays where it is, and covers 32 GiB.
#[inline(always)]
pub(crate) fn is_near(thread: &Thread, address: u64) -> bool {
    thread.window.get() == address >> (PAGE_SHIFT + LEVEL_BITS)
}

/// Lets the thread remember that level. Returns `false` if there is none.
pub(crate) fn go_near(thread: &Thread, address: u64) -> bool {
    let window = address >> (PAGE_SHIFT + LEVEL_BITS);
    let level = ROOT.get(window as usize).map_or(null_mut(), |entry| entry.load(Ordering::Acquire));
    if !level.is_null() {
        thread.window.set(window);
        thread.level.set(level.cast());
    }
    !level.is_null()
}

/// Does what `extent_at` does for an address whose level the thread remembers (`is_near`).
#[inline(always)]
fn extent_near(thread: &Thread, address: u64) -> Option<&'static Extent> {
    // SAFETY: `go_near` stored it; levels are leaked once made.
    let level = unsafe { &*thread.level.get().cast::<Level>() };
    let page = (address >> PAGE_SHIFT) as usize;
    // SAFETY: null, or never unmapped.
    unsafe { level[page % LEVEL_ENTRIES].load(Ordering::Acquire).as_ref() }
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
    let Some(extent) = spare.take(bytes) else { return false };
    extent.assign(context, base, bytes);
    let entered = for_pages(base, bytes, (extent as *const Extent).cast_mut());
    if !entered {
        for_pages(base, bytes, null_mut());
        spare.put_back(extent);
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

fn retire(extent: &'static Extent, spare: &mut Spare) {
    for_pages(extent.base(), extent.bytes(), null_mut());
    spare.retire(extent);
}
