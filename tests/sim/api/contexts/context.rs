//! Contexts: creation, the stack of each thread, and the barrier calls.

use super::device::check;
use crate::abi::{Code, ContextParams, Handle, Outcome};
use crate::api::pointers::{In, Out};
use crate::call::Call;
use crate::model::contexts::context::Context;

driver! {
    fn cuCtxCreate, cuCtxCreate_v2: (context: Out<Handle>, flags: u32, device: i32) |call| {
        create(call, context, flags, device)
    }

    fn cuCtxCreate_v3: (
        context: Out<Handle>, affinity: u64, count: i32, flags: u32, device: i32
    ) |call| {
        create(call, context, flags, device)
    }

    fn cuCtxCreate_v4: (
        context: Out<Handle>, parameters: In<ContextParams>, flags: u32, device: i32
    ) |call| {
        create(call, context, flags, device)?;
        if !parameters.is_null() && parameters.get()?.graphics != 0 {
            let created = context.get()?;
            call.world().contexts.get_mut(created)?.is_graphics = true;
        }
        Ok(())
    }

    fn cuCtxDestroy, cuCtxDestroy_v2: (context: Handle) |call| {
        let state = find(call, context)?;
        if state.primary {
            return Err(Code::INVALID_CONTEXT);
        }
        destroy(call, context)
    }

    fn cuCtxAttach: (context: Out<Handle>, flags: u32) |call| {
        let current = call.context()?;
        call.world().contexts.get_mut(current)?.attached += 1;
        context.put(current)
    }

    fn cuCtxDetach: (context: Handle) |call| {
        find(call, context)?;
        match &mut call.world().contexts.get_mut(context)?.attached {
            0 => destroy(call, context),
            attached => {
                *attached -= 1;
                Ok(())
            }
        }
    }

    fn cuCtxPushCurrent, cuCtxPushCurrent_v2: (context: Handle) |call| {
        if find(call, context).is_err() && context != 0 {
            // A real driver would access the former context.
            call.world().report.problem("sim: a context that is gone is pushed".into());
        }
        find(call, context)?;
        stack(call).push(context);
        Ok(())
    }

    fn cuCtxPopCurrent, cuCtxPopCurrent_v2: (context: Out<Handle>) |call| {
        let top = stack(call).pop().ok_or(Code::INVALID_CONTEXT)?;
        context.put_if_asked(top);
        Ok(())
    }

    fn cuCtxSetCurrent: (context: Handle) |call| {
        if context != 0 {
            find(call, context)?;
        }
        let stack = stack(call);
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
        Ok(())
    }

    fn cuCtxGetCurrent: (context: Out<Handle>) |call| {
        let top = stack(call).last().copied().unwrap_or(0);
        context.put(top)
    }

    fn cuCtxGetDevice: (device: Out<i32>) |call| {
        let context = any_current(call)?;
        device.put(find(call, context)?.device as i32)
    }

    fn cuCtxGetDevice_v2: (device: Out<i32>, context: Handle) |call| {
        let context = if context == 0 { any_current(call)? } else { context };
        device.put(find(call, context)?.device as i32)
    }

    fn cuCtxGetId: (context: Handle, id: Out<u64>) |call| {
        let context = if context == 0 { any_current(call)? } else { context };
        id.put(find(call, context)?.id)
    }

    fn cuCtxGetFlags: (flags: Out<u32>) |call| {
        let context = any_current(call)?;
        flags.put(find(call, context)?.flags)
    }

    fn cuCtxSetFlags: (flags: u32) |call| {
        let context = call.context()?;
        call.world().contexts.get_mut(context)?.flags = flags;
        Ok(())
    }

    fn cuCtxGetApiVersion: (context: Handle, version: Out<u32>) |call| {
        version.put(3020)
    }

    fn cuCtxGetLimit: (bytes: Out<usize>, limit: u32) |call| {
        let context = call.context()?;
        bytes.put(find(call, context)?.limits.get(&limit).copied().unwrap_or(1024))
    }

    fn cuCtxSetLimit: (limit: u32, bytes: usize) |call| {
        let context = call.context()?;
        call.world().set_limit(context, limit, bytes)
    }

    fn cuCtxGetStreamPriorityRange: (least: Out<i32>, greatest: Out<i32>) |call| {
        least.put_if_asked(0);
        greatest.put_if_asked(-5);
        Ok(())
    }

    fn cuCtxGetCacheConfig: (config: Out<u32>) |call| {
        config.put(0)
    }

    fn cuCtxSetCacheConfig: (config: u32) |call| {
        call.context().map(drop)
    }

    fn cuCtxResetPersistingL2Cache: () |call| {
        call.context().map(drop)
    }

    fn cuCtxSynchronize: () |call| {
        let context = call.context()?;
        synchronize(call, context)
    }

    fn cuCtxSynchronize_v2: (context: Handle) |call| {
        let context = if context == 0 { call.context()? } else { context };
        synchronize(call, context)
    }

    fn cuCtxRecordEvent: (context: Handle, event: Handle) |call| {
        record_event(call, context, event)
    }

    fn cuCtxWaitEvent: (context: Handle, event: Handle) |call| {
        wait_event(call, context, event)
    }

    fn cuCtxEnablePeerAccess: (peer: Handle, flags: u32) |call| {
        let own = call.context()?;
        let (own_device, peer_device) = (find(call, own)?.device, find(call, peer)?.device);
        if own_device == peer_device {
            return Err(Code::PEER_ACCESS_UNSUPPORTED);
        }
        match call.world().contexts.get_mut(own)?.peers.insert(peer) {
            true => Ok(()),
            false => Err(Code::PEER_ACCESS_ALREADY_ENABLED),
        }
    }

    fn cuCtxDisablePeerAccess: (peer: Handle) |call| {
        let own = call.context()?;
        match call.world().contexts.get_mut(own)?.peers.remove(&peer) {
            true => Ok(()),
            false => Err(Code::PEER_ACCESS_NOT_ENABLED),
        }
    }
}

/// Returns a context by handle, ignoring its sticky error: queries succeed all the same.
pub fn find(call: &mut Call, context: Handle) -> Outcome<&Context> {
    call.world().contexts.find(context).ok_or(Code::INVALID_CONTEXT)
}

/// Records the event on all streams of the context, or of a green one.
pub fn record_event(call: &mut Call, context: Handle, event: Handle) -> Outcome {
    let id = find(call, context)?.id;
    call.world().error_of(id).map_or(Ok(()), Err)?;
    let name = call.name;
    call.world().events.get(event)?;
    call.world().forbid_in_context(context, name)?;
    call.wait_for_context(context);
    let at = call.ns();
    let op = call.world().mark_context(context, at)?;
    let event = call.world().events.get_mut(event)?;
    (event.op, event.captured) = (Some(op), None);
    Ok(())
}

/// Makes all later work of the context, or of a green one, wait for the event.
pub fn wait_event(call: &mut Call, context: Handle, event: Handle) -> Outcome {
    find(call, context)?;
    let name = call.name;
    let op = call.world().events.get(event)?.op.clone();
    call.world().forbid_in_context(context, name)?;
    let at = call.ns();
    match op {
        Some(op) => call.world().bar_context(context, &op, at),
        None => Ok(()),
    }
}

fn any_current(call: &mut Call) -> Outcome<Handle> {
    stack(call).last().copied().ok_or(Code::INVALID_CONTEXT)
}

fn stack(call: &mut Call) -> &mut Vec<Handle> {
    let thread = call.thread;
    &mut call.world().threads.entry(thread).or_default().contexts
}

pub fn create(call: &mut Call, context: Out<Handle>, flags: u32, device: i32) -> Outcome {
    let device = check(device)?;
    let handle = call.world().create_context(device, false, flags)?;
    stack(call).push(handle);
    context.put(handle)
}

/// Waits for all work of the context, and destroys it.
fn destroy(call: &mut Call, context: Handle) -> Outcome {
    let deps = call.world().context_deps(context)?;
    call.wait_all(deps);
    call.world().destroy_context(context);
    let stack = stack(call);
    if stack.last() == Some(&context) {
        stack.pop();
    }
    Ok(())
}

fn synchronize(call: &mut Call, context: Handle) -> Outcome {
    let name = call.name;
    call.world().forbid_in_context(context, name)?;
    let deps = call.world().context_deps(context)?;
    call.wait_all(deps);
    call.world().trim_pools(None);
    let id = find(call, context)?.id;
    call.world().collect(None, Some(id));
    find(call, context)?.error.map_or(Ok(()), Err)
}
