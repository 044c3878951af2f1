//! Objects that name memory: tensor maps, which the program keeps and passes by value, and texture
//! references, which belong to a module.

use crate::abi::{Code, DevicePtr, Handle, Outcome};
use crate::api::pointers::{In, Out, text};
use crate::call::Call;
use crate::model::memory::tensor_map;

driver! {
    fn cuTensorMapEncodeTiled: (
        map: Out<[u64; 16]>, kind: u32, rank: u32, address: u64, sizes: In<u64>, strides: In<u64>,
        boxes: In<u32>, element_strides: In<u32>, interleave: u32, swizzle: u32, promotion: u32,
        fill: u32
    ) |call| {
        encode(map, kind, rank, address, 1)
    }

    fn cuTensorMapEncodeIm2col: (
        map: Out<[u64; 16]>, kind: u32, rank: u32, address: u64, sizes: In<u64>, strides: In<u64>,
        lower: In<i32>, upper: In<i32>, channels: u32, pixels: u32, element_strides: In<u32>,
        interleave: u32, swizzle: u32, promotion: u32, fill: u32
    ) |call| {
        encode(map, kind, rank, address, 3)
    }

    fn cuTensorMapEncodeIm2colWide: (
        map: Out<[u64; 16]>, kind: u32, rank: u32, address: u64, sizes: In<u64>, strides: In<u64>,
        lower: i32, upper: i32, channels: u32, pixels: u32, element_strides: In<u32>,
        interleave: u32, mode: u32, swizzle: u32, promotion: u32, fill: u32
    ) |call| {
        encode(map, kind, rank, address, 3)
    }

    fn cuTensorMapReplaceAddress: (map: Out<[u64; 16]>, address: u64) |call| {
        let known = map.get()?;
        check(map, address)?;
        map.put(tensor_map::with_address(known, address))
    }

    fn cuModuleGetTexRef: (texture: Out<Handle>, module: Handle, name: In<u8>) |call| {
        let name = text(name)?;
        let state = call.world().modules.modules.get_mut(module)?;
        texture.put(*state.textures.get(&name).ok_or(Code::NOT_FOUND)?)
    }

    fn cuTexRefCreate: (texture: Out<Handle>) |call| {
        texture.put(call.world().texture_references.insert(0))
    }

    fn cuTexRefDestroy: (texture: Handle) |call| {
        call.world().texture_references.remove(texture).map(drop).ok_or(Code::INVALID_HANDLE)
    }

    fn cuTexRefSetAddress_v2: (
        offset: Out<usize>, texture: Handle, address: DevicePtr, bytes: usize
    ) |call| {
        offset.put_if_asked(0);
        bind(call, texture, address)
    }

    fn cuTexRefSetAddress2D_v2, cuTexRefSetAddress2D_v3: (
        texture: Handle, description: u64, address: DevicePtr, pitch: usize
    ) |call| {
        bind(call, texture, address)
    }

    fn cuTexRefGetAddress_v2: (address: Out<DevicePtr>, texture: Handle) |call| {
        address.put(*call.world().texture_references.get(texture)?)
    }
}

/// Makes the words of a tensor map. Its address and the address of its memory are aligned, and its
/// rank is limited (documented).
fn encode(map: Out<[u64; 16]>, kind: u32, rank: u32, address: u64, rank_min: u32) -> Outcome {
    const RANK_MAX: u32 = 5;
    check(map, address)?;
    if !(rank_min..=RANK_MAX).contains(&rank) {
        return Err(Code::INVALID_VALUE);
    }
    let mut words = [0; 16];
    words[1] = u64::from(kind) | u64::from(rank) << 32;
    map.put(tensor_map::with_address(words, address))
}

fn check(map: Out<[u64; 16]>, address: u64) -> Outcome {
    let aligned = map.address().is_multiple_of(64) && address.is_multiple_of(16);
    if map.is_null() || !aligned { Err(Code::INVALID_VALUE) } else { Ok(()) }
}

fn bind(call: &mut Call, texture: Handle, address: DevicePtr) -> Outcome {
    call.world().memory.find(address).ok_or(Code::INVALID_VALUE)?;
    *call.world().texture_references.get_mut(texture)? = address;
    Ok(())
}
