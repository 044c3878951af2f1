//! Breakdown of each device's memory, as far as the library knows it
//! (`cachealloc_statistics::breakdown`): what the caches hold, what the driver serves the program
//! directly, and the driver's last answers (`measured`). Makes no call to the driver.

use cachealloc_history::{Describe, StackId};
use cachealloc_statistics::breakdown::{Breakdown, Component, HOST};

use crate::assembly::reading;
use crate::driver_memory::table;
use crate::driver_memory::table::Held;
use crate::driver_memory::{implicit_usage, measured};
use crate::graphs::graph_memory;
use crate::graphs::graph_memory::MemoryNode;
use crate::lists::hash::HashMap;
use crate::process::lock_timeout::LockWait;
use crate::record::symbols::Names;
use crate::snapshots::contents;
use crate::state::release;

/// Returns the breakdown of every device on which the process has a context, in order, and of the
/// host last.
pub(crate) fn breakdowns(wait: LockWait) -> Vec<Breakdown> {
    let mut breakdowns: Vec<Breakdown> = Vec::new();
    for (device, stats) in &reading::of_caches(wait) {
        let breakdown = of_device(&mut breakdowns, *device);
        let [held, active, reserved] =
            [&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes]
                .map(|bytes| bytes.all.current);
        breakdown.add(Component::CacheHeld, "", held);
        let on_its_way = release::on_its_way_bytes(*device);
        breakdown.add(Component::CacheWaiting, "", active.saturating_sub(held) + on_its_way);
        breakdown.add(Component::CacheFree, "", reserved.saturating_sub(active.max(held)));
    }
    let mut held = table::held();
    held.extend(graph_memory::nodes().iter().map(|(_, node)| {
        let MemoryNode { device, bytes, stack, .. } = *node;
        Held { device, component: Some(Component::GraphNodes), stack, bytes, handle: None }
    }));
    let (taken, missed) = implicit_usage::all(wait);
    held.extend(taken.iter().map(|row| {
        let implicit_usage::Row { device, component, stack, bytes, .. } = *row;
        Held { device, component: Some(component), stack, bytes, handle: None }
    }));
    contents::with_all_names(|names| {
        names.prepare_categories(held.iter().map(|held| held.stack));
        add_held(&mut breakdowns, &held, names);
    });
    for (device, count) in missed {
        of_device(&mut breakdowns, device).missed_count = count;
    }
    for breakdown in breakdowns.iter_mut().filter(|breakdown| breakdown.device != HOST) {
        add_measured(breakdown, wait);
    }
    breakdowns.sort_by_key(|breakdown| (breakdown.device == HOST, breakdown.device));
    breakdowns
}

fn of_device(breakdowns: &mut Vec<Breakdown>, device: i32) -> &mut Breakdown {
    let known = breakdowns.iter().position(|breakdown| breakdown.device == device);
    let at = known.unwrap_or_else(|| {
        breakdowns.push(Breakdown::new(device));
        breakdowns.len() - 1
    });
    &mut breakdowns[at]
}

fn add_held(breakdowns: &mut Vec<Breakdown>, held: &[Held], names: &mut Names) {
    let mut categories: HashMap<StackId, String> = HashMap::default();
    // A mapping has the stack that asked for its physical memory, which is counted once however
    // often it is mapped.
    let mappings = held.iter().filter(|held| held.component.is_none() && !held.stack.is_none());
    let stacks: HashMap<_, _> = mappings.map(|held| (held.handle, held.stack)).collect();
    for Held { device, component, stack, bytes, handle } in held {
        let Some(component) = *component else { continue };
        let stack = if component == Component::Virtual {
            stacks.get(handle).unwrap_or(stack)
        } else {
            stack
        };
        let library = categories.entry(*stack).or_insert_with(|| {
            if stack.is_none() { String::new() } else { names.category(*stack) }
        });
        let device = if component == Component::Pinned { HOST } else { *device };
        of_device(breakdowns, device).add(component, library, *bytes);
    }
}

fn add_measured(breakdown: &mut Breakdown, wait: LockWait) {
    let device = breakdown.device;
    if let Some(bytes) = measured::at_first_context(device, wait) {
        breakdown.add(Component::Context, "", bytes);
    }
    let Some(measured) = measured::last(device, wait) else { return };
    breakdown.total_bytes = Some(measured.total_bytes);
    breakdown.in_use_bytes = Some(measured.in_use_bytes);
    breakdown.age_ms = Some(measured.at.elapsed().as_millis() as u64);
    let pools_held_bytes = breakdown.bytes(Component::PoolsHeld);
    let pools_free_bytes = measured.pools_reserved_bytes.saturating_sub(pools_held_bytes);
    breakdown.add(Component::PoolsFree, "", pools_free_bytes);
    breakdown.add(Component::Graphs, "", measured.graphs_reserved_bytes);
    measured.limits.into_iter().for_each(|(component, bytes)| breakdown.add(component, "", bytes));
}
