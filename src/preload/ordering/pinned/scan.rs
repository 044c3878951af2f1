//! Searches the arguments of a kernel for addresses, at any offset. Some kernels have thousands of
//! bytes of arguments: so offsets are filtered sixteen at a time, by the upper bytes that pinned
//! addresses have.

use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) const WORD_BYTES: usize = size_of::<usize>();

/// Returns whether `is_one` is true for one of the words that begin at `places` consecutive bytes,
/// provided that pinned memory lies only at addresses of the usual size. `is_one` is called for
/// each word that may be an address of such memory.
///
/// # Safety
///
/// There must be a whole word at each of the places.
#[inline(always)]
pub(super) unsafe fn any_word(
    start: *const u8,
    places: usize,
    is_one: impl Fn(usize) -> bool,
) -> bool {
    let look = |place: *const u8| {
        // SAFETY: the caller guarantees it; the word need not be aligned.
        is_one(unsafe { place.cast::<usize>().read_unaligned() })
    };
    #[cfg(target_arch = "x86_64")]
    if places >= filter::PLACES {
        // SAFETY: the caller guarantees it.
        return unsafe { by_filter(start, places, filter::Filter::now(), look) };
    }
    (0..places).any(|place| look(start.wrapping_add(place)))
}

/// # Safety
///
/// The requirements of `any_word`, with at least as many places as the filter reads.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn by_filter(
    start: *const u8,
    places: usize,
    filter: filter::Filter,
    look: impl Fn(*const u8) -> bool,
) -> bool {
    use filter::PLACES;
    /// Places where a word of an array of words begins: a table may be full of addresses in the
    /// bounds, so these are tested one by one.
    const OF_ARRAY: u32 = 0x0101;

    let any_of = |begin: *const u8, mut candidates: u32| {
        while candidates != 0 {
            if look(begin.wrapping_add(candidates.trailing_zeros() as usize)) {
                return true;
            }
            candidates &= candidates - 1;
        }
        false
    };
    let end = start.wrapping_add(places);
    let whole_end = start.wrapping_add(places / PLACES * PLACES);
    let mut begin = start;
    while begin != whole_end {
        if look(begin) || look(begin.wrapping_add(WORD_BYTES)) {
            return true;
        }
        // SAFETY: the caller guarantees it; all these places are before the end.
        let candidates = unsafe { filter.candidates(begin) } & !OF_ARRAY;
        // SAFETY: as above.
        if candidates != 0 && !unsafe { filter.skips(begin) } && any_of(begin, candidates) {
            return true;
        }
        begin = begin.wrapping_add(PLACES);
    }
    // The last ones overlap with those.
    let begin = end.wrapping_sub(PLACES);
    // SAFETY: as above.
    any_of(begin, unsafe { filter.candidates(begin) })
}

/// Addresses that pinned memory has had, in two parts: below and above the address at which the
/// tested bytes change. Empty while there are none.
static PARTS: [Part; 2] = [const { Part::new() }; 2];
const UPPER: usize = 1 << (UPPER_BYTE * 8);
/// Index of a byte of a word, from the lowest.
const UPPER_BYTE: usize = 5;

struct Part {
    lowest: AtomicUsize,
    highest: AtomicUsize,
}

impl Part {
    const fn new() -> Part {
        Part { lowest: AtomicUsize::new(usize::MAX), highest: AtomicUsize::new(0) }
    }

    fn widen(&self, first: usize, last: usize) {
        self.lowest.fetch_min(first, Ordering::Relaxed);
        self.highest.fetch_max(last, Ordering::Relaxed);
    }
}

/// Adds addresses to search for. Call before they are looked up.
pub(super) fn widen(first: usize, last: usize) {
    let [lower, upper] = &PARTS;
    if first < UPPER {
        lower.widen(first, last.min(UPPER - 1));
    }
    if last >= UPPER {
        upper.widen(first.max(UPPER), last);
    }
}

#[cfg(target_arch = "x86_64")]
mod filter {
    use core::arch::x86_64::*;
    use std::sync::atomic::Ordering;

    use super::{PARTS, Part, UPPER_BYTE, WORD_BYTES};

    /// Number of places tested at a time.
    pub(super) const PLACES: usize = 16;

    /// Upper bytes of a word in one of the parts. In the upper part, the sixth byte is in an
    /// interval. In the lower part that byte is zero, as in most arguments, and the fifth byte is
    /// in an interval.
    #[derive(Clone, Copy)]
    pub(super) struct Filter {
        upper: Interval,
        lower: Interval,
        /// Whether zeros pass, though there is nothing at zero.
        passes_zeros: bool,
    }

    /// An interval of the values of a byte, in each byte of a vector.
    #[derive(Clone, Copy)]
    struct Interval {
        first: __m128i,
        span: __m128i,
    }

    impl Interval {
        #[inline(always)]
        fn new(part: &Part, byte: usize) -> Interval {
            let (lowest, highest) =
                (part.lowest.load(Ordering::Relaxed), part.highest.load(Ordering::Relaxed));
            let of = |address: usize| (address >> (byte * 8)) as u8;
            // An empty part searches for nothing; a byte with this value is tested in vain.
            let (first, last) =
                if lowest > highest { (u8::MAX, u8::MAX) } else { (of(lowest), of(highest)) };
            let all = |byte: u8| {
                // SAFETY: every processor of this kind has these instructions; here and below.
                unsafe { _mm_set1_epi8(byte.cast_signed()) }
            };
            Interval { first: all(first), span: all(last - first) }
        }

        /// Returns zero in each byte that is in the interval.
        #[inline(always)]
        fn is_left_by(self, bytes: __m128i) -> __m128i {
            // SAFETY: as above.
            unsafe { _mm_subs_epu8(_mm_sub_epi8(bytes, self.first), self.span) }
        }
    }

    impl Filter {
        #[inline(always)]
        pub(super) fn now() -> Filter {
            let [lower, upper] = &PARTS;
            let lowest = lower.lowest.load(Ordering::Relaxed);
            Filter {
                upper: Interval::new(upper, UPPER_BYTE),
                lower: Interval::new(lower, UPPER_BYTE - 1),
                passes_zeros: lowest != 0 && lowest >> ((UPPER_BYTE - 1) * 8) == 0,
            }
        }

        /// Returns the places, a bit each, where a word in one of the parts may begin.
        ///
        /// # Safety
        ///
        /// There must be a whole word at each of the places from `start`.
        #[inline(always)]
        pub(super) unsafe fn candidates(&self, start: *const u8) -> u32 {
            // SAFETY: reads one byte of the word at each place.
            unsafe {
                let of_each = |byte: usize| _mm_loadu_si128(start.add(byte).cast());
                let byte = of_each(UPPER_BYTE);
                let in_upper = self.upper.is_left_by(byte);
                let in_lower = _mm_or_si128(self.lower.is_left_by(of_each(UPPER_BYTE - 1)), byte);
                let wrong = _mm_or_si128(_mm_min_epu8(in_upper, in_lower), of_each(UPPER_BYTE + 1));
                _mm_movemask_epi8(_mm_cmpeq_epi8(wrong, _mm_setzero_si128())).cast_unsigned()
            }
        }

        /// Returns whether there are only zeros in all these places, and nothing can be pinned at
        /// zero.
        ///
        /// # Safety
        ///
        /// The requirements of `candidates`.
        #[inline(always)]
        pub(super) unsafe fn skips(&self, start: *const u8) -> bool {
            // SAFETY: together the words at all places.
            let word = |place| unsafe { start.add(place).cast::<u64>().read_unaligned() };
            self.passes_zeros && word(0) | word(WORD_BYTES) | word(PLACES - 1) == 0
        }
    }
}
