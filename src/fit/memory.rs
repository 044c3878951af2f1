//! Memory that is only counted: the capacity of a device or of a limit.

use cachealloc_core::Address;
use cachealloc_core::policy::{MIB, SEGMENT_ROUNDING_BYTES};

/// Available memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capacity {
    /// More than the requests need.
    Plenty,
    /// A limit (`gpu_memory_limit_mb`) on a device that has more. Requested bytes count.
    Limit(u64),
    /// A device, whose driver provides whole pages.
    Device(u64),
}

/// More than any device has. Sums of amounts up to this stay far below the largest number.
const PLENTY_BYTES: u64 = 1 << 42;
/// Addresses are not reused, so nothing depends on which ones a driver prefers.
const ADDRESSES_END: u64 = 1 << 62;
const ADDRESSES_BEGIN: u64 = 1 << 56;
/// The driver packs allocations up to this size into pages.
const PACKED_BYTES_MAX: u64 = MIB;
const PAGE_BYTES: u64 = SEGMENT_ROUNDING_BYTES;

impl Capacity {
    /// Returns the bytes, or `None` if they are unknown.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Capacity::Plenty => None,
            Capacity::Limit(bytes) | Capacity::Device(bytes) => Some(bytes),
        }
    }

    /// Returns the size above which no request can be served.
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
    /// Bytes on separate pages, and bytes that share pages.
    paged_bytes: u64,
    packed_bytes: u64,
    next_address: u64,
    /// Number of calls that allocate, map, unmap or free, without refused ones.
    pub calls_count: u64,
    /// Number of times memory was given back.
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

    /// Takes bytes. Returns `false` if they do not fit.
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

    /// Returns addresses for what was taken, or `None` if none are left.
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
