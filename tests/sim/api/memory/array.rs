//! Arrays and texture objects: opaque, backed by real bytes.

use crate::abi::{ArrayDescription, Code, Handle, Outcome};
use crate::api::pointers::{In, Out};
use crate::call::Call;
use crate::model::memory::allocations::Kind;
use crate::model::memory::array::Array;

/// The form without depth.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FlatDescription {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

driver! {
    fn cuArrayCreate_v2: (array: Out<Handle>, description: In<FlatDescription>) |call| {
        let FlatDescription { width, height, format, channels } = description.get()?;
        let description = ArrayDescription { width, height, depth: 0, format, channels, flags: 0 };
        array.put(create(call, description)?)
    }

    fn cuArray3DCreate_v2: (array: Out<Handle>, description: In<ArrayDescription>) |call| {
        array.put(create(call, description.get()?)?)
    }

    fn cuArrayGetDescriptor_v2: (description: Out<FlatDescription>, array: Handle) |call| {
        let known = call.world().arrays.get(array)?.description;
        let ArrayDescription { width, height, format, channels, .. } = known;
        description.put(FlatDescription { width, height, format, channels })
    }

    fn cuArray3DGetDescriptor_v2: (description: Out<ArrayDescription>, array: Handle) |call| {
        description.put(call.world().arrays.get(array)?.description)
    }

    fn cuArrayDestroy: (array: Handle) |call| {
        let base = call.world().arrays.get(array)?.base;
        // Measured: it waits.
        let context = call.context()?;
        super::device_memory::wait_holding(call, &[context])?;
        call.world().arrays.remove(array);
        call.world().discard(base);
        Ok(())
    }

    fn cuTexObjectCreate: (
        texture: Out<u64>, resource: In<[u64; 8]>, description: u64, view: u64
    ) |call| {
        let resource = resource.get()?;
        texture.put(call.world().textures.insert(resource))
    }

    fn cuTexObjectDestroy: (texture: u64) |call| {
        call.world().textures.remove(texture).map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuSurfObjectCreate: (surface: Out<u64>, resource: In<[u64; 8]>) |call| {
        let resource = resource.get()?;
        surface.put(call.world().textures.insert(resource))
    }

    fn cuSurfObjectDestroy: (surface: u64) |call| {
        call.world().textures.remove(surface).map(drop).ok_or(Code::INVALID_VALUE)
    }
}

fn create(call: &mut Call, description: ArrayDescription) -> Outcome<Handle> {
    let base = super::device_memory::alloc(call, Array::bytes(&description), Kind::Array)?;
    Ok(call.world().arrays.insert(Array { description, base }))
}
