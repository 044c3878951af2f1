//! What makes work visible to the host, and which submissions we cannot see. Both are sticky.
//!
//! Most work is invisible until the host synchronizes. Some is visible at once because of what it
//! is (a copy with pinned memory, a host function, a graph launch): the runtime counts that call in
//! the visible marks. After one of the causes here, *every* kernel may write what the host reads,
//! and every kernel is counted so.
//!
//! Once work is submitted past our hooks, the marks prove nothing any more: no barrier may be
//! skipped, and no free may rely on "nothing visible in flight".

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::rules::{Rule, rule_holds};

/// Why every kernel from now on counts as visible to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum VisibleCause {
    /// A kernel argument points into pinned or registered memory.
    PinnedArgument,
    /// Pinned memory was allocated with `DEVICEMAP`.
    DeviceMapped,
    /// `cuMemHostGetDevicePointer`.
    DevicePointer,
    /// Managed memory exists, `__managed__` variables included.
    Managed,
    /// Virtual memory with its bytes on the host exists.
    HostVirtualMemory,
    /// The device reads pageable memory (`PAGEABLE_MEMORY_ACCESS`).
    PageableAccess,
    /// `CONCURRENT_MANAGED_ACCESS` is 0.
    NoConcurrentManaged,
    /// The argument sizes of a kernel are unknown.
    UnknownArguments,
    /// A texture, a surface or a tensor map leads to pinned memory, or to unknown memory.
    BehindObject,
}

/// Why there may be submissions that none of our hooks sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum UntrackedSubmission {
    /// A driver function that is not in our list was called.
    UnknownFunction,
    /// An unknown export table was handed out.
    UnknownExportTable,
    /// A library that submits past our hooks (OptiX, NVENC, NVDEC) is loaded.
    BypassingLibrary,
}

/// Sticky: whether every kernel counts as visible.
#[derive(Debug, Default)]
pub struct Visible(AtomicU32);

impl Visible {
    /// No cause yet.
    pub const fn new() -> Visible {
        Visible(AtomicU32::new(0))
    }

    /// In a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(causes: u32) -> Visible {
        Visible(AtomicU32::new(causes))
    }

    /// Notes a cause; true if it is the first one. Call before the real call that is the cause (and
    /// before the launch, for an argument), then see `Ledger::note_visible`.
    pub fn note(&self, cause: VisibleCause) -> bool {
        note(&self.0, cause as u32)
    }

    /// Whether every kernel counts as visible to the host.
    #[inline]
    pub fn every_kernel(&self) -> bool {
        self.0.load(SeqCst) != 0 && rule_holds(Rule::VisibleIsSticky)
    }

    /// Whether this cause has occurred.
    #[inline]
    pub fn has(&self, cause: VisibleCause) -> bool {
        self.0.load(SeqCst) >> cause as u32 & 1 != 0
    }

    /// Which causes have occurred, for the report: bit n is cause number n.
    pub fn causes(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

/// Sticky: whether barriers may still be skipped.
#[derive(Debug, Default)]
pub struct Elision(AtomicU32);

impl Elision {
    /// Barriers may be skipped.
    pub const fn new() -> Elision {
        Elision(AtomicU32::new(0))
    }

    /// In a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(causes: u32) -> Elision {
        Elision(AtomicU32::new(causes))
    }

    /// Ends elision for good; true the first time. Call before the first unseen submission could
    /// happen: before the unknown function is forwarded, before the table is handed out.
    pub fn ends(&self, cause: UntrackedSubmission) -> bool {
        note(&self.0, cause as u32)
    }

    /// Whether the marks still see everything.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.0.load(SeqCst) == 0
    }

    /// Which causes have occurred, for the report: bit n is cause number n.
    pub fn causes(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

/// Sets a sticky bit; true if it is the first of all.
fn note(bits: &AtomicU32, number: u32) -> bool {
    // Called by every kernel launch with a pinned argument: no write once it is set.
    let bit = 1 << number;
    bits.load(SeqCst) & bit == 0 && bits.fetch_or(bit, SeqCst) == 0
}
