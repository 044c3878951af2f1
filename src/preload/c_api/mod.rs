//! The functions of the library that programs call by name.

pub(crate) mod api;
pub(crate) mod memory_api;
mod nvtx;
pub(crate) mod ranges;
pub(crate) mod statistics;
