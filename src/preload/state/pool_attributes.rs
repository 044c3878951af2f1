//! Attributes that the default pool of a device reports about the memory served from the cache in
//! its place: used, reserved, and the peak of both. Programs size their pools by them (hazard 45).
//!
//! They imitate what was measured. Used memory is what was requested, and a free that is not in
//! stream order leaves it unchanged. Reserved memory grows in chunks, and what exceeds the release
//! threshold is released by the next synchronization. No call reports that to the library, so each
//! value is as of such a moment.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use cachealloc_core::order::Lane;

use crate::heap;
use crate::state::thread::Thread;

const CHUNK_BYTES: u64 = 32 << 20;
const SHARDS: usize = 32;
/// Most bytes that the threads of one shard may count as used without using them.
const SPARE_BYTES_MAX: u64 = 2 << 20;

/// Counts of one context. One thread counts in a separate lane, like the submission counters of the
/// core. The others leave what they free counted, as spare, for their next request: an allocation
/// and its free then write nothing that another CPU core must see.
///
/// All zeros at the beginning. Lies on separate pages, which `context_ended` returns.
#[repr(align(4096))]
pub(crate) struct PoolAttributes {
    spare: [Spare; SHARDS],
    own_bytes: AtomicI64,
    /// Includes spare bytes.
    shared_bytes: AtomicI64,
    used_bytes_peak: AtomicU64,
    /// Part of the used bytes that was freed in no stream order.
    plainly_freed_bytes: AtomicU64,
    reserved_bytes: AtomicU64,
    reserved_bytes_peak: AtomicU64,
}

/// A cache line, and the adjacent line that the CPU fetches with it.
#[derive(Default)]
#[repr(align(128))]
struct Spare(AtomicU64);

/// Attributes of a pool (`CUmemPool_attribute`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Number {
    Reserved,
    ReservedPeak,
    Used,
    UsedPeak,
}

impl Number {
    pub(crate) fn of(attribute: u32) -> Option<Number> {
        match attribute {
            5 => Some(Number::Reserved),
            6 => Some(Number::ReservedPeak),
            7 => Some(Number::Used),
            8 => Some(Number::UsedPeak),
            _ => None,
        }
    }
}

impl PoolAttributes {
    /// Returns the pages: the context has ended, and its counts are not read any more.
    pub(crate) fn context_ended(&self) {
        // SAFETY: on pages that hold nothing else; zeros are valid for all of it.
        unsafe { heap::return_pages(self) };
    }

    /// Counts a request that was served.
    #[inline]
    pub(crate) fn served(&self, thread: &Thread, bytes: u64) {
        match thread.lane() {
            Lane::Own => self.own_bytes.store(self.own_bytes.load(Relaxed) + bytes as i64, Relaxed),
            Lane::Shared if self.spare(thread).take(bytes) => {}
            Lane::Shared => _ = self.shared_bytes.fetch_add(bytes as i64, Relaxed),
        }
        let counted = self.counted();
        let live = counted.saturating_sub(self.plainly_freed_bytes.load(Relaxed));
        if counted > self.used_bytes_peak.load(Relaxed) || live > self.reserved_bytes.load(Relaxed)
        {
            self.grow();
        }
    }

    /// Counts a free by `cuMemFreeAsync`.
    #[inline]
    pub(crate) fn freed_in_order(&self, thread: &Thread, bytes: u64) {
        match thread.lane() {
            Lane::Own => self.own_bytes.store(self.own_bytes.load(Relaxed) - bytes as i64, Relaxed),
            Lane::Shared if self.spare(thread).put(bytes) => {}
            Lane::Shared => _ = self.shared_bytes.fetch_sub(bytes as i64, Relaxed),
        }
    }

    /// Counts a free by `cuMemFree`.
    pub(crate) fn freed_plainly(&self, bytes: u64) {
        self.plainly_freed_bytes.fetch_add(bytes, Relaxed);
    }

    /// Makes a peak the current value. `threshold_bytes` is how much free memory the pool keeps.
    pub(crate) fn forget_peak(&self, number: Number, threshold_bytes: u64) {
        let (peak, now) = match number {
            Number::UsedPeak => (&self.used_bytes_peak, Number::Used),
            _ => (&self.reserved_bytes_peak, Number::Reserved),
        };
        peak.store(self.value(now, threshold_bytes), Relaxed);
    }

    /// Reduces reserved memory to `bytes`, or to what is in use if that is more.
    pub(crate) fn keep_at_most(&self, bytes: u64) {
        let in_use = self.used().saturating_sub(self.plainly_freed_bytes.load(Relaxed));
        let kept = self.reserved_bytes.load(Relaxed).min(bytes);
        self.reserved_bytes.store(kept.max(chunks(in_use)), Relaxed);
    }

    /// Returns the current value. `threshold_bytes` is how much free memory the pool keeps.
    pub(crate) fn value(&self, number: Number, threshold_bytes: u64) -> u64 {
        match number {
            Number::Reserved => {
                self.keep_at_most(threshold_bytes);
                self.reserved_bytes.load(Relaxed)
            }
            Number::ReservedPeak => self.reserved_bytes_peak.load(Relaxed),
            Number::Used => self.used(),
            Number::UsedPeak => self.used_bytes_peak.load(Relaxed),
        }
    }

    fn used(&self) -> u64 {
        let spare: u64 = self.spare.iter().map(|spare| spare.0.load(Relaxed)).sum();
        self.counted().saturating_sub(spare)
    }

    /// Bytes that are used or spare.
    #[inline]
    fn counted(&self) -> u64 {
        (self.own_bytes.load(Relaxed) + self.shared_bytes.load(Relaxed)).max(0) as u64
    }

    #[inline]
    fn spare(&self, thread: &Thread) -> &Spare {
        &self.spare[thread.number() % SHARDS]
    }

    /// Raises the peaks, unless the apparent excess is spare.
    #[cold]
    fn grow(&self) {
        let used = self.used();
        self.used_bytes_peak.fetch_max(used, Relaxed);
        let live = used.saturating_sub(self.plainly_freed_bytes.load(Relaxed));
        let reserved = chunks(live);
        self.reserved_bytes.fetch_max(reserved, Relaxed);
        self.reserved_bytes_peak.fetch_max(reserved, Relaxed);
    }
}

impl Spare {
    #[inline]
    fn take(&self, bytes: u64) -> bool {
        self.change(|spare| spare.checked_sub(bytes))
    }

    #[inline]
    fn put(&self, bytes: u64) -> bool {
        self.change(|spare| Some(spare + bytes).filter(|spare| *spare <= SPARE_BYTES_MAX))
    }

    #[inline]
    fn change(&self, to: impl Fn(u64) -> Option<u64>) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, to).is_ok()
    }
}

fn chunks(bytes: u64) -> u64 {
    bytes.div_ceil(CHUNK_BYTES).saturating_mul(CHUNK_BYTES)
}
