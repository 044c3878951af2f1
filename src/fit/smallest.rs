//! The smallest size of something with which a run completes.
//!
//! More memory need not be better: with more of it the cache keeps other segments. So a size counts
//! as the smallest only if the run also completes with each larger size that is tried, and the
//! number of tried sizes is part of the result. If the run fails with some of them, the smaller
//! sizes with which it completes are part of the result too.

use std::collections::BTreeMap;

/// Result of the search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Smallest {
    pub bytes: u64,
    /// Number of larger sizes that were tried. The run completes with all of them.
    pub larger_count: u32,
    /// Smaller sizes with which the run completes, although it fails with a larger one.
    pub also_bytes: Vec<u64>,
}

/// Larger sizes are tried up to this fraction more than the smallest.
const LARGER_PART: u64 = 3;
/// As many sizes are tried up to this fraction, where most failures lie.
const NEAR_PART: u64 = 24;
/// If a run does not complete with this many times what it holds plus `MORE_MAX` units, it never
/// does.
const FACTOR_MAX: u64 = 16;
const MORE_MAX: u64 = 64;
/// A file may say that a run holds any number of bytes. The largest size that is tried is a third
/// above this.
const BYTES_MAX: u64 = u64::MAX / 2;

/// Searches in units of `unit_bytes`, from `least_bytes` on: with less the run cannot complete. The
/// search begins at `guess_bytes`. `more_count` is the number of additional sizes to try, below the
/// result and above it. Returns `None` if the run completes with no size that was tried.
pub fn smallest(
    least_bytes: u64,
    guess_bytes: Option<u64>,
    unit_bytes: u64,
    more_count: u32,
    completes: impl FnMut(u64) -> bool,
) -> Option<Smallest> {
    let mut search = Search { unit_bytes, completes, known: BTreeMap::new() };
    let least = least_bytes.div_ceil(unit_bytes).max(1);
    let most = FACTOR_MAX.saturating_mul(least).saturating_add(MORE_MAX);
    let most = most.min(BYTES_MAX / unit_bytes);
    if least > most {
        return None;
    }
    let guess = guess_bytes.map_or(least, |bytes| (bytes / unit_bytes).clamp(least, most));
    let begin = if guess > least && !search.completes(guess - 1) { guess } else { least };
    let found = search.first_above(begin - 1, most)?;
    let mut works = search.first_among(least, found, more_count.into());
    let mut also_bytes = Vec::new();
    loop {
        search.try_above(works, more_count.into());
        let Some(fails) = search.last_failure_above(works) else {
            let larger_count = search.known.range(works + 1..).count() as u32;
            return Some(Smallest { bytes: works * unit_bytes, larger_count, also_bytes });
        };
        also_bytes.push(works * unit_bytes);
        works = search.first_above(fails, most)?;
    }
}

/// Sizes in units, and whether the run completes with each.
struct Search<F> {
    unit_bytes: u64,
    completes: F,
    known: BTreeMap<u64, bool>,
}

impl<F: FnMut(u64) -> bool> Search<F> {
    fn completes(&mut self, size: u64) -> bool {
        let Search { unit_bytes, completes, known } = self;
        *known.entry(size).or_insert_with(|| completes(size * *unit_bytes))
    }

    /// Searches by doubling steps and then by bisection: sizes that fail end early, and cost less
    /// to try.
    fn first_above(&mut self, mut fails: u64, most: u64) -> Option<u64> {
        let (mut works, mut step) = (fails + 1, 1);
        while !self.completes(works) {
            if works >= most {
                return None;
            }
            fails = works;
            works = (works + step).min(most);
            step *= 2;
        }
        Some(self.between(fails, works))
    }

    fn between(&mut self, mut fails: u64, mut works: u64) -> u64 {
        while works - fails > 1 {
            let size = fails + (works - fails) / 2;
            match self.completes(size) {
                true => works = size,
                false => fails = size,
            }
        }
        works
    }

    /// Returns `works`, or a smaller size, from `least` on, that works: doubling steps may skip
    /// sizes that do.
    fn first_among(&mut self, least: u64, works: u64, count: u64) -> u64 {
        let mut fails = least - 1;
        for number in 1..=count {
            let size = least + (works - least) * number / (count + 1);
            if self.completes(size) {
                return self.between(fails, size);
            }
            fails = size;
        }
        works
    }

    fn try_above(&mut self, works: u64, count: u64) {
        let near_count = count / 2;
        for (part, count) in [(NEAR_PART, near_count), (LARGER_PART, count - near_count)] {
            for number in 1..=count {
                self.completes(works + works * number / (part * count));
            }
        }
    }

    fn last_failure_above(&self, works: u64) -> Option<u64> {
        let above = self.known.range(works + 1..).rev();
        above.filter(|(_, completes)| !**completes).map(|(size, _)| *size).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(least: u64, unit: u64, works: impl Fn(u64) -> bool) -> Option<(u64, Vec<u64>)> {
        let found = smallest(least, None, unit, 12, works)?;
        Some((found.bytes, found.also_bytes))
    }

    #[test]
    fn the_smallest_unit() {
        for least in 1..50 {
            for smallest in least..16 * least {
                assert_eq!(found(least, 1, |size| size >= smallest), Some((smallest, vec![])));
            }
        }
        assert_eq!(found(1000, 64, |size| size >= 2500), Some((2560, vec![])));
        assert_eq!(found(7, 1, |_| false), None);
        assert_eq!(found(0, 4, |_| true), Some((4, vec![])));
    }

    /// Above a size that fails the search begins again.
    #[test]
    fn larger_sizes_count() {
        let works = |size: u64| size == 91 || size >= 130;
        assert_eq!(found(90, 1, works), Some((130, vec![91])));
        let larger =
            smallest(240, None, 1, 12, |size| size >= 240).expect("it is found").larger_count;
        assert_eq!(larger, 12);
    }

    /// A size that fails may be where the search looks first: those below it are found all the
    /// same.
    #[test]
    fn smaller_sizes_are_found_below_one_that_fails() {
        let works = |size: u64| (1234..1250).contains(&size) || size >= 1254;
        assert_eq!(found(1189, 1, works), Some((1254, vec![1234])));
        // 1 + 1 + 2 + 4 + 8 + 16 + 32.
        assert!(!works(1189 + 63));
    }

    /// A guess does not change the result, and reduces the work.
    #[test]
    fn a_guess_shortens_the_search() {
        let tries_count = |guess| {
            let mut tries_count = 0;
            let mut works = |size| {
                tries_count += 1;
                size >= 1040
            };
            let found = smallest(1000, Some(guess), 1, 4, &mut works).expect("it is found");
            assert_eq!((found.bytes, found.also_bytes), (1040, vec![]), "{guess}");
            tries_count
        };
        let without = tries_count(1);
        for guess in [999, 1000, 1039, 1041, 1200, 1 << 40] {
            assert!(tries_count(guess) <= without + 1, "{guess}");
        }
        assert!(tries_count(1040) < without / 2 + 2, "{} of {without}", tries_count(1040));
    }

    /// A failure a little above the smallest size is found too.
    #[test]
    fn failures_are_looked_for_nearby() {
        let works = |size: u64| size >= 1000 && !(1012..1020).contains(&size);
        assert_eq!(found(990, 1, works), Some((1020, vec![1000])));
    }

    #[test]
    fn any_number_of_bytes_is_searched() {
        for least in [u64::MAX, u64::MAX / 2, u64::MAX / 3, u64::MAX / 16, u64::MAX / 17] {
            for unit in [1, 2 << 20] {
                assert_eq!(smallest(least, None, unit, 4, |_| false), None);
                smallest(least, Some(least), unit, 4, |_| true);
            }
        }
    }
}
