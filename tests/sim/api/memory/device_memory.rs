//! Device memory: `cuMemAlloc` and its family, and the free that waits.

use crate::abi::{Code, DevicePtr, Handle, Outcome};
use crate::api::pointers::Out;
use crate::call::Call;
use crate::model::memory::allocations::Kind;
use crate::model::races::shadow::{Access, AccessKind, HOST_STREAM, Source};
use crate::model::work::op::Work;
use crate::model::world::config;

driver! {
    fn cuMemAlloc_v2: (address: Out<DevicePtr>, bytes: usize) |call| {
        let allocated = alloc(call, bytes as u64, Kind::Device);
        // Measured: writes a null pointer on failure.
        address.put_if_asked(allocated.unwrap_or(0));
        let null = if address.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) };
        allocated.and(null)
    }

    fn cuMemAllocManaged: (address: Out<DevicePtr>, bytes: usize, flags: u32) |call| {
        if flags == 0 || flags > 4 {
            return Err(Code::INVALID_VALUE);
        }
        address.put(alloc(call, bytes as u64, Kind::Managed)?)
    }

    fn cuMemAllocPitch_v2: (
        address: Out<DevicePtr>, pitch: Out<usize>, width: usize, height: usize, element: u32
    ) |call| {
        let unit = config().pitch_bytes.next_multiple_of(element.max(1) as usize);
        let row = width.checked_next_multiple_of(unit).ok_or(Code::INVALID_VALUE)?;
        let bytes = (row as u64).checked_mul(height as u64).ok_or(Code::INVALID_VALUE)?;
        let made = alloc(call, bytes, Kind::Device);
        // Measured: on failure, writes the pitch but no address.
        if matches!(made, Ok(_) | Err(Code::OUT_OF_MEMORY)) {
            address.put(made.unwrap_or(0))?;
            pitch.put(row)?;
        }
        made.map(|_| ())
    }

    fn cuMemFree_v2: (address: DevicePtr) |call| {
        if address == 0 {
            return Ok(());
        }
        free(call, address)
    }

    fn cuMemGetInfo_v2: (free: Out<usize>, total: Out<usize>) |call| {
        // Measured: writes zeros on failure.
        free.put_if_asked(0);
        total.put_if_asked(0);
        let context = call.context()?;
        let device = call.world().contexts.get(context)?.device;
        call.spend(5_000);
        let space = &call.world().memory.devices[device];
        free.put_if_asked(space.bytes_free() as usize);
        total.put_if_asked((space.pages_max << 21) as usize);
        Ok(())
    }

    fn cuMemGetAddressRange_v2: (
        base: Out<DevicePtr>, bytes: Out<usize>, address: DevicePtr
    ) |call| {
        // Measured: writes zeros on failure, and an unknown address is no error if nothing is
        // requested.
        base.put_if_asked(0);
        bytes.put_if_asked(0);
        call.context()?;
        let found = call.world().memory.find(address);
        let (start, length) = found.map_or((0, 0), |found| (found.base, found.bytes));
        base.put_if_asked(start);
        bytes.put_if_asked(length as usize);
        let nothing_asked = base.is_null() && bytes.is_null();
        if length == 0 && !nothing_asked { Err(Code::NOT_FOUND) } else { Ok(()) }
    }
}

pub fn alloc(call: &mut Call, bytes: u64, kind: Kind) -> Outcome<DevicePtr> {
    let context = call.context()?;
    call.forbid_unsafe()?;
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    call.wait_for_context(context);
    call.spend(cost_ns(bytes));
    let world = call.world();
    let owner = world.contexts.get(world.owner_of_memory(context))?;
    let (ctx, device) = (owner.id, owner.device);
    let first = world.memory.alloc(bytes, kind, ctx, device);
    let second = first.or_else(|_| {
        world.pools_make_room();
        world.memory.alloc(bytes, kind, ctx, device)
    });
    if second.is_ok() || config().frees_wait {
        return second;
    }
    // Has the effect of waits in the frees, and of nothing else.
    let frees = std::mem::take(&mut world.frees_not_waited_for);
    while frees.iter().any(|free| !free.done()) && world.step() {}
    world.pools_make_room();
    world.memory.alloc(bytes, kind, ctx, device)
}

/// Measured: waits for all work of the block's context, at every size, and blocks the context
/// meanwhile. It does not wait for stream-ordered memory.
fn free(call: &mut Call, address: DevicePtr) -> Outcome {
    let found = call.world().memory.at_base(address).ok_or(Code::INVALID_VALUE)?;
    let (kind, bytes, ctx) = (found.kind, found.bytes, found.ctx);
    match kind {
        Kind::Device | Kind::Managed | Kind::Foreign { .. } => {}
        Kind::Pool { .. } => return free_pool_memory(call, address),
        Kind::Graph => return free_graph_memory(call, address),
        _ => return Err(Code::INVALID_VALUE),
    }
    call.forbid_unsafe()?;
    call.spend(cost_ns(bytes));
    let context = *call.world().context_handles.get(&ctx).ok_or(Code::INVALID_VALUE)?;
    // From here on no other call can refer to the block, while work in flight may still use it.
    let id = call.world().memory.begin_dying(address).ok_or(Code::INVALID_VALUE)?;
    if !config().frees_wait {
        let (at, world) = (call.ns(), call.world());
        let free = world.mark_context_with(context, Work::Give { allocation: id }, at)?;
        world.frees_not_waited_for.push(free);
        return Ok(());
    }
    wait_holding(call, &[context])?;
    note_end(call, address, bytes);
    let world = call.world();
    world.release(id);
    world.error_of(ctx).map_or(Ok(()), Err)
}

/// Checks that a free is ordered after all accesses, by the waits of this call or earlier ones.
fn note_end(call: &mut Call, address: DevicePtr, bytes: u64) {
    let access = Access { start: address, bytes, kind: AccessKind::Write };
    let source = Source { name: call.name, op: 0, stream: HOST_STREAM };
    let world = call.world();
    let mut clock = world.host.clock.clone();
    let chains = world.host.chains.clone();
    let epoch = world.chains.advance(&chains, &mut clock);
    for race in world.shadow.access(access, source, epoch, &clock) {
        world.report.race(&race);
    }
    world.host.clock = clock;
}

/// Checks that all accesses have ended. The driver assumes this and does not wait, so a program
/// that frees earlier is invalid. Checked after the free, because work submitted before may not
/// have run yet.
fn judge_end(call: &mut Call, allocation: u64) {
    let world = call.world();
    let mut clock = world.host.clock.clone();
    let epoch = world.chains.advance(&world.host.chains, &mut clock);
    world.judged_frees.insert(allocation, (epoch, clock));
}

/// Waits for all work of these contexts, and holds all of them meanwhile.
pub fn wait_holding(call: &mut Call, contexts: &[Handle]) -> Outcome {
    call.wait_for_contexts(contexts);
    let (thread, at) = (call.thread, call.ns());
    let marks = contexts.iter().map(|context| call.world().mark_context(*context, at));
    let marks = marks.collect::<Outcome<Vec<_>>>()?;
    hold(call, contexts, Some(thread));
    marks.iter().for_each(|mark| call.wait(mark));
    hold(call, contexts, None);
    Ok(())
}

fn hold(call: &mut Call, contexts: &[Handle], holder: Option<u32>) {
    for context in contexts {
        // A context may be destroyed while the call waits for another one.
        if let Some(context) = call.world().contexts.find_mut(*context) {
            context.held_by = holder;
        }
    }
}

fn free_pool_memory(call: &mut Call, address: DevicePtr) -> Outcome {
    let context = call.context()?;
    let at = call.ns();
    let found = call.world().memory.at_base(address).ok_or(Code::INVALID_VALUE)?;
    let Kind::Pool { pool, block_bytes } = found.kind else { return Err(Code::INVALID_VALUE) };
    let allocation = call.world().memory.begin_dying(address).ok_or(Code::INVALID_VALUE)?;
    if config().frees_are_judged {
        judge_end(call, allocation);
    }
    let world = call.world();
    let op = world.mark_context_with(context, Work::Release { allocation }, at)?;
    world.pool_free(pool, (address, block_bytes), 0, 0, op);
    Ok(())
}

/// Waits for nothing, like the free of pool memory.
fn free_graph_memory(call: &mut Call, address: DevicePtr) -> Outcome {
    if call.world().graphs.free_in_graph(address) {
        return Ok(());
    }
    let (context, at) = (call.context()?, call.ns());
    let world = call.world();
    let allocation = world.memory.begin_dying(address).ok_or(Code::INVALID_VALUE)?;
    world.mark_context_with(context, Work::Release { allocation }, at).map(drop)
}

fn cost_ns(bytes: u64) -> u64 {
    if bytes >= 2 << 20 { 40_000 } else { 2_000 }
}
