//! Memory of other processes and devices.

pub(crate) mod exported_blocks;
pub(crate) mod imports;
pub(crate) mod ipc_handle;
pub(crate) mod peers;

use crate::gate;
use crate::gate::Condition;

/// Returns whether any block of the process was ever exported.
#[inline]
pub(crate) fn any_exported() -> bool {
    gate::has(Condition::Exported)
}

/// Notes that a block is about to be exported. Returns `true` for the first one.
pub(crate) fn note_exported() -> bool {
    gate::set(Condition::Exported)
}
