//! Multicast objects and logical endpoints, as far as sharing is concerned: which memory is bound to
//! them. A multicast object cannot be mapped.

use crate::abi::{Code, DevicePtr, EndpointProperties, Handle, MulticastProperties, Outcome};
use crate::api::contexts::device::check;
use crate::api::pointers::{In, Out};
use crate::call::Call;
use crate::model::memory::allocations::Kind;
use crate::model::memory::group::{Bound, Endpoint, Group, Source};
use crate::model::memory::space::PAGE_BYTES;

driver! {
    fn cuMulticastCreate: (multicast: Out<Handle>, properties: In<MulticastProperties>) |call| {
        let MulticastProperties { devices_count, bytes, .. } = properties.get()?;
        let group = Group::new(devices_count, bytes as u64)?;
        multicast.put(call.world().multicasts.insert(group))
    }

    fn cuMulticastGetGranularity: (
        bytes: Out<usize>, properties: In<MulticastProperties>, option: u32
    ) |call| {
        bytes.put(PAGE_BYTES as usize)
    }

    fn cuMulticastAddDevice: (multicast: Handle, device: i32) |call| {
        let device = check(device)?;
        find(call, multicast)?.add_device(device)
    }

    fn cuMulticastBindMem: (
        multicast: Handle, offset: usize, memory: Handle, memory_offset: usize, bytes: usize,
        flags: u64
    ) |call| {
        let device = call.world().physical.find(memory).ok_or(Code::INVALID_VALUE)?.device;
        bind_memory(call, multicast, device, (offset, memory, memory_offset, bytes))
    }

    fn cuMulticastBindMem_v2: (
        multicast: Handle, device: i32, offset: usize, memory: Handle, memory_offset: usize,
        bytes: usize, flags: u64
    ) |call| {
        let device = check(device)?;
        bind_memory(call, multicast, device, (offset, memory, memory_offset, bytes))
    }

    fn cuMulticastBindAddr: (
        multicast: Handle, offset: usize, address: DevicePtr, bytes: usize, flags: u64
    ) |call| {
        let device = bindable(call, address, bytes)?;
        let source = Source::Address(address);
        find(call, multicast)?.bind(Bound { device, offset: offset as u64, bytes: bytes as u64, source })
    }

    fn cuMulticastBindAddr_v2: (
        multicast: Handle, device: i32, offset: usize, address: DevicePtr, bytes: usize, flags: u64
    ) |call| {
        let device = check(device)?;
        bindable(call, address, bytes)?;
        let source = Source::Address(address);
        find(call, multicast)?.bind(Bound { device, offset: offset as u64, bytes: bytes as u64, source })
    }

    fn cuMulticastUnbind: (multicast: Handle, device: i32, offset: usize, bytes: usize) |call| {
        let device = check(device)?;
        let gone = find(call, multicast)?.unbind(device, offset as u64, bytes as u64)?;
        call.world().unbound(gone);
        Ok(())
    }

    fn cuLogicalEndpointIdReserve: (first: Out<u32>, count: u32) |call| {
        let next = &mut call.world().endpoints.next;
        let reserved = *next + 1;
        *next += count;
        first.put(reserved)
    }

    fn cuLogicalEndpointIdRelease: (first: u32, count: u32) |call| {
        Ok(())
    }

    fn cuLogicalEndpointCreate: (id: u32, properties: In<EndpointProperties>) |call| {
        let EndpointProperties { kind, devices, bytes, handle_types, .. } = properties.get()?;
        let mut group = Group::new(if kind == UNICAST { 1 } else { devices as u32 }, bytes)?;
        match kind {
            UNICAST => group.add_device(check(devices)?)?,
            MULTICAST => {}
            _ => return Err(Code::INVALID_VALUE),
        }
        call.world().endpoints.insert(id, Endpoint { group, handle_types, imported: None })
    }

    fn cuLogicalEndpointAddDevice: (id: u32, device: i32) |call| {
        let device = check(device)?;
        call.world().endpoints.find(id)?.group.add_device(device)
    }

    // Zero: the endpoint is ready.
    fn cuLogicalEndpointQuery: (id: u32, count: u32, status: Out<i32>) |call| {
        for index in 0..count {
            call.world().endpoints.find(id + index)?;
            status.put_at(index as usize, 0);
        }
        Ok(())
    }

    fn cuLogicalEndpointGetLimits: (
        alignment: Out<u64>, bytes_max: Out<u64>, properties: In<EndpointProperties>
    ) |call| {
        alignment.put_if_asked(PAGE_BYTES);
        bytes_max.put_if_asked(ENDPOINT_BYTES_MAX);
        Ok(())
    }

    fn cuLogicalEndpointBindAddr: (
        id: u32, device: i32, offset: u64, address: DevicePtr, bytes: u64, flags: u64
    ) |call| {
        let device = check(device)?;
        bindable(call, address, bytes as usize)?;
        let endpoint = call.world().endpoints.find(id)?;
        if endpoint.imported.is_some() {
            return Err(Code::INVALID_VALUE);
        }
        endpoint.group.bind(Bound { device, offset, bytes, source: Source::Address(address) })
    }

    fn cuLogicalEndpointUnbind: (id: u32, device: i32, offset: u64, bytes: u64) |call| {
        let device = check(device)?;
        call.world().endpoints.find(id)?.group.unbind(device, offset, bytes).map(drop)
    }

    fn cuLogicalEndpointDestroy: (id: u32) |call| {
        call.world().endpoints.remove(id)
    }

    fn cuLogicalEndpointExport: (handle: Out<[u64; 8]>, id: u32, kind: u32) |call| {
        let known = call.world().endpoints.find(id)?;
        if kind != FABRIC || known.handle_types & kind == 0 {
            return Err(Code::INVALID_VALUE);
        }
        handle.put([u64::from(id), 0, 0, 0, 0, 0, 0, 0])
    }

    // For this process only, as with pools.
    fn cuLogicalEndpointImport: (id: u32, handle: In<[u64; 8]>, kind: u32) |call| {
        let [exported, ..] = handle.get()?;
        if kind != FABRIC {
            return Err(Code::INVALID_VALUE);
        }
        let known = call.world().endpoints.find(exported as u32)?;
        let (group, handle_types) = (Group::new(1, known.group.bytes)?, known.handle_types);
        let imported = Some(exported as u32);
        call.world().endpoints.insert(id, Endpoint { group, handle_types, imported })
    }
}

const UNICAST: u32 = 1;
const MULTICAST: u32 = 2;
const FABRIC: u32 = 1;
const ENDPOINT_BYTES_MAX: u64 = 1 << 40;

fn find(call: &mut Call, multicast: Handle) -> Outcome<&mut Group> {
    call.world().multicasts.find_mut(multicast).ok_or(Code::INVALID_VALUE)
}

fn bind_memory(
    call: &mut Call,
    multicast: Handle,
    device: usize,
    (offset, memory, memory_offset, bytes): (usize, Handle, usize, usize),
) -> Outcome {
    let physical = call.world().physical.find(memory).ok_or(Code::INVALID_VALUE)?;
    let fits = memory_offset.checked_add(bytes).is_some_and(|end| end as u64 <= physical.bytes);
    if !fits || physical.device != device {
        return Err(Code::INVALID_VALUE);
    }
    let (offset, bytes, source) = (offset as u64, bytes as u64, Source::Memory(memory));
    find(call, multicast)?.bind(Bound { device, offset, bytes, source })?;
    call.world().physical.get_mut(memory)?.mappings += 1;
    Ok(())
}

/// Returns the device of memory that may be bound: of `cuMemCreate`, or of a pool (documented).
fn bindable(call: &mut Call, address: DevicePtr, bytes: usize) -> Outcome<usize> {
    let found = call.world().memory.find(address).ok_or(Code::INVALID_VALUE)?;
    let inside = address + bytes as u64 <= found.base + found.bytes;
    let fits = matches!(found.kind, Kind::Mapped { .. } | Kind::Pool { .. });
    if fits && inside { Ok(found.device) } else { Err(Code::INVALID_VALUE) }
}
