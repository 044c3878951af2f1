//! Stream-ordered memory: pools of blocks that are reused in stream order.
//!
//! A freed block serves the stream it was freed on at once, and every other stream when its free is
//! complete. If the device has no more memory, a request takes blocks that other streams still use,
//! and the driver orders it after their frees (`cudaMemPoolReuseAllowInternalDependencies`). Blocks
//! above the release threshold are released to the device when a synchronising call finds their
//! frees complete, or a request lacks memory.
//!
//! The driver assumes that nothing uses memory freed by `cuMemFree` any more: if memory is short,
//! it is available at once.

use std::sync::Arc;

use super::allocations::{Allocation, Kind};
use super::space::PAGE_BYTES;
use crate::abi::{Code, Handle, Location, Outcome};
use crate::model::contexts::stream::Stream;
use crate::model::races::shadow::{Access, AccessKind, Race, Source};
use crate::model::work::op::{BIRTH, Deps, OpRef, Work};
use crate::model::world::{World, config};

pub struct Pool {
    pub device: usize,
    /// `CUmemAllocationType`, and the location of the memory.
    allocation: u32,
    location: Location,
    pub reserved_bytes: u64,
    pub reserved_bytes_peak: u64,
    /// As requested. Memory stays counted if its free is not stream-ordered (measured).
    pub used_bytes: u64,
    pub used_bytes_peak: u64,
    pub release_threshold: u64,
    /// The three reuse policies: stored without effect.
    pub reuse: [i32; 3],
    pub destroyed: bool,
    /// `CUmemAllocationHandleType`s by which other processes may open it.
    pub handle_types: u32,
    /// The pool of which this one is an import: it serves no requests.
    pub imported: Option<Handle>,
    /// Devices whose kernels may reach its memory, besides the one that it is on.
    pub open_to: Vec<usize>,
    free: Vec<FreeBlock>,
    /// Blocks that serve other requests while earlier work uses their addresses: those stay taken
    /// until then.
    moved: Vec<FreeBlock>,
}

#[derive(Clone)]
struct FreeBlock {
    base: u64,
    bytes: u64,
    /// Stream of the free; 0 for `cuMemFree`.
    stream: u64,
    op: OpRef,
    /// For a block freed by `cuMemFree`, the marker at which its last owner got it.
    birth: Option<OpRef>,
    /// Whether a synchronising call has found it complete. Measured: before that, only
    /// stream-ordered requests get it.
    seen: bool,
}

impl FreeBlock {
    /// Whether the device may take it if memory is short.
    fn is_assumed_over(&self) -> bool {
        let assumed = self.stream == 0 && self.bytes >= PAGE_BYTES;
        self.seen || (assumed && self.birth.as_ref().is_none_or(|birth| birth.done()))
    }
}

impl Pool {
    pub const PINNED: u32 = 1;
    pub const MANAGED: u32 = 2;

    /// Creates the default pool of a device.
    pub fn new(device: usize) -> Pool {
        Pool::at(device, Pool::PINNED, Location::on(device))
    }

    /// Creates a pool that counts on this device, whatever its location.
    pub fn at(device: usize, allocation: u32, location: Location) -> Pool {
        Pool {
            device,
            allocation,
            location,
            reserved_bytes: 0,
            reserved_bytes_peak: 0,
            used_bytes: 0,
            used_bytes_peak: 0,
            release_threshold: 0,
            reuse: [1; 3],
            destroyed: false,
            handle_types: 0,
            imported: None,
            open_to: Vec::new(),
            free: Vec::new(),
            moved: Vec::new(),
        }
    }

    /// Creates an import of a pool.
    pub fn imported(handle: Handle, pool: &Pool) -> Pool {
        let imported = Some(handle);
        Pool { imported, ..Pool::at(pool.device, pool.allocation, pool.location) }
    }

    /// Whether it may be the current pool for this type and location.
    pub fn serves(&self, allocation: u32, location: Location) -> bool {
        (self.allocation, self.location) == (allocation, location) && self.imported.is_none()
    }

    /// Whether its memory is the host's. Measured: no device may access that unasked (error 700).
    pub fn is_on_host(&self) -> bool {
        Location::ON_HOST.contains(&self.location.kind) && self.allocation != Pool::MANAGED
    }

    /// Bytes that the pool reports as reserved: it takes memory in chunks (measured).
    pub fn shown(bytes: u64) -> u64 {
        bytes.next_multiple_of(CHUNK_BYTES)
    }

    /// Takes the best block for a stream: the smallest that wastes less than half of itself, or can
    /// be split.
    fn take(&mut self, bytes: u64, stream: u64) -> Option<FreeBlock> {
        let cut = |block: &FreeBlock| {
            bytes.is_multiple_of(PAGE_BYTES) && block.bytes >= bytes + PAGE_BYTES
        };
        let fits = |block: &FreeBlock| {
            ((bytes..=bytes * 2).contains(&block.bytes) || cut(block))
                && (block.stream == stream || block.op.done())
        };
        let candidates = self.free.iter().enumerate().filter(|(_, block)| fits(block));
        let best = candidates.min_by_key(|(_, block)| (block.bytes, block.stream != stream));
        let index = best?.0;
        let block = self.free.swap_remove(index);
        if !cut(&block) {
            return Some(block);
        }
        let rest = block.bytes - bytes;
        self.free.push(FreeBlock { base: block.base + bytes, bytes: rest, ..block.clone() });
        Some(FreeBlock { bytes, ..block })
    }

    /// Takes blocks that other streams still use, enough for `bytes`. Returns `None` if they do not
    /// suffice.
    fn take_behind(&mut self, bytes: u64) -> Option<Vec<FreeBlock>> {
        let whole = |block: &FreeBlock| block.bytes >= PAGE_BYTES;
        if self.reuse[INTERNAL_DEPENDENCIES] == 0
            || self.free.iter().filter(|block| whole(block)).map(|block| block.bytes).sum::<u64>()
                < bytes
        {
            return None;
        }
        let mut taken = Vec::new();
        let mut taken_bytes = 0;
        while taken_bytes < bytes {
            let index = self.free.iter().position(whole)?;
            let mut block = self.free.swap_remove(index);
            let missing = (bytes - taken_bytes).next_multiple_of(PAGE_BYTES);
            if block.bytes >= missing + PAGE_BYTES {
                // The rest stays in the pool, like any block freed in stream order.
                let rest = block.bytes - missing;
                let base = block.base + missing;
                self.free.push(FreeBlock { base, bytes: rest, ..block.clone() });
                block.bytes = missing;
            }
            taken_bytes += block.bytes;
            taken.push(block);
        }
        Some(taken)
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
        let state = self.pools.find_mut(pool).ok_or(Code::INVALID_VALUE)?;
        let device = state.device;
        // A request for fresh memory is not work, which would make the legacy stream stop others.
        // Work that uses the memory must still come after the request.
        let mut deps = None;
        let (base, block_bytes) = match state.take(rounded, stream_id) {
            Some(block) => {
                if block.stream != stream_id {
                    // Its free is complete, but a program cannot know that, and must not rely on
                    // anything before it.
                    self.shadow.clear(block.base, block.base + block.bytes);
                }
                deps = Some(self.birth_deps(stream)?);
                (block.base, block.bytes)
            }
            None => match self.grow_pool(pool, rounded) {
                Ok(base) => (base, rounded),
                Err(code) => {
                    let mut recycled = self.birth_deps(stream)?;
                    let base = self.take_behind(pool, rounded, &mut recycled).ok_or(code)?;
                    deps = Some(recycled);
                    (base, rounded)
                }
            },
        };
        let state = self.pools.get_mut(pool)?;
        state.used_bytes += bytes;
        state.used_bytes_peak = state.used_bytes_peak.max(state.used_bytes);
        let id = self.memory.insert(base, bytes, Kind::Pool { pool, block_bytes }, 0, device);
        match deps {
            Some(deps) => {
                let birth =
                    self.submit_after(stream, Work::Birth { base, allocation: id }, deps, at)?;
                self.pool_births.insert(base, birth);
            }
            None => self.born(stream, base, bytes)?,
        }
        Ok(base)
    }

    /// Predecessors of a request for recycled memory, as far as the program may rely on them: the
    /// work of the stream. Measured: the request is work, which the legacy stream stops; a request
    /// for fresh memory is so at times. A program cannot know which memory it gets, so with
    /// `SIM_ONLY_WAITS_TELL` no request counts as work.
    fn birth_deps(&mut self, stream: Handle) -> Outcome<Deps> {
        let later_than = match config().only_waits_tell {
            true => Default::default(),
            false => self.stream_deps(stream)?.ends,
        };
        let state = self.streams.get(stream)?;
        let mut own = Deps { later_than, ..Deps::default() };
        own.clock.join(&self.host.clock);
        own.clock.join(&state.clock);
        state.before_request().iter().for_each(|op| own.after(op));
        Ok(own)
    }

    /// Begins the life of memory in the stream.
    fn born(&mut self, stream: Handle, start: u64, bytes: u64) -> Outcome {
        let Stream { id, clock, births, .. } = self.streams.get_mut(stream)?;
        let source = Source { name: BIRTH, op: 0, stream: *id };
        let epoch = self.chains.advance(births, clock);
        self.shadow.access(Access { start, bytes, kind: AccessKind::Write }, source, epoch, clock);
        Ok(())
    }

    /// Takes memory that other streams still use, at new addresses and after their frees.
    fn take_behind(&mut self, pool: Handle, bytes: u64, deps: &mut Deps) -> Option<u64> {
        let state = self.pools.find_mut(pool)?;
        let device = state.device;
        let blocks = state.take_behind(bytes)?;
        for block in &blocks {
            deps.later_than(&block.op);
            state.reserved_bytes -= block.bytes;
            self.memory.devices[device].give_pages(block.bytes);
        }
        state.moved.extend(blocks);
        let base = self.memory.devices[device].alloc(bytes);
        state.reserved_bytes += base.map_or(0, |_| bytes);
        base
    }

    fn grow_pool(&mut self, pool: Handle, bytes: u64) -> Outcome<u64> {
        let device = self.pools.get(pool)?.device;
        let mut base = self.memory.devices[device].alloc(bytes);
        if base.is_none() {
            self.pools_make_room();
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

    /// Returns a block to its pool, which `op` frees on stream `stream` (an ID; 0 for none).
    pub fn pool_free(
        &mut self,
        pool: Handle,
        place: (u64, u64),
        requested_bytes: u64,
        stream: u64,
        op: OpRef,
    ) {
        let (base, bytes) = place;
        let birth = self.pool_births.remove(&base);
        if let Some(state) = self.pools.find_mut(pool) {
            if stream != 0 {
                state.used_bytes -= requested_bytes;
            }
            state.free.push(FreeBlock { base, bytes, stream, op, birth, seen: false });
        }
    }

    /// Reports a race if a stream-ordered free runs before the request that gave the block to its
    /// owner: nothing orders their two streams.
    pub fn judge_birth(&mut self, free: &OpRef) {
        let mut freed = self.pools.values_mut().flat_map(|pool| &pool.free);
        let this = |block: &&FreeBlock| block.stream != 0 && Arc::ptr_eq(&block.op, free);
        let Some(block) = freed.find(this) else { return };
        if let Some(birth) = block.birth.as_ref().filter(|birth| !birth.done()) {
            let (start, end) = (block.base, block.base + block.bytes);
            self.report.race(&Race { first: birth.source, second: free.source, start, end });
        }
    }

    /// Releases wholly free memory above `keep`, or above each pool's threshold.
    pub fn trim_pools(&mut self, keep: Option<u64>) {
        for pool in self.pools.values_mut() {
            for block in pool.moved.extract_if(.., |block| block.op.done()) {
                self.shadow.clear(block.base, block.base + block.bytes);
                self.memory.devices[pool.device].free_addresses(block.base, block.bytes);
            }
            for block in pool.free.iter_mut().filter(|_| keep.is_none()) {
                block.seen |= block.op.done();
            }
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

    /// Makes room after a request found the device without memory.
    pub fn pools_make_room(&mut self) {
        for pool in self.pools.values_mut() {
            for block in pool.free.extract_if(.., |block| block.is_assumed_over()) {
                pool.reserved_bytes -= block.bytes;
                if block.op.done() {
                    self.shadow.clear(block.base, block.base + block.bytes);
                    self.memory.devices[pool.device].free(block.base, block.bytes);
                } else {
                    self.memory.devices[pool.device].give_pages(block.bytes);
                    pool.moved.push(block);
                }
            }
        }
    }

    /// Completes a stream-ordered free. Measured: the memory returns to the device when a thread
    /// synchronises with that stream or the context. A query of the stream or an event is not
    /// enough, and neither is a request that finds no memory.
    pub fn release_in_order(&mut self, id: u64, stream: u64) {
        let Some((base, bytes)) = self.memory.dying_range(id) else { return };
        match self.memory.end_dying(id) {
            Some(allocation) if is_given_back(allocation.kind) => {
                self.shadow.clear(base, base + bytes.max(1));
                self.freed_in_order.push((stream, allocation));
            }
            _ => {}
        }
    }

    /// Releases completed frees after a synchronisation with a stream (an ID), or for `None` with
    /// all streams of a context (also an ID).
    pub fn collect(&mut self, stream: Option<u64>, context: Option<u64>) {
        let is_due = |(freed_on, allocation): &mut (u64, Allocation)| {
            stream == Some(*freed_on) || context == Some(allocation.ctx)
        };
        for (_, allocation) in self.freed_in_order.extract_if(.., is_due) {
            self.memory.give_back(&allocation);
        }
    }

    /// Completes a free that waited.
    pub fn release(&mut self, id: u64) {
        let Some(allocation) = self.memory.end_dying(id) else { return };
        if matches!(allocation.kind, Kind::Pool { .. }) {
            return;
        }
        self.shadow.clear(allocation.base, allocation.base + allocation.bytes.max(1));
        self.memory.give_back(&allocation);
    }
}

/// Whether memory of this kind goes back where it came from once its free in the order of a stream
/// is complete.
fn is_given_back(kind: Kind) -> bool {
    matches!(kind, Kind::Device | Kind::Managed | Kind::Foreign { .. })
}

const POOL_UNIT: u64 = 512;
const CHUNK_BYTES: u64 = 32 << 20;
/// Index of this policy in the reuse policies.
const INTERNAL_DEPENDENCIES: usize = 2;
