//! Physical memory backing the addresses of arenas (`expandable_segments`): what the core's
//! Note [Arenas] requires of the driver. Each pool of a context has one range of addresses,
//! reserved when the first request misses. Memory is mapped and unmapped in mappings, each of one
//! physical allocation.
//!
//! Unmapping does not wait for work that still uses the memory (measured), so the library waits for
//! the newest barrier, which is ordered after all frees of unmapped blocks. Without the library,
//! the program would have waited for the same work in those frees.

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Address, Allocator, Mapping, Pool};
use cachealloc_history::StackId;

use crate::driver::sys::*;
use crate::driver::{api, table};
use crate::driver_memory::limits;
use crate::functions::id;
use crate::lock::lock;
use crate::ordering::pending;
use crate::state::arenas::{Mapped, Physical};
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::inflight_releases::InFlightRelease;
use crate::state::under_way::Waiter;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::statistics::waits;
use crate::statistics::waits::Wait;
use crate::{config, log, pagemap};

/// Size of the large pool's range, in multiples of the device memory: holes between blocks take
/// addresses too.
const LARGE_ARENA_FACTOR: u64 = 2;

/// Reserves the addresses, once for each context. The caller must hold `Context::growth_lock`, and
/// call this before the context's first miss is polled.
pub(crate) fn prepare(context: &'static Context) {
    if !config::get().policy.expandable_segments {
        return;
    }
    let mut state = lock(&context.arenas.0);
    if core::mem::replace(&mut state.asked, true) {
        return;
    }
    if let Err(reason) = reserve(context, &mut state) {
        log::warn(format_args!("expandable_segments: {reason}; using ordinary segments"));
    }
}

/// Maps either all mappings or none. The core handles `OUT_OF_MEMORY`.
pub(crate) fn map(context: &Context, mappings: &[Mapping]) -> CuResult {
    let mut state = lock(&context.arenas.0);
    let code = api::relaxed(|| context.enter(|| state.map_all(context.device, mappings)));
    if code.is_ok() {
        counters::count(Count::SegmentsReserved);
    }
    code
}

/// Number of `bytes` that must come from the driver: memory that was unmapped for the request
/// serves it first.
pub(crate) fn missing_bytes(context: &Context, bytes: u64) -> u64 {
    let spare: u64 = lock(&context.arenas.0).spare.iter().map(|spare| spare.bytes).sum();
    bytes.saturating_sub(spare)
}

/// Unmaps these addresses, which have left the allocator, for the request in progress. The request
/// maps the memory elsewhere and then calls `drop_spare`. Call this once `Frees::wait` has
/// returned.
pub(crate) fn unmap(context: &Context, mappings: &[Mapping], in_flight: InFlightRelease) {
    let mut state = lock(&context.arenas.0);
    state.unmap(mappings, true);
    state.spare_departures.push(in_flight);
}

/// The frees of a context so far. The newest barrier is ordered after all of them.
pub(crate) struct Frees {
    barrier: Option<EventRef>,
    /// Whether the context has mapped any memory that could be unmapped.
    any_mapped: bool,
}

impl Frees {
    pub(crate) fn so_far(context: &Context) -> Frees {
        Frees { barrier: context.last_barrier.newest(), any_mapped: any_mapped(context) }
    }

    /// Returns whether `wait` would not wait.
    pub(crate) fn are_over(&self) -> bool {
        let is_over = |event: &EventRef| api::relaxed(|| event.query()) != Err(CuError::NOT_READY);
        !self.any_mapped || self.barrier.as_ref().is_none_or(is_over)
    }

    /// Returns whether these are still all frees of memory that could be unmapped.
    pub(crate) fn are_all(&self, context: &Context) -> bool {
        let newest = context.last_barrier.newest();
        !self.any_mapped
            || newest.map(|event| event.id()) == self.barrier.as_ref().map(EventRef::id)
    }

    /// Waits for the frees of memory to unmap, which must have left the allocator already. Returns
    /// an error if work failed meanwhile; then the memory stays mapped and is never used again.
    pub(crate) fn wait(self) -> CuResult {
        wait_for(self.barrier)
    }
}

fn wait_for(barrier: Option<EventRef>) -> CuResult {
    match barrier.filter(|_| rule_holds(Rule::UnmapAfterBarrier)) {
        Some(event) => waits::timed(Wait::Release, || api::relaxed(|| event.synchronize())),
        None => Ok(()),
    }
}

pub(crate) fn bytes_of(mappings: &[Mapping]) -> u64 {
    mappings.iter().map(|mapping| mapping.bytes).sum()
}

/// Unmaps the mappings that `taken` removes from the allocator, and returns their bytes. The
/// barriers of their frees must be complete.
pub(crate) fn unmap_taken(
    context: &Context,
    caller: StackId,
    taken: impl FnOnce(&mut Allocator) -> Vec<Mapping>,
) -> u64 {
    // Lock before the core chooses, so that no thread maps there until it is unmapped.
    let mut state = lock(&context.arenas.0);
    let (mappings, _departure) = {
        let mut allocator = lock(&context.allocator);
        let mappings = taken(&mut allocator);
        context.recorder.unmapped(&mut allocator, &mappings, caller);
        let bytes = bytes_of(&mappings);
        let in_flight = (bytes > 0).then(|| InFlightRelease::to(context.device, bytes));
        (mappings, in_flight)
    };
    state.unmap(&mappings, false);
    bytes_of(&mappings)
}

/// Releases the spare memory, once the request has what it needs or has failed.
pub(crate) fn drop_spare(context: &Context) {
    let mut state = lock(&context.arenas.0);
    let spare = core::mem::take(&mut state.spare);
    let _departures = core::mem::take(&mut state.spare_departures);
    drop(state);
    for physical in spare {
        release(physical);
    }
}

/// Returns whether the context has memory in arenas.
pub(crate) fn any_mapped(context: &Context) -> bool {
    !lock(&context.arenas.0).handles.is_empty()
}

/// Unmaps the blocks of the context that are free now, and returns their bytes, unless the caller
/// may not wait for the work before their frees. Does not wait for later frees, and holds no lock
/// that other requests need while it waits. A block that coalesces meanwhile may stay.
pub(crate) fn unmap_free(
    context: &'static Context,
    caller: StackId,
    waiter: Waiter,
) -> (CuResult, u64) {
    let mark = lock(&context.allocator).idle_mark();
    let locked = (!rule_holds(Rule::UnmapWaitsUnlocked)).then(|| lock(&context.arenas.0));
    let barrier = context.last_barrier.newest();
    if !pending::may_wait_for(barrier.as_ref(), waiter) {
        return (Ok(()), 0);
    }
    let code = wait_for(barrier);
    drop(locked);
    if code.is_err() {
        return (code, 0);
    }
    (Ok(()), unmap_taken(context, caller, |allocator| allocator.unmap_idle(mark)))
}

/// Releases the mappings of a destroyed context: the driver does not do so itself (measured).
pub(crate) fn context_ended(context: &Context) {
    let state = core::mem::take(&mut *lock(&context.arenas.0));
    for (&base, physical) in &state.handles {
        unmap_range(&[Mapping { base: Address(base), bytes: physical.bytes }]);
    }
    state.handles.values().chain(&state.spare).copied().for_each(release);
    for (base, bytes) in &state.ranges {
        let _ = api::mem_address_free(*base, *bytes as usize);
    }
}

/// Gives work on this device access to the context's memory from now on. The driver's own
/// allocations follow `cuCtxEnablePeerAccess` by themselves. Access is never removed: no program
/// relies on a fault.
pub(crate) fn admit_peer(context: &Context, peer_device: i32) {
    let mut state = lock(&context.arenas.0);
    if peer_device == context.device || state.peers.contains(&peer_device) {
        return;
    }
    state.peers.push(peer_device);
    let accesses = [access(peer_device)];
    let handles = state.handles.iter();
    let codes = handles.map(|(base, physical)| set_access(*base, physical.bytes, &accesses));
    if let Some(Err(error)) = codes.max() {
        log::warn(format_args!(
            "expandable_segments: cannot give device {peer_device} access ({error})"
        ));
    }
}

impl Mapped {
    /// Unmaps memory that no work uses any more.
    fn unmap(&mut self, mappings: &[Mapping], keep: bool) {
        counters::add(Count::SegmentsReleased, mappings.len() as u64);
        for range in mappings.chunk_by(|left, right| left.end() == right.base) {
            let gone = counters::timed_release(|| unmap_range(range));
            for mapping in range {
                let Some(physical) = self.handles.remove(&mapping.base.0) else { continue };
                match keep && gone {
                    true => self.spare.push(physical),
                    false => release(physical),
                }
            }
        }
    }

    fn map_all(&mut self, device: i32, mappings: &[Mapping]) -> CuResult {
        for (place, mapping) in mappings.iter().enumerate() {
            let code = self.map_one(device, mapping);
            if code.is_err() {
                self.take_back(&mappings[..place]);
                return code;
            }
        }
        let accesses: Vec<_> = core::iter::once(device)
            .chain(self.peers.iter().copied().filter(|peer| *peer != device))
            .map(access)
            .collect();
        for range in mappings.chunk_by(|left, right| left.end() == right.base) {
            let bytes = range.iter().map(|mapping| mapping.bytes).sum();
            let code = set_access(range[0].base.0, bytes, &accesses);
            if code.is_err() {
                self.take_back(mappings);
                return code;
            }
        }
        Ok(())
    }

    fn map_one(&mut self, device: i32, mapping: &Mapping) -> CuResult {
        let bytes = mapping.bytes;
        let physical = match self.spare.iter().position(|spare| spare.bytes == bytes) {
            Some(place) => self.spare.swap_remove(place),
            None => self.create(device, bytes)?,
        };
        let code = api::mem_map(mapping.base.0, bytes as usize, 0, physical.handle, 0);
        if code.is_ok() {
            self.handles.insert(mapping.base.0, physical);
        } else {
            release(physical);
        }
        code
    }

    /// Creates physical memory. If the driver has none, releases spare memory of other sizes first.
    fn create(&mut self, device: i32, bytes: u64) -> CuResult<Physical> {
        let mut created = create(device, bytes);
        while created == Err(CuError::OUT_OF_MEMORY)
            && let Some(spare) = self.spare.pop()
        {
            release(spare);
            created = create(device, bytes);
        }
        created
    }

    fn take_back(&mut self, mappings: &[Mapping]) {
        for mapping in mappings {
            unmap_range(&[*mapping]);
            if let Some(physical) = self.handles.remove(&mapping.base.0) {
                release(physical);
            }
        }
    }
}

fn reserve(context: &'static Context, state: &mut Mapped) -> Result<(), &'static str> {
    const NEEDED: [usize; 7] = [
        id::cuMemAddressReserve,
        id::cuMemAddressFree,
        id::cuMemCreate,
        id::cuMemRelease,
        id::cuMemMap,
        id::cuMemUnmap,
        id::cuMemSetAccess,
    ];
    if !NEEDED.iter().all(|function| table::has(*function)) || !has(context.device, DEVICE_VMM) {
        return Err("the driver has no virtual memory management");
    }
    if context.device_bytes == u64::MAX {
        return Err("the driver does not report the memory of the device");
    }
    let device_bytes = context.device_bytes.next_multiple_of(pagemap::PAGE_BYTES);
    for (pool, bytes) in
        [(Pool::Small, device_bytes), (Pool::Large, LARGE_ARENA_FACTOR * device_bytes)]
    {
        let alignment = pagemap::PAGE_BYTES as usize;
        let base = api::mem_address_reserve(bytes as usize, alignment, 0, 0)
            .map_err(|_| "the driver has no address space left")?;
        if !pagemap::fits(base, bytes) || !pagemap::insert(context, base, bytes) {
            let _ = api::mem_address_free(base, bytes as usize);
            return Err("not enough address space for the library's tables");
        }
        if let Some(extent) = pagemap::extent_of(base) {
            extent.note_expandable();
        }
        state.ranges.push((base, bytes));
        lock(&context.allocator).add_arena(pool, Address(base), bytes);
    }
    Ok(())
}

/// Unmaps a range, with one retry if the driver refuses. Returns `false` if both attempts failed;
/// what stays mapped is lost.
fn unmap_range(range: &[Mapping]) -> bool {
    let bytes: u64 = range.iter().map(|mapping| mapping.bytes).sum();
    let base = range[0].base.0;
    (0..2).any(|_| api::mem_unmap(base, bytes as usize).is_ok())
}

/// Creates physical memory within the limit.
fn create(device: i32, bytes: u64) -> CuResult<Physical> {
    let claim = limits::claim(device, bytes).ok_or(CuError::OUT_OF_MEMORY)?;
    let handle = api::mem_create(bytes as usize, &properties(device), 0)?;
    claim.keep();
    Ok(Physical { device, handle, bytes })
}

/// Releases physical memory, with one retry. Memory that is lost continues to count.
fn release(physical: Physical) {
    if (0..2).any(|_| api::mem_release(physical.handle).is_ok()) {
        limits::give_back(physical.device, physical.bytes);
    }
}

fn set_access(base: u64, bytes: u64, accesses: &[AccessDescription]) -> CuResult {
    api::mem_set_access(base, bytes as usize, accesses)
}

fn access(device: i32) -> AccessDescription {
    AccessDescription { location: Location::on(device), flags: ACCESS_READ_WRITE }
}

fn properties(device: i32) -> AllocationProperties {
    let rdma = has(device, DEVICE_RDMA_WITH_VMM);
    AllocationProperties {
        kind: ALLOCATION_PINNED,
        handle_types: 0,
        location: Location::on(device),
        metadata: 0,
        compression: 0,
        rdma_capable: u8::from(rdma),
        usage: 0,
        reserved: [0; 4],
    }
}

fn has(device: i32, attribute: u32) -> bool {
    api::device_get_attribute(attribute, device).is_ok_and(|value| value != 0)
}
