//! Pinned and registered host memory. Device and host address are equal (UVA), unless
//! `SIM_DISJOINT` is set.

use crate::abi::{Code, DevicePtr, Outcome};
use crate::api::pointers::Out;
use crate::call::Call;
use crate::model::memory::allocations::Kind;
use crate::model::world::config;

driver! {
    fn cuMemHostAlloc: (address: Out<u64>, bytes: usize, flags: u32) |call| {
        let host = super::device_memory::alloc(call, bytes as u64, Kind::Host { flags })?;
        if config().is_disjoint {
            call.world().memory.show_elsewhere(host);
        }
        address.put(host)
    }

    fn cuMemAllocHost_v2: (address: Out<u64>, bytes: usize) |call| {
        address.put(super::device_memory::alloc(call, bytes as u64, Kind::Host { flags: 0 })?)
    }

    fn cuMemFreeHost: (address: u64) |call| {
        if address == 0 {
            return Ok(());
        }
        let found = call.world().memory.at_base(address).ok_or(Code::INVALID_VALUE)?;
        let Kind::Host { .. } = found.kind else { return Err(Code::INVALID_VALUE) };
        call.forbid_unsafe()?;
        wait_for_everything(call)?;
        call.world().memory.hide_elsewhere(address);
        call.world().discard(address);
        Ok(())
    }

    fn cuMemHostRegister, cuMemHostRegister_v2: (address: u64, bytes: usize, flags: u32) |call| {
        let context = call.context()?;
        if address == 0 || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let world = call.world();
        let last = address + bytes as u64 - 1;
        if world.memory.find(address).is_some() || world.memory.find(last).is_some() {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        // Freed memory is no longer mapped.
        if world.memory.host.contains(address) || world.memory.host.contains(last) {
            return Err(Code::INVALID_VALUE);
        }
        call.forbid_unsafe()?;
        let world = call.world();
        let ctx = world.contexts.get(context)?.id;
        world.memory.insert(address, bytes as u64, Kind::Registered { flags }, ctx, 0);
        Ok(())
    }

    fn cuMemHostUnregister: (address: u64) |call| {
        let found = call.world().memory.at_base(address);
        match found.map(|found| found.kind) {
            Some(Kind::Registered { .. }) => {}
            _ => return Err(Code::HOST_MEMORY_NOT_REGISTERED),
        }
        wait_for_everything(call)?;
        call.world().discard(address);
        Ok(())
    }

    fn cuMemHostGetDevicePointer_v2: (device: Out<DevicePtr>, host: u64, flags: u32) |call| {
        call.context()?;
        let memory = &call.world().memory;
        let found = memory.find(host).ok_or(Code::INVALID_VALUE)?;
        match found.kind {
            Kind::Host { .. } | Kind::Registered { .. } => device.put(memory.on_device(host)),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemHostGetFlags: (flags: Out<u32>, host: u64) |call| {
        let found = call.world().memory.find(host).ok_or(Code::INVALID_VALUE)?;
        match found.kind {
            Kind::Host { flags: known } | Kind::Registered { flags: known } => flags.put(known),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// Pinned memory belongs to every context. Freeing it waits for all of them (measured for one), and
/// blocks all of them meanwhile, as a free does.
fn wait_for_everything(call: &mut Call) -> Outcome {
    let contexts: Vec<_> = call.world().context_handles.values().copied().collect();
    super::device_memory::wait_holding(call, &contexts)
}
