//! Memory that others see as well: buffers and semaphores of other APIs, and memory of exported
//! pools. It lies in files, of which each opener has a view at addresses of its own. Accesses by
//! two addresses are not compared.

use super::allocations::Kind;
use super::raw;
use super::space::PAGE_BYTES;
use crate::abi::{Code, Handle, Outcome};
use crate::model::handles::Slab;
use crate::model::world::{World, tag};

pub struct Foreign {
    pub memory: Slab<External>,
    pub semaphores: Slab<Semaphore>,
}

/// Memory of another API, by its descriptor.
pub struct External {
    pub file: i32,
    pub bytes: u64,
}

/// A word of another API that work raises and awaits.
pub struct Semaphore {
    pub file: i32,
    pub address: u64,
    /// Whether its value only grows. Otherwise a wait takes the signal away.
    pub is_timeline: bool,
}

/// A part of a file, and what it shows from its begin.
pub struct Part {
    pub file: i32,
    pub offset: u64,
    pub bytes: u64,
}

impl Default for Foreign {
    fn default() -> Foreign {
        Foreign { memory: Slab::new(tag::EXTERNAL), semaphores: Slab::new(tag::SEMAPHORE) }
    }
}

impl World {
    /// Maps a part of a file at a new address of a device, for this context.
    pub fn map_foreign(&mut self, part: &Part, ctx: u64, device: usize) -> Outcome<u64> {
        let before = part.offset % HOST_PAGE_BYTES;
        let place_bytes = (before + part.bytes).next_multiple_of(HOST_PAGE_BYTES);
        let reserved_bytes = place_bytes.next_multiple_of(PAGE_BYTES);
        let place = self.memory.reserved.alloc(reserved_bytes).ok_or(Code::OUT_OF_MEMORY)?;
        if !raw::place(place, place_bytes, Some(part.file), part.offset - before) {
            self.memory.reserved.free(place, reserved_bytes);
            return Err(Code::INVALID_VALUE);
        }
        let kind = Kind::Foreign { place, place_bytes };
        self.memory.insert(place + before, part.bytes, kind, ctx, device);
        Ok(place + before)
    }

    /// Gives a second address to an allocation of a pool.
    pub fn map_again(&mut self, base: u64, ctx: u64) -> Outcome<u64> {
        let found = self.memory.at_base(base).ok_or(Code::INVALID_VALUE)?;
        let (bytes, device) = (found.bytes, found.device);
        let shared = self.memory.devices[device].share(base);
        let (file, start, _) = shared.ok_or(Code::INVALID_VALUE)?;
        self.map_foreign(&Part { file, offset: base - start, bytes }, ctx, device)
    }

    /// Forgets an object of another API, and closes its descriptor.
    pub fn end_foreign(&mut self, handle: Handle) -> Outcome {
        if let Some(memory) = self.foreign.memory.remove(handle) {
            raw::close_shared(memory.file);
            return Ok(());
        }
        let semaphore = self.foreign.semaphores.remove(handle).ok_or(Code::INVALID_HANDLE)?;
        self.discard(semaphore.address);
        raw::close_shared(semaphore.file);
        Ok(())
    }
}

const HOST_PAGE_BYTES: u64 = 4096;
