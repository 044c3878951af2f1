//! Device memory that the driver serves directly, outside our segments: virtual memory, pools, managed
//! and pitched memory, arrays. Each allocation is recorded as a segment with one block, so that a
//! snapshot shows *all* GPU memory and where it was allocated.
//!
//! Recorded from the program's calls. Calls that bypass our hooks are missed; if an address is allocated
//! again whose end was missed, the end is recorded then.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cachealloc_history::lasting::layout::{IS_BLOCK, IS_THERE, OWNER_FOREIGN, SegmentRow};
use cachealloc_history::{Action, Block, BlockState, Entry, PoolKind, Ring, Segment, StackId};

use crate::books::Book;
use crate::clock::now_ns;
use crate::driver::sys::CuResult;
use crate::lock::lock;
use crate::record::lasting::{self, Owner};
use crate::record::recorder;
use crate::record::segments::Segments;
use crate::record::settings::{self, Settings};

static HELD: Mutex<DriverMemory> = Mutex::new(DriverMemory::new());

/// The devices of physical memory that can be mapped, by handle.
static PHYSICAL: Book<i32> = Book::new();

/// One allocation of the driver's.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    pub address: u64,
    pub bytes: u64,
    pub device: i32,
    /// The context with which it ends; 0: with none.
    pub context_id: u64,
    pub stream: u64,
    pub stack: StackId,
}

struct DriverMemory {
    /// By address, without overlaps.
    live: BTreeMap<u64, Allocation>,
    /// By device.
    devices: BTreeMap<i32, OfDevice>,
}

#[derive(Default)]
struct OfDevice {
    ring: Option<Ring>,
    /// A copy of `live` that outlives the process, if wanted.
    segments: Segments,
    owner: Option<Owner>,
}

/// The contribution to a snapshot.
pub struct Cut {
    pub segments: Vec<Segment>,
    /// By device: entries, and how many are missing.
    pub entries: Vec<(i32, Vec<Entry>, u64)>,
}

/// The driver has provided this.
pub fn allocated(allocation: Allocation) {
    if !settings::get().includes(allocation.device) {
        return;
    }
    let mut memory = lock(&HELD);
    memory.end_within(allocation.address, allocation.bytes);
    memory.live.insert(allocation.address, allocation);
    memory.push(Action::SegmentAlloc, &allocation);
    let Allocation { address, bytes, stack, stream, .. } = allocation;
    let row = SegmentRow { address, bytes, stream, pool_id: 0, stack, flags: IS_THERE };
    memory.of(&allocation).segments.insert(row);
    memory.push(Action::Alloc, &allocation);
    memory.of(&allocation).segments.set_flags(address, IS_THERE | IS_BLOCK);
}

/// The program ends the allocation at this address: call before the driver, after whose call another
/// thread may get the address. Returns what to restore if the driver refuses.
#[must_use]
pub fn freed(address: u64) -> Option<Allocation> {
    let mut memory = lock(&HELD);
    let allocation = memory.live.remove(&address)?;
    memory.ended(&allocation);
    Some(allocation)
}

/// As `freed`, for everything in this range.
#[must_use]
pub fn freed_within(address: u64, bytes: u64) -> Vec<Allocation> {
    lock(&HELD).end_within(address, bytes)
}

/// Forgets everything: what is live is recorded again only if it is allocated again.
pub fn forget() {
    let mut memory = lock(&HELD);
    memory.live.clear();
    memory.devices.values_mut().for_each(OfDevice::forget);
    drop(memory);
    PHYSICAL.with(|physical| physical.given.clear());
}

/// Forgets everything on devices not in `settings`.
pub fn forget_others(settings: &Settings) {
    let mut memory = lock(&HELD);
    memory.live.retain(|_, allocation| settings.includes(allocation.device));
    let others = memory.devices.iter_mut().filter(|(device, _)| !settings.includes(**device));
    others.for_each(|(_, device)| device.forget());
}

/// Forgets the entries, but not what is live.
pub fn forget_entries() {
    lock(&HELD).devices.values_mut().for_each(OfDevice::forget_entries);
}

/// A context is gone with its memory.
pub fn context_ended(context_id: u64) {
    let mut memory = lock(&HELD);
    let of_context = |allocation: &&Allocation| allocation.context_id == context_id;
    let over: Vec<Allocation> = memory.live.values().filter(of_context).copied().collect();
    for allocation in over {
        memory.live.remove(&allocation.address);
        memory.ended(&allocation);
    }
}

/// Physical memory on a device, to be mapped by this handle.
pub fn physical_created(handle: u64, device: i32) {
    PHYSICAL.enter(handle as usize, device);
}

/// Runs the driver's call that takes the handle back; mappings stay.
pub fn physical_released_by(handle: u64, call: impl FnOnce() -> CuResult) -> CuResult {
    PHYSICAL.end_by(handle as usize, call)
}

/// The device of physical memory created by this process.
pub fn device_of_physical(handle: u64) -> Option<i32> {
    PHYSICAL.read(|physical| physical.given.get(&(handle as usize)).copied())
}

/// An upper bound of the bytes that a cut takes.
pub fn cut_bytes() -> usize {
    let memory = lock(&HELD);
    let rings = memory.devices.values().filter_map(|device| device.ring.as_ref());
    let entries: usize = rings.map(Ring::len).sum();
    let each = 6 * size_of::<Segment>() + size_of::<Block>() + 128;
    memory.live.len() * each + entries * 4 * size_of::<Entry>()
}

/// Everything so far.
pub fn cut() -> Cut {
    let memory = lock(&HELD);
    let rings = memory.devices.iter();
    let rings = rings.filter_map(|(number, device)| Some((number, device.ring.as_ref()?)));
    Cut {
        segments: memory.live.values().map(segment).collect(),
        entries: rings
            .map(|(number, ring)| (*number, ring.to_vec(), recorder::missing_count(ring)))
            .collect(),
    }
}

impl DriverMemory {
    const fn new() -> DriverMemory {
        DriverMemory { live: BTreeMap::new(), devices: BTreeMap::new() }
    }

    fn of(&mut self, allocation: &Allocation) -> &mut OfDevice {
        self.devices.entry(allocation.device).or_default()
    }

    fn end_within(&mut self, address: u64, bytes: u64) -> Vec<Allocation> {
        let end = address.saturating_add(bytes);
        let begin = match self.live.range(..address).next_back() {
            Some((_, below)) if below.address + below.bytes > address => below.address,
            _ => address,
        };
        let over: Vec<Allocation> = self.live.range(begin..end).map(|(_, live)| *live).collect();
        for allocation in &over {
            self.live.remove(&allocation.address);
            self.ended(allocation);
        }
        over
    }

    fn ended(&mut self, allocation: &Allocation) {
        self.push(Action::Free, allocation);
        self.of(allocation).segments.set_flags(allocation.address, IS_THERE);
        self.push(Action::SegmentFree, allocation);
        self.of(allocation).segments.remove(allocation.address);
    }

    fn push(&mut self, action: Action, allocation: &Allocation) {
        let ring = self.of(allocation).ring(allocation.device);
        ring.push(Entry {
            time_ns: now_ns(),
            address: allocation.address,
            bytes: allocation.bytes,
            stream: allocation.stream,
            stack: recorder::shown_stack(allocation.stack),
            action,
        });
    }
}

impl OfDevice {
    fn ring(&mut self, device: i32) -> &mut Ring {
        let owner = self.owner.or_else(|| lasting::owner(OWNER_FOREIGN, device));
        self.owner = owner;
        self.ring.get_or_insert_with(|| {
            if let Some(owner) = owner {
                self.segments = Segments::lasting(owner.segments());
                owner.set_on(true);
            }
            lasting::ring(owner, recorder::entries_max())
        })
    }

    fn forget_entries(&mut self) {
        if self.ring.is_some() {
            self.ring = Some(lasting::ring(self.owner, recorder::entries_max()));
        }
    }

    fn forget(&mut self) {
        let owner = self.owner.inspect(|owner| owner.set_on(false));
        *self = OfDevice { owner, ..OfDevice::default() };
    }
}

fn segment(allocation: &Allocation) -> Segment {
    let Allocation { address, bytes, stack, stream, .. } = *allocation;
    Segment {
        device: allocation.device.max(0) as u32,
        address,
        bytes,
        stream,
        kind: PoolKind::Large,
        pool_id: (0, 0),
        expandable: false,
        stack,
        blocks: vec![Block {
            address,
            bytes,
            requested_bytes: bytes,
            state: BlockState::ActiveAllocated,
            stack,
        }],
    }
}
