//! Questions about addresses.

use super::pointers::{In, Out};
use crate::abi::{Code, DevicePtr, Outcome};
use crate::call::Call;
use crate::model::memory::Kind;

driver! {
    fn cuPointerGetAttribute: (value: Out<u64>, attribute: u32, address: DevicePtr) |call| {
        answer(call, value, attribute, address)
    }

    fn cuPointerGetAttributes: (
        count: u32, attributes: In<u32>, values: In<u64>, address: DevicePtr
    ) |call| {
        let attributes = attributes.list(count as usize)?;
        for (attribute, value) in attributes.into_iter().zip(values.list(count as usize)?) {
            let value = Out::at(value);
            // An unknown pointer is no error here: every answer is zero.
            match answer(call, value, attribute, address) {
                Err(Code::INVALID_VALUE) => write_zero(value, attribute)?,
                other => other?,
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute: (value: In<u64>, attribute: u32, address: DevicePtr) |call| {
        let known = call.world().memory.find(address).is_some();
        if known && attribute == SYNC_MEMOPS { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }
}

fn answer(call: &mut Call, value: Out<u64>, attribute: u32, address: DevicePtr) -> Outcome {
    let world = call.world();
    let found = world.memory.find(address).ok_or(Code::INVALID_VALUE)?.clone();
    let on_host = matches!(found.kind, Kind::Host { .. } | Kind::Registered { .. });
    let number = match attribute {
        CONTEXT => world.context_handles.get(&found.ctx).copied().unwrap_or(0),
        MEMORY_TYPE => {
            if on_host {
                1
            } else {
                2
            }
        }
        DEVICE_POINTER => address,
        HOST_POINTER if on_host || found.kind == Kind::Managed => address,
        SYNC_MEMOPS => 0,
        BUFFER_ID => found.id,
        IS_MANAGED => u64::from(found.kind == Kind::Managed),
        DEVICE_ORDINAL => found.device as u64,
        LEGACY_IPC => u64::from(found.kind == Kind::Device),
        RANGE_START => found.base,
        RANGE_SIZE => found.bytes,
        MAPPED => 1,
        HANDLE_TYPES | RDMA => 0,
        ACCESS_FLAGS => 3,
        POOL => match found.kind {
            Kind::Pool { pool, .. } => pool,
            _ => 0,
        },
        MAPPING_SIZE => found.bytes,
        MAPPING_BASE => found.base,
        MEMORY_BLOCK_ID => found.id,
        _ => return Err(Code::INVALID_VALUE),
    };
    write(value, attribute, number)
}

fn write_zero(value: Out<u64>, attribute: u32) -> Outcome {
    // The ordinal of nothing is not the first device.
    write(value, attribute, if attribute == DEVICE_ORDINAL { u64::MAX - 1 } else { 0 })
}

/// Results have three widths: flags, numbers and addresses.
fn write(value: Out<u64>, attribute: u32, number: u64) -> Outcome {
    match attribute {
        IS_MANAGED | LEGACY_IPC | MAPPED | SYNC_MEMOPS | RDMA => {
            Out::at(value.address()).put(number as u8)
        }
        MEMORY_TYPE | DEVICE_ORDINAL | ACCESS_FLAGS => Out::at(value.address()).put(number as u32),
        _ => value.put(number),
    }
}

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
