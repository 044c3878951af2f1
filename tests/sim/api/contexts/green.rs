//! Green contexts, as far as order is concerned. Each has its own streams and a reference to the
//! primary context, which owns the memory. Their part of the device is ignored.

use super::context::{record_event, wait_event};
use super::device::{check, primary_of, release_primary};
use crate::abi::{Code, Handle};
use crate::api::pointers::Out;
use crate::model::contexts::stream::StreamKind;

driver! {
    fn cuGreenCtxCreate: (green: Out<Handle>, resources: u64, device: i32, flags: u32) |call| {
        let device = check(device)?;
        let primary = primary_of(call, device)?;
        let world = call.world();
        let primary_id = world.contexts.get(primary)?.id;
        let context = world.create_context(device, false, 0)?;
        let state = world.contexts.get_mut(context)?;
        (state.part_of, state.refers_to) = (Some(primary), primary_id);
        world.primaries[device].retained += 1;
        green.put(context)
    }

    fn cuGreenCtxDestroy: (green: Handle) |call| {
        let state = call.world().contexts.find(green).ok_or(Code::INVALID_VALUE)?;
        let (primary, id, device) = (state.part_of, state.refers_to, state.device);
        let primary = primary.ok_or(Code::INVALID_VALUE)?;
        call.world().detach_streams(green)?;
        call.world().destroy_context(green);
        // After a reset, another context may have this handle.
        let is_there = call.world().contexts.find(primary).is_some_and(|known| known.id == id);
        if is_there { release_primary(call, device) } else { Ok(()) }
    }

    fn cuCtxFromGreenCtx: (context: Out<Handle>, green: Handle) |call| {
        let part = call.world().contexts.find(green).and_then(|context| context.part_of);
        part.ok_or(Code::INVALID_VALUE)?;
        context.put(green)
    }

    fn cuGreenCtxStreamCreate: (
        stream: Out<Handle>, green: Handle, flags: u32, priority: i32
    ) |call| {
        call.world().contexts.find(green).ok_or(Code::INVALID_VALUE)?;
        stream.put(call.world().create_stream(green, StreamKind::Created, true, priority)?)
    }

    fn cuGreenCtxRecordEvent: (green: Handle, event: Handle) |call| {
        record_event(call, green, event)
    }

    fn cuGreenCtxWaitEvent: (green: Handle, event: Handle) |call| {
        wait_event(call, green, event)
    }
}
