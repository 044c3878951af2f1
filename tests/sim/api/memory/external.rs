//! Memory and semaphores of other APIs, by descriptors. Other kinds of handles are not supported.

use crate::abi::{
    Code, ExternalBuffer, ExternalMemory, ExternalSemaphore, Handle, Outcome, SemaphoreParams,
};
use crate::api::pointers::{In, Out};
use crate::call::Call;
use crate::model::graphs::graph::NodeKind;
use crate::model::memory::foreign::{External, Part, Semaphore};
use crate::model::work::op::{FlagWork, Work};

driver! {
    fn cuImportExternalMemory: (memory: Out<Handle>, description: In<ExternalMemory>) |call| {
        let ExternalMemory { kind, handle: [handle, _], bytes, .. } = description.get()?;
        let file = handle as i32;
        if ![OPAQUE, DMA_BUF].contains(&kind) {
            return Err(Code::NOT_SUPPORTED);
        }
        if bytes == 0 || file < 0 {
            return Err(Code::INVALID_VALUE);
        }
        memory.put(call.world().foreign.memory.insert(External { file, bytes }))
    }

    fn cuExternalMemoryGetMappedBuffer: (
        address: Out<u64>, memory: Handle, description: In<ExternalBuffer>
    ) |call| {
        let ExternalBuffer { offset, bytes, .. } = description.get()?;
        let context = call.context()?;
        let world = call.world();
        let known = world.foreign.memory.get(memory)?;
        if bytes == 0 || offset.checked_add(bytes).is_none_or(|end| end > known.bytes) {
            return Err(Code::INVALID_VALUE);
        }
        let part = Part { file: known.file, offset, bytes };
        let context = world.contexts.get(context)?;
        let (ctx, device) = (context.id, context.device);
        address.put(world.map_foreign(&part, ctx, device)?)
    }

    fn cuImportExternalSemaphore: (
        semaphore: Out<Handle>, description: In<ExternalSemaphore>
    ) |call| {
        let ExternalSemaphore { kind, handle: [handle, _], .. } = description.get()?;
        let file = handle as i32;
        if ![OPAQUE, TIMELINE].contains(&kind) {
            return Err(Code::NOT_SUPPORTED);
        }
        let context = call.context()?;
        let world = call.world();
        let context = world.contexts.get(context)?;
        let (ctx, device) = (context.id, context.device);
        let address = world.map_foreign(&Part { file, offset: 0, bytes: 8 }, ctx, device)?;
        let made = Semaphore { file, address, is_timeline: kind == TIMELINE };
        semaphore.put(world.foreign.semaphores.insert(made))
    }

    fn cuDestroyExternalMemory, cuDestroyExternalSemaphore: (object: Handle) |call| {
        call.world().end_foreign(object)
    }

    fn cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync_ptsz: (
        semaphores: In<Handle>, params: In<SemaphoreParams>, count: u32, stream: Handle
    ) |call| {
        let node = signals(call, semaphores, params, count)?;
        call.submit_sequence(stream, node)
    }

    fn cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync_ptsz: (
        semaphores: In<Handle>, params: In<SemaphoreParams>, count: u32, stream: Handle
    ) |call| {
        let node = waits(call, semaphores, params, count)?;
        call.submit_sequence(stream, node)
    }
}

/// `CUexternalMemoryHandleType`, `CUexternalSemaphoreHandleType`.
const OPAQUE: u32 = 1;
const DMA_BUF: u32 = 9;
const TIMELINE: u32 = 9;

/// Comparisons of a wait.
const AT_LEAST: u32 = 0;
const EQUAL: u32 = 1;

pub fn signals(
    call: &mut Call,
    semaphores: In<Handle>,
    params: In<SemaphoreParams>,
    count: u32,
) -> Outcome<NodeKind> {
    let works = each(call, semaphores, params, count, |address, value, is_timeline| {
        let value = if is_timeline { value } else { 1 };
        vec![Work::WriteValue(FlagWork { address, value, bytes: 8, compare: 0 })]
    })?;
    Ok(NodeKind::Sequence { number: NodeKind::SIGNAL, works })
}

pub fn waits(
    call: &mut Call,
    semaphores: In<Handle>,
    params: In<SemaphoreParams>,
    count: u32,
) -> Outcome<NodeKind> {
    let works = each(call, semaphores, params, count, |address, value, is_timeline| {
        let flag = |value, compare| FlagWork { address, value, bytes: 8, compare };
        match is_timeline {
            true => vec![Work::WaitValue(flag(value, AT_LEAST))],
            false => vec![Work::WaitValue(flag(1, EQUAL)), Work::WriteValue(flag(0, 0))],
        }
    })?;
    Ok(NodeKind::Sequence { number: NodeKind::WAIT, works })
}

fn each(
    call: &mut Call,
    semaphores: In<Handle>,
    params: In<SemaphoreParams>,
    count: u32,
    work: impl Fn(u64, u64, bool) -> Vec<Work>,
) -> Outcome<Vec<Work>> {
    let (semaphores, params) = (semaphores.list(count as usize)?, params.list(count as usize)?);
    let mut works = Vec::new();
    for (semaphore, params) in semaphores.into_iter().zip(params) {
        let known = call.world().foreign.semaphores.get(semaphore)?;
        works.extend(work(known.address, params.value, known.is_timeline));
    }
    Ok(works)
}
