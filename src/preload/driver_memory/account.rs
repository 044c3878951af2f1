//! Where the memory of each device is, as far as the library knows it (`cachealloc_statistics::account`): what
//! the caches hold, what the driver serves the program itself, and what the driver said when it was last asked
//! (`measured`). No call to the driver.

use std::collections::HashMap;

use cachealloc_history::{Describe, StackId};
use cachealloc_statistics::account::{Account, HOST, Part};

use crate::driver_memory::table::{self, Held};
use crate::driver_memory::{measured, taken};
use crate::graphs::graph_memory::{self, MemoryNode};
use crate::process::patience::Patience;
use crate::record::symbols::Names;
use crate::snapshots::contents;
use crate::statistics::reading;

/// Of every device on which the process has a context, in order, and of the host last.
pub(crate) fn accounts(patience: Patience) -> Vec<Account> {
    let mut accounts: Vec<Account> = Vec::new();
    for (device, stats) in &reading::of_caches(patience) {
        let account = of_device(&mut accounts, *device);
        let [held, active, reserved] =
            [&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes]
                .map(|bytes| bytes.all.current);
        account.add(Part::CacheHeld, "", held);
        account.add(Part::CacheWaiting, "", active.saturating_sub(held));
        account.add(Part::CacheFree, "", reserved.saturating_sub(active.max(held)));
    }
    let mut held = table::held();
    held.extend(graph_memory::nodes().iter().map(|(_, node)| {
        let MemoryNode { device, bytes, stack, .. } = *node;
        Held { device, part: Some(Part::GraphNodes), stack, bytes, handle: None }
    }));
    let (taken, missed) = taken::all(patience);
    held.extend(taken.iter().map(|row| {
        let taken::Row { device, part, stack, bytes, .. } = *row;
        Held { device, part: Some(part), stack, bytes, handle: None }
    }));
    contents::with_all_names(|names| {
        names.prepare_categories(held.iter().map(|held| held.stack));
        add_held(&mut accounts, &held, names);
    });
    for (device, count) in missed {
        of_device(&mut accounts, device).missed_count = count;
    }
    for account in accounts.iter_mut().filter(|account| account.device != HOST) {
        add_measured(account, patience);
    }
    accounts.sort_by_key(|account| (account.device == HOST, account.device));
    accounts
}

fn of_device(accounts: &mut Vec<Account>, device: i32) -> &mut Account {
    let known = accounts.iter().position(|account| account.device == device);
    let at = known.unwrap_or_else(|| {
        accounts.push(Account::new(device));
        accounts.len() - 1
    });
    &mut accounts[at]
}

fn add_held(accounts: &mut Vec<Account>, held: &[Held], names: &mut Names) {
    let mut categories: HashMap<StackId, String> = HashMap::new();
    // A mapping says which stack asked for physical memory, which is counted once however often it is mapped.
    let mappings = held.iter().filter(|held| held.part.is_none() && !held.stack.is_none());
    let stacks: HashMap<_, _> = mappings.map(|held| (held.handle, held.stack)).collect();
    for Held { device, part, stack, bytes, handle } in held {
        let Some(part) = *part else { continue };
        let stack = if part == Part::Virtual { stacks.get(handle).unwrap_or(stack) } else { stack };
        let library = categories.entry(*stack).or_insert_with(|| {
            if stack.is_none() { String::new() } else { names.category(*stack) }
        });
        let device = if part == Part::Pinned { HOST } else { *device };
        of_device(accounts, device).add(part, library, *bytes);
    }
}

fn add_measured(account: &mut Account, patience: Patience) {
    let device = account.device;
    if let Some(bytes) = measured::at_first_context(device, patience) {
        account.add(Part::Context, "", bytes);
    }
    let Some(measured) = measured::last(device, patience) else { return };
    account.total_bytes = Some(measured.total_bytes);
    account.in_use_bytes = Some(measured.in_use_bytes);
    account.age_ms = Some(measured.at.elapsed().as_millis() as u64);
    let pools_held_bytes = account.bytes(Part::PoolsHeld);
    let pools_free_bytes = measured.pools_reserved_bytes.saturating_sub(pools_held_bytes);
    account.add(Part::PoolsFree, "", pools_free_bytes);
    account.add(Part::Graphs, "", measured.graphs_reserved_bytes);
    measured.limits.into_iter().for_each(|(part, bytes)| account.add(part, "", bytes));
}
