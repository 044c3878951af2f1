//! Batches of copies, of decompressions and of copies over a fabric, single copies with the attributes of a batch, and managed memory in batches.
//! All of them may read and write ordinary host memory when they run.

use super::copy::{Mode, copy, deep, legacy_takes_none};
use super::fill::prefetch;
use super::submit::Order;
use crate::abi::{
    BatchCopy3D, Code, Copy3D, Decompression, DevicePtr, FabricCopy, FabricOperand, Handle,
    Operand3D, Outcome, Side3D,
};
use crate::api::pointers::In;
use crate::call::Call;
use crate::model::work::op::{CopyWork, FlagWork, Work};

driver! {
    fn cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz: (
        dsts: In<u64>, srcs: In<u64>, sizes: In<usize>, count: usize, attributes: u64,
        indices: u64, attribute_count: usize, fail_index: u64, stream: Handle
    ) |call| {
        batch(call, (dsts, srcs, sizes), count, stream)
    }

    fn cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz: (
        dsts: In<u64>, srcs: In<u64>, sizes: In<usize>, count: usize, attributes: u64,
        indices: u64, attribute_count: usize, stream: Handle
    ) |call| {
        batch(call, (dsts, srcs, sizes), count, stream)
    }

    fn cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz: (
        count: usize, copies: In<BatchCopy3D>, fail_index: u64, flags: u64, stream: Handle
    ) |call| {
        batch_of_shapes(call, copies, count, stream)
    }

    fn cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz: (
        count: usize, copies: In<BatchCopy3D>, flags: u64, stream: Handle
    ) |call| {
        batch_of_shapes(call, copies, count, stream)
    }

    fn cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz: (
        dst: u64, src: u64, bytes: usize, attributes: u64, stream: Handle
    ) |call| {
        copy(call, stream, CopyWork::linear(dst, src, bytes as u64), Mode::Batch)
    }

    fn cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync_ptsz: (
        shape: In<BatchCopy3D>, flags: u64, stream: Handle
    ) |call| {
        let work = deep(call, &shape.get()?.plain()?)?;
        copy(call, stream, work, Mode::Batch)
    }

    // The data counts as not compressed, whatever the algorithm.
    fn cuMemBatchDecompressAsync, cuMemBatchDecompressAsync_ptsz: (
        list: In<Decompression>, count: usize, flags: u32, fail_index: u64, stream: Handle
    ) |call| {
        for one in list.list(count)? {
            let written = one.src_bytes.min(one.dst_bytes);
            copy(call, stream, CopyWork::linear(one.dst, one.src, written), Mode::Batch)?;
            if one.written_bytes != 0 {
                let (address, bytes, compare) = (one.written_bytes, 4, 0);
                let number = FlagWork { address, value: written, bytes, compare };
                call.submit(stream, Work::WriteValue(number), Order::Full)?;
            }
        }
        Ok(())
    }

    fn cuFabricCpyBatchAsync, cuFabricCpyBatchAsync_ptsz: (
        count: usize, list: In<FabricCopy>, flags: u64, stream: Handle
    ) |call| {
        let stream = legacy_takes_none(call, stream)?;
        for FabricCopy { src, dst, bytes, .. } in list.list(count)? {
            let work = CopyWork::linear(fabric(call, dst)?, fabric(call, src)?, bytes);
            copy(call, stream, work, Mode::Batch)?;
        }
        Ok(())
    }

    fn cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz: (
        addresses: In<DevicePtr>, sizes: In<usize>, count: usize, locations: u64, indices: u64,
        locations_count: usize, flags: u64, stream: Handle
    ) |call| {
        prefetch_all(call, addresses, count, stream)
    }

    fn cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_ptsz: (
        addresses: In<DevicePtr>, sizes: In<usize>, count: usize, locations: u64, indices: u64,
        locations_count: usize, flags: u64, stream: Handle
    ) |call| {
        prefetch_all(call, addresses, count, stream)
    }

    fn cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz: (
        addresses: In<DevicePtr>, sizes: In<usize>, count: usize, flags: u64, stream: Handle
    ) |call| {
        prefetch_all(call, addresses, count, stream)
    }

    fn cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz: (
        stream: Handle, address: DevicePtr, bytes: usize, flags: u32
    ) |call| {
        prefetch(call, address, stream)
    }
}

/// The address of an operand: a pointer, or a place in a logical endpoint.
fn fabric(call: &mut Call, operand: FabricOperand) -> Outcome<u64> {
    const POINTER: u32 = 1;
    const ENDPOINT: u32 = 2;
    let [first, second] = operand.place;
    match operand.kind {
        POINTER => Ok(first),
        ENDPOINT => call.world().endpoints.address(first as u32, second),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn batch(
    call: &mut Call,
    (dsts, srcs, sizes): (In<u64>, In<u64>, In<usize>),
    count: usize,
    stream: Handle,
) -> Outcome {
    let stream = legacy_takes_none(call, stream)?;
    let places = dsts.list(count)?.into_iter().zip(srcs.list(count)?).zip(sizes.list(count)?);
    for ((dst, src), bytes) in places {
        copy(call, stream, CopyWork::linear(dst, src, bytes as u64), Mode::Batch)?;
    }
    Ok(())
}

fn batch_of_shapes(
    call: &mut Call,
    copies: In<BatchCopy3D>,
    count: usize,
    stream: Handle,
) -> Outcome {
    let stream = legacy_takes_none(call, stream)?;
    for shape in copies.list(count)? {
        let work = deep(call, &shape.plain()?)?;
        copy(call, stream, work, Mode::Batch)?;
    }
    Ok(())
}

fn prefetch_all(
    call: &mut Call,
    addresses: In<DevicePtr>,
    count: usize,
    stream: Handle,
) -> Outcome {
    addresses.list(count)?.into_iter().try_for_each(|address| prefetch(call, address, stream))
}

impl BatchCopy3D {
    fn plain(&self) -> Outcome<Copy3D> {
        let [width, height, depth] = self.extent;
        Ok(Copy3D { src: self.src.side(width)?, dst: self.dst.side(width)?, width, height, depth })
    }
}

impl Operand3D {
    const POINTER: u32 = 1;
    const ARRAY: u32 = 2;

    /// Returns one side of the copy. Its row length is the given one, or else the width of the
    /// copy.
    fn side(&self, width: usize) -> Outcome<Side3D> {
        let [at, first, second, third] = self.place;
        let (first, second, third) = (first as usize, second as usize, third as usize);
        let none = Side3D {
            x: 0,
            y: 0,
            z: 0,
            lod: 0,
            kind: 0,
            host: 0,
            device: 0,
            array: 0,
            context: 0,
            pitch: 0,
            height: 0,
        };
        match self.kind {
            Operand3D::POINTER => {
                let pitch = if first == 0 { width } else { first };
                Ok(Side3D { kind: 2, device: at, pitch, height: second, ..none })
            }
            Operand3D::ARRAY => {
                Ok(Side3D { kind: 3, array: at, x: first, y: second, z: third, ..none })
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
