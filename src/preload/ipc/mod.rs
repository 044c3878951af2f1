//! Memory of other processes and devices.

pub(crate) mod exported_blocks;
pub(crate) mod imports;
pub(crate) mod ipc_handle;
pub(crate) mod peers;

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether any block of the process was ever exported.
static ANY_EXPORTED: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn any_exported() -> bool {
    ANY_EXPORTED.load(Ordering::Relaxed)
}

/// Notes that a block is about to be exported. Returns `true` for the first one.
pub(crate) fn note_exported() -> bool {
    !ANY_EXPORTED.swap(true, Ordering::SeqCst)
}
