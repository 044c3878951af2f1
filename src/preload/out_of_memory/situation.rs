//! Determines what holds the memory of a device at this moment, by component and by call site.
//! Calls the driver, and resolves no names: a report may be printed later.

use std::collections::BTreeMap;

use cachealloc_core::BlockState;
use cachealloc_history::{
    OomCache, OomLimit, OomPart, OomPlace, OomReport, OomRequest, Site, StackId,
};
use cachealloc_statistics::breakdown::{Breakdown, Component, Place};

use crate::contexts::lookup;
use crate::driver::api;
use crate::driver_memory::table;
use crate::driver_memory::table::Held;
use crate::driver_memory::{implicit_usage, limits, measured};
use crate::lists::hash::HashMap;
use crate::process::lock_timeout::LockWait;
use crate::snapshots::cut;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::release;
use crate::{config, record};

/// The driver's answer about the memory of a device.
#[derive(Clone, Copy)]
pub(crate) struct DeviceMemory {
    pub free_bytes: u64,
    pub total_bytes: u64,
}

/// Returns the driver's answer, or `None` if the driver cannot be asked.
pub(crate) fn device_memory(device: i32) -> Option<DeviceMemory> {
    let (free, total) = within(device, api::mem_get_info)?;
    Some(DeviceMemory { free_bytes: free as u64, total_bytes: total as u64 })
}

/// Runs `body` with a context of this device current.
fn within<T>(device: i32, body: impl FnOnce() -> crate::driver::sys::CuResult<T>) -> Option<T> {
    let is_current = api::ctx_get_device() == Ok(device);
    if is_current {
        // If this fails the context is lost, which later calls will report.
        return api::relaxed(body).ok();
    }
    let context = contexts::all().find(|context| context.device == device)?;
    let _open = context.keep_open()?;
    if !lookup::is_certain(context) {
        return None;
    }
    api::relaxed(|| context.enter(body)).ok()
}

pub(crate) fn of(device: i32, request: OomRequest, memory: Option<DeviceMemory>) -> OomReport {
    let mut breakdown = Breakdown::new(device);
    let mut cache =
        OomCache { is_expandable: config::get().policy.expandable_segments, ..OomCache::default() };
    let mut sites: HashMap<StackId, (u64, u64)> = HashMap::default();
    let mut counts: BTreeMap<Component, u64> = BTreeMap::new();
    for context in contexts::all().filter(|context| context.device == device) {
        let (held, count) = add_cache(context, &mut cache);
        breakdown.add(Component::CacheHeld, "", held);
        *counts.entry(Component::CacheHeld).or_default() += count;
        for totals in context.recorder.holders() {
            let count = totals.allocations_count.saturating_sub(totals.frees_count);
            add_site(&mut sites, totals.stack, totals.bytes, count);
        }
    }
    cache.waiting_bytes = cache.waiting_bytes.saturating_add(release::on_its_way_bytes(device));
    breakdown.add(Component::CacheWaiting, "", cache.waiting_bytes);
    let free_bytes = cache.free_bytes.saturating_add(cache.private_free_bytes);
    breakdown.add(Component::CacheFree, "", free_bytes);
    let all = table::held();
    let mapped: HashMap<_, _> = all
        .iter()
        .filter(|held| held.component.is_none() && !held.stack.is_none())
        .map(|held| (held.handle, held.stack))
        .collect();
    for Held { component, stack, bytes, handle, .. } in
        all.iter().filter(|held| held.device == device)
    {
        let Some(component) = *component else { continue };
        let stack = mapped.get(handle).filter(|_| handle.is_some()).unwrap_or(stack);
        breakdown.add(component, "", *bytes);
        *counts.entry(component).or_default() += 1;
        if component.place() == Place::Sum {
            add_site(&mut sites, *stack, *bytes, 1);
        }
    }
    let (taken, _) = implicit_usage::all(LockWait::Timeout);
    for row in taken.iter().filter(|row| row.device == device) {
        breakdown.add(row.component, "", row.bytes);
    }
    let [pools_bytes, graphs_bytes] =
        within(device, || Ok(measured::reserved(device))).unwrap_or_default();
    let pools_free_bytes = pools_bytes.saturating_sub(breakdown.bytes(Component::PoolsHeld));
    breakdown.add(Component::PoolsFree, "", pools_free_bytes);
    breakdown.add(Component::Graphs, "", graphs_bytes);
    let in_use = memory.map(|memory| memory.total_bytes.saturating_sub(memory.free_bytes));
    breakdown.in_use_bytes = in_use;
    let rest_bytes = breakdown.reconcile(None).rest_bytes;
    OomReport {
        device: device.max(0) as u32,
        request,
        limit: limit(device),
        driver_free_bytes: memory.map(|memory| memory.free_bytes),
        driver_total_bytes: memory.map(|memory| memory.total_bytes),
        host_free_bytes: (request.kind.place() == OomPlace::Host).then(host_free).flatten(),
        parts: parts(&breakdown, &counts),
        rest_bytes: rest_bytes.and_then(|rest| u64::try_from(rest).ok()),
        cache,
        pools_free_bytes,
        graphs_bytes,
        sites: if record::is_on() { largest_first(sites) } else { Vec::new() },
    }
}

fn limit(device: i32) -> Option<OomLimit> {
    let limit = limits::use_of(device)?;
    let limits::LimitUse { limit_bytes: bytes, held_bytes, option } = limit;
    Some(OomLimit { bytes, held_bytes, option })
}

fn parts(breakdown: &Breakdown, counts: &BTreeMap<Component, u64>) -> Vec<OomPart> {
    let component = |row: &cachealloc_statistics::breakdown::Row| OomPart {
        title: row.component.title(),
        bytes: row.bytes,
        count: counts.get(&row.component).copied().unwrap_or(0),
    };
    let mut parts: Vec<OomPart> = breakdown
        .rows
        .iter()
        .filter(|row| row.component.place() != Place::Rest)
        .map(component)
        .collect();
    parts.sort_by_key(|component| core::cmp::Reverse(component.bytes));
    parts
}

/// Returns the bytes and blocks of this context's cache that the program holds. Adds everything
/// else to `cache`.
fn add_cache(context: &Context, cache: &mut OomCache) -> (u64, u64) {
    let Some(mut allocator) = LockWait::Timeout.lock(&context.allocator) else { return (0, 0) };
    cut::empty_lists(context, &mut allocator);
    let (mut held, mut count) = (0, 0);
    for segment in allocator.segments() {
        for block in allocator.blocks(segment.id) {
            match block.state {
                BlockState::Allocated => (held, count) = (held + block.bytes, count + 1),
                BlockState::Free(ready) if ready.is_pending() => cache.waiting_bytes += block.bytes,
                BlockState::Free(_) if block.private.is_some() => {
                    cache.private_free_bytes += block.bytes;
                }
                BlockState::Free(_) => {
                    cache.free_bytes += block.bytes;
                    cache.free_block_bytes_max = cache.free_block_bytes_max.max(block.bytes);
                }
            }
        }
    }
    (held, count)
}

fn add_site(sites: &mut HashMap<StackId, (u64, u64)>, stack: StackId, bytes: u64, count: u64) {
    if bytes > 0 {
        let site = sites.entry(stack).or_default();
        *site = (site.0.saturating_add(bytes), site.1 + count);
    }
}

fn largest_first(sites: HashMap<StackId, (u64, u64)>) -> Vec<Site> {
    let site = |(stack, (bytes, blocks_count))| Site { stack, bytes, blocks_count };
    let mut sites: Vec<Site> = sites.into_iter().map(site).collect();
    sites.sort_unstable_by_key(|site| (core::cmp::Reverse(site.bytes), site.stack));
    sites
}

/// Returns what the host can still provide without swapping, according to its kernel.
fn host_free() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
