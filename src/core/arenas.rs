//! Expandable segments: memory is mapped and unmapped at the addresses of an arena.
//!
//! Note [Arenas]. The caller reserves a large range of addresses for a pool, an *arena*, without
//! memory. Parts of it are backed by *mappings*, each of which is mapped and unmapped as a whole.
//! Adjacent mappings are one segment, which so grows at both ends, and is cut where memory is
//! unmapped from its middle; addresses without memory, the *holes*, cost nothing. A request that
//! finds no block gets one where the fewest bytes must be mapped for it: free blocks beside a hole
//! count.
//!
//! So memory can be wasted only where it is mapped and partly in use: mappings are small, and under
//! pressure a thousandth of the request, or as small as the driver allows. The backing of any free
//! block may be removed, wherever it is, and put where it is needed (`unmap_some`). Blocks that
//! still wait for something keep theirs: the caller waits for barriers before it unmaps memory, not
//! for streams (hazard 31).

pub(crate) mod holes;
pub(crate) mod runs;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::iter;

use crate::allocator::Allocator;
use crate::arenas::holes::Window;
use crate::arenas::runs::Runs;
use crate::block::{Block, IdleSpan, SegmentRow, State};
use crate::policy::SEGMENT_ROUNDING_BYTES;
use crate::request::Request;
use crate::rules::{Rule, rule_holds};
use crate::types::{Address, BlockId, Mapping, Pool, Requester, SegmentId, Step};

/// The least that is mapped at once: the driver's page.
pub(crate) const PAGE_BYTES: u64 = SEGMENT_ROUNDING_BYTES;
/// Mapping takes the driver 30 us, whatever the size (measured), so one request is served with few.
const MAPPINGS_FOR_A_REQUEST: u64 = 32;
/// Number of mappings for a request when memory is short. A later request that takes a part of the
/// block leaves one of them partly used.
const MAPPINGS_UNDER_PRESSURE: u64 = 1024;
const MAPPING_BYTES_MAX: u64 = 64 << 20;

/// Addresses for one pool.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    pub base: Address,
    pub bytes: u64,
    pub pool: Pool,
    /// Decides the age of all its blocks together; among equals the lowest address is taken.
    pub registration: u64,
    pub runs: Runs,
}

#[derive(Clone, Default)]
pub(crate) struct Arenas {
    pub list: Vec<Arena>,
    /// The mapped ranges.
    pub mappings: BTreeMap<Address, u64>,
    /// The ranges that requests in flight have asked for: neither mapped nor a hole.
    pub arriving: Vec<Mapping>,
}

impl Arena {
    pub(crate) fn end(&self) -> Address {
        Address(self.base.0 + self.bytes)
    }
}

impl Allocator {
    /// Adds addresses to the allocator, without backing.
    pub fn add_arena(&mut self, pool: Pool, base: Address, bytes: u64) {
        assert!(base.0.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES));
        self.arenas.list.push(Arena {
            base,
            bytes,
            pool,
            registration: self.segments_reserved_count,
            runs: Runs::default(),
        });
        self.note_changed(base.0, base.0);
        self.segments_reserved_count += 1;
    }

    /// Records that the memory requested by `Step::Map` is mapped.
    pub fn mapped(&mut self, request: &mut Request) {
        let block_bytes = request.awaited_bytes.take().expect("the request asked for memory");
        let mappings = self.forget_arriving(request);
        assert!(!mappings.is_empty(), "the request asked for memory: {request:?}");
        let pool = self.policy.pool_of(block_bytes);
        for range in mappings.chunk_by(|left, right| left.end() == right.base) {
            let bytes = range.iter().map(|mapping| mapping.bytes).sum();
            self.decay.mapping_came(bytes);
            self.arenas.mappings.extend(range.iter().map(|mapping| (mapping.base, mapping.bytes)));
            self.insert_memory(range[0].base, bytes, pool, request.requester);
        }
        let whole = self.keeps_whole(request, block_bytes);
        request.arrived = self.search(request.wanted(), block_bytes, whole);
        // The free blocks that were counted on have been taken. Try again, with memory for this
        // request alone.
        if request.arrived.is_none() {
            assert!(!request.alone, "{request:?} does not fit where it was mapped");
            request.alone = true;
            request.repeat_stage();
        }
    }

    /// Removes from the allocator all memory that backs only free blocks.
    pub fn unmap_free(&mut self) -> Vec<Mapping> {
        let mut candidates = self.unmappable();
        // From the highest address down: the part to the right of a cut gets a new name each time.
        candidates.sort_by_key(|(id, _)| core::cmp::Reverse(self.blocks.at(id.0).address));
        candidates.into_iter().flat_map(|(id, _)| self.cut(id, u64::MAX)).collect()
    }

    /// Removes the backing of parts of some free blocks, until this many bytes are removed, the
    /// longest unused first.
    pub(crate) fn unmap_oldest(
        &mut self,
        wanted_bytes: u64,
        goes: impl Fn(&Block) -> Option<IdleSpan>,
    ) -> Vec<Mapping> {
        let mut going: Vec<(u64, BlockId, IdleSpan)> = self
            .unmappable()
            .into_iter()
            .filter_map(|(id, _)| goes(self.blocks.at(id.0)).map(|part| (part.freed_at, id, part)))
            .collect();
        going.sort_unstable_by_key(|(freed_at, id, _)| (*freed_at, *id));
        let mut gone_bytes = 0;
        let mut gone = Vec::new();
        for (_, id, part) in going {
            if gone_bytes >= wanted_bytes {
                break;
            }
            let mappings = self.mappings_between(part.begin, part.end).collect();
            let mappings = self.cut_out(id, mappings, wanted_bytes - gone_bytes);
            gone_bytes += mappings.iter().map(|mapping| mapping.bytes).sum::<u64>();
            gone.extend(mappings);
        }
        gone
    }

    /// Returns the bytes that `unmap_free` would remove.
    pub(crate) fn unmappable_bytes(&self) -> u64 {
        self.unmappable().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the bytes that `unmap_oldest` would remove at most.
    pub(crate) fn unmappable_bytes_of(&self, goes: impl Fn(&Block) -> Option<IdleSpan>) -> u64 {
        let candidates = self.unmappable().into_iter();
        let parts = candidates.filter_map(|(id, _)| goes(self.blocks.at(id.0)));
        parts
            .flat_map(|part| self.mappings_between(part.begin, part.end))
            .map(|mapping| mapping.bytes)
            .sum()
    }

    /// Finds the place where the least memory is missing for this request.
    pub(crate) fn map(&mut self, request: &mut Request, block_bytes: u64) -> Option<Step> {
        if self.whole_large {
            return None;
        }
        let place = self.place(block_bytes, request.alone)?;
        let bytes = place.missing_bytes();
        if self.limit_refuses(request, bytes) {
            return None;
        }
        let mappings: Vec<Mapping> =
            place.missing.iter().flat_map(|range| mappings_of(*range, self.pressure)).collect();
        request.awaited_bytes = Some(block_bytes);
        request.awaited_mappings = mappings.clone();
        self.arenas.arriving.extend(&mappings);
        self.note_arriving(&mappings);
        Some(Step::Map(mappings))
    }

    /// Unmaps memory from free blocks for a request that the driver had none for, the largest first
    /// and none that the request could use where it is. Returns nothing if all together is not
    /// enough.
    pub(crate) fn unmap_some(&mut self, request: &Request, block_bytes: u64) -> Vec<Mapping> {
        let Some(place) = self.place(block_bytes, request.alone) else { return Vec::new() };
        let missing_bytes = place.missing_bytes();
        let excess = self.excess(missing_bytes);
        let wanted_bytes = if excess > 0 { excess } else { missing_bytes };
        let mut candidates = self.unmappable();
        candidates.retain(|(id, _)| !place.used.contains(id));
        if candidates.iter().map(|(_, bytes)| bytes).sum::<u64>() < wanted_bytes {
            return Vec::new();
        }
        candidates.sort_by_key(|(_, bytes)| core::cmp::Reverse(*bytes));
        let mut taken_bytes = 0;
        let enough = candidates.into_iter().take_while(|(_, bytes)| {
            let more = taken_bytes < wanted_bytes;
            taken_bytes += bytes;
            more
        });
        let enough: Vec<_> = enough.collect();
        enough.into_iter().flat_map(|(id, _)| self.cut(id, u64::MAX)).collect()
    }

    /// Forgets the mappings that a request has asked for.
    pub(crate) fn forget_arriving(&mut self, request: &mut Request) -> Vec<Mapping> {
        let mappings = core::mem::take(&mut request.awaited_mappings);
        if mappings.is_empty() {
            return mappings;
        }
        // A large request may have a mapping for each of its pages.
        let bases: BTreeSet<Address> = mappings.iter().map(|mapping| mapping.base).collect();
        self.arenas.arriving.retain(|mapping| !bases.contains(&mapping.base));
        self.note_arriving(&mappings);
        mappings
    }

    fn note_arriving(&mut self, mappings: &[Mapping]) {
        for range in mappings.chunk_by(|left, right| left.end() == right.base) {
            self.note_changed(range[0].base.0, range[range.len() - 1].end().0);
        }
    }

    /// Finds a place for a block. With `alone`, free blocks do not count, since others may take
    /// them. The caller sets it after others just did.
    fn place(&mut self, block_bytes: u64, alone: bool) -> Option<Window> {
        self.look_at_changes();
        let pool = self.policy.pool_of(block_bytes);
        let arenas = self.arenas.list.iter().filter(|arena| arena.pool == pool);
        let places = arenas.filter_map(|arena| match alone {
            true => self.place_in(arena, block_bytes, true),
            false => self.place_by_shape(arena, block_bytes),
        });
        places.min_by_key(Window::rank)
    }

    /// Returns the free blocks that contain whole mappings, and how many bytes those are.
    pub(crate) fn unmappable(&self) -> Vec<(BlockId, u64)> {
        if self.arenas.mappings.is_empty() {
            return Vec::new();
        }
        let large_enough = |pool| {
            let index = self.index(pool, None);
            let waiting = (!rule_holds(Rule::UnmapOnlyFree)).then(|| index.on_any_stream());
            let bins = iter::once(index.everywhere()).chain(waiting.into_iter().flatten());
            bins.flat_map(|bins| bins.at_least(PAGE_BYTES)).map(|(_, id)| id)
        };
        let free = large_enough(Pool::Small).chain(large_enough(Pool::Large));
        let expandable = free.filter(|id| self.blocks.at(id.0).expandable);
        expandable
            .map(|id| (id, self.mappings_in(id).map(|mapping| mapping.bytes).sum()))
            .filter(|(_, bytes)| *bytes > 0)
            .collect()
    }

    fn mappings_in(&self, id: BlockId) -> impl Iterator<Item = Mapping> {
        let block = self.blocks.at(id.0);
        self.mappings_between(block.address, block.end())
    }

    fn mappings_between(&self, begin: Address, end: Address) -> impl Iterator<Item = Mapping> {
        let mappings = self.arenas.mappings.range(begin..);
        let mappings = mappings.map(|(base, bytes)| Mapping { base: *base, bytes: *bytes });
        mappings.take_while(move |mapping| mapping.end() <= end)
    }

    /// Removes whole mappings from a free block, from its end, until this many bytes are removed.
    /// The remainder stays free.
    pub(crate) fn cut(&mut self, id: BlockId, wanted_bytes: u64) -> Vec<Mapping> {
        let mappings = self.mappings_in(id).collect();
        self.cut_out(id, mappings, wanted_bytes)
    }

    /// Removes these mappings, which lie in the block without a gap between them.
    fn cut_out(
        &mut self,
        id: BlockId,
        mut mappings: Vec<Mapping>,
        wanted_bytes: u64,
    ) -> Vec<Mapping> {
        let mut out_bytes = 0;
        let is_last = |mapping: &Mapping| {
            out_bytes += mapping.bytes;
            out_bytes >= wanted_bytes
        };
        let stay_count = mappings.iter().rposition(is_last).unwrap_or(0);
        mappings.drain(..stay_count);
        let (Some(first), Some(last)) = (mappings.first(), mappings.last()) else {
            return mappings;
        };
        let (begin, end) = (first.base, last.end());
        self.remove_free(id);
        let block = self.blocks.at(id.0);
        let (address, block_end) = (block.address, block.end());
        let mut going = id;
        if begin > address {
            going = self.split(id, begin.0 - address.0);
            self.insert_free(id);
        }
        if end < block_end {
            let rest = self.split(going, end.0 - begin.0);
            self.insert_free(rest);
        }
        self.remove_memory(going);
        for mapping in &mappings {
            self.arenas.mappings.remove(&mapping.base);
        }
        mappings
    }

    /// Records that a hole, or a part of one, is backed now: a segment, merged with adjacent ones.
    fn insert_memory(&mut self, base: Address, bytes: u64, pool: Pool, requester: Requester) {
        let within = |arena: &&Arena| arena.base <= base && base < arena.end();
        let arena = self.arenas.list.iter().find(within).expect("it was asked for in an arena");
        let (registration, arena_base, arena_end) = (arena.registration, arena.base, arena.end());
        let row = SegmentRow::new(base, bytes, pool, registration, requester);
        let id = self.insert_row(SegmentRow { expandable: true, ..row });
        self.counts.kept.num_device_alloc += 1;
        let below = self.segment_at.range(arena_base..base).next_back().map(|(_, id)| *id);
        if let Some(left) = below.filter(|left| self.segments.at(left.0).end() == base) {
            self.join(left, self.blocks.at(id.0).segment);
        }
        let end = Address(base.0 + bytes);
        if let Some(&right) = self.segment_at.get(&end).filter(|_| end < arena_end) {
            self.join(self.blocks.at(id.0).segment, right);
        }
        self.coalesce_and_insert(id);
        self.note_changed(base.0, end.0);
    }

    /// Merges two adjacent segments.
    fn join(&mut self, left: SegmentId, right: SegmentId) {
        let (first, second) = (self.segments.at(left.0).clone(), self.segments.at(right.0).clone());
        assert!(first.end() == second.base, "{first:?} and {second:?} do not touch");
        // Every block of one of them gets another name. The number of allocated blocks decides
        // which.
        let (stays, goes) = match first.allocated_count >= second.allocated_count {
            true => (left, right),
            false => (right, left),
        };
        self.rename_from(self.segments.at(goes.0).first, stays);
        self.blocks.at_mut(first.last.0).next = Some(second.first);
        self.blocks.at_mut(second.first.0).previous = Some(first.last);
        self.segments.remove(goes.0);
        let row = self.segments.at_mut(stays.0);
        (row.base, row.bytes) = (first.base, first.bytes + second.bytes);
        (row.first, row.last) = (first.first, second.last);
        row.allocated_count = first.allocated_count + second.allocated_count;
        row.private_count = first.private_count + second.private_count;
        row.exported_count = first.exported_count + second.exported_count;
        self.segment_at.remove(&second.base);
        self.segment_at.insert(first.base, stays);
    }

    /// Removes the memory of this block, which is in no index. The memory around it becomes two
    /// segments.
    fn remove_memory(&mut self, going: BlockId) {
        let block = self.blocks.remove(going.0);
        let id = block.segment;
        self.counts.kept.reserved_bytes.decrease(block.pool, block.bytes);
        self.note_capacity();
        self.counts.kept.num_device_free += 1;
        let row = self.segments.at(id.0).clone();
        self.note_changed(block.address.0, block.end().0);
        match (block.previous, block.next) {
            (None, None) => {
                self.segments.remove(id.0);
                self.segment_at.remove(&row.base);
            }
            (Some(previous), None) => self.end_segment_with(id, previous),
            (None, Some(next)) => {
                self.begin_segment_with(id, next);
                self.segment_at.remove(&row.base);
                self.segment_at.insert(block.end(), id);
            }
            (Some(previous), Some(next)) => {
                let right = SegmentId(self.segments.insert(row));
                let counts = self.rename_from(next, right);
                self.begin_segment_with(right, next);
                self.segment_at.insert(block.end(), right);
                let row = self.segments.at_mut(right.0);
                [row.allocated_count, row.private_count, row.exported_count] = counts;
                self.end_segment_with(id, previous);
                let row = self.segments.at_mut(id.0);
                let [allocated_count, private_count, exported_count] = counts;
                row.allocated_count -= allocated_count;
                row.private_count -= private_count;
                row.exported_count -= exported_count;
            }
        }
    }

    fn end_segment_with(&mut self, id: SegmentId, last: BlockId) {
        let block = self.blocks.at_mut(last.0);
        block.next = None;
        let end = block.end();
        let row = self.segments.at_mut(id.0);
        row.last = last;
        row.bytes = end.0 - row.base.0;
    }

    fn begin_segment_with(&mut self, id: SegmentId, first: BlockId) {
        let block = self.blocks.at_mut(first.0);
        block.previous = None;
        let base = block.address;
        let row = self.segments.at_mut(id.0);
        row.bytes = row.end().0 - base.0;
        (row.first, row.base) = (first, base);
    }

    /// Assigns the block and all after it to this segment. Returns how many are allocated, how many
    /// belong to a private pool, and how many were exported.
    fn rename_from(&mut self, first: BlockId, segment: SegmentId) -> [u32; 3] {
        let mut counts = [0; 3];
        let mut next = Some(first);
        while let Some(id) = next {
            let block = self.blocks.at_mut(id.0);
            block.segment = segment;
            counts[0] += u32::from(block.state == State::Allocated);
            counts[1] += u32::from(block.private.is_some());
            counts[2] += u32::from(block.exported);
            next = block.next;
        }
        counts
    }

    /// Returns by how much this many bytes more would exceed the limit.
    pub(crate) fn excess(&self, more_bytes: u64) -> u64 {
        let limit_bytes = self.policy.limit_bytes.unwrap_or(u64::MAX);
        self.counts
            .kept
            .reserved_bytes
            .all
            .current
            .saturating_add(more_bytes)
            .saturating_sub(limit_bytes)
    }
}

/// Cuts a range into mappings: few for a large one, many when memory is short, of a page each at
/// least.
fn mappings_of(range: Mapping, pressure: bool) -> impl Iterator<Item = Mapping> {
    let count = if pressure { MAPPINGS_UNDER_PRESSURE } else { MAPPINGS_FOR_A_REQUEST };
    let share = (range.bytes / count).max(PAGE_BYTES);
    let step = (1 << share.ilog2()).min(MAPPING_BYTES_MAX);
    let end = range.end();
    (range.base.0..end.0)
        .step_by(step as usize)
        .map(move |base| Mapping { base: Address(base), bytes: step.min(end.0 - base) })
}
