//! Communication libraries: the memory by which they reach other processes is no observer, as long
//! as they made it for themselves (docs/ordering.md 3).
//!
//! Note [Contained access]. NCCL exports, imports and maps its own buffers, on the device and on
//! the host. Only its own kernels know their addresses. Whatever another process does in this one's
//! buffers happens between the begin and the end of such a kernel here: both sides wait for each
//! other's flags. So
//! * what orders that kernel orders the other process as well: the library's barriers do, as long
//!   as nothing else reaches the memory;
//! * the program's own kernels reach nothing more than before;
//! * the end of such a kernel means more than the end of this process's work: it has met the
//!   others. On the plain driver, the return of a free implies that. So each such kernel counts as
//!   visible to the host, and the next free waits for it.
//!
//! The note does not hold for memory that the program, or its kernels, may know: memory that was
//! registered (the library has it by its address: `retained`), and symmetric memory (`reserved`),
//! which other processes read and write whenever their kernels do. These are observers.

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::CuResult;
use crate::gate;
use crate::gate::Condition;
use crate::handle_table::HandleTable;
use crate::ordering::observers;
use crate::record::caller;

/// Libraries that follow the note, by the beginning of their file names. NVSHMEM, UCX and MPI do
/// not.
const LIBRARIES: [&str; 1] = ["libnccl.so"];

/// Least size of symmetric memory: such a library reserves addresses for it in units of this, and
/// never this many for its own buffers.
const SYMMETRIC_BYTES_MIN: usize = 4 << 30;

/// Handles of memory and of multicast objects that a library made, and that nothing has by address.
static OWN: HandleTable<()> = HandleTable::new();

/// Returns whether a kernel may be a library's.
#[inline]
pub(crate) fn any() -> bool {
    gate::has(Condition::Communicates)
}

/// Returns whether a library makes the present call.
fn calls() -> bool {
    caller::library().is_some_and(|file| is_one(&file))
}

/// Returns whether a library may make the present call: through a tool's wrapper, or code that was
/// generated at run time. Only a library's memory may be exempt; more may count as visible.
pub(crate) fn may_call() -> bool {
    caller::may_be(is_one)
}

fn is_one(file: &str) -> bool {
    LIBRARIES.iter().any(|library| file.starts_with(library))
}

/// Returns whether the memory that the present call makes, or passes on, is private to a library.
pub(crate) fn is_for_itself() -> bool {
    let own = calls() || !rule_holds(Rule::OnlyLibrariesAreExempt);
    if own {
        gate::set(Condition::Communicates);
    }
    own
}

/// Notes an object that a library has made.
pub(crate) fn made(handle: u64) {
    OWN.enter(handle as usize, ());
}

/// Notes that the memory of this handle was requested by its address: it may be the program's.
pub(crate) fn retained(handle: u64) {
    if !OWN.is_empty() && rule_holds(Rule::RegisteredMemoryIsShared) {
        OWN.with(|pages| pages.given.remove(&(handle as usize)));
    }
}

/// Runs the driver's call that drops a reference to the object of this handle: it may be the last.
pub(crate) fn released_by(handle: u64, call: impl FnOnce() -> CuResult) -> CuResult {
    if OWN.is_empty() { call() } else { OWN.end_by(handle as usize, call) }
}

/// Returns whether a library made the object of this handle for itself.
pub(crate) fn is_own(handle: u64) -> bool {
    OWN.read(|pages| pages.given.contains_key(&(handle as usize)))
}

/// Notes that addresses were reserved.
pub(crate) fn reserved(bytes: usize) {
    if bytes >= SYMMETRIC_BYTES_MIN && rule_holds(Rule::SymmetricMemoryIsShared) && calls() {
        observers::observe(Observer::SymmetricMemory);
    }
}
