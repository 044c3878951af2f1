//! Reads the statistics of a context while the program runs. The core counts what passes through
//! it. A block in a thread cache is allocated to the core and free to the program, and enters and
//! leaves without the core. The difference is added here, on request only.
//!
//! The numbers are exact, except for peaks other than that of `allocated_bytes.all` when several
//! threads allocate at once: those may include blocks then in the thread caches of other threads. A
//! block in a thread cache counts as neither allocated nor inactive.

use std::sync::atomic::Ordering;

use cachealloc_core::{Allocator, Pool, PoolStats, Stat, Stats};
use cachealloc_statistics::ContextReport;

use crate::cache::blocks;
use crate::driver_memory::table;
use crate::lock::lock;
use crate::log;
use crate::process::lock_timeout::LockWait;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::correction::{Requested, add};
use crate::state::thread_cache::{PoolTally, Tally};

/// Returns the current state of a context, or `None` if a lock is held and `wait` does not allow
/// waiting.
pub(crate) fn report(context: &'static Context, wait: LockWait) -> Option<ContextReport> {
    let mut report = ContextReport {
        id: context.id,
        device: context.device,
        is_alive: !context.is_dead(),
        met: context.seen_before,
        gone: context.seen_at_end(),
        stats: Stats::default(),
        barriers_count: context.last_barrier.count(),
    };
    report.stats = stats(context, wait)?;
    Some(report)
}

/// Returns reports of all contexts the process has had, except those busy for too long.
pub(crate) fn reports(wait: LockWait) -> Vec<ContextReport> {
    let report = |context| {
        let report = report(context, wait);
        if report.is_none() {
            log::warn(format_args!("statistics: skipped a context: its lock timed out"));
        }
        report
    };
    contexts::every().filter_map(report).collect()
}

pub(crate) fn stats(context: &Context, wait: LockWait) -> Option<Stats> {
    if let Some(stats) = context.final_stats() {
        return Some(stats.clone());
    }
    let mut allocator = wait.lock(&context.allocator)?;
    Some(stats_locked(context, &mut allocator, wait))
}

/// Returns the statistics, for a caller that holds the allocator's lock. Peaks that become visible
/// only here, together with what threads have cached, are remembered: a later report must not have
/// smaller ones.
pub(crate) fn stats_locked(context: &Context, allocator: &mut Allocator, wait: LockWait) -> Stats {
    let mut stats = cache_stats_locked(context, allocator, wait);
    add_driver_memory(&mut stats, context, wait);
    stats
}

/// Returns the device of each living context, and what its cache alone counts.
pub(crate) fn of_caches(wait: LockWait) -> Vec<(i32, Stats)> {
    let alive = contexts::every().filter(|context| !context.is_dead());
    let stats = |context: &'static Context| {
        let mut allocator = wait.lock(&context.allocator)?;
        Some((context.device, cache_stats_locked(context, &mut allocator, wait)))
    };
    alive.filter_map(stats).collect()
}

fn cache_stats_locked(context: &Context, allocator: &mut Allocator, wait: LockWait) -> Stats {
    let mut stats = allocator.stats();
    stats.max_split_bytes = allocator.policy().max_split_bytes;
    stats.num_ooms = context.ooms_count.load(Ordering::Relaxed);
    let tally = context.thread_cache.tally(wait);
    add_tally(&mut stats, &tally);
    for (pool, passes) in [(Pool::Small, tally.small), (Pool::Large, tally.large)] {
        add_requested(&mut stats.requested_bytes, pool, &passes, context.correction.of(pool));
    }
    let allocated = &mut stats.allocated_bytes.all;
    let peak = context.allocated_bytes_peak.fetch_max(allocated.current, Ordering::Relaxed);
    allocated.peak = peak.max(allocated.current);
    allocator.counts_mut().raise_peaks(&stats);
    stats
}

/// Adds what the driver serves the program directly, which no cache counts.
fn add_driver_memory(stats: &mut Stats, context: &Context, wait: LockWait) {
    let is_first = is_first_of_device(context);
    if let Some(table) = wait.lock(&table::TABLE) {
        table.tally.add_to(stats, context.device, context.id, is_first);
    }
}

/// Memory that belongs to no context is counted once for each device.
fn is_first_of_device(context: &Context) -> bool {
    let of_device = contexts::all().filter(|other| other.device == context.device);
    of_device.last().is_some_and(|first| first.id == context.id)
}

/// Sets every peak of the context to its current value.
pub(crate) fn reset_peaks(context: &Context) {
    let mut allocator = lock(&context.allocator);
    if context.is_dead() {
        return;
    }
    blocks::take_back_all(context, &mut allocator);
    allocator.counts_mut().reset_peaks();
    context.recorder.reset_peak();
    let current = allocator.stats().allocated_bytes.all.current;
    context.allocated_bytes_peak.store(current, Ordering::Relaxed);
    lock(&table::TABLE).tally.reset_peaks(context.device);
}

/// Resets every total of the context. Returns the previous values.
pub(crate) fn reset_totals(context: &Context) -> Option<Stats> {
    let mut allocator = lock(&context.allocator);
    if context.is_dead() {
        return None;
    }
    let before = stats_locked(context, &mut allocator, LockWait::Blocking);
    let mut tally = Tally::default();
    let thread_cache = &context.thread_cache;
    thread_cache
        .start_anew(&mut tally, |cached| blocks::take_back(context, &mut allocator, cached));
    for (requested, passes) in
        [(&context.correction.small, tally.small), (&context.correction.large, tally.large)]
    {
        let left = requested.not_freed.swap(0, Ordering::Relaxed);
        add(&requested.before, left + passes.requested_taken as i64 - passes.requested_put as i64);
    }
    context.ooms_count.store(0, Ordering::Relaxed);
    allocator.counts_mut().reset_totals();
    lock(&table::TABLE).tally.reset_totals(context.device);
    Some(before)
}

fn add_tally(stats: &mut Stats, tally: &Tally) {
    for (pool, passes) in [(Pool::Small, &tally.small), (Pool::Large, &tally.large)] {
        for counts in [&mut stats.allocation, &mut stats.active] {
            each(counts, pool, |stat| add_passes(stat, passes.hits, passes.cached));
        }
        for bytes in [&mut stats.allocated_bytes, &mut stats.active_bytes] {
            each(bytes, pool, |stat| add_passes(stat, passes.hit_bytes, passes.cached_bytes));
        }
    }
    add_passes(&mut stats.oversize_allocations, tally.oversize_hits, tally.oversize_cached);
}

/// Adds `hits` that entered and left, and `cached` blocks that are inside.
fn add_passes(stat: &mut Stat, hits: u64, cached: u64) {
    stat.allocated += hits;
    stat.freed += hits + cached;
    stat.current = stat.current.saturating_sub(cached);
}

fn add_requested(stats: &mut PoolStats, pool: Pool, passes: &PoolTally, correction: &Requested) {
    let not_freed = correction.not_freed.load(Ordering::Relaxed);
    let before = correction.before.load(Ordering::Relaxed);
    let freed = passes.requested_put as i64 - not_freed;
    each(stats, pool, |stat| {
        stat.allocated += passes.requested_taken;
        stat.freed = stat.freed.saturating_add_signed(freed);
        let more = passes.requested_taken as i64 - freed + before;
        stat.current = stat.current.saturating_add_signed(more);
        stat.peak = stat.peak.max(stat.current);
    });
}

/// Changes the numbers of one pool and of both together.
fn each(stats: &mut PoolStats, pool: Pool, mut change: impl FnMut(&mut Stat)) {
    change(&mut stats.all);
    change(match pool {
        Pool::Small => &mut stats.small,
        Pool::Large => &mut stats.large,
    });
}
