//! The causes that make work visible to the host, and the submissions that the hooks cannot see.
//! Both are sticky.
//!
//! Most work is invisible until the host synchronizes. Some is visible at once because of what it
//! is (a copy with pinned memory, a host function, a graph launch): the runtime counts that call in
//! the host-visible counters. After one of the causes here, *every* kernel may write memory that
//! the host reads, and every kernel is counted so.
//!
//! Once work is submitted past the hooks, the counters prove nothing any more: no barrier may be
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

/// The cause of submissions that no hook sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum UntrackedSubmission {
    /// The program called a driver function that is not in the library's list.
    UnknownFunction,
    /// An unknown export table was handed out.
    UnknownExportTable,
    /// A library that submits past the hooks (OptiX, NVENC, NVDEC) is loaded.
    BypassingLibrary,
}

/// Whether every kernel counts as visible. Sticky.
#[derive(Debug, Default)]
pub struct Visible(AtomicU32);

impl Visible {
    /// Returns the state without a cause.
    pub const fn new() -> Visible {
        Visible(AtomicU32::new(0))
    }

    /// Returns a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(causes: u32) -> Visible {
        Visible(AtomicU32::new(causes))
    }

    /// Records a cause. Returns `true` if it is the first one.
    ///
    /// Call it before the real call that is the cause (and before the launch, for an argument),
    /// then see `Ledger::note_visible`.
    pub fn note(&self, cause: VisibleCause) -> bool {
        note(&self.0, cause as u32)
    }

    /// Returns whether every kernel counts as visible to the host.
    #[inline]
    pub fn every_kernel(&self) -> bool {
        self.0.load(SeqCst) != 0 && rule_holds(Rule::VisibleIsSticky)
    }

    /// Returns whether this cause has occurred.
    #[inline]
    pub fn has(&self, cause: VisibleCause) -> bool {
        self.0.load(SeqCst) >> cause as u32 & 1 != 0
    }

    /// Returns the causes that have occurred, for the report: bit n is cause number n.
    pub fn causes(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

/// Whether barriers may still be skipped. Sticky.
#[derive(Debug, Default)]
pub struct Elision(AtomicU32);

impl Elision {
    /// Returns the state in which barriers may be skipped.
    pub const fn new() -> Elision {
        Elision(AtomicU32::new(0))
    }

    /// Returns a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(causes: u32) -> Elision {
        Elision(AtomicU32::new(causes))
    }

    /// Ends elision permanently. Returns `true` the first time.
    ///
    /// Call it before the first unseen submission could happen: before the unknown function is
    /// forwarded, before the table is handed out.
    pub fn ends(&self, cause: UntrackedSubmission) -> bool {
        note(&self.0, cause as u32)
    }

    /// Returns whether the counters still see everything.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.0.load(SeqCst) == 0
    }

    /// Returns the causes that have occurred, for the report: bit n is cause number n.
    pub fn causes(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

/// Sets a sticky bit. Returns `true` if no bit was set before.
fn note(bits: &AtomicU32, number: u32) -> bool {
    // Called by every kernel launch with a pinned argument: no write once it is set.
    let bit = 1 << number;
    bits.load(SeqCst) & bit == 0 && bits.fetch_or(bit, SeqCst) == 0
}
