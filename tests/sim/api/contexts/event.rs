//! Events.

use crate::abi::{Code, Handle, Outcome};
use crate::api::pointers::Out;
use crate::call::Call;
use crate::model::contexts::event::{Captured, Event};
use crate::model::graphs::graph::NodeKind;

driver! {
    fn cuEventCreate: (event: Out<Handle>, flags: u32) |call| {
        let context = call.context()?;
        call.wait_for_context(context);
        let timing = flags & DISABLE_TIMING == 0;
        let created = Event { context, timing, op: None, captured: None };
        event.put(call.world().events.insert(created))
    }

    fn cuEventDestroy, cuEventDestroy_v2: (event: Handle) |call| {
        let context = call.world().events.get(event)?.context;
        call.wait_for_context(context);
        call.world().events.remove(event).map(drop).ok_or(Code::INVALID_HANDLE)
    }

    fn cuEventRecord, cuEventRecord_ptsz: (event: Handle, stream: Handle) |call| {
        record(call, event, stream, 0)
    }

    fn cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz: (
        event: Handle, stream: Handle, flags: u32
    ) |call| {
        record(call, event, stream, flags)
    }

    fn cuEventQuery: (event: Handle) |call| {
        refuse_captured(call, event)?;
        call.forbid_unsafe()?;
        let (done, op, context) = {
            let event = call.world().events.get(event)?;
            (event.done(), event.op.clone(), event.context)
        };
        if !done {
            return Err(Code::NOT_READY);
        }
        if let Some(op) = op {
            let clock = op.state().clock.clone();
            call.learn(&clock);
            call.wait(&op);
        }
        context_error(call, context)
    }

    fn cuEventSynchronize: (event: Handle) |call| {
        refuse_captured(call, event)?;
        call.forbid_unsafe()?;
        let known = call.world().events.get(event)?;
        let (op, context) = (known.op.clone(), known.context);
        op.iter().for_each(|op| call.wait(op));
        call.world().trim_pools(None);
        call.world().collect(op.map(|op| op.source.stream), None);
        context_error(call, context)
    }

    fn cuEventElapsedTime, cuEventElapsedTime_v2: (
        milliseconds: Out<f32>, start: Handle, end: Handle
    ) |call| {
        let (from, to) = (end_of(call, start)?, end_of(call, end)?);
        milliseconds.put((to as f64 - from as f64) as f32 / 1e6)
    }
}

const DISABLE_TIMING: u32 = 2;
const EXTERNAL: u32 = 1;

fn record(call: &mut Call, event: Handle, stream: Handle, flags: u32) -> Outcome {
    let stream = call.stream(stream)?;
    let (known, timing) = {
        let event = call.world().events.get(event)?;
        (event.context, event.timing)
    };
    if call.world().capture_of(stream).is_some() {
        return record_captured(call, event, stream, flags);
    }
    // An event marks only work of its context, which includes the green contexts of that.
    let context = call.world().streams.get(stream)?.context;
    if call.world().owner_of_memory(known) != call.world().owner_of_memory(context) {
        return Err(Code::INVALID_HANDLE);
    }
    call.check_legacy(stream)?;
    call.wait_for_context(known);
    let at = call.ns();
    let op = call.world().record(stream, timing, at)?;
    let event = call.world().events.get_mut(event)?;
    (event.op, event.captured) = (Some(op), None);
    Ok(())
}

fn record_captured(call: &mut Call, event: Handle, stream: Handle, flags: u32) -> Outcome {
    let world = call.world();
    if flags & EXTERNAL != 0 {
        return world.capture_node(stream, NodeKind::EventRecord(event), false).map(drop);
    }
    let capture = world.capture_of(stream).ok_or(Code::ILLEGAL_STATE)?;
    if !world.captures.active[&capture].valid {
        return Err(Code::STREAM_CAPTURE_INVALIDATED);
    }
    let member = world.streams.get(stream)?.capture.as_ref().ok_or(Code::ILLEGAL_STATE)?;
    let nodes = member.terminals.iter().map(|edge| edge.node).collect();
    world.events.get_mut(event)?.captured = Some(Captured { capture, nodes });
    Ok(())
}

/// A query of an event that a capture recorded invalidates the capture.
fn refuse_captured(call: &mut Call, event: Handle) -> Outcome {
    let name = call.name;
    let world = call.world();
    match world.events.get(event)?.captured.clone() {
        None => Ok(()),
        Some(captured) => {
            world.kill_capture(captured.capture, name);
            Err(Code::CAPTURED_EVENT)
        }
    }
}

fn end_of(call: &mut Call, event: Handle) -> Outcome<u64> {
    refuse_captured(call, event)?;
    let event = call.world().events.get(event)?;
    let op = event.op.clone().filter(|_| event.timing).ok_or(Code::INVALID_HANDLE)?;
    let done = op.done();
    let (end, clock) = {
        let state = op.state();
        (state.end_ns, state.clock.clone())
    };
    call.learn(&clock);
    if done { Ok(end) } else { Err(Code::NOT_READY) }
}

fn context_error(call: &mut Call, context: Handle) -> Outcome {
    let error = call.world().contexts.find(context).and_then(|context| context.error);
    error.map_or(Ok(()), Err)
}
