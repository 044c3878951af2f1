//! Bytes that the driver serves the program directly, recorded per allocation while there is a limit, so
//! that its end gives back as many bytes.
//!
//! An end is removed before the driver's call, while no other allocation can have the same address, and
//! counts once the driver has accepted it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::books::Book;
use crate::config;
use crate::driver::sys::{CuResult, PoolHandle};
use crate::driver_memory::limits::{self, Claim};
use crate::lock::lock;

/// The kind of a number: an address and a handle may be equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// An address.
    Memory(u64),
    /// The handle of an array, mipmapped or not.
    Array(u64),
}

#[derive(Clone, Copy, Debug)]
struct Held {
    device: i32,
    bytes: u64,
    /// The context with which it ends; 0: with none.
    context_id: u64,
}

/// Physical memory: it lives while it is referenced or mapped anywhere.
#[derive(Clone, Copy, Debug)]
struct Physical {
    device: i32,
    bytes: u64,
    references: u64,
    mappings: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    handle: u64,
}

struct All {
    held: BTreeMap<Key, Held>,
    /// By handle.
    physical: BTreeMap<u64, Physical>,
    /// By address.
    mappings: BTreeMap<u64, Mapping>,
}

static HELD: Mutex<All> =
    Mutex::new(All { held: BTreeMap::new(), physical: BTreeMap::new(), mappings: BTreeMap::new() });

/// The device a pool allocates from; `None`: not from a device.
static POOLS: Book<Option<i32>> = Book::new();

/// Something that ends if the driver agrees.
#[must_use]
#[derive(Default)]
pub struct Ending {
    held: Option<(Key, Held)>,
    /// The handle that loses a reference.
    released: Option<u64>,
    /// By address, with the handle that loses a mapping.
    unmapped: Vec<(u64, Mapping)>,
    /// Physical memory with no reference and no mapping left.
    over: Vec<(u64, Physical)>,
}

/// The driver has provided what was claimed.
pub fn hold(key: Key, claim: Claim, context_id: u64) {
    // Without a limit nothing reads this; the claim goes back.
    if !config::limits() {
        return;
    }
    let held = Held { device: claim.device(), bytes: claim.bytes(), context_id };
    claim.keep();
    if let Some(missed) = lock(&HELD).held.insert(key, held) {
        limits::give_back(missed.device, missed.bytes);
    }
}

pub fn ends(key: Key) -> Ending {
    let held = lock(&HELD).held.remove(&key);
    Ending { held: held.map(|held| (key, held)), ..Ending::default() }
}

/// The driver has created physical memory for the claim.
pub fn created(handle: u64, claim: Claim) {
    let (device, bytes) = (claim.device(), claim.bytes());
    claim.keep();
    let physical = Physical { device, bytes, references: 1, mappings: 0 };
    if let Some(missed) = lock(&HELD).physical.insert(handle, physical) {
        limits::give_back(missed.device, missed.bytes);
    }
}

/// The program has one more reference.
pub fn retained(handle: u64) {
    if let Some(physical) = lock(&HELD).physical.get_mut(&handle) {
        physical.references += 1;
    }
}

pub fn mapped(address: u64, handle: u64) {
    let mut all = lock(&HELD);
    if let Some(physical) = all.physical.get_mut(&handle) {
        physical.mappings += 1;
        all.mappings.insert(address, Mapping { handle });
    }
}

/// The program gives up one reference.
pub fn releases(handle: u64) -> Ending {
    let mut all = lock(&HELD);
    // If it is only mapped, the driver refuses the call, and there is nothing to undo.
    let referred_to = |physical: &&mut Physical| physical.references > 0;
    let Some(physical) = all.physical.get_mut(&handle).filter(referred_to) else {
        return Ending::default();
    };
    physical.references -= 1;
    let over = all.take_if_over(handle).into_iter().collect();
    Ending { released: Some(handle), over, ..Ending::default() }
}

/// Everything mapped in this range.
pub fn unmaps(address: u64, bytes: u64) -> Ending {
    let mut all = lock(&HELD);
    let mut ending = Ending::default();
    let end = address.saturating_add(bytes);
    ending.unmapped.extend(all.mappings.range(address..end).map(|(at, of)| (*at, *of)));
    for (at, Mapping { handle }) in &ending.unmapped {
        all.mappings.remove(at);
        if let Some(physical) = all.physical.get_mut(handle) {
            physical.mappings -= 1;
        }
        ending.over.extend(all.take_if_over(*handle));
    }
    ending
}

impl Ending {
    /// The driver has ended it.
    pub fn done(self) {
        if let Some((_, held)) = self.held {
            limits::give_back(held.device, held.bytes);
        }
        for (_, physical) in self.over {
            limits::give_back(physical.device, physical.bytes);
        }
    }

    /// The driver has refused: restores everything.
    pub fn undone(self) {
        let mut all = lock(&HELD);
        all.held.extend(self.held);
        all.physical.extend(self.over);
        if let Some(physical) = self.released.and_then(|handle| all.physical.get_mut(&handle)) {
            physical.references += 1;
        }
        for (at, mapping) in self.unmapped {
            all.mappings.insert(at, mapping);
            if let Some(physical) = all.physical.get_mut(&mapping.handle) {
                physical.mappings += 1;
            }
        }
    }
}

/// A context is gone with what the driver served in it. Physical memory belongs to no context.
pub fn context_ended(context_id: u64) {
    let mut all = lock(&HELD);
    all.held.retain(|_, held| {
        let over = held.context_id == context_id;
        if over {
            limits::give_back(held.device, held.bytes);
        }
        !over
    });
}

/// A pool of the program allocates from this device, or from none.
pub fn note_pool(pool: PoolHandle, device: Option<i32>) {
    POOLS.enter(pool, device);
}

/// Runs the driver's call that ends this pool.
pub fn pool_ends_by(pool: PoolHandle, call: impl FnOnce() -> CuResult) -> CuResult {
    POOLS.end_by(pool, call)
}

/// The device a pool allocates from, if known; `Some(None)`: from none.
pub fn device_of_pool(pool: PoolHandle) -> Option<Option<i32>> {
    POOLS.read(|pools| pools.given.get(&pool).copied())
}

impl All {
    fn take_if_over(&mut self, handle: u64) -> Option<(u64, Physical)> {
        let physical = self.physical.get(&handle)?;
        let over = physical.references == 0 && physical.mappings == 0;
        if over { self.physical.remove_entry(&handle) } else { None }
    }
}
