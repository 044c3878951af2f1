//! Everything that has an address: which ranges are live, what owns them, what they are.
//!
//! A freed allocation whose free is still in the future of some stream is *dying*: earlier work may
//! use it, the program may not refer to it any more, and its address may already belong to a
//! younger allocation of the same stream.

use std::collections::{BTreeMap, HashMap};

use super::raw;
use super::share::Share;
use super::space::{PAGE_BYTES, Space};
use crate::abi::{Code, Handle, Outcome};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Device,
    Managed,
    Array,
    Global,
    Pool {
        pool: Handle,
        block_bytes: u64,
    },
    Graph,
    Mapped {
        handle: Handle,
        offset: u64,
    },
    /// Memory of others, which fills a place among reserved addresses.
    Foreign {
        place: u64,
        place_bytes: u64,
    },
    Host {
        flags: u32,
    },
    Registered {
        flags: u32,
    },
}

#[derive(Clone, Debug)]
pub struct Allocation {
    pub id: u64,
    pub base: u64,
    /// As requested.
    pub bytes: u64,
    pub kind: Kind,
    pub ctx: u64,
    pub device: usize,
    /// `SYNC_MEMOPS` of this allocation, and of no other.
    pub sync_memops: bool,
}

/// State of a range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    Live,
    Freed,
    Wild,
}

pub struct Memory {
    pub devices: Vec<Space>,
    pub host: Space,
    /// Addresses for `cuMemAddressReserve`; not counted, because they have no memory.
    pub reserved: Space,
    live: BTreeMap<u64, Allocation>,
    dying: HashMap<u64, Allocation>,
    dying_places: BTreeMap<(u64, u64), u64>,
    /// Permissions of a device for a mapping: 1 read, 3 read and write. No access without an entry.
    access: HashMap<(u64, usize), u32>,
    /// Device addresses of pinned memory by host address, if they differ.
    elsewhere: BTreeMap<u64, u64>,
    next_id: u64,
}

impl Memory {
    pub fn new(devices: usize, device_bytes: u64) -> Memory {
        let pages = device_bytes / super::space::PAGE_BYTES;
        let addresses = device_bytes * ADDRESSES_PER_BYTE;
        Memory {
            devices: (0..devices)
                .map(|device| Space::new(addresses, pages).shared(Share::of(device)))
                .collect(),
            host: Space::new(HOST_BYTES, HOST_BYTES / super::space::PAGE_BYTES),
            reserved: Space::new(addresses.max(HOST_BYTES * 4), u64::MAX),
            live: BTreeMap::new(),
            dying: HashMap::new(),
            dying_places: BTreeMap::new(),
            access: HashMap::new(),
            elsewhere: BTreeMap::new(),
            next_id: 0,
        }
    }

    pub fn alloc(&mut self, bytes: u64, kind: Kind, ctx: u64, device: usize) -> Outcome<u64> {
        let space = match kind {
            // Measured: managed memory is available even if the device is full.
            Kind::Host { .. } | Kind::Managed => &mut self.host,
            _ => &mut self.devices[device],
        };
        let base = space.alloc(bytes).ok_or(Code::OUT_OF_MEMORY)?;
        self.insert(base, bytes, kind, ctx, device);
        Ok(base)
    }

    pub fn insert(&mut self, base: u64, bytes: u64, kind: Kind, ctx: u64, device: usize) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.live
            .insert(base, Allocation { id, base, bytes, kind, ctx, device, sync_memops: false });
        id
    }

    /// Range of an allocation that is not freed yet, or is dying.
    pub fn range_of(&self, base: u64, id: u64) -> Option<(u64, u64)> {
        let live = self.live.get(&base).filter(|found| found.id == id);
        live.or(self.dying.get(&id)).map(|found| (found.base, found.bytes))
    }

    /// The live allocation that contains the address.
    pub fn find(&self, address: u64) -> Option<&Allocation> {
        let (_, found) = self.live.range(..=address).next_back()?;
        (address < found.base + found.bytes.max(1)).then_some(found)
    }

    pub fn find_mut(&mut self, address: u64) -> Option<&mut Allocation> {
        let base = self.find(address)?.base;
        self.live.get_mut(&base)
    }

    pub fn at_base(&self, base: u64) -> Option<&Allocation> {
        self.live.get(&base)
    }

    pub fn live(&self) -> impl Iterator<Item = &Allocation> {
        self.live.values()
    }

    /// Maps pinned memory for devices at another address.
    pub fn show_elsewhere(&mut self, host: u64) -> Option<u64> {
        let Allocation { bytes, kind: Kind::Host { flags }, ctx, .. } = *self.live.get(&host)?
        else {
            return None;
        };
        let (file, start, length) = self.host.share(host)?;
        let place = raw::reserve(length).filter(|at| raw::place(*at, length, Some(file), 0))?;
        let device = place + (host - start);
        self.elsewhere.insert(host, device);
        self.insert(device, bytes, Kind::Registered { flags }, ctx, 0);
        Some(device)
    }

    /// Removes the device mapping of pinned memory that ends.
    pub fn hide_elsewhere(&mut self, host: u64) {
        if let Some(device) = self.elsewhere.remove(&host) {
            self.live.remove(&device);
        }
    }

    /// Address at which devices access this host address.
    pub fn on_device(&self, address: u64) -> u64 {
        let base = self.find(address).map_or(address, |found| found.base);
        self.elsewhere.get(&base).map_or(address, |device| device + (address - base))
    }

    /// Sets the permissions of a device for mapped memory.
    pub fn set_access(&mut self, base: u64, device: usize, flags: u32) {
        self.access.insert((base, device), flags);
    }

    /// Removes the permissions of a mapping that is gone.
    pub fn forget_access(&mut self, base: u64) {
        self.access.retain(|(known, _), _| *known != base);
    }

    pub fn access(&self, base: u64, device: usize) -> u32 {
        self.access.get(&(base, device)).copied().unwrap_or(0)
    }

    /// Removes an allocation from the table. Its place stays occupied until `give_back`.
    pub fn remove(&mut self, base: u64) -> Option<Allocation> {
        self.live.remove(&base)
    }

    pub fn begin_dying(&mut self, base: u64) -> Option<u64> {
        let allocation = self.live.remove(&base)?;
        let (id, bytes) = (allocation.id, allocation.bytes);
        self.dying_places.insert((base, id), base + bytes);
        self.dying.insert(id, allocation);
        Some(id)
    }

    pub fn end_dying(&mut self, id: u64) -> Option<Allocation> {
        let allocation = self.dying.remove(&id)?;
        self.dying_places.remove(&(allocation.base, id));
        Some(allocation)
    }

    pub fn dying_range(&self, id: u64) -> Option<(u64, u64)> {
        self.dying.get(&id).map(|allocation| (allocation.base, allocation.bytes))
    }

    /// Returns an allocation's place to its space.
    pub fn give_back(&mut self, allocation: &Allocation) {
        match allocation.kind {
            Kind::Host { .. } | Kind::Managed => self.host.free(allocation.base, allocation.bytes),
            Kind::Registered { .. } | Kind::Mapped { .. } => {}
            Kind::Foreign { place, place_bytes } => {
                raw::place(place, place_bytes, None, 0);
                self.reserved.free(place, place_bytes.next_multiple_of(PAGE_BYTES));
            }
            _ => {
                super::ipc::freed(allocation.id);
                self.devices[allocation.device].free(allocation.base, allocation.bytes);
            }
        }
    }

    pub fn standing(&self, start: u64, bytes: u64) -> Standing {
        let Some(end) = start.checked_add(bytes) else { return Standing::Wild };
        let mut next = start;
        while next < end {
            match self.find(next).map(|found| found.base + found.bytes).or(self.dying_end(next)) {
                Some(reached) => next = reached,
                None => return self.standing_of_dead(next),
            }
        }
        Standing::Live
    }

    /// Returns a word, or `None` if it is not live.
    pub fn read_word(&self, address: u64, bytes: u64) -> Option<u64> {
        (self.standing(address, bytes) == Standing::Live).then(|| raw::read_word(address, bytes))
    }

    fn dying_end(&self, address: u64) -> Option<u64> {
        let older = self.dying_places.range(..=(address, u64::MAX)).rev();
        older.take(DYING_LOOKED_AT_MAX).map(|(_, end)| *end).find(|end| *end > address)
    }

    fn standing_of_dead(&self, address: u64) -> Standing {
        let mut spaces = self.devices.iter().chain([&self.host, &self.reserved]);
        match spaces.find(|space| space.contains(address)) {
            Some(space) if address < space.high_water => Standing::Freed,
            _ => Standing::Wild,
        }
    }
}

/// Address space is far larger than memory, so that holes between pages never cost memory.
const ADDRESSES_PER_BYTE: u64 = 16;
const HOST_BYTES: u64 = 8 << 30;
const DYING_LOOKED_AT_MAX: usize = 64;
