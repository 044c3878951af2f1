//! The functions that programs call by our own name.

pub mod api;
pub mod memory_api;
pub mod statistics;
