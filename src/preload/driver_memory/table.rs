//! Table of all memory that the driver serves the program directly: linear, pitched and managed
//! memory, arrays, pool memory, physical memory with its mappings, and pinned host memory. It is
//! always kept, so that a limit or a recording that begins later knows what is live. Changes are
//! passed on to the limit and the recorder from here.
//!
//! Calls that bypass the library's hooks are missed, and so is memory served after the host ran out
//! of memory. Memory whose end was missed ends when its address is served again.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_history::StackId;
use cachealloc_statistics::breakdown::Component;

use crate::clock::now_ns;
use crate::driver_memory::ending::Ending;
use crate::driver_memory::limits;
use crate::driver_memory::tally::Tally;
use crate::lock::lock;
use crate::memory_hooks::other_memory::Observed;
use crate::process::lock_timeout::LockWait;
use crate::record::HOST;
use crate::record::capture;
use crate::record::driver_memory::{Allocation, History};
use crate::record::holders::StackTotals;
use crate::state::contexts::Context;
use crate::{heap, pagemap, record};

pub(crate) static TABLE: Mutex<Table> = Mutex::new(Table {
    served: BTreeMap::new(),
    arrays: BTreeMap::new(),
    arrays_top: ARRAYS_BEGIN,
    physical: BTreeMap::new(),
    tally: Tally::new(),
    history: History::new(),
});

pub(crate) struct Table {
    /// Allocations, whose addresses do not overlap.
    pub served: BTreeMap<Key, Served>,
    /// Addresses at which snapshots show arrays, with the length of each.
    arrays: BTreeMap<u64, u64>,
    /// End of the highest array so far. The history shows arrays that have ended, too.
    arrays_top: u64,
    /// Physical memory by handle.
    pub physical: BTreeMap<u64, Physical>,
    pub tally: Tally,
    pub history: History,
}

/// Range in which snapshots show arrays: above all memory addresses, and below the largest number
/// that viewers represent exactly.
const ARRAYS_BEGIN: u64 = 1 << 52;
const ARRAYS_END: u64 = 1 << 53;
const ARRAY_STEP: u64 = 512;

/// Key of an allocation. An address and a handle may be equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// An address.
    Memory(u64),
    /// The handle of an array, mipmapped or not.
    Array(u64),
}

/// One allocation.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Served {
    /// Device of the memory, or `HOST`.
    pub device: i32,
    pub bytes: u64,
    /// The context with which it ends, or 0 if it ends with none.
    pub context_id: u64,
    /// Component of the breakdown that has it, or `None` for a mapping, whose physical memory has
    /// one.
    pub component: Option<Component>,
    /// Whether the program has registered memory of its own, which it unregisters.
    pub registered: bool,
    /// `NONE` unless recorded.
    pub stack: StackId,
    /// Bytes claimed from the limit. 0 for mappings and for memory that does not count.
    pub claimed_bytes: u64,
    /// Handle of the physical memory mapped here.
    pub handle: Option<u64>,
    /// Values of which memory hooks were notified.
    pub observed: Option<Observed>,
    /// Address at which snapshots show an array, which has none: after all others, where nothing
    /// else is.
    pub place: u64,
    /// Whether snapshots omit it because they have no place for it.
    pub hidden: bool,
}

/// Physical memory, which lives while it is referenced or mapped anywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Physical {
    pub device: i32,
    pub bytes: u64,
    claimed_bytes: u64,
    /// Stack and time of the call that created it; `NONE` and 0 unless recorded.
    pub stack: StackId,
    created_ns: u64,
    pub references: u64,
    pub mappings: u64,
    pub observed: Option<Observed>,
}

/// One allocation or physical memory, as a breakdown counts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Device of the memory, or `HOST`.
    pub device: i32,
    /// Component of the breakdown, or `None` for a mapping of physical memory.
    pub component: Option<Component>,
    pub stack: StackId,
    pub bytes: u64,
    /// Handle of the physical memory.
    pub handle: Option<u64>,
}

/// Enters what the driver has served.
pub(crate) fn enter(key: Key, served: Served) {
    if let Key::Memory(address) = key
        && served.device != HOST
    {
        served_at(address, served.bytes);
    }
    lock(&TABLE).enter(key, served);
}

/// Removes pagemap entries of ended contexts at addresses that now belong to the program.
fn served_at(address: u64, bytes: u64) {
    if rule_holds(Rule::ServedIsInNoSegment) && rule_holds(Rule::ContextEndForgets) {
        pagemap::forget_ended(address, bytes, Context::is_over);
    }
}

/// Enters physical memory that the driver has created.
pub(crate) fn created(handle: u64, device: i32, bytes: u64, claimed_bytes: u64, stack: StackId) {
    let (references, mappings, observed) = (1, 0, None);
    let created_ns = if record::is_on_for(device) { now_ns() } else { 0 };
    let physical = Physical {
        device,
        bytes,
        claimed_bytes,
        stack,
        created_ns,
        references,
        mappings,
        observed,
    };
    if heap::is_short() {
        return physical.give_back();
    }
    if let Some(missed) = lock(&TABLE).physical.insert(handle, physical) {
        missed.give_back();
    }
}

/// Records a call that failed for lack of memory on this device. Returns the time of its entry, or
/// `None` if nothing is recorded.
pub(crate) fn refused(device: i32, bytes: u64, free_bytes: u64, stack: StackId) -> Option<u64> {
    lock(&TABLE).history.out_of_memory(device, bytes, free_bytes, stack)
}

/// Adds a reference that the program has taken.
pub(crate) fn retained(handle: u64) {
    if let Some(physical) = lock(&TABLE).physical.get_mut(&handle) {
        physical.references += 1;
    }
}

/// Enters a mapping of this process's physical memory.
pub(crate) fn mapped(address: u64, bytes: u64, handle: u64, stack: StackId) {
    served_at(address, bytes);
    let mut table = lock(&TABLE);
    if let Some(physical) = table.physical.get_mut(&handle) {
        physical.mappings += 1;
        let (device, handle) = (physical.device, Some(handle));
        let mapping = Served { device, bytes, stack, handle, ..Served::default() };
        table.enter(Key::Memory(address), mapping);
    }
}

/// Notes that the program has freed this pinned memory, which the library keeps for a later request
/// without calling the driver.
pub(crate) fn kept(address: u64) {
    let caller = capture::of_free();
    let mut table = lock(&TABLE);
    let (key, Table { served, history, .. }) = (Key::Memory(address), &mut *table);
    let Some(served) =
        served.get_mut(&key).filter(|served| served.component == Some(Component::Pinned))
    else {
        return;
    };
    if let Some(shown) = served.shown(key) {
        history.kept(&shown, caller);
    }
    served.component = Some(Component::PinnedFree);
}

/// Removes entries at memory that the cache now has. They are left from a context whose end was not
/// noticed yet.
pub(crate) fn taken_by_cache(address: u64, bytes: u64) {
    lock(&TABLE).release_entry(address, bytes, None);
}

/// Removes what the driver served in a context that the call of this stack has ended. Physical
/// memory belongs to no context.
pub(crate) fn context_ended(context_id: u64, caller: StackId) {
    let mut table = lock(&TABLE);
    let of_context = table.served.iter().filter(|(_, served)| served.context_id == context_id);
    let keys: Vec<Key> = of_context.map(|(key, _)| *key).collect();
    keys.into_iter().for_each(|key| table.forget(key, caller));
}

/// Notes what memory hooks are notified of for the allocation at this address. Returns its bytes.
pub(crate) fn observe(address: u64, observed: Observed) -> Option<u64> {
    let mut table = lock(&TABLE);
    let served = table.served.get_mut(&Key::Memory(address))?;
    served.observed = Some(observed);
    Some(served.bytes)
}

pub(crate) fn served(key: Key) -> Option<Served> {
    lock(&TABLE).served.get(&key).copied()
}

/// Returns the bytes at this address, and what memory hooks were notified of for them.
pub(crate) fn observed(address: u64) -> Option<(u64, Observed)> {
    let table = lock(&TABLE);
    let served = table.served.get(&Key::Memory(address))?;
    Some((served.bytes, served.observed?))
}

/// Starts recording other devices or other entries: forgets the rest, and begins with what is live.
pub(crate) fn record(is_kept: impl Fn(i32) -> bool, keeps_entries: bool) {
    let mut table = lock(&TABLE);
    let Table { served, history, .. } = &mut *table;
    history.forget(&is_kept, keeps_entries);
    let others = served.values_mut().filter(|served| !is_kept(served.device));
    others.for_each(|served| served.stack = StackId::NONE);
    history.begin(served.iter().filter_map(|(key, served)| served.shown(*key)));
}

/// Returns what each stack holds and has asked for, by device.
pub(crate) fn holders(wait: LockWait) -> Vec<(i32, Vec<StackTotals>)> {
    wait.lock(&TABLE).map(|table| table.history.holders()).unwrap_or_default()
}

/// Returns all that is live. Some is missing if it grows faster than it can be listed, or if the
/// host has no memory for the list.
pub(crate) fn held() -> Vec<Held> {
    const SPARE: usize = 1000;
    let count = {
        let table = lock(&TABLE);
        table.served.len() + table.physical.len()
    };
    // Allocated before the lock is taken: without memory the writer gives up, and must then hold no
    // lock.
    let mut all = Vec::new();
    if all.try_reserve_exact(count + SPARE).is_err() {
        return all;
    }
    let table = lock(&TABLE);
    let served = table.served.values().map(|served| {
        let Served { device, component, stack, bytes, handle, .. } = *served;
        let stack = if served.is_kept() { StackId::NONE } else { stack };
        Held { device, component, stack, bytes, handle }
    });
    let physical = table.physical.iter().map(|(handle, physical)| {
        let Physical { device, claimed_bytes: bytes, stack, .. } = *physical;
        let (component, handle) = (Some(Component::Virtual), Some(*handle));
        Held { device, component, stack, bytes, handle }
    });
    let room = all.capacity();
    all.extend(served.chain(physical).take(room));
    all
}

impl Table {
    fn enter(&mut self, key: Key, mut served: Served) {
        if served.bytes == 0 {
            return;
        }
        if heap::is_short() {
            return limits::give_back(served.device, served.claimed_bytes);
        }
        if !record::is_on_for(served.device) {
            served.stack = StackId::NONE;
        }
        if self.give_again(key, served) {
            return;
        }
        match key {
            Key::Memory(address) => self.release_entry(address, served.bytes, Some(served.device)),
            Key::Array(_) => {
                self.forget(key, StackId::NONE);
                served.place = self.array_place(served.bytes);
                served.hidden = served.place == 0;
            }
        }
        if let Some(shown) = served.shown(key) {
            self.history.allocated(&shown);
        }
        self.tally.entered(&served);
        self.served.insert(key, served);
    }

    /// Gives kept memory to the program again, for which the driver was not called. Returns `false`
    /// if this is no such memory.
    fn give_again(&mut self, key: Key, again: Served) -> bool {
        let Some(served) = self.served.get_mut(&key) else { return false };
        let is_it = served.is_kept() && !served.hidden && served.bytes == again.bytes;
        if is_it {
            *served = again;
            served.shown(key).iter().for_each(|shown| self.history.given_again(shown));
        }
        is_it
    }

    pub(crate) fn end(&mut self, key: Key, caller: StackId, ending: &mut Ending) {
        let Some(served) = self.served.remove(&key) else { return };
        self.arrays.remove(&served.place);
        self.tally.ended(&served);
        if let Some(shown) = served.shown(key) {
            self.history.ended(&shown, caller);
        }
        ending.served.push((key, served));
        if let Some(handle) = served.handle
            && let Some(physical) = self.physical.get_mut(&handle)
        {
            physical.mappings = physical.mappings.saturating_sub(1);
            ending.over.extend(self.take_if_over(handle));
        }
    }

    /// Removes an entry that has ended.
    fn forget(&mut self, key: Key, caller: StackId) {
        let mut ending = Ending::default();
        self.end(key, caller, &mut ending);
        ending.give_back();
    }

    fn release_entry(&mut self, address: u64, bytes: u64, device: Option<i32>) {
        let end = address.saturating_add(bytes);
        self.memory_within(address, end)
            .into_iter()
            .for_each(|key| self.forget(key, StackId::NONE));
        self.hide_within(address, end, device);
    }

    /// Physical memory that is mapped nowhere, with its creation time, at addresses after all
    /// arrays so far. No ring has entries for it: most is mapped a moment later.
    pub(super) fn unmapped(&self) -> impl Iterator<Item = (u64, Allocation)> {
        let unmapped = self.physical.values().filter(|physical| {
            physical.mappings == 0 && physical.created_ns > 0 && record::is_on_for(physical.device)
        });
        unmapped.scan(self.arrays_top, |place, physical| {
            let Physical { device, bytes, stack, created_ns, .. } = *physical;
            let address = *place;
            *place = place.checked_add(bytes).filter(|end| *end <= ARRAYS_END)?;
            Some((created_ns, Allocation { address, bytes, device, stack, is_free: false }))
        })
    }

    /// Returns an address for an array, after all others, or 0 if none is left.
    fn array_place(&mut self, bytes: u64) -> u64 {
        let last = self.arrays.last_key_value();
        let place = last.map_or(ARRAYS_BEGIN, |(place, bytes)| place + bytes);
        let bytes = bytes.saturating_add(ARRAY_STEP - 1) / ARRAY_STEP * ARRAY_STEP;
        if bytes > ARRAYS_END - place {
            return 0;
        }
        self.arrays.insert(place, bytes);
        self.arrays_top = self.arrays_top.max(place + bytes);
        place
    }

    /// Assigns a place to an array whose end the driver has refused.
    pub(crate) fn take_again(&mut self, served: &mut Served) {
        if served.place != 0 {
            served.place = self.array_place(served.bytes);
            served.hidden = served.place == 0;
        }
    }

    pub(crate) fn memory_within(&self, address: u64, end: u64) -> Vec<Key> {
        let below = self.served.range(..Key::Memory(address)).next_back();
        let below = below.filter(|(key, served)| key.number() + served.bytes > address);
        let within = self.served.range(Key::Memory(address)..Key::Memory(end));
        below.into_iter().chain(within).map(|(key, _)| *key).collect()
    }

    /// Hides what would overlap this range on this device, because snapshots show no overlaps. For
    /// them it has ended.
    fn hide_within(&mut self, address: u64, end: u64, device: Option<i32>) {
        let below = self.served.range_mut(Key::Memory(0)..Key::Memory(end)).rev();
        for (key, served) in below {
            let Some(shown) = served.shown(*key) else { continue };
            if device.is_some_and(|device| device != shown.device) {
                continue;
            }
            if shown.address + shown.bytes <= address {
                break;
            }
            served.hidden = true;
            self.history.ended(&shown, StackId::NONE);
        }
    }

    pub(crate) fn take_if_over(&mut self, handle: u64) -> Option<(u64, Physical)> {
        let physical = self.physical.get(&handle)?;
        let over = physical.references == 0 && physical.mappings == 0;
        if over { self.physical.remove_entry(&handle) } else { None }
    }
}

impl Served {
    /// Describes the allocation as snapshots show it.
    pub(crate) fn shown(&self, key: Key) -> Option<Allocation> {
        let Served { device, bytes, stack, .. } = *self;
        let address = if self.place == 0 { key.number() } else { self.place };
        let is_free = self.is_kept();
        (!self.hidden).then_some(Allocation { address, bytes, device, stack, is_free })
    }

    /// Whether the program has freed it while the driver still has it for the process.
    fn is_kept(&self) -> bool {
        self.component == Some(Component::PinnedFree)
    }
}

impl Physical {
    pub(crate) fn give_back(self) {
        limits::give_back(self.device, self.claimed_bytes);
    }
}

impl Key {
    pub(crate) fn number(self) -> u64 {
        match self {
            Key::Memory(number) | Key::Array(number) => number,
        }
    }
}
