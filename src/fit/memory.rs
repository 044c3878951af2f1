//! Memory that is only counted: what a device, or a limit, has room for.

use cachealloc_core::Address;
use cachealloc_core::policy::{MIB, SEGMENT_ROUNDING_BYTES};

/// What there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capacity {
    /// More than is asked for.
    Plenty,
    /// A limit (`gpu_memory_limit_mb`) on a device that has more. Bytes count as they are asked for.
    Limit(u64),
    /// A device, of which the driver gives whole pages.
    Device(u64),
}

/// What no device has. Sums of what fits into it stay far from the end of the numbers.
const PLENTY_BYTES: u64 = 1 << 42;
/// Addresses are never used again, so that nothing depends on which ones a driver prefers.
const ADDRESSES_END: u64 = 1 << 62;
const ADDRESSES_BEGIN: u64 = 1 << 56;
/// The driver packs allocations up to this into pages.
const PACKED_BYTES_MAX: u64 = MIB;
const PAGE_BYTES: u64 = SEGMENT_ROUNDING_BYTES;

impl Capacity {
    /// None: nothing is known of it.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Capacity::Plenty => None,
            Capacity::Limit(bytes) | Capacity::Device(bytes) => Some(bytes),
        }
    }

    /// No request for more can be served.
    pub(crate) fn most_bytes(self) -> u64 {
        self.bytes().unwrap_or(u64::MAX).min(PLENTY_BYTES)
    }

    pub fn is_limit(self) -> bool {
        matches!(self, Capacity::Limit(_))
    }
}

#[derive(Debug)]
pub(crate) struct Memory {
    capacity: Capacity,
    taken_bytes: u64,
    /// What is in pages of its own, and what shares pages.
    paged_bytes: u64,
    packed_bytes: u64,
    next_address: u64,
    /// Calls that allocate, map, unmap or free; none that is refused.
    pub calls_count: u64,
    /// How often something has come back.
    pub returns_count: u64,
    pub peak_bytes: u64,
}

impl Memory {
    pub(crate) fn new(capacity: Capacity) -> Memory {
        Memory {
            capacity,
            taken_bytes: 0,
            paged_bytes: 0,
            packed_bytes: 0,
            next_address: ADDRESSES_BEGIN,
            calls_count: 0,
            returns_count: 0,
            peak_bytes: 0,
        }
    }

    pub(crate) fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// False: there is no room for it.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let most_bytes = self.capacity.most_bytes();
        if bytes > most_bytes {
            return false;
        }
        self.add(bytes);
        let fits = match self.capacity {
            Capacity::Plenty | Capacity::Limit(_) => self.taken_bytes <= most_bytes,
            Capacity::Device(_) => self.pages_bytes() <= most_bytes,
        };
        if fits {
            self.calls_count += 1;
            self.peak_bytes = self.peak_bytes.max(self.taken_bytes);
        } else {
            self.remove(bytes);
        }
        fits
    }

    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.calls_count += 1;
        self.returns_count += 1;
        self.remove(bytes);
    }

    /// Addresses for what was taken. None: there are none left.
    pub(crate) fn address(&mut self, bytes: u64) -> Option<Address> {
        let address = self.next_address;
        self.next_address = address.checked_add(bytes.next_multiple_of(PAGE_BYTES))?;
        (self.next_address <= ADDRESSES_END).then_some(Address(address))
    }

    fn pages_bytes(&self) -> u64 {
        self.paged_bytes + self.packed_bytes.next_multiple_of(PAGE_BYTES)
    }

    fn add(&mut self, bytes: u64) {
        self.taken_bytes += bytes;
        match bytes <= PACKED_BYTES_MAX {
            true => self.packed_bytes += bytes,
            false => self.paged_bytes += bytes.next_multiple_of(PAGE_BYTES),
        }
    }

    fn remove(&mut self, bytes: u64) {
        self.taken_bytes -= bytes;
        match bytes <= PACKED_BYTES_MAX {
            true => self.packed_bytes -= bytes,
            false => self.paged_bytes -= bytes.next_multiple_of(PAGE_BYTES),
        }
    }
}
