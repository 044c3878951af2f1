//! The statistics under the names of `torch.cuda.memory_stats`, in its alphabetical order. All 123
//! keys are PyTorch's, with PyTorch's meaning.

use cachealloc_core::{PoolStats, Stat, Stats};

/// PyTorch's number for an unlimited `max_split_size`.
const UNLIMITED: i64 = -1;

/// Calls `visit` with every key and its number.
pub fn visit(stats: &Stats, visit: &mut dyn FnMut(&str, i64)) {
    for (name, value) in table(stats) {
        match value {
            Value::Number(number) => visit(name, number),
            Value::Single(stat) => visit_stat(name, stat, visit),
            Value::Pooled(pooled) => {
                for (pool, stat) in pools(pooled) {
                    visit_stat(&format!("{name}.{pool}"), stat, visit);
                }
            }
        }
    }
}

/// Returns all keys with their numbers.
pub fn all(stats: &Stats) -> Vec<(String, i64)> {
    let mut all = Vec::new();
    visit(stats, &mut |key, value| all.push((key.to_string(), value)));
    all
}

/// Returns the number of one key. Allocates nothing.
pub fn find(stats: &Stats, key: &str) -> Option<i64> {
    let mut parts = key.split('.');
    let name = parts.next()?;
    let (_, value) = table(stats).into_iter().find(|(known, _)| *known == name)?;
    let number = match value {
        Value::Number(number) => number,
        Value::Single(stat) => metric(stat, parts.next()?)?,
        Value::Pooled(pooled) => {
            let pool = parts.next()?;
            let (_, stat) = pools(pooled).into_iter().find(|(known, _)| *known == pool)?;
            metric(stat, parts.next()?)?
        }
    };
    parts.next().is_none().then_some(number)
}

enum Value<'stats> {
    Number(i64),
    Single(&'stats Stat),
    Pooled(&'stats PoolStats),
}

fn table(stats: &Stats) -> [(&'static str, Value<'_>); 18] {
    let number = |number: u64| Value::Number(number as i64);
    let max_split = stats.max_split_bytes.map_or(UNLIMITED, |bytes| bytes as i64);
    [
        ("active", Value::Pooled(&stats.active)),
        ("active_bytes", Value::Pooled(&stats.active_bytes)),
        ("allocated_bytes", Value::Pooled(&stats.allocated_bytes)),
        ("allocation", Value::Pooled(&stats.allocation)),
        ("inactive_split", Value::Pooled(&stats.inactive_split)),
        ("inactive_split_bytes", Value::Pooled(&stats.inactive_split_bytes)),
        ("max_split_size", Value::Number(max_split)),
        ("num_alloc_retries", number(stats.num_alloc_retries)),
        ("num_device_alloc", number(stats.num_device_alloc)),
        ("num_device_free", number(stats.num_device_free)),
        ("num_oom_rejections", number(stats.num_oom_rejections)),
        ("num_ooms", number(stats.num_ooms)),
        ("num_sync_all_streams", number(stats.num_sync_all_streams)),
        ("oversize_allocations", Value::Single(&stats.oversize_allocations)),
        ("oversize_segments", Value::Single(&stats.oversize_segments)),
        ("requested_bytes", Value::Pooled(&stats.requested_bytes)),
        ("reserved_bytes", Value::Pooled(&stats.reserved_bytes)),
        ("segment", Value::Pooled(&stats.segment)),
    ]
}

fn pools(stats: &PoolStats) -> [(&'static str, &Stat); 3] {
    [("all", &stats.all), ("large_pool", &stats.large), ("small_pool", &stats.small)]
}

fn metrics(stat: &Stat) -> [(&'static str, u64); 4] {
    let Stat { current, peak, allocated, freed } = *stat;
    [("allocated", allocated), ("current", current), ("freed", freed), ("peak", peak)]
}

fn metric(stat: &Stat, name: &str) -> Option<i64> {
    let found = metrics(stat).into_iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| value as i64)
}

fn visit_stat(begin: &str, stat: &Stat, visit: &mut dyn FnMut(&str, i64)) {
    for (metric, value) in metrics(stat) {
        visit(&format!("{begin}.{metric}"), value as i64);
    }
}
