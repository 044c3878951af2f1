//! Queries about addresses.

use crate::abi::{Code, DevicePtr, Outcome};
use crate::api::pointers::{In, Out};
use crate::call::Call;
use crate::model::memory::allocations::Kind;
use crate::model::memory::space::PAGE_BYTES;

driver! {
    fn cuPointerGetAttribute: (value: Out<u64>, attribute: u32, address: DevicePtr) |call| {
        answer(call, value, attribute, address)
    }

    fn cuPointerGetAttributes: (
        count: u32, attributes: In<u32>, values: In<u64>, address: DevicePtr
    ) |call| {
        // Measured: an empty list is rejected.
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let attributes = attributes.list(count as usize)?;
        for (attribute, value) in attributes.into_iter().zip(values.list(count as usize)?) {
            let value = Out::at(value);
            // An unknown pointer is no error here.
            match answer(call, value, attribute, address) {
                Err(Code::INVALID_VALUE) => write_default(value, attribute, address)?,
                other => other?,
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute: (value: In<u8>, attribute: u32, address: DevicePtr) |call| {
        let found = call.world().memory.find_mut(address).ok_or(Code::INVALID_VALUE)?;
        if attribute != SYNC_MEMOPS {
            return Err(Code::INVALID_VALUE);
        }
        found.sync_memops = value.get()? != 0;
        Ok(())
    }

    // Whole pages of one live allocation, or of a part of it.
    fn cuMemGetHandleForAddressRange: (
        handle: Out<i32>, address: DevicePtr, bytes: usize, kind: u32, flags: u64
    ) |call| {
        let pages = [address, bytes as u64].iter().all(|at| at.is_multiple_of(HOST_PAGE_BYTES));
        if handle.is_null() || address == 0 || bytes == 0 || !pages {
            return Err(Code::INVALID_VALUE);
        }
        if kind != DMA_BUF || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let Some(found) = call.world().memory.find(address) else {
            // Measured: here, and only here, the output is written.
            handle.put(0)?;
            return Err(Code::INVALID_VALUE);
        };
        let on_host = matches!(found.kind, Kind::Host { .. } | Kind::Registered { .. });
        let end = found.base + found.bytes.next_multiple_of(HOST_PAGE_BYTES);
        let inside = address.checked_add(bytes as u64).is_some_and(|wanted| wanted <= end);
        if on_host || !inside {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: a C string; the program closes the descriptor.
        handle.put(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) })
    }
}

fn answer(call: &mut Call, value: Out<u64>, attribute: u32, address: DevicePtr) -> Outcome {
    let world = call.world();
    let found = world.memory.find(address).ok_or(Code::INVALID_VALUE)?.clone();
    let on_host = matches!(found.kind, Kind::Host { .. } | Kind::Registered { .. });
    let page = found.base / PAGE_BYTES * PAGE_BYTES;
    let number = match attribute {
        CONTEXT => world.context_handles.get(&found.ctx).copied().unwrap_or(0),
        MEMORY_TYPE => {
            if on_host {
                1
            } else {
                2
            }
        }
        DEVICE_POINTER => world.memory.on_device(address),
        HOST_POINTER if on_host || found.kind == Kind::Managed => address,
        SYNC_MEMOPS => u64::from(found.sync_memops),
        BUFFER_ID => found.id,
        IS_MANAGED => u64::from(found.kind == Kind::Managed),
        DEVICE_ORDINAL => found.device as u64,
        LEGACY_IPC => u64::from(found.kind == Kind::Device),
        RANGE_START => found.base,
        RANGE_SIZE => found.bytes,
        MAPPED => 1,
        HOST_POINTER => {
            value.put(0)?;
            return Err(Code::INVALID_VALUE);
        }
        HANDLE_TYPES => 0,
        RDMA | DECOMPRESS => u64::from(found.kind == Kind::Device),
        ACCESS_FLAGS => 3,
        POOL => match found.kind {
            Kind::Pool { pool, .. } => pool,
            _ => 0,
        },
        // Small allocations share the physical page that they lie in.
        MAPPING_SIZE => (found.base + found.bytes).next_multiple_of(PAGE_BYTES) - page,
        MAPPING_BASE => page,
        MEMORY_BLOCK_ID => page / PAGE_BYTES,
        _ => return Err(Code::INVALID_VALUE),
    };
    write(value, attribute, number)
}

/// Measured: an unknown address counts as a host address, and its range is not written.
fn write_default(value: Out<u64>, attribute: u32, address: DevicePtr) -> Outcome {
    match attribute {
        RANGE_START | RANGE_SIZE => Ok(()),
        HOST_POINTER => write(value, attribute, address),
        // An unknown address must not report the first device.
        DEVICE_ORDINAL => write(value, attribute, u64::MAX - 1),
        _ => write(value, attribute, 0),
    }
}

/// Results have two widths; truth values are numbers (measured).
fn write(value: Out<u64>, attribute: u32, number: u64) -> Outcome {
    match attribute {
        MEMORY_TYPE | DEVICE_ORDINAL | ACCESS_FLAGS | IS_MANAGED | LEGACY_IPC | MAPPED
        | SYNC_MEMOPS | RDMA | DECOMPRESS => Out::at(value.address()).put(number as u32),
        _ => value.put(number),
    }
}

const HOST_PAGE_BYTES: u64 = 4096;
/// The only kind of handle for a range.
const DMA_BUF: u32 = 1;

const CONTEXT: u32 = 1;
const MEMORY_TYPE: u32 = 2;
const DEVICE_POINTER: u32 = 3;
const HOST_POINTER: u32 = 4;
const SYNC_MEMOPS: u32 = 6;
const BUFFER_ID: u32 = 7;
const IS_MANAGED: u32 = 8;
const DEVICE_ORDINAL: u32 = 9;
const LEGACY_IPC: u32 = 10;
const RANGE_START: u32 = 11;
const RANGE_SIZE: u32 = 12;
const MAPPED: u32 = 13;
const HANDLE_TYPES: u32 = 14;
const RDMA: u32 = 15;
const ACCESS_FLAGS: u32 = 16;
const POOL: u32 = 17;
const MAPPING_SIZE: u32 = 18;
const MAPPING_BASE: u32 = 19;
const MEMORY_BLOCK_ID: u32 = 20;
const DECOMPRESS: u32 = 21;
