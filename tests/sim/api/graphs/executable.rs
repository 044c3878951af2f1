//! Executable graphs.

use super::node::{any, fill, host, kernel};
use crate::abi::{
    Code, Copy3D, GraphNodeParams, Handle, HostNodeParams, InstantiateParams, KernelNodeParams,
    MemsetNodeParams, Outcome, UpdateResult,
};
use crate::api::pointers::{In, Out};
use crate::api::work::copy;
use crate::call::Call;
use crate::model::graphs::graph::NodeKind;
use crate::model::work::op::Work;

driver! {
    fn cuGraphInstantiate, cuGraphInstantiate_v2: (
        executable: Out<Handle>, graph: Handle, error_node: Out<Handle>, log: Out<u8>, room: usize
    ) |call| {
        error_node.put_if_asked(0);
        call.forbid_unsafe()?;
        executable.put(instantiate(call, graph, 0)?)
    }

    fn cuGraphInstantiateWithFlags: (executable: Out<Handle>, graph: Handle, flags: u64) |call| {
        call.forbid_unsafe()?;
        executable.put(instantiate(call, graph, flags)?)
    }

    fn cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz: (
        executable: Out<Handle>, graph: Handle, params: Out<InstantiateParams>
    ) |call| {
        call.forbid_unsafe()?;
        let known = params.get()?;
        let made = instantiate(call, graph, known.flags)?;
        if known.flags & UPLOAD != 0 {
            let uploaded = upload(call, made, known.upload_stream);
            if uploaded.is_err() {
                call.world().destroy_executable(made)?;
                call.world().end_object(made);
                return uploaded;
            }
        }
        params.put(InstantiateParams { error_node: 0, result: 0, ..known })?;
        executable.put(made)
    }

    fn cuGraphExecDestroy: (executable: Handle) |call| {
        call.forbid_unsafe()?;
        call.world().destroy_executable(executable)?;
        call.world().end_object(executable);
        Ok(())
    }

    fn cuGraphExecGetFlags: (executable: Handle, flags: Out<u64>) |call| {
        flags.put(find(call, executable)?.flags)
    }

    fn cuGraphExecGetId: (executable: Handle, id: Out<u32>) |call| {
        id.put(find(call, executable)?.id as u32)
    }

    fn cuGraphUpload, cuGraphUpload_ptsz: (executable: Handle, stream: Handle) |call| {
        upload(call, executable, stream)
    }

    fn cuGraphLaunch, cuGraphLaunch_ptsz: (executable: Handle, stream: Handle) |call| {
        find(call, executable)?;
        let stream = call.stream(stream)?;
        if call.world().capture_of(stream).is_some() {
            // Recording a launch needs the graph that made the executable; not modelled.
            return Err(Code::NOT_SUPPORTED);
        }
        call.check_legacy(stream)?;
        let context = call.world().streams.get(stream)?.context;
        call.wait_for_context(context);
        call.world().make_ready(executable, context)?;
        let at = call.ns();
        call.world().launch_graph(executable, stream, at)
    }

    fn cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2: (
        executable: Handle, node: Handle, params: In<KernelNodeParams>
    ) |call| {
        let kind = kernel(call, params.get()?)?;
        set(call, executable, node, kind)
    }

    fn cuGraphExecNodeSetParams: (
        executable: Handle, node: Handle, params: Out<GraphNodeParams>
    ) |call| {
        let kind = any(call, params)?;
        set(call, executable, node, kind)
    }

    fn cuGraphExecMemcpyNodeSetParams: (
        executable: Handle, node: Handle, params: In<Copy3D>, context: Handle
    ) |call| {
        let kind = NodeKind::Work(Work::Copy(copy::deep(call, &params.get()?)?));
        set(call, executable, node, kind)
    }

    fn cuGraphExecMemsetNodeSetParams: (
        executable: Handle, node: Handle, params: In<MemsetNodeParams>, context: Handle
    ) |call| {
        let kind = fill(params.get()?);
        set(call, executable, node, kind)
    }

    fn cuGraphExecHostNodeSetParams: (
        executable: Handle, node: Handle, params: In<HostNodeParams>
    ) |call| {
        let kind = host(params.get()?)?;
        set(call, executable, node, kind)
    }

    fn cuGraphNodeSetEnabled: (executable: Handle, node: Handle, enabled: u32) |call| {
        step(call, executable, node)?.enabled = enabled != 0;
        Ok(())
    }

    fn cuGraphNodeGetEnabled: (executable: Handle, node: Handle, enabled: Out<u32>) |call| {
        let known = step(call, executable, node)?.enabled;
        enabled.put(u32::from(known))
    }

    fn cuGraphExecUpdate: (
        executable: Handle, graph: Handle, error_node: Out<Handle>, result: Out<u32>
    ) |call| {
        error_node.put_if_asked(0);
        let outcome = update(call, executable, graph);
        result.put_if_asked(u32::from(outcome.is_err()));
        outcome
    }

    fn cuGraphExecUpdate_v2: (executable: Handle, graph: Handle, result: Out<UpdateResult>) |call| {
        let outcome = update(call, executable, graph);
        let failed = u32::from(outcome.is_err());
        result.put_if_asked(UpdateResult { result: failed, error_node: 0, error_from_node: 0 });
        outcome
    }
}

use crate::model::graphs::executable::{Executable, Step};

/// Instantiates a graph. The executable takes memory only if a context is current.
fn instantiate(call: &mut Call, graph: Handle, flags: u64) -> Outcome<Handle> {
    let made = call.world().instantiate(graph, flags)?;
    if let Ok(context) = call.context() {
        call.world().make_object(made, context)?;
    }
    Ok(made)
}

fn upload(call: &mut Call, executable: Handle, stream: Handle) -> Outcome {
    find(call, executable)?;
    let stream = call.stream(stream)?;
    let context = call.world().streams.get(stream)?.context;
    call.world().make_ready(executable, context)
}

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
const UPLOAD: u64 = 2;

fn find(call: &mut Call, executable: Handle) -> Outcome<&mut Executable> {
    call.world().graphs.executables.find_mut(executable).ok_or(Code::INVALID_VALUE)
}

fn step(call: &mut Call, executable: Handle, node: Handle) -> Outcome<&mut Step> {
    let steps = &mut find(call, executable)?.steps;
    steps.iter_mut().find(|step| step.origin == node).ok_or(Code::INVALID_VALUE)
}

fn set(call: &mut Call, executable: Handle, node: Handle, kind: NodeKind) -> Outcome {
    let step = step(call, executable, node)?;
    if step.kind.type_number() != kind.type_number() {
        return Err(Code::INVALID_VALUE);
    }
    step.kind = kind;
    Ok(())
}

/// Replaces the work by that of a graph of the same shape, and the objects that kept the old work
/// alive by those of that graph. A graph of another shape has no effect.
fn update(call: &mut Call, executable: Handle, graph: Handle) -> Outcome {
    let made = call.world().instantiate(graph, 0)?;
    let new = find(call, made)?;
    let (steps, objects) = (std::mem::take(&mut new.steps), new.objects.clone());
    call.world().destroy_executable(made)?;
    let shape = |steps: &[Step]| -> Vec<_> {
        steps.iter().map(|step| (step.kind.type_number(), step.before.clone())).collect()
    };
    let own = find(call, executable)?;
    if shape(&own.steps) != shape(&steps) {
        return Err(Code::GRAPH_EXEC_UPDATE_FAILURE);
    }
    for (mine, new) in own.steps.iter_mut().zip(steps) {
        mine.kind = new.kind;
    }
    own.objects = objects;
    Ok(())
}
