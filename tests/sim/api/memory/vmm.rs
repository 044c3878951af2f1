//! Virtual memory management: addresses and memory are separate.

use crate::abi::{AccessDescription, AllocationProperties, Code, DevicePtr, Handle, Location};
use crate::api::contexts::device;
use crate::api::pointers::{In, Out};
use crate::model::memory::allocations::Kind;
use crate::model::memory::raw;
use crate::model::memory::space::PAGE_BYTES;

driver! {
    fn cuMemAddressReserve: (
        address: Out<DevicePtr>, bytes: usize, alignment: usize, wish: DevicePtr, flags: u64
    ) |call| {
        if bytes == 0 || !(bytes as u64).is_multiple_of(PAGE_BYTES) {
            return Err(Code::INVALID_VALUE);
        }
        let start = call.world().memory.reserved.alloc(whole_pages(bytes));
        address.put(start.ok_or(Code::OUT_OF_MEMORY)?)
    }

    fn cuMemAddressFree: (address: DevicePtr, bytes: usize) |call| {
        let world = call.world();
        if !world.memory.reserved.contains(address) || world.memory.find(address).is_some() {
            return Err(Code::INVALID_VALUE);
        }
        world.memory.reserved.free(address, whole_pages(bytes));
        Ok(())
    }

    fn cuMemCreate: (
        handle: Out<Handle>, bytes: usize, properties: In<AllocationProperties>, flags: u64
    ) |call| {
        let location = properties.get()?.location;
        let (kind, device) = (location.kind, device::of_location(location)?);
        call.spend(20_000);
        let created = call.world().create_physical(bytes as u64, device, kind);
        handle.put(match created {
            Err(Code::OUT_OF_MEMORY) => {
                call.world().pools_make_room();
                call.world().create_physical(bytes as u64, device, kind)?
            }
            other => other?,
        })
    }

    fn cuMemRelease: (handle: Handle) |call| {
        let world = call.world();
        if world.release_multicast(handle) {
            return Ok(());
        }
        let physical = world.physical.find_mut(handle).ok_or(Code::INVALID_VALUE)?;
        physical.references = physical.references.checked_sub(1).ok_or(Code::INVALID_VALUE)?;
        world.drop_physical_if_unused(handle);
        Ok(())
    }

    fn cuMemMap: (
        address: DevicePtr, bytes: usize, offset: usize, handle: Handle, flags: u64
    ) |call| {
        call.spend(10_000);
        call.world().map_physical(address, bytes as u64, offset as u64, handle)
    }

    fn cuMemUnmap: (address: DevicePtr, bytes: usize) |call| {
        call.spend(25_000);
        call.world().unmap_physical(address, bytes as u64)
    }

    fn cuMemSetAccess: (
        address: DevicePtr, bytes: usize, access: In<AccessDescription>, count: usize
    ) |call| {
        let accesses = access.list(count)?;
        call.world().memory.find(address).ok_or(Code::INVALID_VALUE)?;
        for AccessDescription { location, flags } in accesses {
            if location.kind == Location::DEVICE {
                let device = device::check(location.id)?;
                call.world().set_access(address, bytes as u64, device, flags)?;
            }
        }
        Ok(())
    }

    fn cuMemGetAccess: (flags: Out<u64>, location: In<Location>, address: DevicePtr) |call| {
        call.world().memory.find(address).ok_or(Code::INVALID_VALUE)?;
        flags.put(3)
    }

    fn cuMemGetAllocationGranularity: (
        bytes: Out<usize>, properties: In<AllocationProperties>, option: u32
    ) |call| {
        bytes.put(PAGE_BYTES as usize)
    }

    fn cuMemRetainAllocationHandle: (handle: Out<Handle>, address: DevicePtr) |call| {
        let world = call.world();
        let found = world.memory.find(address).ok_or(Code::INVALID_VALUE)?;
        let Kind::Mapped { handle: known, .. } = found.kind else {
            return Err(Code::INVALID_VALUE);
        };
        world.physical.get_mut(known)?.references += 1;
        handle.put(known)
    }

    // For this process only, as with `ipc.rs`.
    fn cuMemExportToShareableHandle: (
        file: Out<i32>, handle: Handle, kind: u32, flags: u64
    ) |call| {
        call.world().physical.find(handle).ok_or(Code::INVALID_VALUE)?;
        file.put(raw::file_of(handle).ok_or(Code::OUT_OF_MEMORY)?)
    }

    fn cuMemImportFromShareableHandle: (handle: Out<Handle>, file: u64, kind: u32) |call| {
        let known = raw::handle_in(file as i32).ok_or(Code::INVALID_VALUE)?;
        call.world().physical.find_mut(known).ok_or(Code::INVALID_VALUE)?.references += 1;
        handle.put(known)
    }

    fn cuMemGetAllocationPropertiesFromHandle: (
        properties: Out<AllocationProperties>, handle: Handle
    ) |call| {
        let physical = call.world().physical.find(handle).ok_or(Code::INVALID_VALUE)?;
        let location = Location { kind: physical.location_kind, id: physical.device as i32 };
        properties.put(AllocationProperties {
            kind: 1,
            handle_types: 0,
            location,
            metadata: 0,
            flags: [0; 8],
        })
    }
}

/// Rounds up to whole pages, so that the model does not pack the allocation.
fn whole_pages(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(PAGE_BYTES)
}
