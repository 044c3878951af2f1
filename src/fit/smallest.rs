//! The smallest size of something with which a run completes.
//!
//! More memory need not be better: with more of it the cache keeps other segments. So a size counts as the smallest
//! only if the run completes with each larger size that is tried as well, and what is tried is part of the result.

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Smallest {
    pub bytes: u64,
    /// How many larger sizes were tried; it completes with all of them.
    pub larger_count: u32,
    /// Smaller sizes with which it completes, but not with all that are tried above them.
    pub also_bytes: Vec<u64>,
}

/// Larger sizes are tried up to this part more than the smallest.
const LARGER_PART: u64 = 3;
/// Where a run does not complete with so many times what it holds, and so many units more, it never does.
const FACTOR_MAX: u64 = 16;
const MORE_MAX: u64 = 64;

/// In units of `unit_bytes`, from `least_bytes` on: with less it cannot complete. None: with no size that was tried.
pub fn smallest(
    least_bytes: u64,
    unit_bytes: u64,
    larger_count: u32,
    mut completes: impl FnMut(u64) -> bool,
) -> Option<Smallest> {
    let mut completes = |units: u64| completes(units * unit_bytes);
    let least = least_bytes.div_ceil(unit_bytes).max(1);
    let most = FACTOR_MAX.saturating_mul(least).saturating_add(MORE_MAX);
    let mut works = first_above(least - 1, most, &mut completes)?;
    let mut also_bytes = Vec::new();
    loop {
        // Sizes that differ by less than a unit are one.
        let step =
            |number: u32| works * u64::from(number) / (LARGER_PART * u64::from(larger_count));
        let mut larger: Vec<u64> = (1..=larger_count).map(|number| works + step(number)).collect();
        larger.dedup();
        larger.retain(|size| *size > works);
        match larger.iter().rev().find(|size| !completes(**size)) {
            None => {
                let larger_count = larger.len() as u32;
                return Some(Smallest { bytes: works * unit_bytes, larger_count, also_bytes });
            }
            Some(&fails) => {
                also_bytes.push(works * unit_bytes);
                works = first_above(fails, most, &mut completes)?;
            }
        }
    }
}

/// In steps that double, then by halving: sizes that fail end early, and cost less to try.
fn first_above(mut fails: u64, most: u64, completes: &mut impl FnMut(u64) -> bool) -> Option<u64> {
    let (mut works, mut step) = (fails + 1, 1);
    while !completes(works) {
        if works >= most {
            return None;
        }
        fails = works;
        works = (works + step).min(most);
        step *= 2;
    }
    while works - fails > 1 {
        let size = fails + (works - fails) / 2;
        match completes(size) {
            true => works = size,
            false => fails = size,
        }
    }
    Some(works)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(least: u64, unit: u64, works: impl Fn(u64) -> bool) -> Option<(u64, Vec<u64>)> {
        let found = smallest(least, unit, 12, works)?;
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

    /// Above a size that fails it begins again.
    #[test]
    fn larger_sizes_count() {
        let works = |size: u64| size == 91 || size >= 130;
        assert_eq!(found(90, 1, works), Some((130, vec![91])));
        let larger = smallest(90, 1, 12, works).expect("it is found").larger_count;
        assert_eq!(larger, 12);
    }
}
