//! The history of memory that the driver serves directly to the program, by device, and of host
//! memory that devices access. Each allocation is recorded as a segment with one block, so that a
//! snapshot shows *all* of it and where it was allocated. The block of pinned memory that is kept
//! for later requests is free. The live allocations are in `driver_memory/table.rs`, under whose
//! lock all functions here are called.

use std::collections::BTreeMap;

use cachealloc_history::persistent::layout::{
    IS_BLOCK, IS_THERE, OWNER_FOREIGN, OWNER_HOST, SegmentRow,
};
use cachealloc_history::{
    Action, Block, BlockState, Entry, NO_RANGE, PoolKind, Ring, RingCopy, RingEntries, Segment,
    StackId,
};

use crate::clock::now_ns;
use crate::record;
use crate::record::holders::{Holders, StackTotals};
use crate::record::persistent;
use crate::record::persistent::HistorySource;
use crate::record::segments::Segments;
use crate::record::{HOST, ranges, recorder, settings};

/// An upper bound of the bytes that one segment of a cut takes.
pub(crate) const SEGMENT_BYTES_MAX: usize = 6 * size_of::<Segment>() + size_of::<Block>() + 128;

/// The stream of a request is not recorded.
const NO_STREAM: u64 = 0;

/// One allocation by the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    /// For an array, a unique place that nothing else uses.
    pub address: u64,
    pub bytes: u64,
    /// The device's number, or `HOST`.
    pub device: i32,
    pub stack: StackId,
    /// Set if the program has freed it.
    pub is_free: bool,
}

pub(crate) struct History {
    /// Keyed by device.
    devices: BTreeMap<i32, OfDevice>,
}

#[derive(Default)]
struct OfDevice {
    ring: Option<Ring>,
    /// The live allocations, with a copy in the persistent history, if enabled.
    segments: Segments,
    holders: Holders,
    source: Option<HistorySource>,
}

impl History {
    pub(crate) const fn new() -> History {
        History { devices: BTreeMap::new() }
    }

    /// Records an allocation that the driver has provided.
    pub(crate) fn allocated(&mut self, allocation: &Allocation) {
        let Some(device) = self.recorded(allocation) else { return };
        device.push(Action::SegmentAlloc, allocation);
        device.segments.insert(allocation.row(IS_THERE));
        if !allocation.is_free {
            device.give(allocation);
        }
    }

    /// Records an allocation that the program frees and the library keeps. `caller` is the stack of
    /// the free; with `NONE`, the entry shows that of the allocation.
    pub(crate) fn kept(&mut self, allocation: &Allocation, caller: StackId) {
        let Some(device) = self.recorded(allocation) else { return };
        device.free(allocation, caller);
    }

    /// Records a kept allocation that the program has got again.
    pub(crate) fn given_again(&mut self, allocation: &Allocation) {
        let Some(device) = self.recorded(allocation) else { return };
        device.give(allocation);
    }

    /// Records an allocation that ends, before the driver is asked to end it. For `caller`, see
    /// `kept`.
    pub(crate) fn ended(&mut self, allocation: &Allocation, caller: StackId) {
        let Some(device) = self.recorded(allocation) else { return };
        if !allocation.is_free {
            device.free(allocation, caller);
        }
        device.push_of_caller(Action::SegmentFree, allocation, caller);
        device.segments.remove(allocation.address);
    }

    /// Records a call that failed for lack of memory. Returns the time of its entry.
    pub(crate) fn out_of_memory(
        &mut self,
        device: i32,
        bytes: u64,
        free_bytes: u64,
        stack: StackId,
    ) -> Option<u64> {
        let failed = Allocation { address: free_bytes, bytes, device, stack, is_free: false };
        let of_device = self.recorded(&failed)?;
        Some(of_device.push(Action::OutOfMemory, &failed))
    }

    /// Registers live allocations. Those not yet known get no entry.
    pub(crate) fn begin(&mut self, live: impl Iterator<Item = Allocation>) {
        for allocation in live {
            if let Some(device) = self.recorded(&allocation)
                && device.segments.get(allocation.address).is_none()
            {
                device.ring(allocation.device);
                let block = if allocation.is_free { 0 } else { IS_BLOCK };
                device.segments.insert(allocation.row(IS_THERE | block));
            }
        }
    }

    /// Forgets everything on devices that are not kept. On the others it forgets the entries,
    /// unless `keeps_entries`.
    pub(crate) fn forget(&mut self, is_kept: impl Fn(i32) -> bool, keeps_entries: bool) {
        for (number, device) in &mut self.devices {
            if !is_kept(*number) {
                device.forget();
            } else if !keeps_entries {
                device.forget_entries();
            }
        }
    }

    /// An upper bound of the bytes that `cut` takes.
    pub(crate) fn cut_bytes(&self) -> usize {
        let of_ring = |(_, ring)| RingCopy::bytes(ring) + size_of::<(i32, RingCopy)>() + 128;
        self.rings().map(of_ring).sum()
    }

    /// Begins to copy the entries of each device.
    pub(crate) fn cut(&self) -> Vec<(i32, RingCopy)> {
        let mut copies = Vec::with_capacity(self.devices.len());
        copies.extend(self.rings().map(|(device, ring)| (device, RingCopy::begin(ring))));
        copies
    }

    /// Copies some more entries of a device.
    pub(crate) fn copy(&self, device: i32, copy: &mut RingCopy) {
        copy.copy(self.devices.get(&device).and_then(|device| device.ring.as_ref()));
    }

    /// The totals of each device's stacks.
    pub(crate) fn holders(&self) -> Vec<(i32, Vec<StackTotals>)> {
        let devices = self.devices.iter().filter(|(number, _)| **number != HOST);
        devices.map(|(number, device)| (*number, device.holders.all().collect())).collect()
    }

    fn rings(&self) -> impl Iterator<Item = (i32, &Ring)> {
        let rings = self.devices.iter();
        rings.filter_map(|(number, device)| Some((*number, device.ring.as_ref()?)))
    }

    /// Returns the history of the allocation's device, or `None` if that is not recorded.
    fn recorded(&mut self, allocation: &Allocation) -> Option<&mut OfDevice> {
        let is_on = record::is_on_for(allocation.device);
        is_on.then(|| self.devices.entry(allocation.device).or_default())
    }
}

impl OfDevice {
    /// Records that the program has the allocation.
    fn give(&mut self, allocation: &Allocation) {
        self.push(Action::Alloc, allocation);
        let Allocation { address, bytes, stack, .. } = *allocation;
        self.holders.allocated(stack, bytes);
        self.segments.set_block(address, stack, IS_THERE | IS_BLOCK);
    }

    /// Records that the program has freed the allocation.
    fn free(&mut self, allocation: &Allocation, caller: StackId) {
        self.push_of_caller(Action::Free, allocation, caller);
        self.holders.freed(allocation.stack, allocation.bytes);
        self.segments.set_flags(allocation.address, IS_THERE);
    }

    fn push_of_caller(&mut self, action: Action, allocation: &Allocation, caller: StackId) {
        let stack = if caller.is_none() { allocation.stack } else { caller };
        self.push(action, &Allocation { stack, ..*allocation });
    }

    /// Adds an entry and returns its time.
    fn push(&mut self, action: Action, allocation: &Allocation) -> u64 {
        let (range, entered) = ranges::for_entry();
        let time_ns = now_ns();
        self.ring(allocation.device).push(Entry {
            time_ns,
            address: allocation.address,
            bytes: allocation.bytes,
            stream: NO_STREAM,
            stack: recorder::shown_stack(allocation.stack),
            action,
            entered,
            range,
        });
        time_ns
    }

    fn ring(&mut self, device: i32) -> &mut Ring {
        let kind = if device == HOST { OWNER_HOST } else { OWNER_FOREIGN };
        let source = self.source.or_else(|| persistent::source(kind, device));
        self.source = source;
        self.ring.get_or_insert_with(|| {
            if let Some(source) = source {
                self.segments = Segments::persistent(source.segments());
                source.set_on(true);
            }
            persistent::ring(source, recorder::entries_max())
        })
    }

    fn forget_entries(&mut self) {
        if self.ring.is_some() {
            self.ring = Some(persistent::ring(self.source, recorder::entries_max()));
        }
    }

    fn forget(&mut self) {
        let source = self.source.inspect(|source| source.set_on(false));
        *self = OfDevice { source, ..OfDevice::default() };
    }
}

/// Returns the entries of an allocation that no ring contains, if the history of its device, whose
/// ring this is, is complete from then on.
pub(crate) fn entries_of(
    allocation: &Allocation,
    time_ns: u64,
    ring: Option<&RingEntries>,
) -> Option<[Entry; 2]> {
    let Allocation { address, bytes, stack, .. } = *allocation;
    let from_start = settings::is_from_start();
    if recorder::entries_max() <= 1 || (ring.is_none() && !from_start) {
        return None;
    }
    let is_complete = from_start && ring.is_none_or(|ring| ring.dropped_count == 0);
    let oldest = ring.and_then(|ring| ring.entries.iter().next());
    if !is_complete && oldest.is_none_or(|oldest| time_ns < oldest.time_ns) {
        return None;
    }
    let entry = |action| Entry {
        time_ns,
        address,
        bytes,
        stream: NO_STREAM,
        stack: recorder::shown_stack(stack),
        action,
        entered: 0,
        range: NO_RANGE,
    };
    Some([Action::SegmentAlloc, Action::Alloc].map(entry))
}

impl Allocation {
    fn row(&self, flags: u32) -> SegmentRow {
        let Allocation { address, bytes, stack, .. } = *self;
        SegmentRow { address, bytes, stream: NO_STREAM, pool_id: 0, stack, flags }
    }

    pub(crate) fn segment(&self) -> Segment {
        let Allocation { address, bytes, stack, is_free, .. } = *self;
        let block = if is_free {
            let (state, stack) = (BlockState::Free, StackId::NONE);
            Block { address, bytes, requested_bytes: 0, state, stack }
        } else {
            let state = BlockState::Allocated;
            Block { address, bytes, requested_bytes: bytes, state, stack }
        };
        Segment {
            device: self.device as u32,
            address,
            bytes,
            stream: NO_STREAM,
            kind: PoolKind::Large,
            pool_id: (0, 0),
            pool_since_ns: None,
            expandable: false,
            stack,
            blocks: vec![block],
        }
    }
}
