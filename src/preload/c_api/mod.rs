//! The functions that programs call by our name.

pub(crate) mod api;
pub(crate) mod memory_api;
pub(crate) mod statistics;
