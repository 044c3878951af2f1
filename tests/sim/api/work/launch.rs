//! Kernel launches.

use super::submit::Order;
use crate::abi::{Code, Handle, LaunchAttribute, LaunchConfig, Outcome};
use crate::api::pointers::In;
use crate::call::Call;
use crate::model::contexts::module::Parameter;
use crate::model::memory::tensor_map;
use crate::model::work::kernels::{Builtin, Launch};
use crate::model::work::op::Work;

driver! {
    fn cuLaunchKernel, cuLaunchKernel_ptsz: (
        function: Handle,
        grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32, stream: Handle, parameters: In<u64>, extra: In<u64>
    ) |call| {
        let empty = [grid_x, grid_y, grid_z, block_x, block_y, block_z].contains(&0);
        launch(call, function, stream, (parameters, extra), empty, Order::Full)
    }

    fn cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz: (
        function: Handle,
        grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32, stream: Handle, parameters: In<u64>
    ) |call| {
        launch(call, function, stream, (parameters, In::at(0)), false, Order::Full)
    }

    fn cuLaunchKernelEx, cuLaunchKernelEx_ptsz: (
        config: In<LaunchConfig>, function: Handle, parameters: In<u64>, extra: In<u64>
    ) |call| {
        let config = config.get()?;
        let empty = config.grid.contains(&0) || config.block.contains(&0);
        let attributes =
            In::<LaunchAttribute>::at(config.attributes as u64).list(config.attribute_count as usize)?;
        let early = |attribute: &LaunchAttribute| {
            attribute.id == PROGRAMMATIC_SERIALIZATION && attribute.value[0] as u32 != 0
        };
        let order = if attributes.iter().any(early) { Order::Early } else { Order::Full };
        launch(call, function, config.stream, (parameters, extra), empty, order)
    }
}

pub fn launch(
    call: &mut Call,
    function: Handle,
    stream: Handle,
    arguments: (In<u64>, In<u64>),
    empty: bool,
    order: Order,
) -> Outcome {
    if empty {
        return Err(Code::INVALID_VALUE);
    }
    let launch = read(call, function, arguments)?;
    let resolved = call.stream(stream)?;
    // Measured: a function of a module belongs to the context that loaded the module.
    let world = call.world();
    let module = world.modules.functions.get(function)?.module;
    let ctx = world.modules.modules.get(module)?.ctx;
    if ctx != 0 && ctx != world.streams.get(resolved)?.ctx {
        return Err(Code::INVALID_HANDLE);
    }
    let context = call.context()?;
    call.world().launch_function(function, context)?;
    call.submit(stream, Work::Kernel(launch), order).map(drop)
}

/// Reads the arguments of a function, of whatever sizes, one word each.
pub fn read(call: &mut Call, function: Handle, arguments: (In<u64>, In<u64>)) -> Outcome<Launch> {
    let known = call.world().modules.functions.get(function)?;
    let (builtin, parameters) = (known.builtin, known.parameters.clone());
    let (list, extra) = arguments;
    let args = match (parameters.is_empty(), extra.is_null()) {
        (true, _) => Vec::new(),
        (false, false) => from_block(extra, &parameters)?,
        (false, true) => {
            let places = list.list(parameters.len())?;
            let words = places.iter().zip(&parameters);
            words.map(|(place, parameter)| word(*place, parameter.bytes)).collect::<Outcome<_>>()?
        }
    };
    check_count(builtin, args.len())?;
    let args = resolved(call, function, args)?;
    Ok(Launch { builtin, args })
}

/// Replaces what names memory by its address: a texture object, a tensor map, or the texture
/// reference of the module.
fn resolved(call: &mut Call, function: Handle, mut args: Vec<u64>) -> Outcome<Vec<u64>> {
    let world = call.world();
    let known = world.modules.functions.get(function)?;
    match known.builtin {
        Builtin::Fetch => args[1] = world.textures.get(args[1])?[1],
        Builtin::FetchTile => args[1] = tensor_map::address_in(args[1]),
        Builtin::FetchBound => {
            let texture = world.modules.modules.get(known.module)?.textures.values().next();
            let texture = *texture.ok_or(Code::INVALID_HANDLE)?;
            args.insert(1, *world.texture_references.get(texture)?);
        }
        _ => {}
    }
    Ok(args)
}

/// Reads arguments in the other form: one block, described by a short list of tagged pointers.
fn from_block(extra: In<u64>, parameters: &[Parameter]) -> Outcome<Vec<u64>> {
    let items = extra.list(4)?;
    let place = items.chunks(2).find(|pair| pair[0] == PARAM_BUFFER_POINTER);
    let start = place.ok_or(Code::INVALID_VALUE)?[1];
    parameters.iter().map(|p| word(start + p.offset as u64, p.bytes)).collect()
}

/// A parameter's value, or its first word; of a packed struct of a byte and an address, the
/// address, and of a long table the last one.
fn word(place: u64, bytes: usize) -> Outcome<u64> {
    match bytes {
        1 => In::<u8>::at(place).get().map(u64::from),
        2..=3 => In::<u16>::at(place).get().map(u64::from),
        4..=7 => In::<u32>::at(place).get().map(u64::from),
        PACKED_BYTES => In::<u64>::at(place + 1).get(),
        TABLE_BYTES => In::<u64>::at(place + TABLE_BYTES as u64 - 8).get(),
        _ => In::<u64>::at(place).get(),
    }
}

fn check_count(builtin: Builtin, count: usize) -> Outcome {
    let enough = builtin == Builtin::Opaque || count >= builtin.parameter_count();
    if enough { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

const PACKED_BYTES: usize = 9;
const TABLE_BYTES: usize = 4080;
const PROGRAMMATIC_SERIALIZATION: u32 = 6;
const PARAM_BUFFER_POINTER: u64 = 1;
