//! Stream-ordered allocation, and pools.

use crate::abi::{AccessDescription, Code, DevicePtr, Handle, Location, Outcome, PoolProperties};
use crate::api::contexts::device;
use crate::api::pointers::{In, Out};
use crate::api::work::submit::Order;
use crate::call::Call;
use crate::model::graphs::graph::NodeKind;
use crate::model::memory::allocations::Kind;
use crate::model::memory::pool::Pool;
use crate::model::work::op::Work;
use crate::model::world::DevicePools;

driver! {
    fn cuMemAllocAsync, cuMemAllocAsync_ptsz: (
        address: Out<DevicePtr>, bytes: usize, stream: Handle
    ) |call| {
        // Measured: writes a null pointer on failure.
        address.put(0)?;
        let stream = call.stream(stream)?;
        let context = call.world().streams.get(stream)?.context;
        let device = call.world().contexts.get(context)?.device;
        let pool = call.world().device_pools[device].current;
        address.put(alloc(call, bytes as u64, pool, stream)?)
    }

    fn cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz: (
        address: Out<DevicePtr>, bytes: usize, pool: Handle, stream: Handle
    ) |call| {
        let stream = call.stream(stream)?;
        address.put(alloc(call, bytes as u64, pool, stream)?)
    }

    fn cuMemFreeAsync, cuMemFreeAsync_ptsz: (address: DevicePtr, stream: Handle) |call| {
        let stream = call.stream(stream)?;
        if address == 0 {
            return Ok(());
        }
        free(call, address, stream)
    }

    fn cuMemPoolCreate: (pool: Out<Handle>, properties: In<PoolProperties>) |call| {
        let PoolProperties { kind, handle_types, location, .. } = properties.get()?;
        let mut made = Pool::at(device_of(kind, location)?, kind, location);
        made.handle_types = handle_types;
        let handle = call.world().pools.insert(made);
        pool.put(handle)
    }

    fn cuMemGetDefaultMemPool: (
        pool: Out<Handle>, location: In<Location>, allocation: u32
    ) |call| {
        pool.put(of_location(call, allocation, location.get()?)?.default)
    }

    fn cuMemGetMemPool: (pool: Out<Handle>, location: In<Location>, allocation: u32) |call| {
        pool.put(of_location(call, allocation, location.get()?)?.current)
    }

    fn cuMemSetMemPool: (location: In<Location>, allocation: u32, pool: Handle) |call| {
        let location = location.get()?;
        if !find(call, pool)?.serves(allocation, location) {
            return Err(Code::INVALID_VALUE);
        }
        of_location(call, allocation, location)?.current = pool;
        Ok(())
    }

    fn cuMemPoolDestroy: (pool: Handle) |call| {
        let world = call.world();
        let mut all = world.device_pools.iter().chain(world.other_pools.values());
        if all.any(|known| known.default == pool) {
            return Err(Code::INVALID_VALUE);
        }
        let state = world.pools.find_mut(pool).ok_or(Code::INVALID_VALUE)?;
        (state.destroyed, state.release_threshold) = (true, 0);
        world.trim_pools(None);
        for known in world.device_pools.iter_mut().chain(world.other_pools.values_mut()) {
            if known.current == pool {
                known.current = known.default;
            }
        }
        Ok(())
    }

    fn cuMemPoolTrimTo: (pool: Handle, keep: usize) |call| {
        find(call, pool)?;
        call.forbid_unsafe()?;
        call.world().trim_pools(Some(keep as u64));
        Ok(())
    }

    fn cuMemPoolGetAttribute: (pool: Handle, attribute: u32, value: Out<u64>) |call| {
        if call.world().pools.find(pool).is_none_or(|pool| pool.destroyed) {
            // A real driver would access the former pool.
            call.world().report.problem("sim: a pool that is gone is asked".into());
        }
        let pool = find(call, pool)?;
        let number = match attribute {
            1..=3 => {
                let flag = pool.reuse[attribute as usize - 1];
                return Out::put(int(value), flag);
            }
            4 => pool.release_threshold,
            5 => Pool::shown(pool.reserved_bytes),
            6 => Pool::shown(pool.reserved_bytes_peak),
            7 => pool.used_bytes,
            8 => pool.used_bytes_peak,
            _ => return Err(Code::INVALID_VALUE),
        };
        value.put(number)
    }

    fn cuMemPoolSetAttribute: (pool: Handle, attribute: u32, value: Out<u64>) |call| {
        let pool = find(call, pool)?;
        match attribute {
            1..=3 => pool.reuse[attribute as usize - 1] = int(value).get()?,
            4 => pool.release_threshold = value.get()?,
            6 if value.get()? == 0 => pool.reserved_bytes_peak = pool.reserved_bytes,
            8 if value.get()? == 0 => pool.used_bytes_peak = pool.used_bytes,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    fn cuMemPoolSetAccess: (pool: Handle, map: In<AccessDescription>, count: usize) |call| {
        let accesses = map.list(count)?;
        let pool = find(call, pool)?;
        for AccessDescription { location, flags } in accesses {
            let device = location.id as usize;
            pool.open_to.retain(|open| *open != device);
            if flags != 0 {
                pool.open_to.push(device);
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAccess: (flags: Out<u32>, pool: Handle, location: In<Location>) |call| {
        let own = find(call, pool)?.device as i32 == location.get()?.id;
        flags.put(if own { 3 } else { 0 })
    }
}

/// Returns the device of a location. Managed memory needs no location at first.
fn device_of(allocation: u32, location: Location) -> Outcome<usize> {
    match location.kind {
        Location::NONE if allocation == Pool::MANAGED => Ok(0),
        _ => device::of_location(location),
    }
}

/// Returns the pools for this type of memory and location. Pools of devices exist from the start.
fn of_location(call: &mut Call, allocation: u32, location: Location) -> Outcome<&mut DevicePools> {
    let device = device_of(allocation, location)?;
    let world = call.world();
    if (allocation, location.kind) == (Pool::PINNED, Location::DEVICE) {
        return Ok(&mut world.device_pools[device]);
    }
    if ![Pool::PINNED, Pool::MANAGED].contains(&allocation) {
        return Err(Code::INVALID_VALUE);
    }
    let key = (allocation, location.kind, location.id);
    Ok(world.other_pools.entry(key).or_insert_with(|| {
        let default = world.pools.insert(Pool::at(device, allocation, location));
        DevicePools { default, current: default }
    }))
}

fn find(call: &mut Call, pool: Handle) -> Outcome<&mut Pool> {
    let found = call.world().pools.find_mut(pool).filter(|pool| !pool.destroyed);
    found.ok_or(Code::INVALID_VALUE)
}

/// The three reuse attributes are 32 bits wide, unlike the rest.
fn int(value: Out<u64>) -> Out<i32> {
    Out::at(value.address())
}

fn alloc(call: &mut Call, bytes: u64, pool: Handle, stream: Handle) -> Outcome<DevicePtr> {
    let known = find(call, pool)?;
    if known.imported.is_some() {
        return Err(Code::INVALID_VALUE);
    }
    let device = known.device;
    // Measured: unlike `cuMemAlloc`.
    if bytes == 0 {
        return Ok(0);
    }
    if call.world().capture_of(stream).is_some() {
        return alloc_node(call, bytes, device, stream);
    }
    call.check_legacy(stream)?;
    call.forbid_unsafe()?;
    let at = call.ns();
    call.world().pool_alloc(pool, bytes, stream, at)
}

/// During a capture, the allocation becomes a node, whose address is fixed from now on.
fn alloc_node(call: &mut Call, bytes: u64, device: usize, stream: Handle) -> Outcome<DevicePtr> {
    if let Some(known) = call.world().address_again(stream, bytes) {
        let (address, world) = (known?, call.world());
        return world.capture_node(stream, NodeKind::Alloc { address, bytes }, false).and(known);
    }
    let address = call.world().alloc_graph_memory(bytes, device)?;
    let node = call.world().capture_node(stream, NodeKind::Alloc { address, bytes }, false);
    if let Err(code) = node {
        call.world().discard(address);
        return Err(code);
    }
    Ok(address)
}

fn free(call: &mut Call, address: DevicePtr, stream: Handle) -> Outcome {
    let found = call.world().memory.at_base(address).ok_or(Code::INVALID_VALUE)?;
    let (kind, bytes) = (found.kind, found.bytes);
    if call.world().capture_of(stream).is_some() {
        if kind != Kind::Graph {
            return Err(Code::INVALID_VALUE);
        }
        return call.world().capture_node(stream, NodeKind::Free { address }, false).map(drop);
    }
    match kind {
        Kind::Graph if call.world().graphs.free_in_graph(address) => return Ok(()),
        Kind::Device | Kind::Pool { .. } | Kind::Graph | Kind::Foreign { .. } => {}
        // Measured.
        Kind::Managed => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_VALUE),
    }
    call.check_legacy(stream)?;
    call.forbid_unsafe()?;
    let allocation = call.world().memory.begin_dying(address).ok_or(Code::INVALID_VALUE)?;
    let op = call.submit_to(stream, Work::Release { allocation }, Order::Full)?;
    if let (Kind::Pool { pool, block_bytes }, Some(op)) = (kind, op) {
        let id = call.world().streams.get(stream)?.id;
        call.world().pool_free(pool, (address, block_bytes), bytes, id, op);
    }
    Ok(())
}
