//! Streams.

use crate::abi::{BatchMemOp, Code, DevicePtr, Handle, HostFn, Outcome, StreamCallback};
use crate::api::pointers::{In, Out};
use crate::api::work::submit::Order;
use crate::call::Call;
use crate::model::contexts::stream::StreamKind;
use crate::model::memory::allocations::Kind;
use crate::model::work::op::{FlagWork, HostWork, Work};

driver! {
    fn cuStreamCreate: (stream: Out<Handle>, flags: u32) |call| {
        create(call, stream, flags, 0)
    }

    fn cuStreamCreateWithPriority: (stream: Out<Handle>, flags: u32, priority: i32) |call| {
        create(call, stream, flags, priority)
    }

    fn cuStreamDestroy, cuStreamDestroy_v2: (stream: Handle) |call| {
        let context = call.world().streams.get(stream)?.context;
        call.wait_for_context(context);
        call.world().destroy_stream(stream)?;
        call.world().end_object(stream);
        Ok(())
    }

    fn cuStreamQuery, cuStreamQuery_ptsz: (stream: Handle) |call| {
        let stream = call.stream(stream)?;
        call.refuse_capture(stream)?;
        call.check_legacy(stream)?;
        call.forbid_unsafe()?;
        let deps = call.world().stream_ends(stream)?;
        if !deps.ends.is_empty() {
            return Err(Code::NOT_READY);
        }
        call.learn(&deps.clock);
        call.wait_all(deps);
        call.check_error(stream)
    }

    fn cuStreamSynchronize, cuStreamSynchronize_ptsz: (stream: Handle) |call| {
        let stream = call.stream(stream)?;
        call.refuse_capture(stream)?;
        call.check_legacy(stream)?;
        call.forbid_unsafe()?;
        let deps = call.world().stream_ends(stream)?;
        call.wait_all(deps);
        call.world().trim_pools(None);
        let id = call.world().streams.get(stream)?.id;
        call.world().collect(Some(id), None);
        call.check_error(stream)
    }

    fn cuStreamWaitEvent, cuStreamWaitEvent_ptsz: (stream: Handle, event: Handle, flags: u32) |call| {
        let stream = call.stream(stream)?;
        let name = call.name;
        if call.world().capture_wait(stream, event, name)? {
            return Ok(());
        }
        call.check_legacy(stream)?;
        let at = call.ns();
        let op = call.world().events.get(event)?.op.clone();
        match op {
            Some(op) => call.world().stream_waits(stream, &op, at),
            None => Ok(()),
        }
    }

    fn cuStreamGetId, cuStreamGetId_ptsz: (stream: Handle, id: Out<u64>) |call| {
        let stream = call.stream(stream)?;
        call.refuse_capture(stream)?;
        id.put(call.world().streams.get(stream)?.id)
    }

    fn cuStreamGetCtx, cuStreamGetCtx_ptsz: (stream: Handle, context: Out<Handle>) |call| {
        let stream = call.stream(stream)?;
        context.put(call.world().streams.get(stream)?.context)
    }

    fn cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz: (
        stream: Handle, context: Out<Handle>, green: Out<Handle>
    ) |call| {
        let stream = call.stream(stream)?;
        green.put_if_asked(0);
        context.put(call.world().streams.get(stream)?.context)
    }

    fn cuStreamGetDevice, cuStreamGetDevice_ptsz: (stream: Handle, device: Out<i32>) |call| {
        let stream = call.stream(stream)?;
        let context = call.world().streams.get(stream)?.context;
        device.put(call.world().contexts.get(context)?.device as i32)
    }

    fn cuStreamGetFlags, cuStreamGetFlags_ptsz: (stream: Handle, flags: Out<u32>) |call| {
        let stream = call.stream(stream)?;
        flags.put(u32::from(call.world().streams.get(stream)?.non_blocking))
    }

    fn cuStreamGetPriority, cuStreamGetPriority_ptsz: (stream: Handle, priority: Out<i32>) |call| {
        let stream = call.stream(stream)?;
        priority.put(call.world().streams.get(stream)?.priority)
    }

    fn cuLaunchHostFunc, cuLaunchHostFunc_ptsz: (
        stream: Handle, function: HostFn, data: u64
    ) |call| {
        host_function(call, stream, function, data)
    }

    fn cuLaunchHostFunc_v2, cuLaunchHostFunc_v2_ptsz: (
        stream: Handle, function: HostFn, data: u64, mode: u32
    ) |call| {
        host_function(call, stream, function, data)
    }

    fn cuStreamAddCallback, cuStreamAddCallback_ptsz: (
        stream: Handle, callback: StreamCallback, data: u64, flags: u32
    ) |call| {
        let function = callback.ok_or(Code::INVALID_VALUE)? as usize;
        let resolved = call.stream(stream)?;
        // Unlike a host function, a callback cannot be recorded.
        call.refuse_capture(resolved)?;
        let work = HostWork { function, data: data as usize, callback_stream: Some(stream) };
        call.submit_to(resolved, Work::Host(work), Order::Full).map(drop)
    }

    fn cuStreamWaitValue32, cuStreamWaitValue32_ptsz, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz: (
        stream: Handle, address: DevicePtr, value: u32, flags: u32
    ) |call| {
        wait_value(call, stream, flag(address, u64::from(value), 4, flags))
    }

    fn cuStreamWaitValue64, cuStreamWaitValue64_ptsz, cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz: (
        stream: Handle, address: DevicePtr, value: u64, flags: u32
    ) |call| {
        wait_value(call, stream, flag(address, value, 8, flags))
    }

    fn cuStreamWriteValue32, cuStreamWriteValue32_ptsz, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz: (
        stream: Handle, address: DevicePtr, value: u32, flags: u32
    ) |call| {
        write_value(call, stream, flag(address, u64::from(value), 4, 0))
    }

    fn cuStreamWriteValue64, cuStreamWriteValue64_ptsz, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz: (
        stream: Handle, address: DevicePtr, value: u64, flags: u32
    ) |call| {
        write_value(call, stream, flag(address, value, 8, 0))
    }

    fn cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz: (
        stream: Handle, count: u32, list: In<BatchMemOp>, flags: u32
    ) |call| {
        for work in memory_operations(call, list, count)? {
            call.submit(stream, work, Order::Full)?;
        }
        Ok(())
    }
}

/// The work of a batch of memory operations. Barriers and reductions are not modelled.
pub fn memory_operations(call: &mut Call, list: In<BatchMemOp>, count: u32) -> Outcome<Vec<Work>> {
    let mut works = Vec::new();
    for op in list.list(count as usize)? {
        let bytes = if op.operation <= 2 { 4 } else { 8 };
        let flag = flag(op.address, op.value, bytes, op.flags);
        let work = match op.operation {
            1 | 4 => Work::WaitValue(flag),
            2 | 5 => Work::WriteValue(flag),
            _ => continue,
        };
        check_flag(call, &flag)?;
        works.push(work);
    }
    Ok(works)
}

const NON_BLOCKING: u32 = 1;

fn create(call: &mut Call, stream: Out<Handle>, flags: u32, priority: i32) -> Outcome {
    let context = call.context()?;
    if flags > NON_BLOCKING {
        return Err(Code::INVALID_VALUE);
    }
    call.wait_for_context(context);
    let kind = StreamKind::Created;
    let created = call.world().create_stream(context, kind, flags == NON_BLOCKING, priority)?;
    call.world().make_object(created, context)?;
    stream.put(created)
}

fn host_function(call: &mut Call, stream: Handle, function: HostFn, data: u64) -> Outcome {
    let function = function.ok_or(Code::INVALID_VALUE)? as usize;
    let work = HostWork { function, data: data as usize, callback_stream: None };
    call.submit(stream, Work::Host(work), Order::Full).map(drop)
}

fn flag(address: DevicePtr, value: u64, bytes: u64, flags: u32) -> FlagWork {
    FlagWork { address, value, bytes, compare: flags & 3 }
}

fn wait_value(call: &mut Call, stream: Handle, flag: FlagWork) -> Outcome {
    check_flag(call, &flag)?;
    call.submit(stream, Work::WaitValue(flag), Order::Full).map(drop)
}

fn write_value(call: &mut Call, stream: Handle, flag: FlagWork) -> Outcome {
    check_flag(call, &flag)?;
    call.submit(stream, Work::WriteValue(flag), Order::Full).map(drop)
}

/// These calls check their address at once, unlike kernels.
fn check_flag(call: &mut Call, flag: &FlagWork) -> Outcome {
    // Measured: addresses in managed memory or in pool memory are rejected.
    let refused = |kind| matches!(kind, Kind::Managed | Kind::Pool { .. });
    let known = call.world().memory.find(flag.address).is_some_and(|found| !refused(found.kind));
    if known && flag.address.is_multiple_of(flag.bytes) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}
