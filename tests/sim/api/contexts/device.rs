//! Devices and their primary contexts.

use crate::abi::{Code, Handle, Location, Outcome};
use crate::api::pointers::{In, Out, put_text, text};
use crate::call::Call;
use crate::model::memory::allocations::{Allocation, Kind};
use crate::model::memory::pool::Pool;
use crate::model::memory::space::PAGE_BYTES;
use crate::model::world::config;

driver! {
    fn cuDeviceGet: (device: Out<i32>, ordinal: i32) |call| {
        device.put(check(ordinal)? as i32)
    }

    fn cuDeviceGetCount: (count: Out<i32>) |call| {
        count.put(config().devices as i32)
    }

    fn cuDeviceGetName: (name: Out<u8>, room: i32, device: i32) |call| {
        put_text(name, room.max(0) as usize, &format!("Simulated device {}", check(device)?))
    }

    fn cuDeviceTotalMem_v2: (bytes: Out<usize>, device: i32) |call| {
        check(device)?;
        bytes.put(config().memory_bytes as usize)
    }

    fn cuDeviceGetAttribute: (value: Out<i32>, attribute: i32, device: i32) |call| {
        check(device)?;
        value.put(attribute_value(attribute))
    }

    fn cuDeviceGetUuid: (uuid: Out<[u8; 16]>, device: i32) |call| {
        uuid.put(uuid_of(b"simulated device", check(device)?))
    }

    // A part of a GPU has its own UUID, where the first version returns that of the whole GPU.
    fn cuDeviceGetUuid_v2: (uuid: Out<[u8; 16]>, device: i32) |call| {
        let name = if config().is_mig { b"simulated a part" } else { b"simulated device" };
        uuid.put(uuid_of(name, check(device)?))
    }

    fn cuDeviceGetPCIBusId: (name: Out<u8>, room: i32, device: i32) |call| {
        let device = check(device)?;
        put_text(name, room.max(0) as usize, &pci_of(device))
    }

    fn cuDeviceGetByPCIBusId: (device: Out<i32>, name: In<u8>) |call| {
        let name = text(name)?;
        let of = |number: &usize| name == pci_of(*number);
        let found = (0..config().devices).find(of).ok_or(Code::INVALID_DEVICE)?;
        device.put(found as i32)
    }

    fn cuDeviceComputeCapability: (major: Out<i32>, minor: Out<i32>, device: i32) |call| {
        check(device)?;
        major.put(9)?;
        minor.put(0)
    }

    fn cuDeviceCanAccessPeer: (can: Out<i32>, device: i32, peer: i32) |call| {
        can.put(i32::from(check(device)? != check(peer)?))
    }

    fn cuDeviceGetP2PAttribute: (value: Out<i32>, attribute: u32, device: i32, peer: i32) |call| {
        value.put(i32::from(check(device)? != check(peer)?))
    }

    fn cuDevicePrimaryCtxRetain: (context: Out<Handle>, device: i32) |call| {
        let device = check(device)?;
        let handle = primary_of(call, device)?;
        context.put(handle)?;
        call.world().primaries[device].retained += 1;
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2: (device: i32) |call| {
        let device = check(device)?;
        release_primary(call, device)
    }

    fn cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2: (device: i32) |call| {
        let device = check(device)?;
        end_primary(call, device)
    }

    fn cuDevicePrimaryCtxGetState: (device: i32, flags: Out<u32>, active: Out<i32>) |call| {
        let device = check(device)?;
        let primary = &call.world().primaries[device];
        flags.put(primary.flags)?;
        active.put(i32::from(primary.context != 0))
    }

    fn cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2: (device: i32, flags: u32) |call| {
        let device = check(device)?;
        call.world().primaries[device].flags = flags;
        Ok(())
    }

    fn cuDeviceGetDefaultMemPool: (pool: Out<Handle>, device: i32) |call| {
        let device = check(device)?;
        pool.put(call.world().device_pools[device].default)
    }

    fn cuDeviceGetMemPool: (pool: Out<Handle>, device: i32) |call| {
        let device = check(device)?;
        pool.put(call.world().device_pools[device].current)
    }

    fn cuDeviceSetMemPool: (device: i32, pool: Handle) |call| {
        let device = check(device)?;
        let known = call.world().pools.find(pool).ok_or(Code::INVALID_VALUE)?;
        if !known.serves(Pool::PINNED, Location::on(device)) {
            return Err(Code::INVALID_VALUE);
        }
        call.world().device_pools[device].current = pool;
        Ok(())
    }

    fn cuDeviceGetGraphMemAttribute: (device: i32, attribute: u32, value: Out<u64>) |call| {
        let device = check(device)?;
        let of_graphs = |a: &&Allocation| a.kind == Kind::Graph && a.device == device;
        let nodes = call.world().memory.live().filter(of_graphs).map(|a| a.bytes);
        value.put(match attribute {
            GRAPH_RESERVED | GRAPH_RESERVED_PEAK => {
                nodes.map(|bytes| bytes.next_multiple_of(PAGE_BYTES)).sum()
            }
            _ => nodes.sum(),
        })
    }

    fn cuDeviceGraphMemTrim: (device: i32) |call| {
        check(device).map(drop)
    }
}

pub fn check(device: i32) -> Outcome<usize> {
    let known = usize::try_from(device).ok().filter(|device| *device < config().devices);
    known.ok_or(Code::INVALID_DEVICE)
}

/// Returns the device whose memory is at a location; any device for the host.
pub fn of_location(location: Location) -> Outcome<usize> {
    match location.kind {
        Location::DEVICE => check(location.id),
        Location::LOCALITY_DOMAIN if config().driver_version >= LOCALITY_DOMAINS => {
            check(location.id & 0xFF)
        }
        kind if Location::ON_HOST.contains(&kind) => Ok(0),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn uuid_of(name: &[u8; 16], device: usize) -> [u8; 16] {
    let mut bytes = *name;
    for (byte, of_machine) in bytes[7..].iter_mut().zip(config().machine.to_le_bytes()) {
        *byte ^= of_machine;
    }
    bytes[15] = (config().first_device + device) as u8;
    bytes
}

fn pci_of(device: usize) -> String {
    format!("0000:{:02X}:00.0", config().first_device + device)
}

/// Returns the primary context, and creates it if it does not exist.
pub fn primary_of(call: &mut Call, device: usize) -> Outcome<Handle> {
    let primary = &call.world().primaries[device];
    let (mut handle, flags) = (primary.context, primary.flags);
    if handle == 0 {
        handle = call.world().create_context(device, true, flags)?;
        call.world().primaries[device].context = handle;
    }
    Ok(handle)
}

/// Releases a reference to the primary context.
pub fn release_primary(call: &mut Call, device: usize) -> Outcome {
    let primary = &mut call.world().primaries[device];
    primary.retained = primary.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
    if primary.retained == 0 { end_primary(call, device) } else { Ok(()) }
}

/// Waits for the primary context's work and destroys it. Its handle becomes invalid whether or not
/// it is retained. Its references must still be released (measured on driver 580).
fn end_primary(call: &mut Call, device: usize) -> Outcome {
    let handle = call.world().primaries[device].context;
    if handle == 0 {
        return Ok(());
    }
    call.forbid_unsafe()?;
    let deps = call.world().context_deps(handle)?;
    call.wait_all(deps);
    call.world().destroy_context(handle);
    call.world().primaries[device].context = 0;
    Ok(())
}

/// Attributes of the measured machine, for those on which programs depend.
fn attribute_value(attribute: i32) -> i32 {
    match attribute {
        MAX_THREADS_PER_BLOCK | 2 | 3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65_535,
        8 => 49_152,
        10 => 32,
        MULTIPROCESSOR_COUNT => 132,
        39 => 2048,
        41 | 83 | 89 => 1,
        MAJOR => 9,
        CAN_MAP_HOST_MEMORY | CONCURRENT_KERNELS | ASYNC_ENGINES => 1,
        CAN_FLUSH | GPU_DIRECT_RDMA | STREAM_MEM_OPS | 92 | 93 => 1,
        VIRTUAL_MEMORY | POSIX_HANDLES | MEMORY_POOLS => 1,
        _ => 0,
    }
}

/// First version with parts of devices.
const LOCALITY_DOMAINS: i32 = 13_040;
const GRAPH_RESERVED: u32 = 2;
const GRAPH_RESERVED_PEAK: u32 = 3;

const MAX_THREADS_PER_BLOCK: i32 = 1;
const MULTIPROCESSOR_COUNT: i32 = 16;
const CAN_MAP_HOST_MEMORY: i32 = 19;
const CONCURRENT_KERNELS: i32 = 31;
const ASYNC_ENGINES: i32 = 40;
const MAJOR: i32 = 75;
const CAN_FLUSH: i32 = 98;
const STREAM_MEM_OPS: i32 = 94;
const VIRTUAL_MEMORY: i32 = 102;
const POSIX_HANDLES: i32 = 103;
const MEMORY_POOLS: i32 = 115;
const GPU_DIRECT_RDMA: i32 = 116;
