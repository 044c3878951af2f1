//! Sizes and thresholds: how a request becomes block bytes, which pool serves it, how large a
//! segment is reserved for it, which blocks may be split. Pure parameters, no state.
//!
//! Note [Chunks]. With `chunk_bytes` the policy is Paddle's pre-allocation: segments are large
//! chunks, and requests of all sizes are cut from them. Two pools exist to keep small blocks, which
//! live long, out of segments that could serve large requests, or be released to the driver. A
//! chunk is all the memory there is: two pools would divide it before the shares are known. So
//! there is one pool, as in Paddle; best fit lets small requests fill the holes that small blocks
//! left. Nothing is kept whole, neither for oversize requests nor under pressure, and the remainder
//! of a split stays however small. Only the caller knows the device, and sets the size of the
//! chunks.
//!
//! The constants and rules are those of PyTorch's CUDA caching allocator
//! (`c10/cuda/CUDACachingAllocator.cpp`, `c10/core/AllocatorConfig.h`), because users know them and
//! read the library's numbers with its tools. The name of each constant there stands beside it.

pub(crate) mod split_policy;

use crate::types::Pool;

pub const MIB: u64 = 1 << 20;

/// Unit of block bytes, and the alignment of every block (`kMinBlockSize`).
pub const BLOCK_BYTES_MIN: u64 = 512;
/// Block bytes up to this come from the small pool (`kSmallSize`). Also the largest remainder
/// that is left unsplit in the large pool.
pub const SMALL_BLOCK_BYTES_MAX: u64 = MIB;
/// Segments of the small pool (`kSmallBuffer`).
pub const SMALL_SEGMENT_BYTES: u64 = 2 * MIB;
/// From here on a large request gets a segment of its own size (`kMinLargeAlloc`).
pub const OWN_SEGMENT_BYTES_MIN: u64 = 10 * MIB;
/// Segments for large requests below that (`kLargeBuffer`, today `large_segment_size`).
pub const LARGE_SEGMENT_BYTES: u64 = 20 * MIB;
/// Rounding of segments of a request's own size (`kRoundLarge`).
pub const SEGMENT_ROUNDING_BYTES: u64 = 2 * MIB;
/// Rounding to a division never adds more, unlike in PyTorch: callers keep the difference in 31
/// bits.
pub const ROUNDED_UP_BYTES_MAX: u64 = (2 << 30) - BLOCK_BYTES_MIN;
/// Nothing larger is ever asked of the driver ("Tried to allocate more than 1EB memory").
pub const REQUEST_BYTES_MAX: u64 = 1 << 60;
/// Repetitions of a request each time memory has arrived, which other threads may take each time.
pub const ROOM_TRIES_MAX: u32 = 64;
/// Intervals of `roundup_power2_divisions`: from 1 MiB, from 2 MiB, and so on; smaller sizes count
/// as the first, everything above as the last (`kRoundUpPowerOfTwoIntervals`).
pub const ROUNDUP_INTERVALS: usize = 16;
/// log2 of the first interval.
const ROUNDUP_FIRST_LOG2: u32 = 20;

const _: () = assert!(BLOCK_BYTES_MIN.is_power_of_two());
const _: () = assert!(SMALL_BLOCK_BYTES_MAX < SMALL_SEGMENT_BYTES);
const _: () = assert!(OWN_SEGMENT_BYTES_MIN < LARGE_SEGMENT_BYTES);
const _: () = assert!(SMALL_SEGMENT_BYTES.is_multiple_of(BLOCK_BYTES_MIN));

#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// Steps between two powers of two, per interval; 0 or 1 means rounding to 512 bytes.
    pub roundup_power2_divisions: [u64; ROUNDUP_INTERVALS],
    pub large_segment_bytes: u64,
    /// Blocks of at least this size are not split, and kept for requests this large. No limit if
    /// `None`.
    pub max_split_bytes: Option<u64>,
    /// How much larger than such a request a block may be and still serve it.
    pub max_non_split_rounding_bytes: u64,
    /// Share of the limit above which old free segments are released before a new one is
    /// reserved. 0: off.
    pub garbage_collection_threshold: f64,
    /// Maximum free memory, or `None` if unlimited. See Note [Excess] in free_limit.rs.
    pub free_bytes_max: Option<u64>,
    /// Maximum fraction of the releasable memory to release if the maximum is exceeded.
    pub excess_share: f64,
    /// Maximum bytes of all segments together; a reservation beyond it fails without asking the
    /// driver. Set by the caller, which knows the device.
    pub limit_bytes: Option<u64>,
    /// Large requests below `OWN_SEGMENT_BYTES_MIN` share segments. See Note [Capacity] in
    /// capacity.rs.
    pub shares_segments: bool,
    /// Whether segments grow in arenas of addresses, where there are any.
    pub expandable_segments: bool,
    /// The size of the next chunk, from which requests of all sizes are served; `None` for segments
    /// by size. Set by the caller, which knows the device. See Note [Chunks].
    pub chunk_bytes: Option<u64>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            roundup_power2_divisions: [0; ROUNDUP_INTERVALS],
            large_segment_bytes: LARGE_SEGMENT_BYTES,
            max_split_bytes: None,
            max_non_split_rounding_bytes: LARGE_SEGMENT_BYTES,
            garbage_collection_threshold: 0.0,
            free_bytes_max: None,
            excess_share: 1.0,
            limit_bytes: None,
            shares_segments: true,
            expandable_segments: false,
            chunk_bytes: None,
        }
    }
}

impl Policy {
    /// Returns the block bytes for a request, or `None` if it is beyond any device.
    pub fn block_bytes(&self, requested_bytes: u64) -> Option<u64> {
        let exact_bytes = undivided_block_bytes(requested_bytes)?;
        let divisions = self.roundup_power2_divisions[roundup_interval(requested_bytes)];
        // PyTorch's order: too small requests are never rounded to a division.
        if divisions > 1 && requested_bytes > BLOCK_BYTES_MIN.saturating_mul(divisions) {
            let rounded = round_up(round_to_division(requested_bytes, divisions), BLOCK_BYTES_MIN);
            if rounded - requested_bytes <= ROUNDED_UP_BYTES_MAX {
                return Some(rounded);
            }
        }
        Some(exact_bytes)
    }

    /// Whether any size is rounded to a division.
    pub fn rounds_to_divisions(&self) -> bool {
        self.roundup_power2_divisions.iter().any(|divisions| *divisions > 1)
    }

    /// Returns the bytes of the segment to reserve if no free block of `block_bytes` exists.
    pub fn segment_bytes(&self, block_bytes: u64) -> u64 {
        if let Some(chunk_bytes) = self.chunk_bytes {
            chunk_bytes.max(own_segment_bytes(block_bytes))
        } else if is_small(block_bytes) {
            SMALL_SEGMENT_BYTES
        } else if block_bytes < OWN_SEGMENT_BYTES_MIN {
            if self.shares_segments { self.large_segment_bytes } else { block_bytes }
        } else {
            own_segment_bytes(block_bytes)
        }
    }

    /// Returns the bytes of the segment for a private pool. It takes no chunks: it must leave
    /// memory for others.
    pub fn private_segment_bytes(&self, block_bytes: u64) -> u64 {
        match self.chunk_bytes {
            Some(_) => own_segment_bytes(block_bytes),
            None => self.segment_bytes(block_bytes),
        }
    }

    /// Returns the chunk size to try if there is no memory for a chunk of `bytes`: half of it, as
    /// long as the request fits.
    pub fn smaller_chunk(&self, bytes: u64, requested_bytes: u64) -> Option<u64> {
        self.chunk_bytes?;
        let needed_bytes = own_segment_bytes(self.block_bytes(requested_bytes)?);
        let half_bytes = round_up(bytes / 2, SEGMENT_ROUNDING_BYTES);
        (half_bytes < bytes && half_bytes >= needed_bytes).then_some(half_bytes)
    }

    /// The pool that serves blocks of this size.
    pub fn pool_of(&self, block_bytes: u64) -> Pool {
        if is_small(block_bytes) && self.chunk_bytes.is_none() { Pool::Small } else { Pool::Large }
    }

    /// Whether a free block of `found_bytes` is divided to serve `block_bytes`.
    #[inline]
    pub fn splits(&self, pool: Pool, found_bytes: u64, block_bytes: u64) -> bool {
        let remaining_bytes = found_bytes - block_bytes;
        match pool {
            Pool::Small => remaining_bytes >= BLOCK_BYTES_MIN,
            _ if self.expandable_segments => remaining_bytes >= BLOCK_BYTES_MIN,
            _ if self.chunk_bytes.is_some() => remaining_bytes >= BLOCK_BYTES_MIN,
            // Happens only if no other memory was found.
            Pool::Large if is_small(block_bytes) => remaining_bytes >= BLOCK_BYTES_MIN,
            Pool::Large => {
                !self.is_oversize(block_bytes) && remaining_bytes > SMALL_BLOCK_BYTES_MAX
            }
        }
    }

    /// Whether a free block of `found_bytes` may serve `block_bytes` at all. Oversize blocks are
    /// kept for oversize requests, and not wasted on much smaller ones.
    pub fn fits(&self, found_bytes: u64, block_bytes: u64) -> bool {
        if found_bytes < block_bytes {
            return false;
        }
        if self.is_oversize(block_bytes) {
            return !self.is_much_larger(found_bytes, block_bytes);
        }
        // At `max_split_bytes` = `large_segment_bytes` PyTorch keeps even its ordinary segments for
        // oversize requests, and a small program then reserves a new one for every request.
        !self.is_oversize(found_bytes) || found_bytes <= self.large_segment_bytes
    }

    pub fn is_oversize(&self, bytes: u64) -> bool {
        // Nothing is kept whole in an arena, where any part can be released.
        self.max_split_bytes.is_some_and(|max_split_bytes| bytes >= max_split_bytes)
            && !self.expandable_segments
            && self.chunk_bytes.is_none()
    }

    /// Whether serving `block_bytes` with all of `found_bytes` would waste more than the slack.
    pub fn is_much_larger(&self, found_bytes: u64, block_bytes: u64) -> bool {
        found_bytes >= block_bytes.saturating_add(self.max_non_split_rounding_bytes)
    }

    /// Returns the bytes by which `reserved_bytes` exceeds the garbage collection threshold.
    pub fn garbage_bytes(&self, reserved_bytes: u64) -> u64 {
        let Some(limit_bytes) = self.limit_bytes else { return 0 };
        if self.garbage_collection_threshold <= 0.0 {
            return 0;
        }
        let threshold_bytes = (self.garbage_collection_threshold * limit_bytes as f64) as u64;
        reserved_bytes.saturating_sub(threshold_bytes)
    }
}

/// Whether blocks of this size share segments with other small ones.
pub fn is_small(block_bytes: u64) -> bool {
    block_bytes <= SMALL_BLOCK_BYTES_MAX
}

/// Bytes of a segment for this block alone.
pub fn own_segment_bytes(block_bytes: u64) -> u64 {
    round_up(block_bytes, SEGMENT_ROUNDING_BYTES)
}

/// Returns `Policy::block_bytes` without rounding to a division.
#[inline]
pub fn undivided_block_bytes(requested_bytes: u64) -> Option<u64> {
    let is_possible = requested_bytes <= REQUEST_BYTES_MAX;
    is_possible.then(|| unchecked_block_bytes(requested_bytes.max(1)))
}

/// Block bytes without any generosity: the next multiple of 512.
pub fn exact_block_bytes(requested_bytes: u64) -> u64 {
    round_up(requested_bytes.max(1), BLOCK_BYTES_MIN)
}

/// Returns the exact block bytes of any number: 0 for 0, and for sizes beyond any device some
/// number that no block has.
#[inline(always)]
pub fn unchecked_block_bytes(requested_bytes: u64) -> u64 {
    requested_bytes.wrapping_add(BLOCK_BYTES_MIN - 1) & !(BLOCK_BYTES_MIN - 1)
}

fn round_up(bytes: u64, unit_bytes: u64) -> u64 {
    bytes.div_ceil(unit_bytes) * unit_bytes
}

fn roundup_interval(bytes: u64) -> usize {
    let log2 = bytes.max(1).ilog2();
    (log2.saturating_sub(ROUNDUP_FIRST_LOG2) as usize).min(ROUNDUP_INTERVALS - 1)
}

/// Returns the next of `divisions` steps between the two powers of two around `bytes`. 1200 with 4
/// divisions: steps of 256 from 1024, so 1280.
///
/// `bytes` must exceed `divisions` blocks of `BLOCK_BYTES_MIN`.
fn round_to_division(bytes: u64, divisions: u64) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1_u64 << bytes.ilog2();
    round_up(bytes, floor >> divisions.ilog2())
}
