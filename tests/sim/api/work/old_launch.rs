//! Launches whose parameters were set by earlier calls, and one launch on several devices.

use super::launch;
use super::submit::Order;
use crate::abi::{Code, Handle, LaunchParams, Outcome};
use crate::api::pointers::In;
use crate::call::Call;
use crate::model::contexts::stream::StreamKind;
use crate::model::memory::raw;
use crate::model::work::op::{Deps, Work};

driver! {
    fn cuParamSetSize: (function: Handle, bytes: u32) |call| {
        set(call, function, bytes as usize, &[])
    }

    fn cuParamSeti: (function: Handle, offset: i32, value: u32) |call| {
        set(call, function, offset as usize, &value.to_le_bytes())
    }

    fn cuParamSetf: (function: Handle, offset: i32, value: f32) |call| {
        set(call, function, offset as usize, &value.to_le_bytes())
    }

    fn cuParamSetv: (function: Handle, offset: i32, value: u64, bytes: u32) |call| {
        if value == 0 {
            return Err(Code::INVALID_VALUE);
        }
        set(call, function, offset as usize, &raw::read(value, u64::from(bytes)))
    }

    fn cuFuncSetBlockShape: (function: Handle, x: i32, y: i32, z: i32) |call| {
        let fits = [x, y, z].iter().all(|size| *size > 0);
        call.world().modules.functions.get_mut(function)?.has_shape = fits;
        if fits { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuFuncSetSharedSize: (function: Handle, bytes: u32) |call| {
        call.world().modules.functions.get(function).map(drop)
    }

    fn cuLaunch: (function: Handle) |call| {
        launch_set(call, function, [1, 1], 0)
    }

    fn cuLaunchGrid: (function: Handle, width: i32, height: i32) |call| {
        launch_set(call, function, [width, height], 0)
    }

    fn cuLaunchGridAsync: (function: Handle, width: i32, height: i32, stream: Handle) |call| {
        launch_set(call, function, [width, height], stream)
    }

    fn cuLaunchCooperativeKernelMultiDevice: (
        list: In<LaunchParams>, count: u32, flags: u32
    ) |call| {
        let launches = list.list(count as usize)?;
        let streams = checked(call, &launches)?;
        let at = call.ns();
        // The kernels wait for the earlier work of all these streams, and the later work of each
        // waits for all kernels, unless the flags say otherwise.
        let mut before = Deps::default();
        for stream in &streams {
            add(&mut before, call.world().stream_deps(*stream)?);
        }
        let mut all = Vec::new();
        for (params, stream) in launches.iter().zip(&streams) {
            let arguments = (In::at(params.params), In::at(0));
            let work = Work::Kernel(launch::read(call, params.function, arguments)?);
            let world = call.world();
            let context = world.streams.get(*stream)?.context;
            world.launch_function(params.function, context)?;
            let mut deps = world.stream_deps(*stream)?;
            if flags & NO_WAIT_BEFORE == 0 {
                add(&mut deps, copied(&before));
            }
            all.push(world.submit_after(*stream, work, deps, at)?);
        }
        for stream in streams.iter().filter(|_| flags & NO_WAIT_AFTER == 0) {
            let mut deps = call.world().stream_deps(*stream)?;
            all.iter().for_each(|op| deps.after(op));
            call.world().submit_after(*stream, Work::Marker, deps, at)?;
        }
        Ok(())
    }
}

/// `CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC` and `.._POST_..`.
const NO_WAIT_BEFORE: u32 = 1;
const NO_WAIT_AFTER: u32 = 2;
const PARAMETER_BYTES_MAX: usize = 4096;

/// Writes to the parameters of later launches of a function.
fn set(call: &mut Call, function: Handle, offset: usize, bytes: &[u8]) -> Outcome {
    let end = offset.checked_add(bytes.len()).filter(|end| *end <= PARAMETER_BYTES_MAX);
    let end = end.ok_or(Code::INVALID_VALUE)?;
    let set = &mut call.world().modules.functions.get_mut(function)?.set_parameters;
    set.resize(set.len().max(end), 0);
    set[offset..end].copy_from_slice(bytes);
    Ok(())
}

fn launch_set(call: &mut Call, function: Handle, grid: [i32; 2], stream: Handle) -> Outcome {
    let state = call.world().modules.functions.get(function)?;
    let (has_shape, block) = (state.has_shape, state.set_parameters.clone());
    let bytes = state.parameters.last().map_or(0, |last| last.offset + last.bytes);
    if !has_shape || grid.iter().any(|size| *size <= 0) || block.len() < bytes {
        return Err(Code::INVALID_VALUE);
    }
    let extra = [1, block.as_ptr() as u64, 0, 0];
    let arguments = (In::at(0), In::at(extra.as_ptr() as u64));
    launch::launch(call, function, stream, arguments, false, Order::Full)
}

/// Returns the streams of launches on several devices: each on a stream of its own device, none of
/// which captures (documented).
fn checked(call: &mut Call, launches: &[LaunchParams]) -> Outcome<Vec<Handle>> {
    let (mut streams, mut devices) = (Vec::new(), Vec::new());
    for params in launches {
        let stream = call.stream(params.stream)?;
        call.refuse_capture(stream)?;
        let world = call.world();
        let state = world.streams.get(stream)?;
        let device = world.contexts.get(state.context)?.device;
        let is_second = devices.contains(&device);
        if state.kind != StreamKind::Created || is_second || params.grid.contains(&0) {
            return Err(Code::INVALID_VALUE);
        }
        devices.push(device);
        streams.push(stream);
    }
    if streams.is_empty() { Err(Code::INVALID_VALUE) } else { Ok(streams) }
}

fn add(deps: &mut Deps, more: Deps) {
    deps.clock.join(&more.clock);
    deps.ends.extend(more.ends);
}

fn copied(deps: &Deps) -> Deps {
    Deps { clock: deps.clock.clone(), ends: deps.ends.clone(), ..Deps::default() }
}
