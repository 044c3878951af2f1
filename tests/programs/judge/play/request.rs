//! Requests for device memory, of every kind.

use std::sync::Arc;

use cachealloc_tests::driver::{Outcome, RELAXED};

use super::slots::{Block, BlockKind};
use super::{Actor, Seen, code};
use crate::grammar::{Line, Op};

impl Actor<'_> {
    pub fn request_block(&mut self, index: usize, line: &Line) -> Seen {
        let (slot, bytes) = (line.arg(0), line.arg(1) as usize);
        if bytes < 16 || !self.slots().blocks.is_free(slot) {
            return None;
        }
        let ctx = match line.op {
            Op::AllocAsync => self.stream(line.arg(2))?.ctx,
            Op::AllocPool => self.stream(line.arg(3))?.ctx,
            _ => self.current.clone().filter(|ctx| ctx.alive())?,
        };
        let pool = match line.op {
            Op::AllocPool => Some(self.slots().pools.get(line.arg(2))?),
            _ => None,
        };
        let (made, kind) = match line.op {
            Op::Alloc => (self.as_caches_do(|actor| actor.driver().alloc(bytes)), BlockKind::Plain),
            Op::AllocAsync => {
                let stream = self.stream(line.arg(2))?.handle;
                (self.driver().alloc_async(bytes, stream), BlockKind::Ordered)
            }
            Op::AllocPool => {
                let (stream, pool) =
                    (self.stream(line.arg(3))?.handle, pool.map_or(0, |p| p.handle));
                let mut address = 0;
                let from = &mut address;
                let made = call!(self.driver(), cuMemAllocFromPoolAsync(from, bytes, pool, stream));
                (made.map(|()| address), BlockKind::Ordered)
            }
            Op::AllocPitch => (self.pitched(bytes, line.arg(2) as usize), BlockKind::Plain),
            Op::AllocManaged => {
                let mut address = 0;
                let made = call!(self.driver(), cuMemAllocManaged(&mut address, bytes, 1));
                (made.map(|()| address), BlockKind::Managed)
            }
            _ => self.mapped(bytes),
        };
        let Ok(address) = made else { return code(made.map(drop)) };
        let part = part_of(slot, bytes);
        let block = Block {
            address,
            bytes,
            kind,
            part: (address + part.0, part.1),
            filled: Arc::default(),
            ctx,
            closed: Arc::default(),
            graphs: Arc::default(),
        };
        if self.player.options.refused.contains(&index) {
            // Without the library there was no memory for the request, and the following lines were
            // played without it.
            let stream = line.args.last().filter(|_| kind == BlockKind::Ordered);
            let _ = self.give_back(&block, stream.copied());
            return Some((0, Vec::new()));
        }
        self.slots().blocks.put(slot, block);
        Some((0, Vec::new()))
    }

    /// Rows of 1 KiB, so that `bytes` is the size allocated; the driver chooses the pitch.
    fn pitched(&self, bytes: usize, height: usize) -> Outcome<u64> {
        let (mut address, mut pitch) = (0, 0);
        let width = (bytes / height.max(1)).max(512);
        let height = (bytes / width).max(1);
        let place = &mut address;
        call!(self.driver(), cuMemAllocPitch(place, &mut pitch, width, height, 4))?;
        Ok(address)
    }

    /// Reserves addresses, maps physical memory there, and sets the access.
    fn mapped(&self, bytes: usize) -> (Outcome<u64>, BlockKind) {
        let driver = self.driver();
        let size = bytes.next_multiple_of(PAGE_BYTES);
        let (mut address, mut handle) = (0, 0);
        // CUmemAllocationProp: pinned memory of device 0.
        let properties = [1_u64, 1, 0, 0];
        let create = call!(driver, cuMemCreate(&mut handle, size, properties.as_ptr().cast(), 0));
        let kind = BlockKind::Virtual(handle, size);
        if let Err(error) = create {
            return (Err(error), kind);
        }
        let made = call!(driver, cuMemAddressReserve(&mut address, size, 0, 0, 0))
            .and_then(|()| call!(driver, cuMemMap(address, size, 0, handle, 0)))
            .and_then(|()| self.set_access(address, size, ACCESS_BOTH));
        (made.map(|()| address), kind)
    }

    pub fn set_access(&self, address: u64, size: usize, flags: u32) -> Outcome {
        // CUmemAccessDesc: device 0.
        let access = [1_u32, 0, flags];
        call!(self.driver(), cuMemSetAccess(address, size, access.as_ptr().cast(), 1))
    }

    pub fn give_back(&self, block: &Block, stream: Option<u64>) -> Outcome {
        match block.kind {
            BlockKind::Virtual(handle, size) => {
                call!(self.driver(), cuMemUnmap(block.address, size))?;
                call!(self.driver(), cuMemRelease(handle))?;
                call!(self.driver(), cuMemAddressFree(block.address, size))
            }
            BlockKind::Ordered if stream.is_some() => {
                let stream = stream.and_then(|slot| self.stream(slot)).map_or(0, |s| s.handle);
                self.driver().free_async(block.address, stream)
            }
            _ => self.driver().free(block.address),
        }
    }

    /// Makes a request in the way of caching allocators such as PyTorch's in a capture, where the
    /// driver would refuse an ordinary call: in relaxed mode.
    pub fn as_caches_do<T>(&self, ask: impl FnOnce(&Self) -> Outcome<T>) -> Outcome<T> {
        if !self.player.options.cached {
            return ask(self);
        }
        let before = self.driver().exchange_capture_mode(RELAXED)?;
        let answer = ask(self);
        self.driver().exchange_capture_mode(before)?;
        answer
    }
}

/// The part of an allocation that is used: at its start, its end, or in the middle.
pub fn part_of(slot: u64, bytes: usize) -> (u64, u64) {
    let bytes = bytes as u64 / 8 * 8;
    let length = bytes.min(PART_BYTES_MAX);
    let offset = match slot % 3 {
        0 => 0,
        1 => bytes - length,
        _ => (bytes - length) / 16 * 8,
    };
    (offset, length)
}

pub const ACCESS_BOTH: u32 = 3;
pub const ACCESS_NONE: u32 = 0;
const PAGE_BYTES: usize = 2 << 20;
const PART_BYTES_MAX: u64 = 512;
