//! Green contexts, as far as order goes: streams of their own, memory of the primary context. Which part
//! of the device they have is not looked at.

use super::context::{record_event, wait_event};
use super::device::check;
use super::pointers::Out;
use crate::abi::{Code, Handle};
use crate::model::stream::StreamKind;

driver! {
    fn cuGreenCtxCreate: (green: Out<Handle>, resources: u64, device: i32, flags: u32) |call| {
        let device = check(device)?;
        let world = call.world();
        let primary = world.primaries[device].context;
        world.contexts.get(primary)?;
        let context = world.create_context(device, false, 0)?;
        world.contexts.get_mut(context)?.part_of = Some(primary);
        green.put(context)
    }

    fn cuGreenCtxDestroy: (green: Handle) |call| {
        let part = call.world().contexts.find(green).and_then(|context| context.part_of);
        part.ok_or(Code::INVALID_VALUE)?;
        call.world().destroy_context(green);
        Ok(())
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
