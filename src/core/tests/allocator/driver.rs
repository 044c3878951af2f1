//! The driver's side of the world: limited memory, in segments and in mappings.

use std::collections::BTreeMap;

use cachealloc_core::policy::MIB;
use cachealloc_core::{Address, Mapping, Segment};

/// Device memory in pages of 2 MiB. The lowest free addresses are given out first, so that
/// addresses are soon reused, and segments touch each other.
#[derive(Clone)]
pub struct Driver {
    pub capacity_bytes: u64,
    pub segments: BTreeMap<u64, u64>,
    pub mappings: BTreeMap<u64, u64>,
}

pub const ARENAS_BASE: u64 = 1 << 44;
/// Small enough to become full.
pub const ARENA_BYTES: u64 = 256 * MIB;
const PAGE_BYTES: u64 = 2 * MIB;

impl Driver {
    pub fn reserve(&mut self, bytes: u64) -> Option<Address> {
        if self.used() + Driver::charge(bytes) > self.capacity_bytes {
            return None;
        }
        let mut base = PAGE_BYTES;
        for (segment, bytes_there) in &self.segments {
            if base + bytes <= *segment {
                break;
            }
            base = segment + bytes_there;
        }
        self.segments.insert(base, bytes);
        Some(Address(base))
    }

    fn used(&self) -> u64 {
        let plain: u64 = self.segments.values().map(|bytes| Driver::charge(*bytes)).sum();
        plain + self.mappings.values().sum::<u64>()
    }

    /// Maps all of the mappings or none.
    pub fn map(&mut self, mappings: &[Mapping]) -> bool {
        let bytes: u64 = mappings.iter().map(|mapping| mapping.bytes).sum();
        if self.used() + bytes > self.capacity_bytes {
            return false;
        }
        for mapping in mappings {
            assert!(mapping.base.0.is_multiple_of(PAGE_BYTES), "{mapping:x?}");
            assert!(mapping.bytes > 0 && mapping.bytes.is_multiple_of(PAGE_BYTES), "{mapping:x?}");
            let below = self.mappings.range(..mapping.end().0).next_back();
            let free = below.is_none_or(|(base, bytes)| base + bytes <= mapping.base.0);
            assert!(free, "{mapping:x?} is mapped over {below:x?}");
            let arena = (mapping.base.0.checked_sub(ARENAS_BASE)).map(|at| at / ARENA_BYTES);
            let last = (mapping.end().0 - 1 - ARENAS_BASE) / ARENA_BYTES;
            assert_eq!(arena, Some(last), "{mapping:x?} is not in one arena");
            self.mappings.insert(mapping.base.0, mapping.bytes);
        }
        true
    }

    pub fn unmap(&mut self, mapping: &Mapping) {
        let bytes = self.mappings.remove(&mapping.base.0);
        assert_eq!(bytes, Some(mapping.bytes), "{mapping:x?} was not mapped");
    }

    pub fn release(&mut self, segment: &Segment) {
        let bytes = self.segments.remove(&segment.base.0);
        assert_eq!(bytes, Some(segment.bytes), "{segment:x?} did not come from here");
    }

    /// Returns the memory used: small reservations share pages, large ones fill them.
    fn charge(bytes: u64) -> u64 {
        if bytes < PAGE_BYTES / 2 { bytes } else { bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES }
    }
}
