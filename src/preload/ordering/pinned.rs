//! Host memory that the device can reach: pinned or registered. A copy or a kernel argument that names
//! it makes work visible to the host (docs/ordering.md 4).
//!
//! A copy names what it touches. A kernel gets an address *from which* it reaches the memory: one past
//! the end (reverse iterators), or, if arrays count from 1, some elements before the start. So an
//! argument names a range from a page before it to a page behind it. That costs nothing: other memory
//! that near is the next allocation, and if that begins at our end, the address alone cannot distinguish
//! them anyway. A base further away (the second dimension of an array that counts from 1) is not
//! recognized.

use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::books::Book;
use crate::driver::sys::CuResult;

/// How far from a range an address may be and still name it.
const MARGIN_BYTES: usize = 4096;

/// The start of each range, and its end.
static RANGES: Book<usize> = Book::new();
/// Bounds of all ranges so far, readable without the lock; empty while there is none.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Whether any pinned memory is alive.
#[inline]
pub(crate) fn any() -> bool {
    !RANGES.is_empty()
}

/// Whether the bytes from `first` to `last` touch pinned memory.
#[inline]
pub(crate) fn touches(first: usize, last: usize) -> bool {
    any()
        && last >= LOWEST.load(Ordering::Relaxed)
        && first <= HIGHEST.load(Ordering::Relaxed)
        && meets(first, last, 0)
}

/// Whether work with this address may reach pinned memory by it.
#[inline]
pub(crate) fn is_named_by(address: usize) -> bool {
    any() && Bounds::now().may_name(address) && names_exactly(address)
}

/// Whether the bytes contain, at any offset, an address that names pinned memory. A packed struct may
/// have it at any.
///
/// # Safety
///
/// `bytes` bytes can be read from `start`.
#[inline]
pub(crate) unsafe fn is_named_in(start: *const u8, bytes: usize) -> bool {
    if bytes < WORD_BYTES {
        return false;
    }
    let bounds = Bounds::now();
    let names = |at: usize| {
        // SAFETY: `at` is at most the last place where a word fits; it need not be aligned.
        let value = unsafe { start.add(at).cast::<usize>().read_unaligned() };
        bounds.may_name(value) && names_exactly(value)
    };
    let (places, any_byte) = (bytes - WORD_BYTES + 1, rule_holds(Rule::ArgumentsAtAnyByte));
    if !any_byte {
        return (0..places).step_by(WORD_BYTES).any(names);
    }
    // Some kernels have thousands of bytes of arguments: then only checks offsets at which the byte
    // common to all addresses occurs.
    if places > LOOKED_THROUGH_MAX
        && let Some(byte) = bounds.common_byte()
    {
        // SAFETY: the caller's promise; behind each place there are as many bytes as a word has.
        let bytes = unsafe { core::slice::from_raw_parts(start.add(COMMON_BYTE), places) };
        return places_of(byte, bytes).any(names);
    }
    (0..places).any(names)
}

const WORD_BYTES: usize = size_of::<usize>();
/// Checking this many offsets one by one takes no longer than a search.
const LOOKED_THROUGH_MAX: usize = 64;
/// The byte of an address, from the lowest, that is equal in all memory of one kind.
const COMMON_BYTE: usize = 5;

/// The offsets of this byte.
fn places_of(byte: u8, mut bytes: &[u8]) -> impl Iterator<Item = usize> {
    let mut passed = 0;
    core::iter::from_fn(move || {
        // SAFETY: looks only at the bytes of the slice.
        let found = unsafe { libc::memchr(bytes.as_ptr().cast(), byte.into(), bytes.len()) };
        if found.is_null() {
            return None;
        }
        let at = found as usize - bytes.as_ptr() as usize;
        bytes = &bytes[at + 1..];
        let place = passed + at;
        passed = place + 1;
        Some(place)
    })
}

/// Outside of them no address names anything; read once for many addresses.
#[derive(Clone, Copy)]
struct Bounds {
    first: usize,
    bytes: usize,
}

impl Bounds {
    #[inline]
    fn now() -> Bounds {
        let first = LOWEST.load(Ordering::Relaxed).saturating_sub(MARGIN_BYTES);
        let last = HIGHEST.load(Ordering::Relaxed).saturating_add(MARGIN_BYTES);
        Bounds { first, bytes: last.saturating_sub(first) }
    }

    /// The value of `COMMON_BYTE` in every address that may name something. Not zero: arguments are full
    /// of zeros.
    #[inline]
    fn common_byte(self) -> Option<u8> {
        let high = |address: usize| address >> (COMMON_BYTE * 8);
        let (first, last) = (high(self.first), high(self.first.wrapping_add(self.bytes)));
        (first == last).then(|| u8::try_from(first).ok()).flatten().filter(|byte| *byte != 0)
    }

    #[inline]
    fn may_name(self, address: usize) -> bool {
        address.wrapping_sub(self.first) <= self.bytes
    }
}

#[cold]
fn names_exactly(address: usize) -> bool {
    match rule_holds(Rule::RangesHaveMargins) {
        true => meets(address, address, MARGIN_BYTES),
        false => meets(address, address, 0),
    }
}

/// The driver has provided this range.
pub(crate) fn given(start: usize, bytes: usize) {
    let end = widen_bounds(start, bytes);
    RANGES.enter(start, end);
}

/// Runs the driver's call that registers this range. The device can reach it as soon as the call is
/// under way, and another thread whose registration is refused for that knows it can.
pub(crate) fn registered_by(
    start: usize,
    bytes: usize,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    let end = widen_bounds(start, bytes);
    RANGES.enter_by(start, end, call)
}

/// Runs the driver's call that ends the range starting here.
pub(crate) fn end_by(start: usize, call: impl FnOnce() -> CuResult) -> CuResult {
    RANGES.end_by(start, call)
}

/// Call before the range can be found. Returns its end.
fn widen_bounds(start: usize, bytes: usize) -> usize {
    let end = start.saturating_add(bytes);
    LOWEST.fetch_min(start, Ordering::Relaxed);
    HIGHEST.fetch_max(end, Ordering::Relaxed);
    end
}

/// Whether the addresses touch a range widened by `margin` at both ends. The ranges are disjoint.
fn meets(first: usize, last: usize, margin: usize) -> bool {
    let reaches = |end: usize| match margin {
        0 => first < end,
        _ => first <= end.saturating_add(margin),
    };
    let behind = last.saturating_add(margin);
    RANGES.read(|ranges| {
        let below = ranges.given.range(..=behind).next_back();
        below.is_some_and(|(_, end)| reaches(*end))
            || ranges.under_way.iter().any(|(start, end)| *start <= behind && reaches(*end))
    })
}
