//! Physical memory without an address, and the addresses at which it is mapped.

use super::allocations::Kind;
use super::raw;
use super::space::PAGE_BYTES;
use crate::abi::{Code, Handle, Location, Outcome};
use crate::model::races::shadow::{Access, AccessKind, HOST_STREAM, Source};
use crate::model::world::World;

pub struct Physical {
    pub bytes: u64,
    pub device: usize,
    pub location_kind: u32,
    /// Offset in the one file of all physical memory, so that two mappings show the same bytes.
    place: u64,
    /// References of the program, and mappings: both keep the memory.
    pub references: u32,
    pub mappings: u32,
}

impl World {
    pub fn create_physical(
        &mut self,
        bytes: u64,
        device: usize,
        location_kind: u32,
    ) -> Outcome<Handle> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(Code::INVALID_VALUE);
        }
        let on_device = is_on_device(location_kind);
        if on_device && !self.memory.devices[device].take_pages(bytes) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let place = self.backing.take(bytes);
        let physical = Physical { bytes, device, location_kind, place, references: 1, mappings: 0 };
        Ok(self.physical.insert(physical))
    }

    pub fn drop_physical_if_unused(&mut self, handle: Handle) {
        let Some(physical) = self.physical.find(handle) else { return };
        if physical.references > 0 || physical.mappings > 0 {
            return;
        }
        let physical = self.physical.remove(handle).expect("found just now");
        self.backing.give(physical.place, physical.bytes);
        if is_on_device(physical.location_kind) {
            self.memory.devices[physical.device].give_pages(physical.bytes);
        }
    }

    pub fn map_physical(&mut self, at: u64, bytes: u64, offset: u64, handle: Handle) -> Outcome {
        let inside = self.memory.reserved.contains(at);
        if !inside || !at.is_multiple_of(PAGE_BYTES) || self.memory.find(at).is_some() {
            return Err(Code::INVALID_VALUE);
        }
        let physical = self.physical.find_mut(handle).ok_or(Code::INVALID_VALUE)?;
        if bytes == 0 || offset + bytes > physical.bytes {
            return Err(Code::INVALID_VALUE);
        }
        self.backing.show(at, bytes, physical.place + offset);
        physical.mappings += 1;
        let device = physical.device;
        self.memory.insert(at, bytes, Kind::Mapped { handle, offset }, 0, device);
        // Earlier work that meant other memory at this address must not access this one.
        self.touch_by_host(at, bytes, "cuMemMap");
        Ok(())
    }

    /// Sets the permissions of a device for the mappings of the range. It does not wait for work:
    /// work that still needs the access faults, and so may work that nothing has waited for.
    pub fn set_access(&mut self, at: u64, bytes: u64, device: usize, flags: u32) -> Outcome {
        let mut next = at;
        while next < at + bytes {
            let mapping = self.memory.find(next).ok_or(Code::INVALID_VALUE)?;
            let (base, bytes, own) = (mapping.base, mapping.bytes, mapping.device);
            self.memory.set_access(base, device, flags);
            if flags == 0 && device == own {
                self.touch_by_host(base, bytes, "cuMemSetAccess");
            }
            next = base + bytes;
        }
        Ok(())
    }

    /// Records an access by the host: no work may use this memory, unless the calling thread knows
    /// that it has ended.
    fn touch_by_host(&mut self, start: u64, bytes: u64, name: &'static str) {
        let source = Source { name, op: 0, stream: HOST_STREAM };
        self.touch(Access { start, bytes, kind: AccessKind::Write }, source, None);
    }

    /// Unmaps whole mappings that tile the range. It does not wait for work (measured).
    pub fn unmap_physical(&mut self, at: u64, bytes: u64) -> Outcome {
        let mut next = at;
        while next < at + bytes {
            let mapping = self.memory.at_base(next).ok_or(Code::INVALID_VALUE)?;
            let Kind::Mapped { handle, .. } = mapping.kind else { return Err(Code::INVALID_VALUE) };
            let length = mapping.bytes;
            self.touch_by_host(next, length, "cuMemUnmap");
            self.memory.remove(next);
            self.memory.forget_access(next);
            self.shadow.clear(next, next + length);
            raw::place(next, length, None, 0);
            if let Some(physical) = self.physical.find_mut(handle) {
                physical.mappings -= 1;
            }
            self.drop_physical_if_unused(handle);
            next += length;
        }
        Ok(())
    }
}

fn is_on_device(location_kind: u32) -> bool {
    matches!(location_kind, Location::DEVICE | Location::LOCALITY_DOMAIN)
}
