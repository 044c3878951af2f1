//! The entries that a call of the program ends. They are removed before the driver's call, while no
//! other allocation can have the number, and restored if the driver refuses (`handle_table.rs`).

use std::collections::btree_map::Entry;

use crate::driver::sys::CuResult;
use crate::driver_memory::limits;
use crate::driver_memory::table::{Key, Physical, Served, TABLE};
use crate::lock::lock;
use crate::record::capture;

/// Entries that end if the driver agrees.
#[must_use]
#[derive(Default)]
pub(crate) struct Ending {
    pub served: Vec<(Key, Served)>,
    /// The handle that loses a reference.
    released: Option<u64>,
    /// Physical memory with no reference and no mapping left.
    pub over: Vec<(u64, Physical)>,
}

/// Removes an allocation that the program ends.
pub(crate) fn ends(key: Key) -> Ending {
    let (caller, mut ending) = (capture::of_free(), Ending::default());
    lock(&TABLE).end(key, caller, &mut ending);
    ending
}

/// Removes the mappings in a range that the program unmaps.
pub(crate) fn unmaps(address: u64, bytes: u64) -> Ending {
    let caller = capture::of_free();
    let (mut table, mut ending) = (lock(&TABLE), Ending::default());
    for key in table.memory_within(address, address.saturating_add(bytes)) {
        table.end(key, caller, &mut ending);
    }
    ending
}

/// Drops one of the program's references to physical memory. If the memory is only mapped, the
/// driver refuses, and there is nothing to restore.
pub(crate) fn releases(handle: u64) -> Ending {
    let (mut table, mut ending) = (lock(&TABLE), Ending::default());
    let physical = table.physical.get_mut(&handle);
    if let Some(physical) = physical.filter(|physical| physical.references > 0) {
        physical.references -= 1;
        ending.released = Some(handle);
        ending.over.extend(table.take_if_over(handle));
    }
    ending
}

impl Ending {
    /// Completes or reverts the end, according to the result of the driver's call.
    pub(crate) fn finish(self, code: CuResult) {
        if code.is_ok() { self.give_back() } else { self.restore() }
    }

    pub(crate) fn give_back(self) {
        for (_, served) in self.served {
            limits::give_back(served.device, served.claimed_bytes);
        }
        self.over.into_iter().for_each(|(_, physical)| physical.give_back());
    }

    /// Restores everything whose place was not reused.
    fn restore(self) {
        let mut table = lock(&TABLE);
        for (handle, physical) in self.over {
            match table.physical.entry(handle) {
                Entry::Occupied(_) => physical.give_back(),
                Entry::Vacant(place) => _ = place.insert(physical),
            }
        }
        if let Some(physical) = self.released.and_then(|handle| table.physical.get_mut(&handle)) {
            physical.references += 1;
        }
        for (key, mut served) in self.served {
            if table.served.contains_key(&key) {
                limits::give_back(served.device, served.claimed_bytes);
                continue;
            }
            if let Some(handle) = served.handle
                && let Some(physical) = table.physical.get_mut(&handle)
            {
                physical.mappings += 1;
            }
            table.take_again(&mut served);
            if let Some(shown) = served.shown(key) {
                table.history.allocated(&shown);
            }
            table.tally.restored(&served);
            table.served.insert(key, served);
        }
    }
}
