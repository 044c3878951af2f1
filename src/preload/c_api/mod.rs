//! The functions that programs call by our name.

pub(crate) mod api;
pub(crate) mod memory_api;
mod nvtx;
pub(crate) mod ranges;
pub(crate) mod statistics;
