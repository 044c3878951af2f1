//! Objects that stand for memory of several devices or processes: multicast objects and logical
//! endpoints.

use std::collections::HashMap;

use super::space::PAGE_BYTES;
use crate::abi::{Code, Handle, Outcome};
use crate::model::world::World;

/// The devices of such an object, and the memory that is bound to it.
pub struct Group {
    pub bytes: u64,
    devices_count: u32,
    devices: Vec<usize>,
    bound: Vec<Bound>,
}

/// Memory at an offset in the object.
pub struct Bound {
    pub device: usize,
    pub offset: u64,
    pub bytes: u64,
    pub source: Source,
}

#[derive(Clone, Copy)]
pub enum Source {
    /// Physical memory, which the object keeps.
    Memory(Handle),
    Address(u64),
}

impl Group {
    pub fn new(devices_count: u32, bytes: u64) -> Outcome<Group> {
        if devices_count == 0 || bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Group { bytes, devices_count, devices: Vec::new(), bound: Vec::new() })
    }

    pub fn add_device(&mut self, device: usize) -> Outcome {
        if self.devices.contains(&device) || self.devices.len() as u32 == self.devices_count {
            return Err(Code::INVALID_VALUE);
        }
        self.devices.push(device);
        Ok(())
    }

    /// Binds memory. All devices must have been added before (documented).
    pub fn bind(&mut self, new: Bound) -> Outcome {
        let Bound { device, offset, bytes, .. } = new;
        let aligned = offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES);
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let complete = self.devices.len() as u32 == self.devices_count;
        let meets = |known: &Bound| {
            known.device == device
                && known.offset < offset + bytes
                && offset < known.offset + known.bytes
        };
        let is_free = !self.bound.iter().any(meets);
        let fits = aligned && bytes > 0 && inside && complete && is_free;
        if !fits || !self.devices.contains(&device) {
            return Err(Code::INVALID_VALUE);
        }
        self.bound.push(new);
        Ok(())
    }

    /// Removes what is bound in this range.
    pub fn unbind(&mut self, device: usize, offset: u64, bytes: u64) -> Outcome<Vec<Bound>> {
        let inside = |known: &mut Bound| {
            known.device == device && (offset..offset + bytes).contains(&known.offset)
        };
        let gone: Vec<Bound> = self.bound.extract_if(.., inside).collect();
        if gone.is_empty() { Err(Code::INVALID_VALUE) } else { Ok(gone) }
    }

    /// The address of the memory at this offset.
    fn address(&self, offset: u64) -> Option<u64> {
        self.bound.iter().find_map(|known| match known.source {
            Source::Address(at) if (known.offset..known.offset + known.bytes).contains(&offset) => {
                Some(at + (offset - known.offset))
            }
            _ => None,
        })
    }
}

/// Logical endpoints, by the IDs that the program chooses.
#[derive(Default)]
pub struct Endpoints {
    pub next: u32,
    all: HashMap<u32, Endpoint>,
}

pub struct Endpoint {
    pub group: Group,
    pub handle_types: u32,
    /// The endpoint that it was imported from.
    pub imported: Option<u32>,
}

impl Endpoints {
    pub fn insert(&mut self, id: u32, endpoint: Endpoint) -> Outcome {
        // An ID must have been reserved.
        if id == 0 || id > self.next || self.all.contains_key(&id) {
            return Err(Code::INVALID_VALUE);
        }
        self.all.insert(id, endpoint);
        Ok(())
    }

    pub fn find(&mut self, id: u32) -> Outcome<&mut Endpoint> {
        self.all.get_mut(&id).ok_or(Code::INVALID_VALUE)
    }

    pub fn remove(&mut self, id: u32) -> Outcome {
        self.all.remove(&id).map(drop).ok_or(Code::INVALID_VALUE)
    }

    /// The address of the memory behind an endpoint.
    pub fn address(&self, id: u32, offset: u64) -> Outcome<u64> {
        let endpoint = self.all.get(&id).ok_or(Code::INVALID_VALUE)?;
        let endpoint = endpoint.imported.and_then(|id| self.all.get(&id)).unwrap_or(endpoint);
        endpoint.group.address(offset).ok_or(Code::INVALID_VALUE)
    }
}

impl World {
    /// Lets physical memory go that is no longer bound.
    pub fn unbound(&mut self, gone: Vec<Bound>) {
        for Bound { source, .. } in gone {
            let Source::Memory(memory) = source else { continue };
            if let Some(physical) = self.physical.find_mut(memory) {
                physical.mappings -= 1;
            }
            self.drop_physical_if_unused(memory);
        }
    }

    /// Ends a multicast object. Returns `false` if it is none.
    pub fn release_multicast(&mut self, handle: Handle) -> bool {
        let Some(group) = self.multicasts.remove(handle) else { return false };
        self.unbound(group.bound);
        true
    }
}
