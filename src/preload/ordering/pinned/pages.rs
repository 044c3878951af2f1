//! Pages of 2 MiB that may contain pinned memory, with one bit each. They are read without a lock,
//! before the ranges are looked up under theirs, and distinguish device memory that lies between
//! pinned memory.
//!
//! A bit is set once its range is entered, and cleared only under the lock of the ranges, while
//! none of them meets the page: the bit of a range that is entered later is set after that.
//!
//! The bits of all addresses are one mapping of 16 MiB, made with the first range. It touches 4 KiB
//! for each 64 GiB of addresses that contain pinned memory.

use core::hint::cold_path;
use core::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::heap;

const PAGE_SHIFT: u32 = 21;
/// Programs get no addresses above this, unless they ask for them.
const ADDRESS_BITS: u32 = 48;
const PAGES_PER_WORD: usize = u64::BITS as usize;
const WORD_SHIFT: u32 = PAGE_SHIFT + PAGES_PER_WORD.ilog2();
const WORDS_COUNT: usize = 1 << (ADDRESS_BITS - WORD_SHIFT);
/// Most words that are searched; a longer stretch is not.
const WORDS_LOOKED_THROUGH_MAX: usize = 64;

type Words = [AtomicU64; WORDS_COUNT];

/// Null before the first range, and if the system has no memory for it.
static WORDS: AtomicPtr<Words> = AtomicPtr::new(null_mut());

/// The bits of all addresses.
#[derive(Clone, Copy)]
pub(super) struct Pages(&'static Words);

/// Returns the bits, or `None` if they are unknown and any address may be pinned. `highest` is the
/// highest address that was ever pinned.
#[inline(always)]
pub(super) fn up_to(highest: usize) -> Option<Pages> {
    if highest >> ADDRESS_BITS != 0 {
        return None;
    }
    // SAFETY: null, or a mapping of this size that is never unmapped.
    unsafe { WORDS.load(Ordering::Acquire).as_ref() }.map(Pages)
}

impl Pages {
    /// Returns whether this address may be pinned. The bits above those that addresses have are not
    /// looked at: a number that differs from an address in nothing else is rare, and is found to be
    /// none among the ranges.
    #[inline(always)]
    pub(super) fn may_have(self, address: usize) -> bool {
        let word = self.0[(address >> WORD_SHIFT) % WORDS_COUNT].load(Ordering::Acquire);
        if word == 0 {
            return false;
        }
        // Most words have no bit at all, so the compiler need not find the place of one before.
        cold_path();
        word >> ((address >> PAGE_SHIFT) % PAGES_PER_WORD) & 1 != 0
    }

    /// Returns whether any of these addresses may be pinned.
    pub(super) fn may_have_any(self, first: usize, last: usize) -> bool {
        (last >> WORD_SHIFT) - (first >> WORD_SHIFT) >= WORDS_LOOKED_THROUGH_MAX
            || words_of(first, last)
                .any(|(word, bits)| self.0[word].load(Ordering::Acquire) & bits != 0)
    }
}

/// Marks the range from `first` to `last`, which was entered.
pub(super) fn set(first: usize, last: usize) {
    let Some(Pages(words)) = made() else { return };
    for (word, bits) in words_of(first, last) {
        // A page of many ranges is not written again for each.
        if words[word].load(Ordering::Relaxed) & bits != bits {
            words[word].fetch_or(bits, Ordering::Release);
        }
    }
}

/// Returns the parts of a range that has ended, each for one call of `clear_part`.
pub(super) fn parts(first: usize, last: usize) -> impl Iterator<Item = (usize, u64)> {
    words_of(first, last)
}

/// Clears the pages of a part that no pinned memory meets. The caller must hold the lock of the
/// ranges. `meets` returns whether a range meets the addresses from the first to the second.
pub(super) fn clear_part((word, bits): (usize, u64), meets: impl Fn(usize, usize) -> bool) {
    let Some(Pages(words)) = up_to(0) else { return };
    let (mut free, mut left) = (0, bits);
    while left != 0 {
        let bit = left.trailing_zeros() as usize;
        left &= left - 1;
        let start = (word * PAGES_PER_WORD + bit) << PAGE_SHIFT;
        if !meets(start, start + ((1 << PAGE_SHIFT) - 1)) {
            free |= 1 << bit;
        }
    }
    words[word].fetch_and(!free, Ordering::Relaxed);
}

fn made() -> Option<Pages> {
    if let Some(pages) = up_to(0) {
        return Some(pages);
    }
    let new = heap::map_zeroed(size_of::<Words>())?.cast();
    // If two are made at once, one is never touched, and costs addresses only.
    let _ = WORDS.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Relaxed);
    up_to(0)
}

/// Returns the words that have a bit of these addresses, and which bits. Addresses above all that
/// have bits have none.
fn words_of(first: usize, last: usize) -> impl Iterator<Item = (usize, u64)> {
    let last_page = (last >> PAGE_SHIFT).min(WORDS_COUNT * PAGES_PER_WORD - 1);
    let mut page = first >> PAGE_SHIFT;
    core::iter::from_fn(move || {
        if page > last_page {
            return None;
        }
        let (word, begin) = (page / PAGES_PER_WORD, page % PAGES_PER_WORD);
        let end = (begin + last_page - page).min(PAGES_PER_WORD - 1);
        page += end - begin + 1;
        Some((word, u64::MAX << begin & u64::MAX >> (PAGES_PER_WORD - 1 - end)))
    })
}
