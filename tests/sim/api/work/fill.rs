//! Fills (`cuMemset*`). Those without a stream are in order with the legacy stream, but the
//! host does not wait for them, unless the memory is managed.

use super::submit::Order;
use crate::abi::{Code, DevicePtr, Handle, Outcome};
use crate::call::Call;
use crate::model::memory::allocations::Kind;
use crate::model::work::op::{FillWork, Work};

driver! {
    fn cuMemsetD8Async, cuMemsetD8Async_ptsz: (
        dst: DevicePtr, value: u8, count: usize, stream: Handle
    ) |call| {
        fill(call, stream, row(dst, u32::from(value), 1, count))
    }

    fn cuMemsetD16Async, cuMemsetD16Async_ptsz: (
        dst: DevicePtr, value: u16, count: usize, stream: Handle
    ) |call| {
        fill(call, stream, row(dst, u32::from(value), 2, count))
    }

    fn cuMemsetD32Async, cuMemsetD32Async_ptsz: (
        dst: DevicePtr, value: u32, count: usize, stream: Handle
    ) |call| {
        fill(call, stream, row(dst, value, 4, count))
    }

    fn cuMemsetD8_v2, cuMemsetD8_v2_ptds: (dst: DevicePtr, value: u8, count: usize) |call| {
        fill_unstreamed(call, row(dst, u32::from(value), 1, count))
    }

    fn cuMemsetD16_v2, cuMemsetD16_v2_ptds: (dst: DevicePtr, value: u16, count: usize) |call| {
        fill_unstreamed(call, row(dst, u32::from(value), 2, count))
    }

    fn cuMemsetD32_v2, cuMemsetD32_v2_ptds: (dst: DevicePtr, value: u32, count: usize) |call| {
        fill_unstreamed(call, row(dst, value, 4, count))
    }

    fn cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz: (
        dst: DevicePtr, pitch: usize, value: u8, width: usize, height: usize, stream: Handle
    ) |call| {
        fill(call, stream, rows(dst, pitch, u32::from(value), 1, (width, height)))
    }

    fn cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz: (
        dst: DevicePtr, pitch: usize, value: u16, width: usize, height: usize, stream: Handle
    ) |call| {
        fill(call, stream, rows(dst, pitch, u32::from(value), 2, (width, height)))
    }

    fn cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz: (
        dst: DevicePtr, pitch: usize, value: u32, width: usize, height: usize, stream: Handle
    ) |call| {
        fill(call, stream, rows(dst, pitch, value, 4, (width, height)))
    }

    fn cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds: (
        dst: DevicePtr, pitch: usize, value: u8, width: usize, height: usize
    ) |call| {
        fill_unstreamed(call, rows(dst, pitch, u32::from(value), 1, (width, height)))
    }

    fn cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds: (
        dst: DevicePtr, pitch: usize, value: u16, width: usize, height: usize
    ) |call| {
        fill_unstreamed(call, rows(dst, pitch, u32::from(value), 2, (width, height)))
    }

    fn cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds: (
        dst: DevicePtr, pitch: usize, value: u32, width: usize, height: usize
    ) |call| {
        fill_unstreamed(call, rows(dst, pitch, value, 4, (width, height)))
    }

    fn cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz: (
        address: DevicePtr, bytes: usize, device: i32, stream: Handle
    ) |call| {
        prefetch(call, address, stream)
    }

    fn cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz: (
        address: DevicePtr, bytes: usize, location: u64, flags: u32, stream: Handle
    ) |call| {
        prefetch(call, address, stream)
    }

    fn cuMemAdvise: (address: DevicePtr, bytes: usize, advice: u32, device: i32) |call| {
        call.world().memory.find(address).map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuMemAdvise_v2: (address: DevicePtr, bytes: usize, advice: u32, location: u64) |call| {
        call.world().memory.find(address).map(drop).ok_or(Code::INVALID_VALUE)
    }
}

fn row(dst: DevicePtr, value: u32, element_bytes: u64, count: usize) -> FillWork {
    rows(dst, 0, value, element_bytes, (count, 1))
}

fn rows(
    dst: DevicePtr,
    pitch: usize,
    value: u32,
    element_bytes: u64,
    size: (usize, usize),
) -> FillWork {
    let (width, height) = (size.0 as u64, size.1 as u64);
    FillWork { dst, pitch: pitch as u64, value, element_bytes, width, height }
}

fn fill(call: &mut Call, stream: Handle, work: FillWork) -> Outcome {
    check(call, &work)?;
    call.submit(stream, Work::Fill(work), Order::Full).map(drop)
}

fn fill_unstreamed(call: &mut Call, work: FillWork) -> Outcome {
    check(call, &work)?;
    // Measured: if the host can access the memory, the call returns after the fill.
    if call.world().memory.find(work.dst).is_some_and(|found| found.kind == Kind::Managed) {
        return call.submit_and_wait(0, Work::Fill(work));
    }
    let stream = call.stream(0)?;
    call.refuse_capture(stream)?;
    call.submit_to(stream, Work::Fill(work), Order::Full).map(drop)
}

fn check(call: &mut Call, work: &FillWork) -> Outcome {
    let known = call.world().memory.find(work.dst).is_some();
    if known && work.dst.is_multiple_of(work.element_bytes) {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

/// Moves nothing: every byte has only one place in the model.
pub fn prefetch(call: &mut Call, address: DevicePtr, stream: Handle) -> Outcome {
    call.world().memory.find(address).ok_or(Code::INVALID_VALUE)?;
    call.submit(stream, Work::Marker, Order::Full).map(drop)
}
