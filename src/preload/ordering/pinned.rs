//! Host memory that the device can reach: pinned or registered. A copy or a kernel argument that
//! names it makes work visible to the host (docs/ordering.md 4).
//!
//! A copy names what it touches. A kernel gets an address *from which* it reaches the memory: one
//! past the end (reverse iterators), or, if arrays count from 1, some elements before the start. So
//! an argument names a range from a page before it to a page past its end. That costs nothing:
//! other memory that near is the next allocation, and if that begins at the end of this range, the
//! address alone cannot distinguish them anyway. A base further away (the second dimension of an
//! array that counts from 1) is not recognized.

use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::CuResult;
use crate::gate;
use crate::gate::Condition;
use crate::handle_table;
use crate::handle_table::HandleTable;
use crate::ordering::pinned::pages::Pages;
use crate::ordering::pinned::scan::WORD_BYTES;

mod pages;
mod scan;

/// Most bytes that an address may be away from a range and still name it.
const MARGIN_BYTES: usize = 4096;

/// Start and end of each range.
static RANGES: HandleTable<usize> = HandleTable::new();
/// Bounds of all ranges so far, with their margins, readable without the lock; empty while there is
/// no range.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Returns whether any pinned memory is alive.
#[inline]
pub(crate) fn any() -> bool {
    !RANGES.is_empty()
}

/// Returns whether the bytes from `first` to `last` touch pinned memory.
#[inline]
pub(crate) fn touches(first: usize, last: usize) -> bool {
    any() && may_touch(first, last) && RANGES.read(|ranges| meets(ranges, first, last, 0))
}

fn may_touch(first: usize, last: usize) -> bool {
    let highest = HIGHEST.load(Ordering::Relaxed);
    first <= highest
        && last >= LOWEST.load(Ordering::Relaxed)
        && pages::up_to(highest).is_none_or(|pages| pages.may_have_any(first, last.min(highest)))
}

/// Returns whether work with this address may reach pinned memory by it.
#[inline]
pub(crate) fn is_named_by(address: usize) -> bool {
    any() && Look::now().is_named(address)
}

/// A search of the arguments of one launch.
#[derive(Clone, Copy)]
pub(crate) struct Look(Option<Pages>);

impl Look {
    #[inline(always)]
    pub(crate) fn now() -> Look {
        Look(pages::up_to(HIGHEST.load(Ordering::Relaxed)))
    }

    /// Returns whether the bytes contain, at any offset, an address that names pinned memory. A
    /// packed struct may have it at any.
    ///
    /// # Safety
    ///
    /// `bytes` bytes can be read from `start`.
    #[inline(always)]
    pub(crate) unsafe fn is_named_in(self, start: *const u8, bytes: usize) -> bool {
        match bytes {
            // SAFETY: the caller guarantees it; the address need not be aligned.
            WORD_BYTES => self.is_named(unsafe { start.cast::<usize>().read_unaligned() }),
            0..WORD_BYTES => false,
            // SAFETY: the caller guarantees it.
            _ => unsafe { self.is_named_within(start, bytes - WORD_BYTES + 1) },
        }
    }

    /// # Safety
    ///
    /// There must be a whole word at each of `places` consecutive bytes from `start`.
    #[inline(never)]
    unsafe fn is_named_within(self, start: *const u8, places: usize) -> bool {
        let step = if rule_holds(Rule::ArgumentsAtAnyByte) { 1 } else { WORD_BYTES };
        if let (Some(pages), 1) = (self.0, step) {
            let is_one = |address| pages.may_have(address) && names_exactly(address);
            // SAFETY: the caller guarantees it.
            return unsafe { scan::any_word(start, places, is_one) };
        }
        // SAFETY: the caller guarantees it.
        let word = |place| unsafe { start.add(place).cast::<usize>().read_unaligned() };
        (0..places).step_by(step).any(|place| self.is_named(word(place)))
    }

    #[inline(always)]
    fn is_named(self, address: usize) -> bool {
        match self.0 {
            Some(pages) => pages.may_have(address) && names_exactly(address),
            None => is_named_anywhere(address),
        }
    }
}

/// Searches without pages, where these do not exist.
#[cold]
#[inline(never)]
fn is_named_anywhere(address: usize) -> bool {
    (LOWEST.load(Ordering::Relaxed)..=HIGHEST.load(Ordering::Relaxed)).contains(&address)
        && names_exactly(address)
}

#[cold]
#[inline(never)]
fn names_exactly(address: usize) -> bool {
    let margin = if rule_holds(Rule::RangesHaveMargins) { MARGIN_BYTES } else { 0 };
    RANGES.read(|ranges| meets(ranges, address, address, margin))
}

/// Notes a range that the driver has provided.
pub(crate) fn given(start: usize, bytes: usize) {
    let end = widen_bounds(start, bytes);
    let gone = RANGES.with(|ranges| {
        let gone = take_overlapped(ranges, start, end);
        ranges.given.insert(start, end);
        gone
    });
    mark(start, end);
    gone.into_iter().for_each(|(start, end)| unmark(start, end));
}

/// Runs the driver's call that registers this range. The device can reach it as soon as the call
/// has begun, and another thread whose registration is refused for that reason knows it can.
pub(crate) fn registered_by(
    start: usize,
    bytes: usize,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    let end = widen_bounds(start, bytes);
    let code = RANGES.enter_by(start, end, || {
        mark(start, end);
        let code = call();
        if code.is_ok() {
            let gone = RANGES.with(|ranges| take_overlapped(ranges, start, end));
            gone.into_iter().for_each(|(start, end)| unmark(start, end));
        }
        code
    });
    if code.is_err() {
        unmark(start, end);
    }
    code
}

/// Removes the ranges that a range overlaps which the driver has just provided. They have ended
/// with their context: the driver provides no memory twice.
fn take_overlapped(
    ranges: &mut handle_table::Pages<usize>,
    start: usize,
    end: usize,
) -> Vec<(usize, usize)> {
    if !rule_holds(Rule::OverlappedRangeIsGone) {
        return Vec::new();
    }
    let below = ranges.given.range(..end).rev().map(|(start, end)| (*start, *end));
    let gone: Vec<_> = below.take_while(|(_, its_end)| *its_end > start).collect();
    gone.iter().for_each(|(start, _)| _ = ranges.given.remove(start));
    gone
}

/// Runs the driver's call that ends the range starting here.
pub(crate) fn end_by(start: usize, call: impl FnOnce() -> CuResult) -> CuResult {
    let end = RANGES.read(|ranges| ranges.given.get(&start).copied());
    // The driver may refuse, and meanwhile other threads' work may reach the memory.
    let code = match rule_holds(Rule::RefusedEndHidesNothing) {
        true => RANGES.end_visibly_by(start, call),
        false => RANGES.end_by(start, call),
    };
    match (end, code) {
        (Some(end), Ok(())) => unmark(start, end),
        // The pages may have been cleared while the range was removed.
        (Some(end), Err(_)) => mark(start, end),
        (None, _) => {}
    }
    code
}

/// Extends the bounds, and returns the end of the range. Call before the range can be found.
fn widen_bounds(start: usize, bytes: usize) -> usize {
    let end = start.saturating_add(bytes);
    let (first, last) = with_margins(start, end);
    gate::set(Condition::PinnedMemory);
    scan::widen(first, last);
    LOWEST.fetch_min(first, Ordering::Relaxed);
    HIGHEST.fetch_max(last, Ordering::Relaxed);
    end
}

fn with_margins(start: usize, end: usize) -> (usize, usize) {
    (start.saturating_sub(MARGIN_BYTES), end.saturating_add(MARGIN_BYTES))
}

/// Marks the pages of a range. Call once the range can be found under the lock: until then its
/// pages may be cleared.
fn mark(start: usize, end: usize) {
    let (first, last) = with_margins(start, end);
    pages::set(first, last);
}

/// Unmarks the pages of a range that has ended.
fn unmark(start: usize, end: usize) {
    let (first, last) = with_margins(start, end);
    for part in pages::parts(first, last) {
        RANGES.read(|ranges| {
            pages::clear_part(part, |first, last| meets(ranges, first, last, MARGIN_BYTES));
        });
    }
}

/// Returns whether the addresses touch a range widened by `margin` at both ends. The ranges are
/// disjoint.
fn meets(ranges: &handle_table::Pages<usize>, first: usize, last: usize, margin: usize) -> bool {
    let reaches = |end: usize| match margin {
        0 => first < end,
        _ => first <= end.saturating_add(margin),
    };
    let behind = last.saturating_add(margin);
    let below = ranges.given.range(..=behind).next_back();
    below.is_some_and(|(_, end)| reaches(*end))
        || ranges.under_way.iter().any(|(start, end)| *start <= behind && reaches(*end))
}
