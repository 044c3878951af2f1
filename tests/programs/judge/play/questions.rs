//! Queries about memory. Addresses are never logged, only offsets in a block.

use cachealloc_tests::driver::Outcome;

use super::host::summary;
use super::{Actor, Seen, code};
use crate::grammar::{Line, Op};

impl Actor<'_> {
    pub fn questions(&mut self, line: &Line) -> Seen {
        let (driver, slots) = (self.driver(), self.slots());
        match line.op {
            Op::Read => {
                let block = self.readable(line.arg(0))?;
                match driver.read_words(block.part.0, block.part.1 as usize / 8) {
                    Ok(words) => Some((0, summary(words.into_iter()))),
                    Err(error) => code(Err(error)),
                }
            }
            Op::Range => {
                let block = slots.blocks.get(line.arg(0))?;
                let inside = line.arg(1) % block.bytes as u64;
                match driver.address_range(block.address + inside) {
                    Ok((base, bytes)) => {
                        Some((0, vec![base.wrapping_sub(block.address), bytes as u64]))
                    }
                    Err(error) => code(Err(error)),
                }
            }
            Op::Attribute => {
                let block = slots.blocks.get(line.arg(0))?;
                self.attribute(block.address, line.arg(2) % block.bytes as u64, line.arg(1))
            }
            Op::HostAttribute => {
                let host = slots.hosts.get(line.arg(0))?;
                self.attribute(host.address, 8, line.arg(1))
            }
            Op::PoolHolds => {
                let (pool, mut value) = (self.pool(line.arg(0))?, 0);
                let attribute = line.arg(1) as u32;
                match call!(driver, cuMemPoolGetAttribute(pool, attribute, &mut value)) {
                    Ok(()) => Some((0, vec![u64::from(value >= line.arg(2))])),
                    Err(error) => code(Err(error)),
                }
            }
            Op::HostMapped => {
                let (host, mut address) = (slots.hosts.get(line.arg(0))?, 0);
                match call!(driver, cuMemHostGetDevicePointer(&mut address, host.address, 0)) {
                    Ok(()) => Some((0, vec![address.wrapping_sub(host.address)])),
                    Err(error) => code(Err(error)),
                }
            }
            Op::GraphMemory => {
                let mut value = 0;
                let attribute = line.arg(0) as u32;
                let asked = call!(driver, cuDeviceGetGraphMemAttribute(0, attribute, &mut value));
                code(asked)?;
                code(call!(driver, cuDeviceGraphMemTrim(0)))
            }
            Op::Access => {
                let (block, mut flags) = (slots.blocks.get(line.arg(0))?, 0);
                let location = [1_u32, 0];
                let location = location.as_ptr().cast();
                match call!(driver, cuMemGetAccess(&mut flags, location, block.address)) {
                    Ok(()) => Some((0, vec![flags])),
                    Err(error) => code(Err(error)),
                }
            }
            _ => match self.free_memory(line.arg(0)) {
                Ok(free) => Some((0, vec![u64::from(free >= line.arg(0))])),
                Err(error) => code(Err(error)),
            },
        }
    }

    /// Returns the free bytes that the driver reports. Measured: memory of freed managed memory counts
    /// as used until a request needs it, so on a GPU a request for all of `wanted` comes first.
    fn free_memory(&self, wanted: u64) -> Outcome<u64> {
        let driver = self.driver();
        let free = driver.memory_info()?.0 as u64;
        if free >= wanted || driver.races().is_some() {
            return Ok(free);
        }
        if let Ok(block) = driver.alloc(wanted as usize) {
            driver.free(block)?;
        }
        Ok(driver.memory_info()?.0 as u64)
    }

    fn attribute(&self, base: u64, inside: u64, attribute: u64) -> Seen {
        let attribute = ATTRIBUTES[attribute as usize % ATTRIBUTES.len()];
        let mut value = 0_u64;
        let place = &mut value;
        let asked = call!(self.driver(), cuPointerGetAttribute(place, attribute, base + inside));
        let seen = match attribute {
            DEVICE_POINTER | HOST_POINTER | RANGE_START => value.wrapping_sub(base),
            _ => value & 0xFFFF_FFFF,
        };
        match asked {
            Ok(()) => Some((0, vec![seen])),
            Err(error) => code(Err(error)),
        }
    }
}

const DEVICE_POINTER: u32 = 3;
const HOST_POINTER: u32 = 4;
const RANGE_START: u32 = 11;
/// Kind of memory, both pointers, synchronous or not, managed, ordinal, start and size of the
/// range, mapped, kinds of handles, access.
const ATTRIBUTES: [u32; 11] =
    [2, DEVICE_POINTER, HOST_POINTER, 6, 8, 9, RANGE_START, 12, 13, 14, 16];
