//! Memory of other simulated processes. With `SIM_IPC` set to a folder that the processes share, an
//! exported allocation moves to a separate file, and a note in the folder has its path, so that
//! importers can map it. After a free, importers keep the bytes. Order between processes is not
//! modelled: a process sees what another has synchronised.

use std::collections::HashMap;
use std::fs;

use super::allocations::{Allocation, Kind, Memory};
use super::raw;
use crate::abi::{Code, Outcome};

/// Process and number of an allocation, as encoded in a handle.
pub type Name = (u32, u64);

#[derive(Default)]
pub struct Imports(HashMap<Name, Import>);

struct Import {
    address: u64,
    start: u64,
    bytes: u64,
    opened_count: u32,
}

fn note_of((process, id): Name) -> Option<String> {
    let folder = std::env::var("SIM_IPC").ok()?;
    Some(format!("{folder}/{process}-{id}"))
}

/// Lets other processes map the allocation. A file may hold several packed ones.
pub fn export(memory: &mut Memory, found: &Allocation) {
    let Some(note) = note_of((std::process::id(), found.id)) else { return };
    let Some((file, start, bytes)) = memory.devices[found.device].share(found.base) else { return };
    let Allocation { base, bytes: own_bytes, .. } = found;
    let _ = fs::write(note, format!("{file} {start} {bytes} {base} {own_bytes}"));
}

/// Invalidates the handle of a freed allocation.
pub fn freed(id: u64) {
    if let Some(note) = note_of((std::process::id(), id)) {
        let _ = fs::remove_file(note);
    }
}

impl Imports {
    /// Maps another process's allocation, each time at the same address. `base` is its base in the
    /// exporter, from the handle.
    pub fn open(&mut self, memory: &mut Memory, name: Name, base: u64, ctx: u64) -> Outcome<u64> {
        let note = note_of(name).and_then(|path| fs::read_to_string(path).ok());
        let note = note.ok_or(Code::INVALID_VALUE)?;
        let numbers: Vec<u64> = note.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[file, start, bytes, at, own_bytes] = &numbers[..] else {
            return Err(Code::INVALID_VALUE);
        };
        if at != base {
            let low = at as u32 == base as u32;
            return Err(if low { Code::INVALID_VALUE } else { Code::INVALID_HANDLE });
        }
        if let Some(import) = self.0.get_mut(&name) {
            import.opened_count += 1;
            return Ok(import.address);
        }
        let path = format!("/proc/{}/fd/{file}", name.0);
        let place = memory.reserved.alloc(bytes).ok_or(Code::OUT_OF_MEMORY)?;
        if !raw::place_file(place, bytes, &path) {
            memory.reserved.free(place, bytes);
            return Err(Code::INVALID_VALUE);
        }
        let address = place + (base - start);
        memory.insert(address, own_bytes, Kind::Mapped { handle: 0, offset: 0 }, ctx, 0);
        self.0.insert(name, Import { address, start: place, bytes, opened_count: 1 });
        Ok(address)
    }

    /// Closes an import. Returns `None` if nothing was opened at this address.
    pub fn close(&mut self, memory: &mut Memory, address: u64) -> Option<()> {
        let (&name, import) = self.0.iter_mut().find(|(_, import)| import.address == address)?;
        import.opened_count -= 1;
        if import.opened_count == 0 {
            memory.remove(address);
            raw::place(import.start, import.bytes, None, 0);
            memory.reserved.free(import.start, import.bytes);
            self.0.remove(&name);
        }
        Some(())
    }
}
