//! Counts completed elements where each completes before the next, as the events of one stream do.

/// Returns how many of `count` elements that complete in order are complete, with few queries: one
/// if none is, two for each doubling of the answer otherwise. Elements are queried by number, from
/// 0.
pub fn completed_count(count: u64, mut is_over: impl FnMut(u64) -> bool) -> u64 {
    let (mut over, mut step) = (0, 1);
    // From `end` on, no element is complete, or there is none.
    let mut end = count;
    while over < end {
        let asked = (over + step).min(end) - 1;
        if is_over(asked) {
            over = asked + 1;
            step *= 2;
        } else {
            end = asked;
            break;
        }
    }
    while over < end {
        let asked = over + (end - over) / 2;
        if is_over(asked) { over = asked + 1 } else { end = asked }
    }
    over
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One query for each power of two up to the answer, and as many again to find it between two
    /// of them.
    #[test]
    fn few_queries_find_the_completed_events() {
        let counts = (0..70).chain([1_000, 65_536, u64::from(u32::MAX)]);
        for count in counts {
            let answers = (0..=count.min(70)).chain([count / 2, count.saturating_sub(1), count]);
            for over in answers {
                let mut questions = 0;
                let found = completed_count(count, |number| {
                    assert!(number < count, "{number} of {count} is not there");
                    questions += 1;
                    number < over
                });
                assert_eq!(found, over, "of {count}");
                let bound = 1 + 2 * u64::from(over.checked_ilog2().map_or(0, |log| log + 1));
                assert!(questions <= bound, "{questions} questions for {over} of {count}");
            }
        }
    }
}
