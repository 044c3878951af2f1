//! Copies.
//!
//! A call reads the bytes of ordinary host memory immediately, as a driver that stages them may. It
//! waits for a copy into ordinary host memory. A batch reads and writes host memory when it runs
//! (measured). Pinned memory is read and written when the copy ends, whatever the program does to
//! it meanwhile.

use std::sync::Arc;

use super::submit::Order;
use crate::abi::{Code, Copy2D, Copy3D, DevicePtr, Handle, Outcome, Side3D};
use crate::api::pointers::In;
use crate::call::Call;
use crate::model::contexts::stream::StreamKind;
use crate::model::memory::allocations::Kind;
use crate::model::memory::raw;
use crate::model::work::op::{CopyWork, Plane, Work};

driver! {
    fn cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz: (
        dst: DevicePtr, src: u64, bytes: usize, stream: Handle
    ) |call| {
        known(call, dst, bytes)?;
        copy(call, stream, CopyWork::linear(dst, src, bytes as u64), Mode::Async)
    }

    fn cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz: (
        dst: u64, src: DevicePtr, bytes: usize, stream: Handle
    ) |call| {
        known(call, src, bytes)?;
        copy(call, stream, CopyWork::linear(dst, src, bytes as u64), Mode::Async)
    }

    fn cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz: (
        dst: DevicePtr, src: DevicePtr, bytes: usize, stream: Handle
    ) |call| {
        known(call, dst, bytes)?;
        known(call, src, bytes)?;
        copy(call, stream, CopyWork::linear(dst, src, bytes as u64), Mode::Async)
    }

    fn cuMemcpyAsync, cuMemcpyAsync_ptsz: (dst: u64, src: u64, bytes: usize, stream: Handle) |call| {
        copy(call, stream, CopyWork::linear(dst, src, bytes as u64), Mode::Async)
    }

    fn cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds: (dst: DevicePtr, src: u64, bytes: usize) |call| {
        known(call, dst, bytes)?;
        copy(call, 0, CopyWork::linear(dst, src, bytes as u64), Mode::Sync)
    }

    fn cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds: (dst: u64, src: DevicePtr, bytes: usize) |call| {
        known(call, src, bytes)?;
        copy(call, 0, CopyWork::linear(dst, src, bytes as u64), Mode::Sync)
    }

    fn cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds: (dst: DevicePtr, src: DevicePtr, bytes: usize) |call| {
        known(call, dst, bytes)?;
        known(call, src, bytes)?;
        copy(call, 0, CopyWork::linear(dst, src, bytes as u64), Mode::SyncOnDevice)
    }

    fn cuMemcpy, cuMemcpy_ptds: (dst: u64, src: u64, bytes: usize) |call| {
        copy(call, 0, CopyWork::linear(dst, src, bytes as u64), Mode::Sync)
    }

    fn cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz: (
        dst: DevicePtr, dst_context: Handle, src: DevicePtr, src_context: Handle, bytes: usize,
        stream: Handle
    ) |call| {
        known(call, dst, bytes)?;
        known(call, src, bytes)?;
        copy(call, stream, CopyWork::linear(dst, src, bytes as u64), Mode::Async)
    }

    fn cuMemcpyPeer, cuMemcpyPeer_ptds: (
        dst: DevicePtr, dst_context: Handle, src: DevicePtr, src_context: Handle, bytes: usize
    ) |call| {
        known(call, dst, bytes)?;
        known(call, src, bytes)?;
        copy(call, 0, CopyWork::linear(dst, src, bytes as u64), Mode::SyncOnDevice)
    }

    fn cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz: (shape: In<Copy2D>, stream: Handle) |call| {
        let work = flat(call, &shape.get()?)?;
        copy(call, stream, work, Mode::Async)
    }

    fn cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds: (
        shape: In<Copy2D>
    ) |call| {
        let work = flat(call, &shape.get()?)?;
        copy(call, 0, work, Mode::Sync)
    }

    fn cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz: (
        shape: In<Copy3D>, stream: Handle
    ) |call| {
        let work = deep(call, &shape.get()?)?;
        copy(call, stream, work, Mode::Async)
    }

    fn cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, cuMemcpy3DPeer, cuMemcpy3DPeer_ptds: (
        shape: In<Copy3D>
    ) |call| {
        let work = deep(call, &shape.get()?)?;
        copy(call, 0, work, Mode::Sync)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Async,
    Batch,
    Sync,
    /// "Synchronous" between places on devices, including managed memory: the host does not wait,
    /// as documented.
    SyncOnDevice,
}

/// Returns the stream of a batch. Measured: the legacy stream is rejected, the per-thread stream is
/// not.
pub fn legacy_takes_none(call: &mut Call, stream: Handle) -> Outcome<Handle> {
    let stream = call.stream(stream)?;
    match call.world().streams.get(stream)?.kind {
        StreamKind::Legacy => Err(Code::INVALID_VALUE),
        _ => Ok(stream),
    }
}

pub fn copy(call: &mut Call, stream: Handle, mut work: CopyWork, mut mode: Mode) -> Outcome {
    if work.width == 0 || work.height == 0 || work.depth == 0 {
        return Ok(());
    }
    let mut on_device = |at: u64| {
        let found = call.world().memory.find(at);
        found
            .is_some_and(|found| !matches!(found.kind, Kind::Host { .. } | Kind::Registered { .. }))
    };
    if mode == Mode::Sync && on_device(work.dst.base) && on_device(work.src.base) {
        mode = Mode::SyncOnDevice;
    }
    let pageable = |call: &mut Call, at: u64| call.world().memory.find(at).is_none();
    work.dst_pageable = pageable(call, work.dst.base);
    let src_pageable = pageable(call, work.src.base);
    work.src_pageable = src_pageable && mode == Mode::Batch;
    if src_pageable && mode != Mode::Batch {
        let (rows, bytes) = work.rows();
        let staged = rows.iter().flat_map(|(_, src)| raw::read(*src, bytes)).collect();
        work.staged = Some(Arc::new(staged));
    }
    let wait = mode == Mode::Sync || (mode == Mode::Async && work.dst_pageable);
    if wait && mode == Mode::Sync {
        return call.submit_and_wait(stream, Work::Copy(work));
    }
    let resolved = call.stream(stream)?;
    if mode == Mode::SyncOnDevice {
        call.refuse_capture(resolved)?;
    }
    let op = call.submit_to(resolved, Work::Copy(work), Order::Full)?;
    if wait && let Some(op) = op {
        call.wait(&op);
        return call.check_error(resolved);
    }
    Ok(())
}

/// Checks that the device side of a copy is a known address.
fn known(call: &mut Call, address: DevicePtr, bytes: usize) -> Outcome {
    let known = bytes == 0 || call.world().memory.find(address).is_some();
    if known { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

fn flat(call: &mut Call, c: &Copy2D) -> Outcome<CopyWork> {
    let side = |kind, host, device, array, pitch, x, y| Side3D {
        x,
        y,
        z: 0,
        lod: 0,
        kind,
        host,
        device,
        array,
        context: 0,
        pitch,
        height: c.height,
    };
    let src =
        side(c.src_type, c.src_host, c.src_device, c.src_array, c.src_pitch, c.src_x, c.src_y);
    let dst =
        side(c.dst_type, c.dst_host, c.dst_device, c.dst_array, c.dst_pitch, c.dst_x, c.dst_y);
    deep(call, &Copy3D { src, dst, width: c.width, height: c.height, depth: 1 })
}

pub fn deep(call: &mut Call, c: &Copy3D) -> Outcome<CopyWork> {
    Ok(CopyWork {
        dst: plane(call, &c.dst, c)?,
        src: plane(call, &c.src, c)?,
        width: c.width as u64,
        height: c.height as u64,
        depth: c.depth as u64,
        staged: None,
        src_pageable: false,
        dst_pageable: false,
    })
}

fn plane(call: &mut Call, side: &Side3D, shape: &Copy3D) -> Outcome<Plane> {
    let pitch = if side.pitch == 0 { shape.width } else { side.pitch } as u64;
    let height = if side.height == 0 { shape.height } else { side.height } as u64;
    let slice = pitch * height;
    let origin = match side.kind {
        1 => Plane { base: side.host, pitch, slice },
        2 | 4 => Plane { base: side.device, pitch, slice },
        3 => call.world().arrays.get(side.array)?.plane(),
        _ => return Err(Code::INVALID_VALUE),
    };
    let offset = side.z as u64 * origin.slice + side.y as u64 * origin.pitch + side.x as u64;
    Ok(Plane { base: origin.base + offset, ..origin })
}
