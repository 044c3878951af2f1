//! Stream-ordered memory: pools of blocks that come back in the order of streams.
//!
//! A freed block serves the stream it was freed on at once, and every other stream when its
//! free is complete. Blocks above the release threshold go back to the device when a
//! synchronising call finds their frees complete.

use super::memory::{Allocation, Kind};
use super::op::{OpRef, Work};
use super::world::World;
use crate::abi::{Code, Handle, Outcome};

pub struct Pool {
    pub device: usize,
    pub reserved_bytes: u64,
    pub reserved_bytes_peak: u64,
    /// As requested; what a free that is not in the order of a stream takes away stays counted
    /// (measured).
    pub used_bytes: u64,
    pub used_bytes_peak: u64,
    pub release_threshold: u64,
    /// The three reuse policies; kept, not acted on.
    pub reuse: [i32; 3],
    pub destroyed: bool,
    /// Other devices whose kernels may reach its memory.
    pub open_to: Vec<usize>,
    free: Vec<FreeBlock>,
}

struct FreeBlock {
    base: u64,
    bytes: u64,
    stream: u64,
    op: OpRef,
}

impl Pool {
    pub fn new(device: usize) -> Pool {
        Pool {
            device,
            reserved_bytes: 0,
            reserved_bytes_peak: 0,
            used_bytes: 0,
            used_bytes_peak: 0,
            release_threshold: 0,
            reuse: [1; 3],
            destroyed: false,
            open_to: Vec::new(),
            free: Vec::new(),
        }
    }

    /// What it shows as reserved: it takes memory by the chunk (measured).
    pub fn shown(bytes: u64) -> u64 {
        bytes.next_multiple_of(CHUNK_BYTES)
    }

    /// The best block for a stream: the smallest that does not waste half of itself.
    fn take(&mut self, bytes: u64, stream: u64) -> Option<FreeBlock> {
        let fits = |block: &FreeBlock| {
            (bytes..=bytes * 2).contains(&block.bytes)
                && (block.stream == stream || block.op.done())
        };
        let candidates = self.free.iter().enumerate().filter(|(_, block)| fits(block));
        let best = candidates.min_by_key(|(_, block)| (block.bytes, block.stream != stream));
        let index = best?.0;
        Some(self.free.swap_remove(index))
    }
}

impl World {
    pub fn pool_alloc(
        &mut self,
        pool: Handle,
        bytes: u64,
        stream: Handle,
        at: u64,
    ) -> Outcome<u64> {
        let rounded = bytes.checked_next_multiple_of(POOL_UNIT).ok_or(Code::OUT_OF_MEMORY)?;
        let stream_id = self.streams.get(stream)?.id;
        let mut deps = self.stream_deps(stream)?;
        let state = self.pools.find_mut(pool).ok_or(Code::INVALID_VALUE)?;
        let device = state.device;
        let (base, block_bytes) = match state.take(rounded, stream_id) {
            Some(block) => {
                if block.stream != stream_id {
                    deps.after(&block.op);
                }
                (block.base, block.bytes)
            }
            None => (self.grow_pool(pool, rounded)?, rounded),
        };
        let state = self.pools.get_mut(pool)?;
        state.used_bytes += bytes;
        state.used_bytes_peak = state.used_bytes_peak.max(state.used_bytes);
        self.memory.insert(base, bytes, Kind::Pool { pool, block_bytes }, 0, device);
        self.submit_after(stream, Work::Marker, deps, at)?;
        Ok(base)
    }

    fn grow_pool(&mut self, pool: Handle, bytes: u64) -> Outcome<u64> {
        let device = self.pools.get(pool)?.device;
        let mut base = self.memory.devices[device].alloc(bytes);
        if base.is_none() {
            self.trim_pools(Some(0));
            base = self.memory.devices[device].alloc(bytes);
        }
        let state = self.pools.get_mut(pool)?;
        state.reserved_bytes += bytes;
        state.reserved_bytes_peak = state.reserved_bytes_peak.max(state.reserved_bytes);
        if base.is_none() {
            state.reserved_bytes -= bytes;
        }
        base.ok_or(Code::OUT_OF_MEMORY)
    }

    /// Takes a block back that `op` frees on stream `stream` (an id; 0 for none).
    pub fn pool_free(
        &mut self,
        pool: Handle,
        place: (u64, u64),
        requested_bytes: u64,
        stream: u64,
        op: OpRef,
    ) {
        let (base, bytes) = place;
        if let Some(state) = self.pools.find_mut(pool) {
            if stream != 0 {
                state.used_bytes -= requested_bytes;
            }
            state.free.push(FreeBlock { base, bytes, stream, op });
        }
    }

    /// Gives back what is wholly free above `keep`, or above each pool's threshold.
    pub fn trim_pools(&mut self, keep: Option<u64>) {
        for pool in self.pools.values_mut() {
            let keep = keep.unwrap_or(pool.release_threshold);
            let mut index = 0;
            while pool.reserved_bytes > keep && index < pool.free.len() {
                if !pool.free[index].op.done() {
                    index += 1;
                    continue;
                }
                let block = pool.free.swap_remove(index);
                pool.reserved_bytes -= block.bytes;
                self.shadow.clear(block.base, block.base + block.bytes);
                self.memory.devices[pool.device].free(block.base, block.bytes);
            }
        }
    }

    /// The end of a free in the order of a stream. Measured: the memory is the device's again when
    /// somebody synchronises with that stream or the context; a query, of the stream or an event,
    /// is not enough, and neither is a request that finds no memory.
    pub fn release_in_order(&mut self, id: u64, stream: u64) {
        let Some((base, bytes)) = self.memory.dying_range(id) else { return };
        match self.memory.end_dying(id) {
            Some(allocation) if matches!(allocation.kind, Kind::Device | Kind::Managed) => {
                self.shadow.clear(base, base + bytes.max(1));
                self.freed_in_order.push((stream, allocation));
            }
            _ => {}
        }
    }

    /// A stream (an id; `None`: all of a context, also an id) was synchronised with.
    pub fn collect(&mut self, stream: Option<u64>, context: Option<u64>) {
        let is_due = |(freed_on, allocation): &mut (u64, Allocation)| {
            stream == Some(*freed_on) || context == Some(allocation.ctx)
        };
        for (_, allocation) in self.freed_in_order.extract_if(.., is_due) {
            self.memory.give_back(&allocation);
        }
    }

    /// The end of a free that waited.
    pub fn release(&mut self, id: u64) {
        let Some(allocation) = self.memory.end_dying(id) else { return };
        if matches!(allocation.kind, Kind::Pool { .. }) {
            return;
        }
        self.shadow.clear(allocation.base, allocation.base + allocation.bytes.max(1));
        self.memory.give_back(&allocation);
    }
}

const POOL_UNIT: u64 = 512;
const CHUNK_BYTES: u64 = 32 << 20;
