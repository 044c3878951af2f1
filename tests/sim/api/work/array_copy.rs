//! Copies between memory and the bytes of an array, row by row, starting at an offset.

use super::copy::{Mode, copy, deep};
use crate::abi::{Copy3D, DevicePtr, Handle, Outcome, Side3D};
use crate::call::Call;

driver! {
    fn cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds: (
        array: Handle, offset: usize, src: u64, bytes: usize
    ) |call| {
        between(call, 0, (in_array(array, offset), in_memory(HOST, src), bytes), Mode::Sync)
    }

    fn cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz: (
        array: Handle, offset: usize, src: u64, bytes: usize, stream: Handle
    ) |call| {
        between(call, stream, (in_array(array, offset), in_memory(HOST, src), bytes), Mode::Async)
    }

    fn cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds: (
        dst: u64, array: Handle, offset: usize, bytes: usize
    ) |call| {
        between(call, 0, (in_memory(HOST, dst), in_array(array, offset), bytes), Mode::Sync)
    }

    fn cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz: (
        dst: u64, array: Handle, offset: usize, bytes: usize, stream: Handle
    ) |call| {
        between(call, stream, (in_memory(HOST, dst), in_array(array, offset), bytes), Mode::Async)
    }

    fn cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds: (
        array: Handle, offset: usize, src: DevicePtr, bytes: usize
    ) |call| {
        between(call, 0, (in_array(array, offset), in_memory(DEVICE, src), bytes), Mode::SyncOnDevice)
    }

    fn cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds: (
        dst: DevicePtr, array: Handle, offset: usize, bytes: usize
    ) |call| {
        between(call, 0, (in_memory(DEVICE, dst), in_array(array, offset), bytes), Mode::SyncOnDevice)
    }

    fn cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds: (
        dst: Handle, dst_offset: usize, src: Handle, src_offset: usize, bytes: usize
    ) |call| {
        between(call, 0, (in_array(dst, dst_offset), in_array(src, src_offset), bytes), Mode::SyncOnDevice)
    }
}

const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;

fn between(
    call: &mut Call,
    stream: Handle,
    (dst, src, bytes): (Side3D, Side3D, usize),
    mode: Mode,
) -> Outcome {
    let work = deep(call, &Copy3D { src, dst, width: bytes, height: 1, depth: 1 })?;
    copy(call, stream, work, mode)
}

fn in_array(array: Handle, offset: usize) -> Side3D {
    Side3D { kind: ARRAY, array, x: offset, ..in_memory(ARRAY, 0) }
}

fn in_memory(kind: u32, address: u64) -> Side3D {
    let (host, device) = (address, address);
    Side3D {
        x: 0,
        y: 0,
        z: 0,
        lod: 0,
        kind,
        host,
        device,
        array: 0,
        context: 0,
        pitch: 0,
        height: 0,
    }
}
