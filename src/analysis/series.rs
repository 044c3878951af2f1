//! Amounts over time for a drawing: as many moments as it can show, and a line for each group.

use crate::lifetimes::{Lifetimes, Moment};

/// Returns moments that preserve the shape of `values`, which has one value per moment, in
/// ascending order. They are the first, the last, and the lowest and the highest of each of `parts`
/// equal parts.
pub fn telling_moments(values: &[u64], parts: usize) -> Vec<Moment> {
    let part = values.len().div_ceil(parts.max(1)).max(1);
    let mut moments: Vec<Moment> = vec![0, values.len().saturating_sub(1) as Moment];
    for (number, values) in values.chunks(part).enumerate() {
        let begin = number * part;
        let lowest = (0..values.len()).min_by_key(|&index| values[index]);
        // The first of the highest. `max_by_key` alone would return the last.
        let highest = (0..values.len()).rev().max_by_key(|&index| values[index]);
        moments.extend([lowest, highest].into_iter().flatten().map(|at| (begin + at) as Moment));
    }
    moments.sort_unstable();
    moments.dedup();
    moments
}

/// Returns the bytes of each group at these ascending moments, as `[group][moment]`. `groups[i]` is
/// the group of the lifetime `lifetimes.all[i]`, less than `groups_count`.
pub fn by_group(
    lifetimes: &Lifetimes,
    groups: &[usize],
    groups_count: usize,
    moments: &[Moment],
) -> Vec<Vec<u64>> {
    let mut series = vec![vec![0u64; moments.len() + 1]; groups_count];
    for (life, &group) in lifetimes.all.iter().zip(groups) {
        let first_from = |moment| moments.partition_point(|&it| it < moment);
        let (begin, end) = (first_from(life.begin), first_from(life.end));
        let values = &mut series[group];
        values[begin] = values[begin].wrapping_add(life.bytes);
        values[end] = values[end].wrapping_sub(life.bytes);
    }
    for values in &mut series {
        values.pop();
        let mut sum = 0u64;
        for value in values {
            sum = sum.wrapping_add(*value);
            *value = sum;
        }
    }
    series
}
