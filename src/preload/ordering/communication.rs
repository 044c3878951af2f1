//! Communication libraries: the memory by which they reach other processes is no observer, as long as
//! they made it for themselves (docs/ordering.md 3).
//!
//! Note [Contained access]. NCCL exports, imports and maps buffers of its own, on the device and on the
//! host. Only its own kernels know their addresses, and whatever another process does in this one's
//! buffers happens between the begin and the end of such a kernel here: both sides wait for each
//! other's flags. So
//! * what orders that kernel orders the other process as well: our barriers do, as long as nothing else
//!   reaches the memory;
//! * the program's own kernels reach nothing more than before;
//! * that a kernel of the library is over means more than that this process's work is over: it has
//!   met the others. Natively the return of a free tells that. So each such kernel counts as visible
//!   to the host, and the next free waits for it.
//!
//! It is not so for memory that the program, or its kernels, may know: what was registered (the library
//! has it by its address: `retained`), and symmetric memory (`reserved`), which other processes read and
//! write whenever their kernels please. These are observers.

use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::CuResult;
use crate::handle_table::HandleTable;
use crate::ordering::observers;
use crate::record::caller;

/// The libraries that keep to the note, by the begin of their file names. NVSHMEM, UCX and MPI do not.
const LIBRARIES: [&str; 1] = ["libnccl.so"];

/// For symmetric memory the library reserves addresses in units of this, and for its own buffers never
/// so many.
const SYMMETRIC_BYTES_MIN: usize = 4 << 30;

/// Whether a library has made memory for itself.
static ANY: AtomicBool = AtomicBool::new(false);

/// Handles of memory and of multicast objects that a library made, and that nothing has by address.
static OWN: HandleTable<()> = HandleTable::new();

/// Whether a kernel may be a library's.
#[inline]
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// Whether a library makes the present call.
fn calls() -> bool {
    caller::library().is_some_and(|file| is_one(&file))
}

/// Whether a library may make the present call: through a tool's wrapper, or code that was made at run time. What is
/// exempt must be a library's; what counts as visible may be more.
pub(crate) fn may_call() -> bool {
    caller::may_be(is_one)
}

fn is_one(file: &str) -> bool {
    LIBRARIES.iter().any(|library| file.starts_with(library))
}

/// Whether the memory that the present call makes, or hands on, is a library's own.
pub(crate) fn is_for_itself() -> bool {
    let own = calls() || !rule_holds(Rule::OnlyLibrariesAreExempt);
    if own && !any() {
        ANY.store(true, Ordering::Release);
    }
    own
}

/// A library has made what this handle means.
pub(crate) fn made(handle: u64) {
    OWN.enter(handle as usize, ());
}

/// The memory of this handle was asked for by its address: it may be the program's.
pub(crate) fn retained(handle: u64) {
    if !OWN.is_empty() && rule_holds(Rule::RegisteredMemoryIsShared) {
        OWN.with(|pages| pages.given.remove(&(handle as usize)));
    }
}

/// Runs the driver's call that gives up a reference to what this handle means: it may be the last.
pub(crate) fn released_by(handle: u64, call: impl FnOnce() -> CuResult) -> CuResult {
    if OWN.is_empty() { call() } else { OWN.end_by(handle as usize, call) }
}

/// Whether a library made what this handle means, for itself.
pub(crate) fn is_own(handle: u64) -> bool {
    OWN.read(|pages| pages.given.contains_key(&(handle as usize)))
}

/// Addresses were reserved.
pub(crate) fn reserved(bytes: usize) {
    if bytes >= SYMMETRIC_BYTES_MIN && rule_holds(Rule::SymmetricMemoryIsShared) && calls() {
        observers::observe(Observer::SymmetricMemory);
    }
}
